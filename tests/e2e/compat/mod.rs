//! Real programs in the default profile: the tables in `tests/compat`, run against the real daemon.
//!
//! A program that a case needs and the host lacks is a failure, unless `CORDON_TEST_ABSENT` names it (words
//! with blanks or commas between): then it must be absent, and its cases are left out.

mod case;

use crate::harness::{
    Executor, PATIENCE, crowd, daemon, host, stretched,
    table::{assert_each, is_like, summary},
};
use case::{Action, Case};
use cordon_protocol::{CgroupMode, EndedBy, ExitReport};
use std::{
    panic::catch_unwind,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Where a command searches programs (the standard PATH of the executor).
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Directory of the Rust toolchain that the tests themselves are built with, where there is one.
fn rust() -> Option<&'static Path> {
    static PLACE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let asked = || {
        let out = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
        let place = PathBuf::from(String::from_utf8(out.stdout).ok()?.trim());
        out.status.success().then_some(place)
    };
    PLACE.get_or_init(asked).as_deref()
}

/// An executor with the profile `default`, and `rust`, which gives a toolchain that lies outside of it.
fn executor() -> &'static Executor {
    static SHARED: OnceLock<Option<Executor>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        let mut profiles = "[profiles.default]\n".to_owned();
        if let Some(rust) = rust() {
            let rust = rust.display();
            profiles += &format!(
                "[profiles.rust]\nread = [\"/usr\", \"/etc\", \"/opt\", \"{rust}\"]\n\
                 execute = [\"/usr\", \"/opt\", \"{rust}\"]\nenv = {{ PATH = \"{rust}/bin:{PATH}\" }}\n"
            );
        }
        let executor = catch_unwind(|| Executor::start(&profiles)).ok()?;
        daemon::end_at_exit(executor.pid(), executor.directory());
        Some(executor)
    });
    shared
        .as_ref()
        .expect("the executor for real programs did not start; the first test that wanted it says why")
}

/// Whether a command can find this program, or path, under the profile.
fn is_there(needed: &str, profile: &str) -> bool {
    if needed.starts_with('/') {
        return Path::new(needed).exists();
    }
    let toolchain = rust().filter(|_| profile == "rust").map(|rust| rust.join("bin"));
    let places = PATH.split(':').map(PathBuf::from).chain(toolchain);
    places.map(|place| place.join(needed)).any(|program| program.exists())
}

/// Whether the case cannot be run on this host, which has been told so.
fn is_left_out(case: &Case) -> Result<bool, Vec<String>> {
    let told = std::env::var("CORDON_TEST_ABSENT").unwrap_or_default();
    let mut left_out = false;
    let mut wrong = Vec::new();
    for needed in &case.needs {
        let absent = told.split([' ', ',']).any(|word| word == needed);
        match (is_there(needed, &case.profile), absent) {
            (true, false) => {}
            (false, true) => left_out = true,
            (false, false) => wrong.push(format!("  {needed} is not there; .ci/run installs it")),
            (true, true) => wrong.push(format!("  {needed} is there, though CORDON_TEST_ABSENT names it")),
        }
    }
    if wrong.is_empty() { Ok(left_out) } else { Err(wrong) }
}

fn run(case: &Case) -> ExitReport {
    let wall = format!("{}ms", stretched(PATIENCE).as_millis());
    let mut arguments = vec!["--json", "--profile", &case.profile, "--timeout", &wall];
    match &case.action {
        Action::Script(text) => arguments.extend(["-c", text]),
        Action::Argv(argv) => arguments.extend(std::iter::once("--").chain(argv.iter().map(String::as_str))),
    }
    let ran = executor().run_with(&arguments, case.stdin.as_bytes());
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("no report ({e}): {}", ran.stderr))
}

/// Where the report is not what the case expects.
fn differences(case: &Case, report: &ExitReport) -> Vec<String> {
    let mut wrong = Vec::new();
    if (report.ended_by, report.exit_code) != (EndedBy::Exit, Some(case.exit)) {
        wrong.push(format!("  expected exit {}", case.exit));
    }
    let stdout = report.stdout.as_deref().unwrap_or_default();
    let stderr = report.stderr.as_deref().unwrap_or_default();
    if case.stdout.as_deref().is_some_and(|expected| expected != stdout) {
        wrong.push(format!("  expected {:?}", case.stdout.as_deref().unwrap_or_default()));
    }
    for (text, pattern) in [(stdout, &case.stdout_like), (stderr, &case.stderr_like)] {
        if pattern.as_deref().is_some_and(|pattern| !is_like(text, pattern)) {
            wrong.push(format!("  expected like {:?}", pattern.as_deref().unwrap_or_default()));
        }
    }
    let mut lines = stdout.lines();
    let first = lines.next();
    if case.same_lines && (first.is_none() || lines.any(|line| Some(line) != first)) {
        wrong.push("  expected lines that are all the same".to_owned());
    }
    if !wrong.is_empty() {
        wrong.push(summary(report));
    }
    wrong
}

fn check(case: &Case) -> Vec<String> {
    match is_left_out(case) {
        Ok(false) => {}
        Ok(true) => return Vec::new(),
        Err(wrong) => return wrong,
    }
    let report = {
        let _crowd = crowd::among_others();
        run(case)
    };
    let wrong = differences(case, &report);
    match &case.controllers {
        // What is said about lesser hosts has to be true as well.
        Some(why) if host::cgroup_mode() != CgroupMode::V2 => match wrong.is_empty() {
            true => vec![format!("  works without controllers, though it is said not to: {why}")],
            false => Vec::new(),
        },
        _ => wrong,
    }
}

fn assert_works(table: &str) {
    let cases = case::parse(table);
    assert_each(&cases, 1, |case| format!("{}: {}", case.name, case.why), check);
}

#[test]
fn bash_coreutils_and_process_tools_work() {
    assert_works(include_str!("../../compat/shell.toml"));
}

#[test]
fn text_tools_archivers_and_perl_work() {
    assert_works(include_str!("../../compat/text.toml"));
}

#[test]
fn git_works() {
    assert_works(include_str!("../../compat/git.toml"));
}

#[test]
fn python_works() {
    assert_works(include_str!("../../compat/python.toml"));
}

#[test]
fn node_and_npm_work() {
    assert_works(include_str!("../../compat/node.toml"));
}

#[test]
fn compilers_and_build_tools_work() {
    assert_works(include_str!("../../compat/build.toml"));
}

#[test]
fn databases_cryptography_and_network_clients_work() {
    assert_works(include_str!("../../compat/services.toml"));
}

#[test]
fn a_program_that_is_not_there_is_a_failure_and_so_is_another_answer() {
    let wrong = |needs: &str, expected: &str| {
        let text = format!(
            "[[case]]\nname = 'x'\nwhy = 'y'\nneeds = ['{needs}']\nscript = 'echo yes'\nstdout_like = '{expected}'"
        );
        check(&case::parse(&text)[0]).join(" ")
    };
    assert!(wrong("no-such-program", "yes").contains("no-such-program is not there"));
    assert!(wrong("bash", "^no$").contains("expected like \"^no$\""));
    assert_eq!(wrong("bash", r"^yes\s$"), "", "the control");
}
