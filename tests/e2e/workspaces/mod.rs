//! Named workspaces, files in and files out, at the executor's socket: what stays, what is apart, what bounds them,
//! and that nothing in them leads anybody out.

mod caps;
mod files;
mod room;

use crate::harness::{
    Executor, PATIENCE,
    client::{argv, collect, line},
    daemon::server_of,
    eventually, host, lab,
    lab::STRANGER,
    marker,
    process::{self, sandboxed},
    stretched,
};
use cordon_protocol::{
    Action, CollectedFile, EndedBy, Event, ExitReport, FileIn, LimitName, LimitRequest, RunRequest,
    client::{ClientError, blocking},
};
use nix::sys::signal::{Signal, kill};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::PathBuf,
    thread,
    time::Duration,
};

fn within(name: &str, script: &str) -> RunRequest {
    let mut request = RunRequest { workspace: Some(name.to_owned()), ..line(script) };
    request.limits.wall_ms = u64::try_from(stretched(PATIENCE).as_millis()).ok();
    request
}

/// Standard output of a line that must succeed in a workspace.
fn inside(executor: &Executor, name: &str, script: &str) -> String {
    let report = executor.events(within(name, script)).report;
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(0)), "{script}\n{report:?}");
    report.stdout.unwrap()
}

/// Where root keeps a workspace of root's.
fn directory(executor: &Executor, name: &str) -> PathBuf {
    executor.directory().join("state/workspaces/0").join(name)
}

fn file(path: &str, content: &[u8], mode: Option<u32>) -> FileIn {
    FileIn { path: path.to_owned(), content: content.to_vec(), mode }
}

/// The report of a request, and the files that came before it.
fn collected(executor: &Executor, request: RunRequest) -> (ExitReport, Vec<CollectedFile>) {
    let (mut connection, _stdin) = blocking::run(&executor.socket, "test", request).unwrap();
    let mut files = Vec::new();
    loop {
        match connection.next_event().unwrap() {
            Event::Exited(report) => return (*report, files),
            Event::File(file) => files.push(file),
            _ => {}
        }
    }
}

#[test]
fn a_named_workspace_stays_and_a_private_one_goes() {
    let executor = Executor::start("");
    assert_eq!(
        inside(&executor, "work", "pwd; echo kept > here; mkdir bin; cat here"),
        "/home/execuser\nkept\n"
    );
    let script = "printf '#!/bin/sh\\necho tool\\n' > bin/tool && chmod +x bin/tool && bin/tool";
    assert_eq!(inside(&executor, "work", script), "tool\n");
    assert_eq!(
        inside(&executor, "work", "cat ~/here; bin/tool; stat -c '%U %a' ."),
        "kept\ntool\nexecuser 700\n"
    );
    assert_eq!(executor.inside("ls -A ~"), "", "a private one");
    assert_eq!(inside(&executor, "other", "ls -A ~"), "", "another one");
    let kept = directory(&executor, "work").join("here");
    assert_eq!(fs::metadata(kept).unwrap().uid(), host::uid_of("execuser"));
    // And over a restart.
    let executor = executor.again();
    assert_eq!(inside(&executor, "work", "cat here"), "kept\n");
}

#[test]
fn nobody_else_reaches_a_program_that_runs_as_whoever_left_it() {
    let executor = Executor::start("");
    // As a state directory lies on a real host: everything above it lets others through.
    fs::set_permissions(executor.directory(), fs::Permissions::from_mode(0o711)).unwrap();
    let state = executor.directory().join("state");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o711)).unwrap();
    inside(&executor, "work", "cp /usr/bin/id .; chmod 6755 id; chmod 7755 .");
    let program = directory(&executor, "work").join("id");
    assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, 0o6755);
    let run_as = |uid: u32, gid: u32| {
        let mut command = host::as_user(uid, gid, &[], "/bin/sh");
        command.args(["-c", "exec \"$0\" -u"]).arg(&program);
        process::run(command, &[])
    };
    let (user, group) = (host::uid_of("execuser"), host::gid_of("execuser"));
    assert_eq!(run_as(user, group).text(), format!("{user}\n"), "the control");
    let refused = run_as(54_106, 54_106);
    assert!(refused.status != 0 && refused.stderr.contains("Permission denied"), "{}", refused.stderr);
}

