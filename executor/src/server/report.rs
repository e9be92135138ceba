//! The exit report: what the monitor saw and what the streams held, in the words of the contract.

mod launch;

use super::{
    door::Door,
    hint::{self, LastWords, Ran},
    jobs::id_of,
    output::Kept,
};
use crate::{
    monitor::link::{AskedLimits, JobId, LimitField, Outcome, ServiceCounts},
    profile::Profile,
};
use cordon_protocol::{Captured, Encoding, EndedBy, Enforced, ExitReport, Hint, LimitName, NetworkMode};
use nix::sys::signal::Signal;

/// What became of the two streams.
#[derive(Debug)]
pub(super) struct Streams {
    /// Standard output.
    pub(super) stdout: Kept,
    /// Standard error.
    pub(super) stderr: Kept,
    /// Output went out as events: the report has none.
    pub(super) streamed: bool,
    /// The output limit was exceeded.
    pub(super) exceeded: bool,
    /// The end of both, for the hint.
    pub(super) words: LastWords,
}

/// What the hints need to know of the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Profile it ran under.
    pub(super) profile: &'a Profile,
    /// Limits that differ from the profile's defaults.
    pub(super) limits: &'a AskedLimits,
    /// In whose words.
    pub(super) door: Door,
    /// What ran.
    pub(super) ran: &'a Ran,
}

/// The report of an ended command.
pub(super) fn report(
    job: JobId,
    mut outcome: Outcome,
    streams: Streams,
    counts: &[ServiceCounts],
    asked: Asked<'_>,
) -> ExitReport {
    if streams.exceeded && matches!(outcome.ended_by, EndedBy::Exit | EndedBy::Signal) {
        // It ended by itself before it could be told to. What is left out must not pass for all there was.
        outcome.ended_by = EndedBy::OutputLimit;
    }
    let hint = hint(&outcome, asked, &streams.words);
    // Where they are not relayed nobody counts.
    let relayed = outcome.enforced.network == NetworkMode::Services;
    let services = asked.profile.services.iter().zip(counts).filter(|_| relayed);
    let services = services.map(|(port, counts)| counts.of(*port)).collect();
    let is_beyond_room =
        outcome.ended_by == EndedBy::LaunchFailed && launch::is_beyond_room(&outcome, asked.ran);
    let mut limits_hit = outcome.limits_hit;
    if streams.exceeded && !limits_hit.contains(&LimitName::Output) {
        limits_hit.push(LimitName::Output);
    }
    if is_beyond_room && !limits_hit.contains(&LimitName::Disk) {
        limits_hit.push(LimitName::Disk);
    }
    let text = |kept: Kept| {
        if streams.streamed {
            (None, Encoding::Utf8)
        } else {
            let captured = Captured::from_bytes(kept.bytes);
            (Some(captured.text), captured.encoding)
        }
    };
    let (stdout_bytes, stdout_truncated) = (streams.stdout.total, streams.stdout.truncated);
    let (stderr_bytes, stderr_truncated) = (streams.stderr.total, streams.stderr.truncated);
    let (stdout, stdout_encoding) = text(streams.stdout);
    let (stderr, stderr_encoding) = text(streams.stderr);
    let enforced = outcome.enforced;
    ExitReport {
        id: id_of(job),
        ended_by: outcome.ended_by,
        exit_code: outcome.exit_code,
        signal: outcome.signal.map(signal_name),
        step: outcome.step,
        stdout,
        stderr,
        stdout_encoding,
        stderr_encoding,
        stdout_bytes,
        stderr_bytes,
        stdout_truncated,
        stderr_truncated,
        wall_ms: milliseconds(outcome.wall_us),
        cpu_ms: milliseconds(outcome.cpu_us),
        peak_memory_bytes: outcome.peak_memory_bytes,
        limits_hit,
        enforced: Enforced {
            uid: enforced.uid,
            cgroup: enforced.cgroup,
            landlock_abi: enforced.landlock_abi,
            seccomp: enforced.seccomp,
            namespaces: enforced.namespaces,
            network: enforced.network,
            capabilities: capability_names(enforced.capabilities),
        },
        services,
        hint,
    }
}

