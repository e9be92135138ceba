//! What a client is told when nothing is run: a code, what is wrong with which value, and the remedy.

use super::{door::Door, queue::Full};
use crate::{
    monitor::link::{ConnectionRefusal, LaunchRefusal, LimitField},
    profile::Profile,
};
use cordon_protocol::{
    Bytes, Millis, Refusal, RefusalCode, Request, codec::FrameError, limits, units::counted,
};

/// Longest piece of a client's text in a message, characters.
const QUOTED_MAX: usize = 80;

/// A refusal of this code.
pub(super) fn refuse(code: RefusalCode, message: impl Into<String>, hint: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into(), hint: Some(hint.into()) }
}

/// A client's text for a message: one line, shortened, in quotes.
pub(super) fn quoted(text: &str) -> String {
    format!("`{}`", shortened(text, QUOTED_MAX))
}

/// Text on one line of at most `room` characters, control characters escaped.
pub(super) fn shortened(text: &str, room: usize) -> String {
    // Escaping makes characters longer, so only so many can be needed.
    let visible = text.chars().take(room + 1).flat_map(|c| {
        let escaped = c.is_control().then(|| c.escape_default());
        escaped.into_iter().flatten().chain((!c.is_control()).then_some(c))
    });
    let mut shown: String = visible.collect();
    if let Some((end, _)) = shown.char_indices().nth(room) {
        shown.truncate(end);
        shown.push('…');
    }
    shown
}

/// The name of a frame.
fn frame_name(frame: &Request) -> &'static str {
    match frame {
        Request::Hello(_) => "Hello",
        Request::Run(_) => "Run",
        Request::Stdin(_) => "Stdin",
        Request::StdinEnd => "StdinEnd",
        Request::Ps => "Ps",
        Request::Kill { .. } => "Kill",
        Request::Profiles => "Profiles",
        Request::Doctor => "Doctor",
        Request::Workspaces => "Workspaces",
        Request::DeleteWorkspace { .. } => "DeleteWorkspace",
    }
}

/// A frame that is none.
pub(super) fn bad_frame(error: &FrameError) -> Refusal {
    let hint = match error {
        FrameError::TooLarge { .. } => format!(
            "a request takes {}, a piece of standard input {}; send large input as standard input, in pieces",
            Bytes(limits::REQUEST_FRAME_MAX as u64),
            Bytes(limits::CHUNK_MAX as u64)
        ),
        FrameError::Truncated => "send as many bytes as the frame's length says".to_owned(),
        FrameError::Malformed(_) | FrameError::Io(_) => {
            "a frame is a length and bincode, its text UTF-8, as docs/protocol.md says".to_owned()
        }
    };
    refuse(RefusalCode::BadFrame, error.to_string(), hint)
}

/// A hello of another version.
pub(super) fn bad_version(found: u32) -> Refusal {
    let ours = limits::PROTOCOL_VERSION;
    let message = format!("version: the client speaks version {found}, this executor version {ours}");
    refuse(RefusalCode::BadVersion, message, "use client and executor of the same release")
}

/// A frame where another was due.
pub(super) fn out_of_order(frame: &Request, expected: &str) -> Refusal {
    let message = format!("frame {} is out of order: expected {expected}", frame_name(frame));
    let hint =
        "a connection carries Hello, one request and, after a Run with stdin, Stdin frames and one StdinEnd";
    refuse(RefusalCode::OutOfOrder, message, hint)
}

/// The report found no room. Not `busy`: what is tried again runs again.
pub(super) fn report_lost() -> Refusal {
    let message = "the command has run, and its report is lost: this user's other clients do not take theirs, so that \
                   there is no room for it";
    let hint = "take reports as they come; ask for less captured output, or stream it";
    refuse(RefusalCode::Timeout, message, hint)
}

/// Nothing came.
pub(super) fn timed_out(expected: &str) -> Refusal {
    let message =
        format!("timeout: no {expected} within {} s of connecting", limits::HELLO_TIMEOUT.as_secs());
    refuse(RefusalCode::Timeout, message, "connect when there is something to ask, and send it at once")
}

/// No more may wait.
pub(super) fn queue_full(profile: &Profile, full: Full) -> Refusal {
    let message = format!(
        "profile `{}`: with {} already and {} in the queue there are all that may be",
        profile.name,
        running(full),
        full.waiting
    );
    let hint =
        format!("try again, or raise {} or profiles.{}.queue", more_places(profile, full), profile.name);
    refuse(RefusalCode::Busy, message, hint)
}

