//! The audit trail: what ran is in it before it runs, and nobody changes it unseen.

mod busy;
mod full;
mod power;
pub(crate) mod refusals;
mod rotation;

use crate::harness::{
    Executor, PATIENCE,
    build::programs,
    client::{line, public_copy},
    daemon::{ensure_users, open_directory, start_refused, write_configuration},
    eventually, host, lab, process,
};
use cordon_protocol::{Action, Event, FileIn, LimitRequest, RunRequest, client::blocking};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{fs, os::unix::fs::MetadataExt, path::PathBuf, process::Command};

fn trail(executor: &Executor) -> PathBuf {
    executor.directory().join("audit.jsonl")
}

fn lines(executor: &Executor) -> Vec<Value> {
    let text = fs::read_to_string(trail(executor)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn texts(executor: &Executor) -> PathBuf {
    executor.directory().join("commands.jsonl")
}

fn verify(executor: &Executor) -> process::Ran {
    let mut command = Command::new(&programs().cordon);
    command.args(["audit", "verify", "--file"]).arg(trail(executor));
    command.arg("--head").arg(executor.directory().join("state/audit.head"));
    process::run(command, &[])
}

/// Bytes to which the monitor's own files may grow, as prlimit(1) writes them; the hard limit stays.
pub(crate) fn limit_file_size(executor: &Executor, size: &str) {
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
fn a_member_of_the_group_is_told_that_the_trail_is_for_root() {
    let executor = Executor::start("");
    let cordon = public_copy(&programs().cordon, executor.directory());
    let group = [host::gid_of("cordon")];
    // What another has run, and with which secrets, is not for all who may run commands.
    executor.run(&["--env", "TOKEN=known-to-root-alone", "--", "true"]);
    for action in ["show", "verify"] {
        let mut command = host::as_user(lab::STRANGER, lab::STRANGER, &group, &cordon.to_string_lossy());
        command.args(["audit", action, "--file"]).arg(trail(&executor));
        if action == "verify" {
            command.arg("--head").arg(executor.directory().join("state/audit.head"));
        }
        let ran = process::run(command, &[]);
        assert_eq!(ran.status, 1, "{ran:?}");
        // `verify` reads the head first, which holds no secret.
        let why = if action == "show" { "values of --env included" } else { "audit.head" };
        for word in ["only root may read it", why, "sudo cordon audit"] {
            assert!(ran.stderr.contains(word) && ran.stdout.is_empty(), "{ran:?}");
        }
        for file in [trail(&executor), texts(&executor)] {
            let mut command = host::as_user(lab::STRANGER, lab::STRANGER, &group, "cat");
            command.arg(&file);
            let ran = process::run(command, &[]);
            assert!(ran.status != 0 && ran.stdout.is_empty(), "{ran:?}");
        }
    }
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
fn a_broken_trail_is_moved_away_and_the_next_one_says_so() {
    let executor = Executor::start("");
    executor.run(&["--", "true"]);
    let (file, state) = (trail(&executor), executor.directory().join("executor.toml"));
    let whole = fs::read_to_string(&file).unwrap();
    // A file of before, which a group could read.
    for file in [&file, &texts(&executor)] {
        std::os::unix::fs::chown(file, None, Some(host::gid_of("cordon"))).unwrap();
    }
    let (executor, refused) = executor.again_after(|| {
        fs::write(&file, &whole[..whole.len() - 9]).unwrap();
        let refused = start_refused(&state);
        fs::rename(&file, file.with_extension("broken")).unwrap();
        refused
    });
    assert!(
        refused.stderr.contains("the last line is cut off; look into it, move the file away"),
        "{refused:?}"
    );
    assert!(!refused.stderr.contains("Not a data message"), "{refused:?}");
    executor.run(&["--", "true"]);
    let first = &lines(&executor)[0];
    assert_eq!((&first["event"], &first["found"]), (&json!("begun_anew"), &Value::Null), "{first}");
    let verified = verify(&executor);
    let last = first["seq"].as_u64().unwrap() - 1;
    let says = format!("numbers 1 to {last} are in no file");
    // The text of the command whose line is gone can be compared with nothing.
    assert!(verified.status == 3 && verified.stderr.contains(&says), "{verified:?}");
    // What is added behind a command that the trail knows is found all the same.
    let known = fs::read_to_string(texts(&executor)).unwrap();
    let job = known.lines().last().unwrap().split('"').nth(3).unwrap();
    fs::write(
        texts(&executor),
        known.clone() + &known.lines().last().unwrap().replace(job, "00000000000000ff") + "\n",
    )
    .unwrap();
    let added = verify(&executor);
    assert!(
        added.status == 1 && added.stderr.contains("00000000000000ff: there is a text and no launch"),
        "{added:?}"
    );
    fs::write(texts(&executor), known).unwrap();
    assert!(show(&executor, &[]).contains("begun anew: what was here is gone"));
    for file in [trail(&executor), texts(&executor)] {
        assert_eq!(fs::metadata(&file).unwrap().gid(), 0, "{}", file.display());
    }
    // What somebody takes out of it afterwards is missed all the same.
    let text = fs::read_to_string(trail(&executor)).unwrap();
    fs::write(trail(&executor), text.split_inclusive('\n').skip(1).collect::<String>()).unwrap();
    let verified = verify(&executor);
    assert!(verified.status == 1 && verified.stderr.contains("an older file is missing"), "{verified:?}");
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

#[test]
fn the_text_of_each_command_stands_beside_the_trail() {
    let executor = Executor::start("");
    let file = FileIn { path: "in/a".into(), content: b"abc".to_vec(), mode: Some(0o600) };
    let request = RunRequest {
        action: Action::Argv(["cat", "in/a"].map(str::to_owned).into()),
        env: vec![("NAME".into(), "va lue".into())],
        cwd: Some("/home/execuser".into()),
        workspace: Some("kept".into()),
        files: vec![file],
        collect: vec!["in/*".into()],
        ..line("")
    };
    let mut connection = blocking::run(&executor.socket, "test", request).unwrap().0;
    let job = loop {
        match connection.next_event().unwrap() {
            Event::Exited(report) => break report.id,
            Event::File(file) => assert_eq!(file.content, b"abc"),
            _ => {}
        }
    };
    let text = fs::read_to_string(texts(&executor)).unwrap();
    let found: Value = serde_json::from_str(&text).unwrap();
    let request = lines(&executor).into_iter().find(|line| line["event"] == "launch").unwrap();
    let expected = json!({
        "job": job, "uid": 0, "request": request["request"],
        "text": {
            "work": {"program": ["cat", "in/a"]}, "env": [["NAME", "va lue"]], "cwd": "/home/execuser",
            "workspace": "kept", "files": [{"path": "in/a", "size": 3, "mode": 0o600}], "collect": ["in/*"],
        },
    });
    assert_eq!(found, expected);
    let meta = fs::metadata(texts(&executor)).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o640, 0, 0));
    let verified = verify(&executor);
    assert!(verified.status == 0 && verified.text().contains("1 text is of what ran"), "{verified:?}");
    let shown = show(&executor, &[]);
    let says = "cat in/a env 'NAME=va lue' cwd /home/execuser file in/a (3, 600) collect 'in/*'";
    assert!(shown.contains(&format!("launch  {job} uid 0")) && shown.contains(says), "{shown}");
}

fn show(executor: &Executor, options: &[&str]) -> String {
    let mut command = Command::new(&programs().cordon);
    command.args(["audit", "show", "--file"]).arg(trail(executor)).args(options);
    process::run(command, &[]).text()
}

#[test]
fn a_text_that_was_changed_taken_out_or_added_is_found_by_its_command() {
    let executor = Executor::start("");
    let jobs: Vec<_> = (0..3).map(|n| executor.report(&["-c", &format!("echo {n}")]).id).collect();
    let whole = fs::read_to_string(texts(&executor)).unwrap();
    let without = whole.lines().enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| format!("{line}\n"));
    let added = whole.lines().next().unwrap().replace(&jobs[0], "0123456789abcdef");
    for (changed, says) in [
        (whole.replacen("echo 1", "echo 9", 1), format!("command {}: its text was changed", jobs[1])),
        (whole.replacen("\"uid\":0", "\"uid\":7", 1), format!("command {}: its text was changed", jobs[0])),
        (without.collect(), format!("command {}: its text is missing", jobs[1])),
        (String::new(), format!("command {}: its text is missing", jobs[2])),
        (format!("{whole}{added}\n"), "command 0123456789abcdef: there is a text and no launch".to_owned()),
        (format!("{whole}rubbish\n"), "line 4: not the text of a command".to_owned()),
    ] {
        fs::write(texts(&executor), changed).unwrap();
        let verified = verify(&executor);
        assert!(verified.status == 1 && verified.stderr.contains(&says), "{says}: {verified:?}");
    }
    fs::write(texts(&executor), &whole).unwrap();
    assert_eq!(verify(&executor).status, 0);
}

#[test]
fn a_text_that_is_too_long_is_cut_and_said_to_be() {
    let executor = Executor::start("");
    let report = executor.report(&["-c", &format!("true {}", "a".repeat(100_000))]);
    assert_eq!(report.exit_code, Some(0));
    let text = fs::read_to_string(texts(&executor)).unwrap();
    assert!(text.len() < 80_000 && text.contains("\"cut\":true"), "{}", text.len());
    let verified = verify(&executor);
    // Nothing is wrong, and it is not called good: nobody can compare it.
    let named = format!("command {}: its text was cut", report.id);
    assert!(verified.status == 3 && verified.stderr.contains(&named), "{verified:?}");
    assert!(verified.text().contains("0 texts are of what ran, and 1 was cut"), "{verified:?}");
}

/// An executor that keeps its trail in a directory of its own.
pub(crate) fn with_own_log(before: &[&str]) -> Executor {
    ensure_users();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "available", "");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("/audit.jsonl", "/log/audit.jsonl")).unwrap();
    fs::create_dir(directory.path().join("log")).unwrap();
    let mut command = process::tied(before.first().unwrap_or(&"env").as_ref());
    command.args(before.iter().skip(1)).arg(&programs().executor).arg("--config").arg(file);
    command.current_dir(directory.path());
    Executor::wait_ready(command, directory)
}

