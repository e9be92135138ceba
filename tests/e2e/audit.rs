//! The audit trail: what ran is in it before it runs, and nobody changes it unseen.

use crate::harness::{Executor, build::programs, process};
use serde_json::Value;
use std::{fs, path::PathBuf, process::Command};

fn trail(executor: &Executor) -> PathBuf {
    executor.directory().join("audit.jsonl")
}

fn lines(executor: &Executor) -> Vec<Value> {
    let text = fs::read_to_string(trail(executor)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn verify(executor: &Executor) -> process::Ran {
    let mut command = Command::new(&programs().cordon);
    command.args(["audit", "verify", "--file"]).arg(trail(executor));
    command.arg("--head").arg(executor.directory().join("state/audit.head"));
    process::run(command, &[])
}

/// Bytes to which the monitor's own files may grow, as prlimit(1) writes them; the hard limit stays.
fn limit_file_size(executor: &Executor, size: &str) {
    let mut command = Command::new("prlimit");
    command.arg("--pid").arg(executor.pid().to_string()).arg(format!("--fsize={size}:"));
    assert_eq!(process::run(command, &[]).status, 0);
}

#[test]
fn launch_and_end_are_recorded_under_the_kernel_s_uid() {
    let executor = Executor::start("");
    let report = executor.report(&["-c", "exit 3"]);
    let seen = lines(&executor);
    let of = |event: &str| seen.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    assert_eq!(of("started").len(), 1);
    let [launch] = of("launch")[..] else { panic!("{seen:?}") };
    assert_eq!((launch["job"].as_str(), launch["uid"].as_u64()), (Some(report.id.as_str()), Some(0)));
    assert_eq!(launch["request"].as_str().unwrap().len(), 64);
    let [ended] = of("ended")[..] else { panic!("{seen:?}") };
    assert_eq!((ended["job"].as_str(), ended["exit_code"].as_i64()), (Some(report.id.as_str()), Some(3)));
    let verified = verify(&executor);
    assert_eq!(verified.status, 0, "{verified:?}");
}

#[test]
fn a_changed_or_cut_trail_is_found() {
    let executor = Executor::start("");
    executor.run(&["--", "true"]);
    let whole = fs::read_to_string(trail(&executor)).unwrap();
    for (changed, says) in [
        (whole.replacen("\"uid\":0", "\"uid\":1", 1), "changed"),
        (whole.lines().take(2).map(|line| format!("{line}\n")).collect(), "cut off"),
        (whole.lines().rev().map(|line| format!("{line}\n")).collect(), "missing, doubled or moved"),
    ] {
        fs::write(trail(&executor), changed).unwrap();
        let verified = verify(&executor);
        assert!(verified.status == 1 && verified.stderr.contains(says), "{says}: {verified:?}");
    }
    fs::write(trail(&executor), &whole).unwrap();
    assert_eq!(verify(&executor).status, 0);
}

#[test]
fn what_cannot_be_recorded_does_not_run() {
    // A file that takes no more than it has: its size is the limit of the executor's own files.
    let executor = Executor::start("");
    executor.run(&["--", "true"]);
    let length = fs::metadata(trail(&executor)).unwrap().len();
    limit_file_size(&executor, &length.to_string());
    let report = executor.report(&["-c", "echo ran"]);
    assert_eq!((report.step.as_deref(), report.stdout.as_deref()), (Some("audit"), Some("")), "{report:?}");
    limit_file_size(&executor, "unlimited");
    assert_eq!(executor.report(&["-c", "echo ran"]).stdout.as_deref(), Some("ran\n"));
    assert_eq!(verify(&executor).status, 0);
}