/// No place came free in time.
pub(super) fn waited_too_long(profile: &Profile, full: Full) -> Refusal {
    let message = format!(
        "profile `{}`: no place came free within {}, for which this command has waited, behind {}",
        profile.name,
        Millis(profile.queue_timeout),
        running(full)
    );
    let places = more_places(profile, full);
    let hint = format!("try again, or raise {places} or profiles.{}.queue_timeout", profile.name);
    refuse(RefusalCode::Busy, message, hint)
}

/// What holds the places.
fn running(full: Full) -> String {
    match full {
        Full { executor: true, places: 1, .. } => {
            "as many commands as may at once on this host (1)".to_owned()
        }
        Full { executor: true, places, .. } => format!("as many commands as may at once ({places})"),
        Full { places, .. } => format!("{} of this user running", counted(places, "command")),
    }
}

/// The setting of which there would be more of them.
fn more_places(profile: &Profile, full: Full) -> String {
    if full.executor { "max_commands".to_owned() } else { format!("profiles.{}.concurrency", profile.name) }
}

/// There was no room for a large request.
pub(super) fn no_room(total: usize, of_peer: usize) -> Refusal {
    let (total, of_peer) = (Bytes(total as u64), Bytes(of_peer as u64));
    let message = format!(
        "request: no room for it within {} s: large requests of one peer together may take {of_peer}, of all peers \
         {total}",
        limits::HELLO_TIMEOUT.as_secs()
    );
    refuse(
        RefusalCode::Busy,
        message,
        "try again, or send large input as standard input, for which there is room",
    )
}

/// The executor is ending.
pub(super) fn shutting_down() -> Refusal {
    let message = "the executor is shutting down and takes no more requests";
    refuse(RefusalCode::ShuttingDown, message, "try again when it is back")
}

/// A connection that is not served at all.
pub(super) fn turned_away(refusal: ConnectionRefusal) -> Refusal {
    match refusal {
        ConnectionRefusal::Nobody => {
            let message = "the kernel does not say which user this is";
            refuse(RefusalCode::NotAllowed, message, "connect as a user that a profile lists in its `peers`")
        }
        ConnectionRefusal::Busy { per_peer, total } => {
            let message =
                format!("this peer has {per_peer} connections open, or all peers together have {total}");
            refuse(RefusalCode::Busy, message, "close some and try again")
        }
    }
}

/// No such profile for this peer, who may use those of the names given.
pub(super) fn unknown_profile(name: &str, available: &[&str], door: Door) -> Refusal {
    let message = format!("{}: there is no profile {} for this user", door.profile(), quoted(name));
    let hint = if available.is_empty() {
        "no profile lists this user: add it to the `peers` of one".to_owned()
    } else {
        format!("use one of: {}", available.join(", "))
    };
    refuse(RefusalCode::UnknownProfile, message, hint)
}

/// Cordon's own failure.
pub(super) fn internal(what: impl std::fmt::Display) -> Refusal {
    refuse(RefusalCode::Internal, format!("internal failure: {what}"), "see the executor's log")
}

/// A limit that lies outside what the profile grants; none when it is granted.
pub(super) fn limit_outside(profile: &Profile, limit: LimitField, value: u64) -> Option<LaunchRefusal> {
    let (floor, ceiling) = (Profile::floor(limit), profile.limit(limit).ceiling);
    if value > ceiling {
        Some(LaunchRefusal::AboveCeiling { limit, value, ceiling })
    } else if value < floor {
        Some(LaunchRefusal::BelowFloor { limit, value, floor })
    } else {
        None
    }
}