fn milliseconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1000.0
}

/// `SIGTERM`, or for real-time signals `SIGRTMIN+n` (signal(7)).
fn signal_name(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) if number >= libc::SIGRTMIN() => format!("SIGRTMIN+{}", number - libc::SIGRTMIN()),
        Err(_) => format!("SIG{number}"),
    }
}

/// Names of the bits of a capability set; `CAP_n` for one that the crate does not know.
fn capability_names(bits: u64) -> Vec<String> {
    let known = caps::all();
    let name = |bit: u8| {
        let capability = known.iter().find(|c| c.index() == bit);
        capability.map_or_else(|| format!("CAP_{bit}"), ToString::to_string)
    };
    (0..64u8).filter(|bit| bits >> bit & 1 == 1).map(name).collect()
}

fn hint(outcome: &Outcome, asked: Asked<'_>, words: &LastWords) -> Option<Hint> {
    match outcome.ended_by {
        EndedBy::LaunchFailed => Some(launch::explain(outcome, asked)),
        EndedBy::OutOfMemory => {
            Some(limit_hint(asked, LimitField::Memory, "all its processes together used up"))
        }
        // The monitor says what it waited for, of one that never ran.
        EndedBy::WallTimeout if !outcome.detail.is_empty() => {
            let limit = limit_hint(asked, LimitField::Wall, "it waited, and could not start within");
            Some(Hint { what: format!("{}: {}", limit.what, outcome.detail), ..limit })
        }
        EndedBy::WallTimeout => {
            let limit = limit_hint(asked, LimitField::Wall, "it did not end within");
            let network = hint::explain_late(outcome, asked, words);
            Some(network.map_or(limit.clone(), |network| Hint {
                what: format!("{}; {}", limit.what, network.what),
                remedy: format!("{}; if time alone was short: {}", network.remedy, limit.remedy),
                ..network
            }))
        }
        EndedBy::CpuTimeout => {
            Some(limit_hint(asked, LimitField::CpuTime, "all its processes together used up"))
        }
        EndedBy::OutputLimit => {
            Some(limit_hint(asked, LimitField::Output, "both streams together went beyond"))
        }
        EndedBy::Exit | EndedBy::Signal if outcome.limits_hit.contains(&LimitName::Pids) => {
            let what = "it wanted more processes and threads than";
            Some(limit_hint(asked, LimitField::Pids, what))
        }
        EndedBy::Exit | EndedBy::Signal | EndedBy::DiskLimit => hint::explain(outcome, asked, words),
        EndedBy::Cancelled => None,
    }
}

/// A limit with its value, and how to raise it.
pub(super) fn limit_hint(asked: Asked<'_>, field: LimitField, what: &str) -> Hint {
    let Asked { profile, limits, door, .. } = asked;
    let (name, range) = (field.name(), profile.limit(field));
    let value = limits.get(field).or(range.default);
    let shown = value.map_or_else(|| "the limit".to_owned(), |value| field.show(value));
    let keys = format!("profiles.{}.limits.{name}", profile.name);
    let remedy = if value.is_some_and(|value| value >= range.ceiling) {
        format!("that is the ceiling; raise {keys}.ceiling, or make it need less")
    } else if let Some(option) = door.limit(field) {
        format!("raise it with {option}, up to {}", door.value(field, range.ceiling))
    } else {
        format!("raise {keys}.default, or make it need less")
    };
    Hint { layer: "limits".to_owned(), what: format!("{what} {shown} ({name})"), remedy }
}

#[cfg(test)]
mod tests {
    use super::{super::fixture::outcome, *};
    use crate::profile::RawProfile;
    use cordon_protocol::NamespaceName;

    pub(super) fn streams() -> Streams {
        let kept = Kept { bytes: vec![], total: 0, truncated: false };
        Streams {
            stdout: kept.clone(),
            stderr: kept,
            streamed: false,
            exceeded: false,
            words: LastWords::default(),
        }
    }

