//! A workspace's caps hold for the workspace: what many short commands leave does not pile up, one that holds too much
//! takes nothing more, and can be made smaller.

use super::{directory, file, inside, within};
use crate::harness::{
    Executor, PATIENCE, build,
    client::{argv, collect},
    eventually, process,
};
use cordon_protocol::{
    Action, EndedBy, Event, ExitReport, LimitName, RunRequest,
    client::{ClientError, blocking},
};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

const SMALL: &str = "[profiles.default.limits]\nnamed_workspace = \"4M\"\nnamed_workspace_files = 50";

/// Bytes and files in root's workspace of this name.
fn held(executor: &Executor, name: &str) -> (u64, usize) {
    let entries: Vec<_> = fs::read_dir(directory(executor, name)).unwrap().flatten().collect();
    let bytes = entries.iter().map(|entry| entry.metadata().unwrap().blocks() * 512).sum();
    (bytes, entries.len())
}

fn delete(executor: &Executor, name: &str) {
    let delete = || blocking::delete_workspace(&executor.socket, "test", name).is_ok();
    eventually("nothing uses it", PATIENCE, delete);
}

fn ran(executor: &Executor, name: &str, script: &str) -> ExitReport {
    executor.events(within(name, script)).report
}

#[test]
fn short_commands_do_not_pile_up_what_each_was_too_short_to_be_ended_for() {
    let executor = Executor::start(SMALL);
    for round in 0..10 {
        ran(&executor, "bytes", &format!("head -c 5M /dev/zero > f{round}"));
        ran(&executor, "files", &format!("for n in $(seq 40); do : > {round}-$n; done"));
    }
    // The first was let do it, and one more where others made room on the disk just then; of files it took two.
    let ((bytes, _), (_, files)) = (held(&executor, "bytes"), held(&executor, "files"));
    assert!((5 << 20..11 << 20).contains(&bytes), "{bytes}");
    assert!((50..=120).contains(&files), "{files}");
    // Another workspace is another matter.
    assert_eq!(inside(&executor, "other", "echo x > f; cat f"), "x\n");
}

#[test]
fn what_is_left_over_the_cap_is_told_in_the_report_of_whoever_left_it() {
    let executor = Executor::start(SMALL);
    let is_told = |_: &i32| {
        // At its very end, after the looks that were due while it ran.
        let report = ran(&executor, "work", "sleep 0.2; head -c 5M /dev/zero > f");
        delete(&executor, "work");
        report.ended_by == EndedBy::Exit && report.limits_hit == [LimitName::Disk]
    };
    // Others may give back to the disk just then what it takes; and now and then it is seen while it runs.
    let told = (0..10).filter(is_told).count();
    assert!(told >= 4, "{told}");
    let report = ran(&executor, "fine", "head -c 3M /dev/zero > f; sync f");
    assert_eq!((report.ended_by, report.limits_hit), (EndedBy::Exit, vec![]));
}