/// The monitor's refusal in the words of the client's door.
pub(super) fn from_launch(
    refusal: LaunchRefusal,
    profile: &Profile,
    door: Door,
    workspace: Option<&str>,
) -> Refusal {
    let name = &profile.name;
    // What a door cannot ask for is not refused there either: the name of the configuration will do.
    let named = |limit: LimitField| door.limit(limit).unwrap_or(limit.name());
    match refusal {
        LaunchRefusal::OutOfOrder => internal("the monitor did not expect a launch"),
        LaunchRefusal::UnknownProfile => Refusal {
            hint: Some("`cordon profiles` lists those that this user may use".to_owned()),
            ..unknown_profile(name, &[], door)
        },
        LaunchRefusal::AboveCeiling { limit, value, ceiling } => {
            let message = format!(
                "{}: {} is above the ceiling of profile `{name}`, {}",
                named(limit),
                door.value(limit, value),
                door.value(limit, ceiling)
            );
            let key = limit.name();
            let hint = format!("ask for less, or raise profiles.{name}.limits.{key}.ceiling");
            refuse(RefusalCode::LimitRefused, message, hint)
        }
        LaunchRefusal::BelowFloor { limit, value, floor } => {
            let (value, floor) = (door.value(limit, value), door.value(limit, floor));
            let message = format!("{}: {value} is below the least, {floor}", named(limit));
            refuse(RefusalCode::LimitRefused, message, "ask for more, or leave it out for the default")
        }
        LaunchRefusal::BadRequestFile => internal("the monitor did not take the sealed request"),
        LaunchRefusal::Busy { concurrency } => {
            let message = format!(
                "profile `{name}`: as many commands of this user run already as may at once ({concurrency})"
            );
            refuse(RefusalCode::Busy, message, format!("try again, or raise profiles.{name}.concurrency"))
        }
        LaunchRefusal::OneAtATime => refuse(
            RefusalCode::Busy,
            "a command runs already, and this host cannot keep two apart: one command at a time",
            "try again; `cordon doctor` says what this host lacks and what to do about it",
        ),
        LaunchRefusal::BadWorkspace => internal("the monitor did not take the workspace's name"),
        LaunchRefusal::TooManyWorkspaces => refuse(
            RefusalCode::Busy,
            format!(
                "workspace: this user has {} of them, which is all that may be",
                limits::WORKSPACES_PER_PEER
            ),
            door.fewer_workspaces(),
        ),
        LaunchRefusal::DiskFull { free, floor } => refuse(
            RefusalCode::Busy,
            format!(
                "workspace: {} are free where workspaces lie, less than free_space_min, {}",
                Bytes(free),
                Bytes(floor)
            ),
            "delete workspaces that are not needed or free the disk; a private workspace lies in memory",
        ),
        LaunchRefusal::WorkspaceFull { bytes, files, bytes_max, files_max } => refuse(
            RefusalCode::LimitRefused,
            format!(
                "workspace: {} holds {} and {files} files, more than it may: {} (named_workspace), {files_max} files \
                 (named_workspace_files)",
                quoted(workspace.unwrap_or_default()),
                Bytes(bytes),
                Bytes(bytes_max)
            ),
            door.smaller_workspace(name, workspace.unwrap_or_default()),
        ),
        LaunchRefusal::ShuttingDown => shutting_down(),
        LaunchRefusal::Full { commands } => {
            let message = format!(
                "as many commands are there already as max_commands and open files allow ({commands})"
            );
            refuse(
                RefusalCode::Busy,
                message,
                "try again, or raise max_commands and the executor's open files (systemd: LimitNOFILE=)",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::RawProfile;

    #[test]
    fn a_clients_text_stays_on_one_line_and_short() {
        assert_eq!(quoted("a\nb\u{1b}[31m"), "`a\\nb\\u{1b}[31m`");
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("äöüx", 3), "äöü…");
        assert_eq!(quoted(&"\0".repeat(1 << 20)).chars().count(), QUOTED_MAX + 3);
    }

    #[test]
    fn a_refused_limit_names_limit_value_and_ceiling() {
        let profile = Profile::from_raw("small", RawProfile::default(), 1).unwrap();
        let refused = |limit, value, door| {
            let refusal = from_launch(limit_outside(&profile, limit, value).unwrap(), &profile, door, None);
            assert_eq!(refusal.code, RefusalCode::LimitRefused);
            refusal.message
        };
        for (door, message) in [
            (Door::Cli, "--memory: 3G is above the ceiling of profile `small`, 2G"),
            (
                Door::Http,
                "memory_bytes: 3221225472 (3G) is above the ceiling of profile `small`, 2147483648 (2G)",
            ),
        ] {
            assert_eq!(refused(LimitField::Memory, 3 << 30, door), message);
        }
        assert_eq!(refused(LimitField::Wall, 0, Door::Cli), "--timeout: 0ms is below the least, 1ms");
        assert_eq!(
            refused(LimitField::Wall, 0, Door::Http),
            "timeout_ms: 0 (0ms) is below the least, 1 (1ms)"
        );
        let most = refused(LimitField::Pids, u64::MAX, Door::Socket);
        assert!(most.starts_with("pids: 18446744073709551615 is above"), "{most}");
        assert_eq!(limit_outside(&profile, LimitField::Memory, 2 << 30), None);
    }
}
