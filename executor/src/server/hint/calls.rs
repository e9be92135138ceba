//! System calls that the filter refuses, and privileges that nothing in a sandbox can get.
//!
//! A line of error output gives a failure and a call, or a program that is known to make it. The second fact is the
//! filter's own table: it refuses this call, always, with the errno that was told.

use super::{Failure, hint, landmarks::Known, message::Kind};
use crate::sandbox::seccomp::{
    rule::{Rule, Verdict},
    table,
};
use cordon_protocol::Hint;
use nix::errno::Errno;
use std::{collections::HashMap, path::Path, sync::OnceLock};

/// What is behind a program's complaint.
#[derive(Debug, Clone, Copy)]
enum Cause {
    /// It makes this call.
    Call(&'static str),
    /// It wants to be more than its user.
    Privilege,
    /// It wants a socket of the host's, which lies there.
    Socket(&'static str),
}

/// Programs that do not name the call, or ask who they are before they make it: a part of what each says.
const PROGRAMS: [(&str, &str, Cause); 25] = [
    ("mount", "must be superuser", Cause::Call("mount")),
    ("umount", "must be superuser", Cause::Call("umount2")),
    ("chroot", "cannot change root directory", Cause::Call("chroot")),
    ("bwrap", "No permissions to creat", Cause::Call("unshare")),
    ("bwrap", "Operation not permitted", Cause::Call("unshare")),
    ("nsenter", "Operation not permitted", Cause::Call("setns")),
    ("perf", "No permission to enable", Cause::Call("perf_event_open")),
    ("dmesg", "read kernel buffer failed", Cause::Call("syslog")),
    ("date", "cannot set date", Cause::Call("clock_settime")),
    ("hostname", "must be root to change", Cause::Call("sethostname")),
    ("su", "su: Authentication failure", Cause::Privilege),
    ("su", "Authentication service cannot", Cause::Privilege),
    ("su", "su: cannot set groups", Cause::Privilege),
    ("sudo", "no new privileges", Cause::Privilege),
    ("sudo", "effective uid is not 0", Cause::Privilege),
    ("sudo", "must be owned by uid 0", Cause::Privilege),
    ("runuser", "may not be used by non-root users", Cause::Privilege),
    ("setpriv", "keep process capabilities failed", Cause::Privilege),
    ("pkexec", "must be setuid root", Cause::Privilege),
    ("doas", "not installed setuid", Cause::Privilege),
    ("passwd", "Authentication token manipulation error", Cause::Privilege),
    ("systemctl", "Failed to connect to bus", Cause::Socket("/run/systemd/system")),
    ("systemctl", "not been booted with systemd", Cause::Socket("/run/systemd/system")),
    ("docker", "Cannot connect to the Docker daemon", Cause::Socket("/run/docker.sock")),
    ("docker", "docker.sock", Cause::Socket("/run/docker.sock")),
];

/// Those of them that do not put their name before what they say.
const NAMELESS: [&str; 2] = ["perf", "systemctl"];

/// Families of sockets by name (linux/socket.h).
const FAMILIES: [(&str, i32); 10] = [
    ("AF_PACKET", libc::AF_PACKET),
    ("AF_VSOCK", libc::AF_VSOCK),
    ("AF_ALG", libc::AF_ALG),
    ("AF_BLUETOOTH", libc::AF_BLUETOOTH),
    ("AF_CAN", libc::AF_CAN),
    ("AF_KEY", libc::AF_KEY),
    ("AF_XDP", libc::AF_XDP),
    ("AF_TIPC", libc::AF_TIPC),
    ("AF_RDS", libc::AF_RDS),
    ("AF_QIPCRTR", 42),
];

/// The hint for a line about a call or a privilege.
pub(super) fn explain(failure: &Failure<'_>, line: &str, kind: Option<Kind>) -> Option<Hint> {
    let filtered = failure.outcome.enforced.seccomp;
    let of_program = || {
        let known = PROGRAMS.iter().find(|(name, words, _)| {
            let says_it = line.contains(name) || NAMELESS.contains(name);
            says_it && line.contains(words) && failure.runs(name)
        });
        known.and_then(|(name, _, cause)| failure.blame(name, *cause))
    };
    match kind {
        Some(Kind::NotPermitted) if filtered => {
            let named = named_call(line, Errno::EPERM).or_else(|| called(&failure.ran.line, Errno::EPERM));
            named
                .map(|call| call_refused(call.0, call.1))
                .or_else(of_program)
                .or_else(|| device(failure, line))
                .or_else(|| raw(failure, line))
        }
        Some(Kind::NotImplemented) if filtered => {
            named_call(line, Errno::ENOSYS).map(|call| call_refused(call.0, call.1))
        }
        Some(Kind::NoFamily) if filtered => family(failure, line),
        _ => of_program(),
    }
}

impl Failure<'_> {
    fn blame(&self, program: &str, cause: Cause) -> Option<Hint> {
        match cause {
            Cause::Call(name) => {
                let reason = refused_with(name, Errno::EPERM)?;
                self.outcome.enforced.seccomp.then(|| call_refused(name, reason))
            }
            Cause::Privilege => Some(hint(
                "identity",
                format!(
                    "`{program}` cannot become another user: no_new_privs holds, set-user-id bits mean nothing"
                ),
                "no setting gives privileges; run it outside, or do without",
            )),
            Cause::Socket(path) => {
                matches!(self.ran.landmarks.of(Path::new(path)), Known::There(_)).then(|| {
                    hint(
                        "namespaces",
                        format!("`{program}` wants the host's `{path}`, and the sandbox's /run is its own"),
                        "no setting shows it; run it outside the sandbox",
                    )
                })
            }
        }
    }
}

fn call_refused(name: &str, reason: &str) -> Hint {
    hint(
        "seccomp",
        format!("the system call `{name}` is refused: {reason}"),
        "no setting allows it; do without, or run it outside the sandbox",
    )
}

/// Why the table refuses a call with this errno whatever its arguments are; none where it does not.
fn refused_with(name: &str, errno: Errno) -> Option<&'static str> {
    type Refused = HashMap<&'static str, (Errno, &'static str)>;
    static REFUSED: OnceLock<Refused> = OnceLock::new();
    let always = |group: &'static table::Group| match group.rule {
        Rule::Always(Verdict::Errno(errno)) => Some((group, errno)),
        _ => None,
    };
    let refused = REFUSED.get_or_init(|| {
        let groups = table::COMMAND.iter().filter_map(always);
        groups
            .flat_map(|(group, errno)| group.calls.iter().map(move |call| (call.1, (errno, group.reason))))
            .collect()
    });
    refused.get(name).filter(|(with, _)| *with == errno).map(|(_, reason)| *reason)
}