#[test]
fn in_one_that_is_over_things_are_read_and_removed_and_nothing_is_added() {
    let executor = Executor::start(SMALL);
    ran(&executor, "work", "echo kept > kept; mkdir d; : > d/x; head -c 5M /dev/zero > f; sync f");
    let before = held(&executor, "work");
    let adding = "import os, socket\n\
        def tried(what, *args):\n  try: what(*args); print('done', what, args)\n  except OSError as e: assert e.errno in (1, 13, 18), e\n\
        tried(open, 'new', 'w'); tried(open, 'f', 'a'); tried(open, 'kept', 'r+'); tried(os.mkdir, 'e')\n\
        tried(os.symlink, 'a', 'b'); tried(os.link, 'f', 'g'); tried(os.mkfifo, 'p'); tried(os.rename, 'f', 'g')\n\
        tried(os.open, '.', os.O_TMPFILE | os.O_RDWR); tried(os.rename, 'd/x', 'x'); tried(os.truncate, 'f', 1 << 30)\n\
        tried(socket.socket(socket.AF_UNIX).bind, 's'); tried(os.rename, '/tmp/t', 't')";
    let request = RunRequest { workspace: Some("work".to_owned()), ..argv(&["python3", "-c", adding]) };
    let tried = executor.events(request).report;
    assert_eq!((tried.stdout.as_deref(), tried.exit_code), (Some(""), Some(0)), "{tried:?}");
    assert_eq!(tried.limits_hit, [LimitName::Disk]);
    assert_eq!(held(&executor, "work"), before);
    // Read it can be, by commands and errands, and elsewhere they write as ever.
    assert_eq!(inside(&executor, "work", "cat kept > /tmp/x && cat /tmp/x"), "kept\n");
    let read = RunRequest {
        workspace: Some("work".to_owned()),
        ..RunRequest::new(Action::Read { path: "kept".to_owned() })
    };
    assert_eq!(executor.events(read).report.stdout.as_deref(), Some("kept\n"));
    let complaint = ran(&executor, "work", "echo x > new");
    let hint = complaint.hint.unwrap();
    assert!(hint.what.contains("named_workspace") && hint.what.contains("nothing is added"), "{hint:?}");
    // Made smaller it is used as ever.
    assert_eq!(inside(&executor, "work", "sleep 0.3; rm f d/x; rmdir d; ls"), "kept\n");
    assert_eq!(inside(&executor, "work", "echo new > new; cat new"), "new\n");
}

#[test]
fn nothing_is_put_into_one_that_is_over_or_would_be() {
    let executor = Executor::start(SMALL);
    let put = |input: &[u8], path: &str| {
        let request = RunRequest {
            workspace: Some("work".to_owned()),
            stdin: true,
            ..RunRequest::new(Action::Write { path: path.to_owned(), mode: None })
        };
        let (connection, mut stdin) = blocking::run(&executor.socket, "test", request).unwrap();
        // It need not take all of it.
        let _ = stdin.send(input).and_then(|()| stdin.end());
        collect(connection).unwrap().report
    };
    let (large, fits) = (vec![1; 5 << 20], vec![1; 3 << 20]);
    for _ in 0..5 {
        let report = put(&large, "a/large");
        assert_eq!(report.exit_code, Some(1), "{report:?}");
        assert!(report.stderr.unwrap().contains("named_workspace"));
        assert!(!directory(&executor, "work").join("a/large").exists());
    }
    assert_eq!(put(&fits, "fits").exit_code, Some(0));
    // In its own place it has room, beside itself it has none.
    assert_eq!(put(&fits, "beside").exit_code, Some(1));
    assert_eq!(put(&fits, "fits").exit_code, Some(0));
    let with_files = |content: &[u8]| RunRequest {
        workspace: Some("work".to_owned()),
        files: vec![file("brought", content, None)],
        ..RunRequest::new(Action::Nothing)
    };
    let report = executor.events(with_files(&fits)).report;
    assert_eq!((report.ended_by, report.step.as_deref()), (EndedBy::LaunchFailed, Some("files")));
    let hint = report.hint.unwrap();
    let said = "brought: the workspace would hold more than 4M (named_workspace) or 50 files (named_workspace_files)";
    assert_eq!(hint.what, said);
    assert_eq!(report.limits_hit, [LimitName::Disk]);
    // Of files there is no more room either, whatever they hold.
    let many: Vec<_> = (0..60).map(|number| file(&format!("many/{number}"), b"", None)).collect();
    let request =
        RunRequest { workspace: Some("work".to_owned()), files: many, ..RunRequest::new(Action::Nothing) };
    let report = executor.events(request).report;
    assert_eq!((report.ended_by, report.step.as_deref()), (EndedBy::LaunchFailed, Some("files")));
    let made = || fs::read_dir(directory(&executor, "work").join("many")).unwrap().count();
    assert!((40..50).contains(&made()), "{}", made());
    assert_eq!(put(b"x", "many/another").exit_code, Some(1));
    inside(&executor, "work", "rm -r many");
    // As the program says it.
    let local = executor.directory().join("local");
    fs::write(&local, &large).unwrap();
    let mut command = Command::new(&build::programs().cordon);
    command.args(["workspace", "put", "work"]).arg(&local).env("CORDON_SOCKET", &executor.socket);
    let said = process::run(command, &[]);
    let in_numbers = "more than 4M (named_workspace) or 50 files (named_workspace_files)";
    assert!(said.status == 125 && said.stderr.contains(in_numbers), "{said:?}");
    let mut command = Command::new(&build::programs().cordon);
    command.args(["run", "--workspace", "other", "-c", "true", "--file"]);
    command.arg(format!("x={}", local.display())).env("CORDON_SOCKET", &executor.socket);
    let said = process::run(command, &[]);
    let by_name = said.stderr.contains(in_numbers) && said.stderr.contains("`cordon workspace delete other`");
    assert!(said.status == 125 && by_name, "{said:?}");
    // What is over takes nothing at all.
    ran(&executor, "work", "head -c 3M /dev/zero > more; sync more");
    for request in [
        with_files(b"x"),
        RunRequest {
            workspace: Some("work".to_owned()),
            stdin: true,
            ..RunRequest::new(Action::Write { path: "x".to_owned(), mode: None })
        },
    ] {
        let refused = executor.refusal(request);
        let said = "limit_refused: workspace: `work` holds ";
        assert!(refused.starts_with(said) && refused.contains("4M (named_workspace)"), "{refused}");
    }
}