#[test]
fn what_is_mounted_there_is_no_way_to_gain_anything() {
    let executor = Executor::start("");
    inside(&executor, "work", "cp /usr/bin/id suid && chmod 4755 suid; ln -s /etc/shadow link; mkfifo pipe");
    let flags = inside(&executor, "work", "grep ' /home/execuser ' /proc/self/mountinfo | cut -d' ' -f6");
    assert!(flags.contains("rw") && flags.contains("nosuid") && flags.contains("nodev"), "{flags}");
    // Nothing else of the state directory is there.
    assert_eq!(
        inside(&executor, "work", "ls -A /home /home/execuser/.. | sort -u"),
        "\n/home/execuser/..:\n/home:\nexecuser\n"
    );
}

#[test]
fn two_commands_share_one_at_once_and_peers_have_their_own() {
    let executor = Executor::start("");
    let (name, marker) = ("shared", marker());
    let first = within(name, &format!("mkfifo p; cat p & echo go > q; sleep {marker}"));
    let _first = blocking::run(&executor.socket, "test", first).unwrap();
    eventually("the first runs", PATIENCE, || directory(&executor, name).join("q").exists());
    assert_eq!(inside(&executor, name, "cat q; test -p p && echo pipe"), "go\npipe\n");
    // Another peer's of the same name is another one.
    let directory = crate::harness::daemon::open_directory();
    let cordon =
        crate::harness::client::public_copy(&crate::harness::build::programs().cordon, directory.path());
    let mut command = host::as_user(STRANGER, STRANGER, &[host::gid_of("cordon")], &cordon.to_string_lossy());
    command.args(["run", "--workspace", name, "--", "ls", "-A"]).env("CORDON_SOCKET", &executor.socket);
    let ran = process::run(command, &[]);
    assert_eq!((ran.status, ran.text()), (0, String::new()), "{ran:?}");
}

#[test]
fn they_are_listed_and_deleted_and_one_in_use_is_not() {
    let executor = Executor::start("");
    let names = || -> Vec<String> {
        blocking::workspaces(&executor.socket, "test").unwrap().into_iter().map(|w| w.name).collect()
    };
    assert!(names().is_empty());
    let outside = executor.directory().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    inside(&executor, "b", "mkdir -p a/b/c && touch a/b/c/d && chmod 0 a/b && echo x > y");
    symlink(&outside, directory(&executor, "b").join("link")).unwrap();
    inside(&executor, "a", "true");
    assert_eq!(names(), ["a", "b"]);
    let marker = marker();
    let connection =
        blocking::run(&executor.socket, "test", within("b", &format!("exec sleep {marker}"))).unwrap();
    eventually("it runs", PATIENCE, || !sandboxed(&marker).is_empty());
    let delete = |name: &str| match blocking::delete_workspace(&executor.socket, "test", name) {
        Ok(()) => "deleted".to_owned(),
        Err(ClientError::Refused(refusal)) => format!("{}: {refusal}", refusal.code.as_str()),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(delete("b"), "busy: workspace: a command uses `b`");
    drop(connection);
    eventually("it can be deleted", PATIENCE, || delete("b") == "deleted");
    assert_eq!(names(), ["a"]);
    let left = || fs::read_dir(directory(&executor, "a").parent().unwrap()).unwrap().count();
    eventually("nothing of it is left", PATIENCE, || left() == 1);
    assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept", "what a link led to");
    assert_eq!(delete("b"), "not_found: workspace: this user has none of the name `b`");
    assert!(delete("../a").starts_with("bad_request: workspace: `../a` is not a name"));
    assert_eq!(inside(&executor, "b", "ls -A"), "", "a new one of that name");
}

#[test]
fn too_large_a_workspace_ends_the_command_and_only_it() {
    let executor =
        Executor::start("[profiles.default.limits]\nnamed_workspace = \"16M\"\nnamed_workspace_files = 50");
    let ended = |script: &str, name: &str| {
        let report = executor.events(within(name, script)).report;
        (report.ended_by, report.limits_hit)
    };
    let over = (EndedBy::DiskLimit, vec![LimitName::Disk]);
    let fill = "head -c 64M /dev/zero > f; sync f; sleep 60";
    assert_eq!(ended(fill, "bytes"), over);
    let many = "for n in $(seq 100); do echo > $n; done; sleep 60";
    assert_eq!(ended(many, "files"), over);
    // It stays over until something is deleted, which takes a moment's grace.
    assert_eq!(ended("sleep 60", "bytes"), over);
    let fine = (EndedBy::Exit, vec![]);
    assert_eq!(ended("rm f", "bytes"), fine);
    assert_eq!(ended("head -c 8M /dev/zero > f; sync f; sleep 2", "bytes"), fine);
    assert_eq!(ended("head -c 64M /dev/zero > /tmp/f", "bytes"), fine, "/tmp is bounded on its own");
}

#[test]
fn a_full_private_workspace_is_told_and_ends_nothing() {
    let executor = lab();
    let mut request = line("head -c 64M /dev/zero > f; echo $?");
    request.profile = Some("tiny".to_owned());
    request.limits = LimitRequest { wall_ms: Some(30_000), ..LimitRequest::default() };
    // `tiny` bounds one file to 1M too.
    request.action =
        Action::Line("for n in $(seq 20); do head -c 1M /dev/zero > f$n || exit 3; done".to_owned());
    let report = executor.events(request).report;
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(3)), "{report:?}");
    assert_eq!(report.limits_hit, [LimitName::Disk]);
}