/// A refused call that a line names as programs do: `ptrace: `, `ptrace(…)`, `unshare failed`, `PTRACE_TRACEME`.
fn named_call(line: &str, errno: Errno) -> Option<(&str, &'static str)> {
    let mut words = line.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_').peekable();
    while let Some(piece) = words.next() {
        let word = piece.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let next = words.peek().map_or("", |next| next.trim());
        let as_call =
            piece.ends_with(['(', ':']) || piece.ends_with(' ') && next.trim_end_matches(':') == "failed";
        let word = if word.starts_with("PTRACE_") { "ptrace" } else { word };
        if as_call && let Some(reason) = refused_with(word, errno) {
            return Some((word, reason));
        }
    }
    None
}

/// A refused call that the command line itself makes from a language: `os.chroot(`, `libc.unshare(`.
fn called(line: &str, errno: Errno) -> Option<(&str, &'static str)> {
    line.split('(').find_map(|before| {
        let (object, name) = before.rsplit_once('.')?;
        let reason = refused_with(name, errno)?;
        let object = object.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ')').next()?;
        let of_libc = ["os", "libc", "lib", "c"].contains(&object) || object.ends_with(')');
        of_libc.then_some((name, reason))
    })
}

/// mknod(1) of a device: the table lets it make pipes only.
fn device(failure: &Failure<'_>, line: &str) -> Option<Hint> {
    let device = [" c ", " b ", " u "].iter().any(|kind| failure.ran.line.contains(kind));
    let made = device && line.contains("mknod: ") && failure.runs("mknod");
    made.then(|| call_refused("mknod", "device nodes are not for a command"))
}