#[test]
fn what_is_closed_to_its_owner_hides_nothing_and_stays_closed() {
    let executor = Executor::start(SMALL);
    let mode = |path: &str| fs::metadata(directory(&executor, "work").join(path)).unwrap().mode() & 0o777;
    ran(
        &executor,
        "work",
        "mkdir -p h/d; head -c 3M /dev/zero > h/d/f; sync h/d/f; chmod 300 h/d; chmod 000 h",
    );
    // Looked at while it is used, and after its end.
    let report = ran(&executor, "work", "head -c 2M /dev/zero > g; sync g; sleep 60");
    assert_eq!((report.ended_by, mode("h")), (EndedBy::DiskLimit, 0), "{report:?}");
    let report = ran(&executor, "work", "rm g; echo x > new");
    assert!(report.hint.as_ref().is_some_and(|hint| hint.what.contains("named_workspace")), "{report:?}");
    ran(&executor, "work", "sleep 0.3");
    assert_eq!(inside(&executor, "work", "echo x > new; cat new"), "x\n");
    assert_eq!(mode("h"), 0);
    // A command's own look cannot see there, and says so.
    let request = RunRequest { workspace: Some("work".to_owned()), ..RunRequest::new(Action::Measure) };
    let measured = executor.events(request).report.stdout.unwrap();
    assert!(measured.ends_with(" 2 1\n"), "{measured}");
}

#[test]
fn one_whose_top_is_closed_is_open_to_the_next_command() {
    let executor = Executor::start("");
    for closed in ["000", "300", "400", "600"] {
        assert_eq!(inside(&executor, "work", &format!("echo {closed} > f; chmod {closed} .")), "");
        assert_eq!(inside(&executor, "work", "cat f; stat -c %a ."), format!("{closed}\n700\n"));
    }
    // And to nobody else.
    inside(&executor, "work", "chmod 7777 .");
    assert_eq!(inside(&executor, "work", "stat -c %a ."), "700\n");
}

#[test]
fn a_put_that_is_broken_off_leaves_what_was_there() {
    let executor = Executor::start(SMALL);
    inside(&executor, "work", "echo old > old");
    let top = directory(&executor, "work");
    for (before, path) in ["old", "new"].into_iter().enumerate() {
        let request = RunRequest {
            workspace: Some("work".to_owned()),
            stdin: true,
            ..RunRequest::new(Action::Write { path: path.to_owned(), mode: None })
        };
        let (mut connection, mut stdin) = blocking::run(&executor.socket, "test", request).unwrap();
        assert!(matches!(connection.next_event().unwrap(), Event::Started { .. }));
        // More than a pipe holds, so that some of it has been written.
        stdin.send(&vec![1; 1 << 20]).unwrap();
        connection.close();
        drop(stdin);
        let trail = || fs::read_to_string(executor.directory().join("audit.jsonl")).unwrap();
        let ended = || trail().matches("\"ended_by\":\"cancelled\"").count() > before;
        eventually("it has ended", PATIENCE, ended);
        let names: Vec<_> = fs::read_dir(&top).unwrap().flatten().map(|entry| entry.file_name()).collect();
        let is_old = fs::read(top.join("old")).unwrap() == b"old\n";
        assert!(names == ["old"] && is_old, "{path}: {names:?}, {is_old}");
        delete(&executor, "work");
        inside(&executor, "work", "echo old > old");
    }
}

