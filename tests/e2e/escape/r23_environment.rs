//! Row 23: variables that make programs load, run or believe something.

use super::{Probe, probe};
use crate::harness::{
    Executor,
    client::argv,
    process::{self, tied},
    shared,
};
use serde_json::json;
use std::{collections::BTreeMap, fs};

pub(super) const PROBES: &[Probe] = &[Probe {
    row: 23,
    test: "escape::r23_environment::the_environment_is_exactly_the_profile_s",
    tried: "LD_PRELOAD, LD_LIBRARY_PATH, BASH_ENV, ENV, GIT_*, PYTHON*, PERL5OPT and NODE_OPTIONS in the environments of client, executor and gateway; a shell function",
    control: "the executor's own environment has them, and so has a bare program",
    closed_by: "an environment that is built, never inherited",
}];

const HOSTILE: [(&str, &str); 12] = [
    ("LD_PRELOAD", "/no/such.so"),
    ("LD_LIBRARY_PATH", "/no/such"),
    ("BASH_ENV", "/no/such"),
    ("ENV", "/no/such"),
    ("GIT_DIR", "/no/such"),
    ("GIT_SSH_COMMAND", "no such"),
    ("PYTHONPATH", "/no/such"),
    ("PYTHONSTARTUP", "/no/such"),
    ("PERL5OPT", "-Mno"),
    ("NODE_OPTIONS", "--no"),
    ("BASH_FUNC_ls%%", "() { echo hostile; }"),
    ("IFS", "x"),
];

fn entries(text: &str, separator: char) -> BTreeMap<String, String> {
    let lines = text.split(separator).filter(|line| !line.is_empty());
    lines.filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[test]
fn the_environment_is_exactly_the_profile_s() {
    let _verdict = probe!();
    let expected: BTreeMap<String, String> =
        [("HOME", "/home/execuser"), ("USER", "execuser"), ("SHELL", "/bin/bash"), ("TMPDIR", "/tmp")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
    let assert_built = |text: &str| {
        let mut found = entries(text, '\n');
        let rest: Vec<_> = ["LANG", "PATH", "TERM"].map(|name| found.remove(name).unwrap()).into();
        assert!(
            rest[1].split(':').all(|part| part.starts_with("/usr/") || part == "/bin" || part == "/sbin"),
            "{rest:?}"
        );
        assert_eq!(found, expected, "{text}");
    };
    // The loader is left out here: it would complain in the client's own name.
    let client = HOSTILE.iter().filter(|(name, _)| !name.starts_with("LD_"));
    let mut command = shared().cordon(&["run", "--", "env"]);
    command.envs(client.copied()).env("LD_LIBRARY_PATH", "/no/such");
    assert_built(&process::run(command, &[]).text());

    let executor = Executor::start_with_environment("", &HOSTILE);
    let own = fs::read_to_string(format!("/proc/{}/environ", executor.pid())).unwrap();
    let own = entries(&own, '\0');
    assert!(
        HOSTILE.iter().all(|(name, value)| own.get(*name).map(String::as_str) == Some(value)),
        "the control: {own:?}"
    );
    assert_built(&executor.events(argv(&["env"])).report.stdout.unwrap());
    assert_built(
        &executor.events(argv(&["cat", "/proc/self/environ"])).report.stdout.unwrap().replace('\0', "\n"),
    );

    assert_built(&shared().exec(&json!({"argv": ["env"]})).stdout.unwrap());
    let mut bare = tied("env".as_ref());
    bare.env("PYTHONPATH", "/no/such");
    assert!(process::run(bare, &[]).text().contains("PYTHONPATH=/no/such"), "the control");
}