    pub(super) fn of(outcome: Outcome, limits: AskedLimits) -> ExitReport {
        let profile = Profile::from_raw("default", RawProfile::default(), 1).unwrap();
        report(
            7,
            outcome,
            streams(),
            &[],
            Asked { profile: &profile, limits: &limits, door: Door::Cli, ran: &Ran::default() },
        )
    }

    #[test]
    fn signals_and_capabilities_have_their_names() {
        assert_eq!(signal_name(15), "SIGTERM");
        assert_eq!(signal_name(34), "SIGRTMIN+0");
        assert_eq!(signal_name(64), "SIGRTMIN+30");
        assert_eq!(capability_names(1 | 1 << 21 | 1 << 63), ["CAP_CHOWN", "CAP_SYS_ADMIN", "CAP_63"]);
        assert!(capability_names(0).is_empty());
    }

    #[test]
    fn numbers_and_streams_are_carried_over() {
        let mut ended = outcome(EndedBy::Exit);
        (ended.exit_code, ended.wall_us, ended.cpu_us) = (Some(3), 1500, 250);
        let kept = Kept { bytes: b"\xff".to_vec(), total: 9, truncated: true };
        let streams = Streams { stdout: kept, exceeded: true, ..streams() };
        let profile = Profile::from_raw("default", RawProfile::default(), 1).unwrap();
        let limits = AskedLimits::default();
        let report = report(
            0xab,
            ended,
            streams,
            &[],
            Asked { profile: &profile, limits: &limits, door: Door::Cli, ran: &Ran::default() },
        );
        assert_eq!((report.id.as_str(), report.exit_code), ("00000000000000ab", Some(3)));
        assert_eq!((report.wall_ms, report.cpu_ms), (1.5, 0.25));
        assert_eq!((report.stdout.as_deref(), report.stdout_encoding), (Some("/w=="), Encoding::Base64));
        assert_eq!((report.stdout_bytes, report.stdout_truncated), (9, true));
        assert_eq!(report.stderr.as_deref(), Some(""));
        // The command ended by itself before it could be told.
        assert_eq!((report.ended_by, report.limits_hit), (EndedBy::OutputLimit, vec![LimitName::Output]));
    }

    #[test]
    fn services_are_told_where_they_were_relayed() {
        let raw: RawProfile = toml::from_str("network = 'services'\nservices = [80, 81]").unwrap();
        let profile = Profile::from_raw("p", raw, 1).unwrap();
        let limits = AskedLimits::default();
        let asked = Asked { profile: &profile, limits: &limits, door: Door::Cli, ran: &Ran::default() };
        let counts = [(3, 1, 2), (0, 0, 0)].map(|(connections, over_cap, unreachable)| ServiceCounts {
            connections,
            over_cap,
            unreachable,
        });
        let services = |network| {
            let mut ended = outcome(EndedBy::Exit);
            ended.enforced.network = network;
            let told = report(7, ended, streams(), &counts, asked).services;
            told.iter().map(|used| (used.port, used.connections, used.refused)).collect::<Vec<_>>()
        };
        assert_eq!(services(NetworkMode::Services), [(80, 3, 3), (81, 0, 0)]);
        assert_eq!(services(NetworkMode::Host), []);
    }

    #[test]
    fn a_limit_that_ended_it_is_named_with_value_and_remedy() {
        let asked = AskedLimits { memory_bytes: Some(64 << 20), ..AskedLimits::default() };
        let hint = of(outcome(EndedBy::OutOfMemory), asked).hint.unwrap();
        assert_eq!(hint.what, "all its processes together used up 64M (memory)");
        assert_eq!(hint.remedy, "raise it with --memory, up to 2G");
        let hint = of(outcome(EndedBy::WallTimeout), AskedLimits::default()).hint.unwrap();
        assert_eq!(hint.what, "it did not end within 1m (wall)");
        let hint = of(
            Outcome { detail: "others".to_owned(), ..outcome(EndedBy::WallTimeout) },
            AskedLimits::default(),
        );
        assert_eq!(hint.hint.unwrap().what, "it waited, and could not start within 1m (wall): others");
        let asked = AskedLimits { output_bytes: Some(16 << 30), ..AskedLimits::default() };
        let hint = of(outcome(EndedBy::OutputLimit), asked).hint.unwrap();
        assert!(hint.remedy.contains("profiles.default.limits.output.ceiling"), "{}", hint.remedy);
        assert_eq!(of(outcome(EndedBy::Exit), asked).hint, None);
    }