#[test]
fn where_the_disk_has_too_little_room_nothing_starts() {
    let executor = Executor::start("free_space_min = \"1000000G\"");
    let refused = executor.refusal(within("work", "true"));
    assert!(
        refused.starts_with("busy: workspace: ") && refused.contains("free_space_min, 1000000G"),
        "{refused}"
    );
    assert!(!directory(&executor, "work").exists());
    executor.assert_works();
}

#[test]
fn a_name_that_is_none_is_refused() {
    for name in ["", "..", "../x", "a/b", ".hidden", "Upper", "a\n", "ä", &"a".repeat(65)] {
        let refused = lab().refusal(within(name, "true"));
        assert!(refused.starts_with("bad_request: workspace: "), "{name:?}: {refused}");
    }
    let longest = "a".repeat(64);
    assert_eq!(inside(lab(), &longest, "echo x"), "x\n");
}

#[test]
fn errands_read_write_and_measure_without_a_program() {
    let _verdict = crate::escape::probe!();
    let executor = Executor::start("");
    let errand = |action: Action, input: Option<&[u8]>| {
        let request = RunRequest {
            workspace: Some("work".to_owned()),
            stdin: input.is_some(),
            ..RunRequest::new(action)
        };
        let (connection, mut stdin) = blocking::run(&executor.socket, "test", request).unwrap();
        if let Some(input) = input {
            stdin.send(input).unwrap();
            stdin.end().unwrap();
        }
        collect(connection).unwrap()
    };
    let path = "a/b".to_owned();
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    let written = errand(Action::Write { path: path.clone(), mode: Some(0o640) }, Some(&large));
    assert_eq!((written.report.ended_by, written.report.exit_code), (EndedBy::Exit, Some(0)), "{written:?}");
    assert!(written.started.is_some());
    assert_eq!(fs::read(directory(&executor, "work").join("a/b")).unwrap(), large);
    let request = RunRequest {
        workspace: Some("work".to_owned()),
        stream: true,
        ..RunRequest::new(Action::Read { path: path.clone() })
    };
    assert!(executor.events(request).stdout == large);
    let measured = errand(Action::Measure, None).report.stdout.unwrap();
    let (bytes, rest) = measured.trim().split_once(' ').unwrap();
    assert_eq!(rest, "2 0");
    assert!((3_000_000..4_000_000).contains(&bytes.parse::<u64>().unwrap()), "{measured}");
    let nothing = errand(Action::Nothing, None).report;
    assert_eq!((nothing.exit_code, nothing.stdout_bytes), (Some(0), 0));
    for (path, text) in [("none", "none: "), ("a", "a: "), ("a/b/c", "a/b/c: ")] {
        let failed = errand(Action::Read { path: path.to_owned() }, None).report;
        assert_eq!(failed.exit_code, Some(1), "{failed:?}");
        assert!(failed.stderr.unwrap().starts_with(text));
    }
    symlink("/etc/passwd", directory(&executor, "work").join("out")).unwrap();
    let failed = errand(Action::Read { path: "out".to_owned() }, None).report;
    assert_eq!((failed.exit_code, failed.stdout_bytes), (Some(1), 0), "{failed:?}");
    for (action, problem) in [
        (Action::Read { path: "../x".to_owned() }, "path: `../x` is not a path down from the workspace"),
        (Action::Write { path: path.clone(), mode: None }, "stdin: is missing"),
    ] {
        let request = RunRequest { workspace: Some("work".to_owned()), ..RunRequest::new(action) };
        let refused = executor.refusal(request);
        assert!(refused.contains(problem), "{refused}");
    }
    // The locks are the command's own.
    let report = errand(Action::Measure, None).report;
    assert_eq!(report.enforced, executor.report(&["--", "true"]).enforced);
}

