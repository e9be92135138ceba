//! Each layer around a command, read back from inside: one act that is allowed, one that is denied.

mod files;
mod landlock;
mod namespaces;
mod process;

use crate::harness::{process::parse_status, shared};
use std::collections::{BTreeMap, BTreeSet};

/// A program run without a shell between: its own `status` is the command's.
fn own_status() -> BTreeMap<String, String> {
    parse_status(&shared().report(&["--", "cat", "/proc/self/status"]).stdout.unwrap())
}

fn set(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// What a shell line says about an act: `yes` where it could be done.
fn can(act: &str) -> bool {
    let answer = shared().inside(&format!("if ({act}) >/dev/null 2>&1; then echo yes; else echo no; fi"));
    match answer.as_str() {
        "yes\n" => true,
        "no\n" => false,
        other => panic!("{act}: {other}"),
    }
}