    #[test]
    fn each_door_is_told_in_its_own_words() {
        let profile = Profile::from_raw("p", RawProfile::default(), 1).unwrap();
        let limits = AskedLimits { cpu_time_ms: Some(5), ..AskedLimits::default() };
        let remedy = |ended_by, limit: Option<LimitName>, door| {
            let mut outcome = outcome(ended_by);
            outcome.limits_hit.extend(limit);
            let asked = Asked { profile: &profile, limits: &limits, door, ran: &Ran::default() };
            hint(&outcome, asked, &LastWords::default()).unwrap().remedy
        };
        use Door::{Cli, Http, Socket};
        use EndedBy as E;
        let doors = |ended_by, limit| [Cli, Http, Socket].map(|door| remedy(ended_by, limit, door));
        let raise = |names: [&str; 3], raw: &str, shown: &str| {
            let raw = format!("{raw} ({shown})");
            [(names[0], shown), (names[1], &raw), (names[2], &raw)]
                .map(|(name, most)| format!("raise it with {name}, up to {most}"))
        };
        let wall = raise(["--timeout", "timeout_ms", "wall_ms"], "3600000", "1h");
        assert_eq!(doors(E::WallTimeout, None), wall);
        let memory = raise(["--memory", "memory_bytes", "memory_bytes"], "2147483648", "2G");
        assert_eq!(doors(E::OutOfMemory, None), memory);
        let output = raise(["--output", "output_bytes", "output_bytes"], "17179869184", "16G");
        assert_eq!(doors(E::OutputLimit, None), output);
        let pids = ["--pids", "pids", "pids"].map(|name| format!("raise it with {name}, up to 1024"));
        assert_eq!(doors(E::Exit, Some(LimitName::Pids)), pids);
        let profile_s = "raise profiles.p.limits.cpu_time.default, or make it need less";
        let sockets = "raise it with cpu_time_ms, up to 3600000 (1h)";
        assert_eq!(doors(E::CpuTimeout, None), [profile_s, profile_s, sockets]);
    }

    #[test]
    fn a_time_out_for_want_of_a_network_keeps_its_limit() {
        let told = |raw: &str| {
            let profile = Profile::from_raw("p", toml::from_str(raw).unwrap(), 1).unwrap();
            let mut late = outcome(EndedBy::WallTimeout);
            (late.unrouted, late.exit_code) = (true, None);
            late.enforced.namespaces = vec![NamespaceName::Net];
            late.enforced.network = profile.network;
            let (limits, ran) = (AskedLimits::default(), Ran::of_line("npm install x"));
            let asked = Asked { profile: &profile, limits: &limits, door: Door::Cli, ran: &ran };
            report(7, late, streams(), &[], asked).hint.unwrap()
        };
        let hint = told("");
        assert_eq!(hint.layer, "network");
        assert!(hint.what.starts_with("it did not end within 1m (wall); what `npm` fetches"), "{hint:?}");
        assert!(hint.remedy.contains("\"services\""), "{hint:?}");
        assert!(hint.remedy.ends_with("raise it with --timeout, up to 1h"), "{hint:?}");
        // Where ports of the host are had already, one more is had by naming it.
        let remedy = told("network = 'services'\nservices = [80]").remedy;
        assert!(remedy.contains("profiles.p.services") && !remedy.contains("\"services\""), "{remedy}");
    }
}