/// A raw socket, as ping(8) may want one.
fn raw(failure: &Failure<'_>, line: &str) -> Option<Hint> {
    let wanted = failure.ran.line.contains("SOCK_RAW") || line.contains("SOCK_RAW");
    let verdict = socket_verdict(libc::AF_INET, libc::SOCK_RAW)?;
    (wanted && verdict == Verdict::Errno(Errno::EPERM))
        .then(|| call_refused("socket", "raw sockets (SOCK_RAW) see and forge what is not the command's"))
}

/// A socket of a family that is not allowed, which the line or the command line names.
fn family(failure: &Failure<'_>, line: &str) -> Option<Hint> {
    let (name, number) =
        FAMILIES.iter().find(|(name, _)| failure.ran.line.contains(name) || line.contains(name))?;
    let refused = socket_verdict(*number, libc::SOCK_RAW)? == Verdict::Errno(Errno::EAFNOSUPPORT);
    refused.then(|| call_refused("socket", &format!("the family {name} is not among those that are allowed")))
}

fn socket_verdict(family: i32, kind: i32) -> Option<Verdict> {
    let group = table::COMMAND.iter().find(|group| group.calls.iter().any(|(_, call)| *call == "socket"))?;
    let number = |value: i32| u64::try_from(value).ok();
    Some(group.rule.verdict(&[number(family)?, number(kind)?, 0, 0, 0, 0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_only_as_a_call_and_with_the_table_s_errno() {
        for (line, expected) in [
            ("strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted", Some("ptrace")),
            ("strace: PTRACE_SETOPTIONS: Operation not permitted", Some("ptrace")),
            ("warning: ptrace: Operation not permitted", Some("ptrace")),
            ("unshare: unshare failed: Operation not permitted", Some("unshare")),
            ("swapon: f: swapon failed: Operation not permitted", Some("swapon")),
            ("chown: changing ownership of 'x': Operation not permitted", None),
            ("rm: cannot remove 'mount': Operation not permitted", None),
            ("kill: (1) - Operation not permitted", None),
            ("setpriv: setresuid failed: Operation not permitted", None),
        ] {
            assert_eq!(named_call(line, Errno::EPERM).map(|call| call.0), expected, "{line}");
        }
        assert_eq!(named_call("x: unshare failed", Errno::ENOSYS), None);
        assert_eq!(named_call("io_setup: Function not implemented", Errno::ENOSYS).unwrap().0, "io_setup");
    }

    #[test]
    fn a_call_in_the_command_line_is_one_of_the_system_s() {
        let of = |line| called(line, Errno::EPERM).map(|call| call.0);
        assert_eq!(of("python3 -c 'import os; os.chroot(\"/\")'"), Some("chroot"));
        assert_eq!(of("ctypes.CDLL(None).unshare(1)"), Some("unshare"));
        assert_eq!(of("disk.mount(x)"), None);
        assert_eq!(of("os.chown(\"x\", 0, 0)"), None);
    }

    #[test]
    fn every_call_of_a_known_program_is_one_that_the_table_refuses() {
        for (program, _, cause) in PROGRAMS {
            if let Cause::Call(name) = cause {
                assert!(refused_with(name, Errno::EPERM).is_some(), "{program}: {name}");
            }
        }
        for (name, number) in FAMILIES {
            let verdict = socket_verdict(number, libc::SOCK_RAW);
            assert_eq!(verdict, Some(Verdict::Errno(Errno::EAFNOSUPPORT)), "{name}");
        }
        assert_eq!(socket_verdict(libc::AF_INET6, libc::SOCK_STREAM), Some(Verdict::Allow));
    }
}
