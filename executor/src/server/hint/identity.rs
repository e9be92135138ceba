//! Calls that want a capability: to become another user, or to give a file away.
//!
//! A line of error output says that something was not permitted, and the command line, the line itself as known programs
//! write it or the trace above it says which call. The second fact is what was read back of the command's own
//! capabilities: it had none.

use super::{Failure, hint, message::Kind, message::kind_of};
use cordon_protocol::Hint;

/// What a call wants to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    User,
    Group,
    Owner,
}

/// Calls by the names that languages have for them.
const CALLS: [(&str, Wanted); 17] = [
    ("setuid", Wanted::User),
    ("seteuid", Wanted::User),
    ("setreuid", Wanted::User),
    ("setresuid", Wanted::User),
    ("setgid", Wanted::Group),
    ("setegid", Wanted::Group),
    ("setregid", Wanted::Group),
    ("setresgid", Wanted::Group),
    ("setgroups", Wanted::Group),
    ("initgroups", Wanted::Group),
    ("chown", Wanted::Owner),
    ("chownSync", Wanted::Owner),
    ("lchown", Wanted::Owner),
    ("lchownSync", Wanted::Owner),
    ("fchown", Wanted::Owner),
    ("fchownSync", Wanted::Owner),
    ("fchownat", Wanted::Owner),
];

/// Programs that make them, with a part of what each says.
const PROGRAMS: [(&str, &str, &str); 10] = [
    ("chown", "changing ownership of", "chown"),
    ("chgrp", "changing group of", "chown"),
    ("install", "cannot change ownership of", "chown"),
    ("tar", "Cannot change ownership", "chown"),
    ("cp", "preserve ownership", "chown"),
    ("mv", "preserve ownership", "chown"),
    ("rsync", "chown ", "chown"),
    ("setpriv", "setresuid failed", "setresuid"),
    ("setpriv", "setresgid failed", "setresgid"),
    ("setpriv", "setgroups failed", "setgroups"),
];

/// Lines above a complaint in which a trace may have the call.
const TRACE: usize = 3;

/// The hint for complaints, the last one first, of which one is about such a call.
pub(super) fn explain(failure: &Failure<'_>, complaints: &[String]) -> Option<Hint> {
    if failure.outcome.enforced.capabilities != 0 {
        return None;
    }
    let refused = complaints.iter().enumerate().filter(|(_, line)| kind_of(line) == Some(Kind::NotPermitted));
    let mut calls = refused.filter_map(|(at, line)| {
        let above = complaints.iter().skip(at + 1).take(TRACE);
        of_program(failure, line)
            .or_else(|| called(&failure.ran.line))
            .or_else(|| above.filter(|_| is_bare(line)).find_map(|line| called(line)))
    });
    calls.next().map(|(call, wanted)| told(call, wanted))
}

fn told(call: &str, wanted: Wanted) -> Hint {
    let (capability, so) = match wanted {
        Wanted::User => ("CAP_SETUID", "a command stays the user that it is"),
        Wanted::Group => ("CAP_SETGID", "a command stays in the group that it is in"),
        Wanted::Owner => ("CAP_CHOWN", "files stay their owner's"),
    };
    let what = format!("`{call}` is refused: {capability} is missing, as every capability is, so {so}");
    let remedy = match wanted {
        Wanted::Owner => {
            "no setting gives it; leave owners as they are (`tar --no-same-owner`, `cp` without `--preserve=ownership`)"
        }
        Wanted::User | Wanted::Group => "no setting gives privileges; run it outside, or do without",
    };
    hint("identity", what, remedy)
}

fn of_program(failure: &Failure<'_>, line: &str) -> Option<(&'static str, Wanted)> {
    let says = |(name, words, _): &&(&str, &str, &str)| {
        let after = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
        after.is_some_and(|said| said.contains(words)) && failure.runs(name)
    };
    let (_, _, call) = PROGRAMS.iter().find(says)?;
    CALLS.iter().find(|(name, _)| name == call).copied()
}

/// The call that a text makes: its name, not as a part of another, and a parenthesis.
fn called(text: &str) -> Option<(&'static str, Wanted)> {
    let makes = |(name, _): &&(&str, Wanted)| {
        text.match_indices(name).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            text[at + name.len()..].starts_with('(')
                && !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
    };
    CALLS.iter().find(makes).copied()
}

/// Whether a line is an exception's own, below the trace that led to it.
fn is_bare(line: &str) -> bool {
    line.starts_with("PermissionError: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_a_name_of_its_own_with_a_parenthesis() {
        for (text, call) in [
            ("python3 -c 'import os; os.setuid(0)'", Some("setuid")),
            ("perl -e 'POSIX::setgid(0)'", Some("setgid")),
            ("node -e 'fs.chownSync(\"a\", 0, 0)'", Some("chownSync")),
            ("my_setuid(0)", None),
            ("echo setuid", None),
            ("os.setuids(0)", None),
        ] {
            assert_eq!(called(text).map(|(call, _)| call), call, "{text}");
        }
        let known = |name: &str| CALLS.iter().any(|(call, _)| *call == name);
        assert!(PROGRAMS.iter().all(|(_, _, call)| known(call)));
    }
}
