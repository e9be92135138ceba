//! The format of the tables in `tests/compat`: raw TOML becomes checked cases.

use serde::Deserialize;
use std::collections::BTreeSet;

/// One program, or a few together, with what must come of them.
pub(super) struct Case {
    /// Says what works.
    pub(super) name: String,
    /// What of the sandbox it leans on, or why it is as it is.
    pub(super) why: String,
    /// Programs that must be on the host, by name or path.
    pub(super) needs: Vec<String>,
    /// Profile it runs under.
    pub(super) profile: String,
    /// What is run.
    pub(super) action: Action,
    /// Standard input.
    pub(super) stdin: String,
    /// Exit status.
    pub(super) exit: i32,
    /// All of standard output.
    pub(super) stdout: Option<String>,
    /// A regular expression for standard output.
    pub(super) stdout_like: Option<String>,
    /// A regular expression for standard error.
    pub(super) stderr_like: Option<String>,
    /// All lines of standard output are equal.
    pub(super) same_lines: bool,
    /// Why it works only where cgroup v2 has its controllers; elsewhere it must fail.
    pub(super) controllers: Option<String>,
}

/// A line for the shell, or a program with arguments.
pub(super) enum Action {
    /// `bash -c`.
    Script(String),
    /// No shell between.
    Argv(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    case: Vec<RawCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    name: String,
    why: String,
    #[serde(default)]
    needs: Vec<String>,
    profile: Option<String>,
    script: Option<String>,
    argv: Option<Vec<String>>,
    #[serde(default)]
    stdin: String,
    #[serde(default)]
    exit: i32,
    stdout: Option<String>,
    stdout_like: Option<String>,
    stderr_like: Option<String>,
    #[serde(default)]
    same_lines: bool,
    controllers: Option<String>,
}

/// The cases of a table; fails on a name that comes twice, and on a case that expects nothing.
pub(super) fn parse(text: &str) -> Vec<Case> {
    let table: RawTable = toml::from_str(text).unwrap_or_else(|e| panic!("{e}"));
    let mut names = BTreeSet::new();
    let cases: Vec<Case> = table.case.into_iter().map(Case::from_raw).collect();
    for case in &cases {
        assert!(names.insert(&case.name), "{} is there twice", case.name);
    }
    cases
}

impl Case {
    fn from_raw(raw: RawCase) -> Self {
        let name = raw.name;
        assert!(!raw.why.is_empty(), "{name}: no reason");
        let expects = raw.stdout.is_some() || raw.stdout_like.is_some();
        assert!(expects, "{name}: nothing is said about its output");
        let action = match (raw.script, raw.argv) {
            (Some(text), None) => Action::Script(text),
            (None, Some(argv)) => Action::Argv(argv),
            _ => panic!("{name}: either script or argv"),
        };
        Self {
            action,
            profile: raw.profile.unwrap_or_else(|| "default".to_owned()),
            name,
            why: raw.why,
            needs: raw.needs,
            stdin: raw.stdin,
            exit: raw.exit,
            stdout: raw.stdout,
            stdout_like: raw.stdout_like,
            stderr_like: raw.stderr_like,
            same_lines: raw.same_lines,
            controllers: raw.controllers,
        }
    }
}