#[test]
fn a_launch_waits_for_no_more_than_a_while_where_others_come_and_go() {
    let executor = Executor::start("[profiles.default.limits]\nnamed_workspace_files = 100_000");
    let many = "for d in $(seq 40); do mkdir $d; cd $d; touch $(seq 300); cd ..; done";
    inside(&executor, "work", many);
    let go_on = AtomicBool::new(true);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while go_on.load(Relaxed) {
                    ran(&executor, "work", "true");
                }
            });
        }
        let request = RunRequest {
            workspace: Some("work".to_owned()),
            files: vec![file("x", b"x", None)],
            ..RunRequest::new(Action::Nothing)
        };
        let put = executor.events(request).report;
        go_on.store(false, Relaxed);
        assert_eq!(put.exit_code, Some(0), "{put:?}");
    });
}

#[test]
fn the_names_of_the_top_directory_itself_are_counted() {
    let executor = Executor::start(SMALL);
    let links = "import os\nopen('f', 'w').close()\n\
        for n in range(30000): os.link('f', f'{n:0>240}')\n";
    let request = RunRequest { workspace: Some("work".to_owned()), ..argv(&["python3", "-c", links]) };
    executor.events(request);
    let top = directory(&executor, "work");
    if fs::metadata(&top).unwrap().blocks() == 0 {
        // A file system in memory (tmpfs) says that its directories take nothing.
        return;
    }
    ran(&executor, "work", ": > new");
    let new = top.join("new");
    // The first one more may start before it was counted.
    fs::remove_file(&new).ok();
    eventually("it takes nothing more", PATIENCE, || {
        ran(&executor, "work", ": > new");
        fs::remove_file(&new).is_err()
    });
}

#[test]
fn what_was_forgotten_is_measured_before_the_next_command_starts() {
    let executor = Executor::start(SMALL);
    inside(&executor, "work", "echo kept > kept");
    let executor = executor.again();
    // Larger than it may be, by nobody whom the executor has seen.
    fs::write(directory(&executor, "work").join("f"), vec![1; 5 << 20]).unwrap();
    ran(&executor, "work", ": > new");
    assert!(!directory(&executor, "work").join("new").exists());
    delete(&executor, "work");
    assert_eq!(inside(&executor, "work", ": > new; ls"), "new\n");
    eventually("the old one is gone", PATIENCE, || {
        fs::read_dir(directory(&executor, "work").parent().unwrap()).unwrap().count() == 1
    });
}

#[test]
fn what_something_wrote_that_ran_on_after_its_command_is_counted_too() {
    let executor = Executor::start(SMALL);
    let put = || RunRequest {
        workspace: Some("work".to_owned()),
        files: vec![file("x", b"x", None)],
        ..RunRequest::new(Action::Nothing)
    };
    // It has only as long as pipes have, and holds one open for it.
    let left = "{ while kill -0 $$ 2>/dev/null; do :; done; head -c 5M /dev/zero > f; sync f; sleep 60; } &";
    eventually("it is refused", PATIENCE, || {
        let report = ran(&executor, "work", left);
        assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(0)), "{report:?}");
        let (connection, _stdin) = blocking::run(&executor.socket, "test", put()).unwrap();
        let refused = matches!(collect(connection), Err(ClientError::Refused(_)));
        delete(&executor, "work");
        refused
    });
}