/// Below this its log lies, as the executor itself sees it.
pub(crate) fn log_of(executor: &Executor) -> PathBuf {
    let at = executor.directory().join("log");
    PathBuf::from(format!("/proc/{}/root{}", executor.pid(), at.display()))
}

fn verify_log(executor: &Executor, options: &[&str]) -> process::Ran {
    let mut command = Command::new(&programs().cordon);
    command.args(["audit", "verify", "--file"]).arg(log_of(executor).join("audit.jsonl"));
    command.arg("--head").arg(executor.directory().join("state/audit.head")).args(options);
    process::run(command, &[])
}

/// The next command is not run, for want of a trail.
pub(crate) fn assert_refused(executor: &Executor) {
    let report = executor.report(&["-c", "echo ran"]);
    assert_eq!((report.step.as_deref(), report.stdout.as_deref()), (Some("audit"), Some("")), "{report:?}");
}

#[test]
fn nothing_runs_while_the_directory_of_the_trail_is_gone() {
    let executor = with_own_log(&[]);
    executor.assert_works();
    fs::remove_dir_all(log_of(&executor)).unwrap();
    assert_refused(&executor);
    // A new one is begun, and the chain goes on.
    fs::create_dir(log_of(&executor)).unwrap();
    executor.assert_works();
    // What is gone is missed.
    let verified = verify_log(&executor, &[]);
    assert!(verified.status == 1 && verified.stderr.contains("an older file is missing"), "{verified:?}");
    let verified = verify_log(&executor, &["--partial"]);
    assert_eq!(verified.status, 0, "{verified:?}");
    // The text alone.
    let (texts, moved) = (log_of(&executor).join("commands.jsonl"), log_of(&executor).join("moved"));
    fs::rename(&texts, &moved).unwrap();
    fs::create_dir(&texts).unwrap();
    assert_refused(&executor);
    fs::remove_dir(&texts).unwrap();
    fs::rename(&moved, &texts).unwrap();
    executor.assert_works();
    let verified = verify_log(&executor, &["--partial"]);
    assert!(verified.status == 0 && verified.text().contains("2 texts are of what ran"), "{verified:?}");
}