#[test]
fn links_that_race_lead_nobody_out() {
    let _verdict = crate::escape::probe!();
    let executor = Executor::start("");
    let outside = executor.directory().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(outside.join("target"), "kept").unwrap();
    fs::set_permissions(outside.join("target"), fs::Permissions::from_mode(0o666)).unwrap();
    // Inside, the path leads to nothing; for whoever follows it outside it does.
    let racing = format!(
        "import os\nwhile True:\n  for make in (lambda: os.mkdir('d'), lambda: os.symlink('{0}', 'd'), lambda: os.symlink('{0}/target', 'd')):\n    \
         try: make()\n    except OSError: pass\n    try: os.rename('d', 'old')\n    except OSError: pass\n    \
         os.system('rm -rf old')",
        outside.display()
    );
    let request = RunRequest { workspace: Some("race".to_owned()), ..argv(&["python3", "-c", &racing]) };
    let racer = blocking::run(&executor.socket, "test", request).unwrap();
    let put = |path: &str| RunRequest {
        workspace: Some("race".to_owned()),
        files: vec![file(path, b"overwritten", Some(0o777))],
        collect: vec!["d/*".to_owned(), "d".to_owned()],
        ..RunRequest::new(Action::Nothing)
    };
    for round in 0..40 {
        let (_, files) = collected(&executor, put(if round % 2 == 0 { "d/target" } else { "d" }));
        let read = files.iter().any(|f| f.content.windows(4).any(|w| w == b"kept"));
        assert!(!read, "{files:?}");
    }
    drop(racer);
    assert_eq!(fs::read(outside.join("target")).unwrap(), b"kept");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    let mode = fs::metadata(outside.join("target")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o666);
}

#[test]
fn killed_halves_leave_workspaces_whole_and_deletions_go_on() {
    let mut executor = Executor::start("");
    inside(&executor, "work", "echo kept > file");
    inside(&executor, "gone", "for n in $(seq 2000); do mkdir -p d$n; : > d$n/f; done");
    blocking::delete_workspace(&executor.socket, "test", "gone").unwrap();
    kill(nix::unistd::Pid::from_raw(server_of(executor.pid())), Signal::SIGKILL).unwrap();
    assert!(!executor.process().wait(Duration::from_secs(20)).success());
    let executor = executor.again();
    assert_eq!(inside(&executor, "work", "cat file"), "kept\n");
    let left = || fs::read_dir(directory(&executor, "work").parent().unwrap()).unwrap().count();
    eventually("the deletion is done", PATIENCE, || left() == 1);
    thread::yield_now();
}