#[test]
fn nothing_runs_while_the_trail_is_on_a_read_only_file_system() {
    let executor = with_own_log(&["unshare", "--mount", "--propagation", "private", "--"]);
    executor.assert_works();
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(executor.pid().to_string()).arg("--mount").arg("--").args(arguments);
        let ran = process::run(command, &[]);
        assert_eq!(ran.status, 0, "{ran:?}");
    };
    let at = executor.directory().join("log");
    let at = at.to_string_lossy();
    inside(&["mount", "-t", "tmpfs", "-o", "ro,mode=755", "none", &at]);
    assert_refused(&executor);
    inside(&["umount", &at]);
    executor.assert_works();
    assert_eq!(verify_log(&executor, &[]).status, 0);
}

#[test]
fn the_log_says_when_the_trail_cannot_be_written_and_when_it_can_again() {
    let mut executor = with_own_log(&[]);
    fs::remove_dir_all(log_of(&executor)).unwrap();
    assert_refused(&executor);
    assert_refused(&executor);
    let log = executor.process().log();
    assert_eq!(log.matches("nothing runs until it can be written again").count(), 1, "{log}");
    fs::create_dir(log_of(&executor)).unwrap();
    executor.assert_works();
    let log = executor.process().log();
    assert_eq!(log.matches("audit: it is written again").count(), 1, "{log}");
}
