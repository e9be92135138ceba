//! Files that a request brings, and files that are collected after a command's end.

use super::*;

#[test]
fn files_are_there_before_the_command_starts() {
    let binary: Vec<u8> = (0..=255).collect();
    let request = RunRequest {
        files: vec![
            file("run", b"#!/bin/sh\necho ran\n", Some(0o755)),
            file("deep/er/data", &binary, Some(0o600)),
            file("empty", b"", None),
        ],
        cwd: Some("/home/execuser/deep".to_owned()),
        ..line("../run; od -An -tx1 er/data | tr -d ' \\n'; stat -c ' %a %U %s' er/data ../empty ../run")
    };
    let report = lab().events(request.clone()).report;
    let hex: String = binary.iter().map(|b| format!("{b:02x}")).collect();
    let expected = format!("ran\n{hex} 600 execuser 256\n 644 execuser 0\n 755 execuser 19\n");
    assert_eq!(report.stdout.as_deref(), Some(&expected[..]), "{report:?}");
    // In a named one what is there is replaced, links are not followed, and nothing else is touched.
    let executor = Executor::start("");
    let outside = executor.directory().join("outside");
    fs::write(&outside, "kept").unwrap();
    inside(&executor, "work", "echo other > other; mkdir deep; echo old > empty");
    symlink(&outside, directory(&executor, "work").join("run")).unwrap();
    let report = executor.events(RunRequest { workspace: Some("work".to_owned()), ..request }).report;
    assert_eq!(report.stdout.as_deref(), Some(&expected[..]), "{report:?}");
    assert_eq!(fs::read(&outside).unwrap(), b"kept");
    assert_eq!(inside(&executor, "work", "cat other empty"), "other\n");
}

#[test]
fn files_that_have_no_place_are_a_failed_launch_and_nothing_runs() {
    let executor = Executor::start("");
    inside(&executor, "work", "ln -s /tmp tmp; ln -s /etc etc; echo x > file; mkdir dir");
    for (path, errno) in [("tmp/x", ""), ("etc/x", ""), ("file/x", ""), ("dir", ""), (&"n".repeat(300), "")] {
        let request = RunRequest {
            workspace: Some("work".to_owned()),
            files: vec![file("first", b"1", None), file(path, b"x", None)],
            ..line("touch ran")
        };
        let report = executor.events(request).report;
        assert_eq!(
            (report.ended_by, report.step.as_deref()),
            (EndedBy::LaunchFailed, Some("files")),
            "{path}"
        );
        let what = report.hint.unwrap().what;
        assert!(what.contains(path.get(..100).unwrap_or(path)) && what.contains(errno), "{path}: {what}");
    }
    assert_eq!(inside(&executor, "work", "ls"), "dir\netc\nfile\nfirst\ntmp\n");
}

#[test]
fn what_is_left_is_collected_after_the_end() {
    let script = "mkdir -p out/deep .hidden; printf 'a\\377b' > out/binary; chmod 640 out/binary; echo t > out/deep/t; \
                  echo no > note; echo h > .hidden/h; mkfifo out/pipe; ln -s /etc/shadow out/shadow; ln -s binary out/link; \
                  : > empty; exit 7";
    let patterns =
        ["out/*", "**/t", "none*", "empty", "out/binary", ".hidden/*", "out"].map(str::to_owned).to_vec();
    let (report, files) = collected(lab(), RunRequest { collect: patterns, ..line(script) });
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(7)), "{report:?}");
    let get =
        |path: &str| files.iter().find(|f| f.path == path).unwrap_or_else(|| panic!("no {path}: {files:?}"));
    let binary = get("out/binary");
    assert_eq!((&binary.content[..], binary.mode, binary.size), (&b"a\xffb"[..], 0o640, 3));
    assert_eq!(get("out/deep/t").content, b"t\n");
    assert_eq!((get("empty").size, &get("empty").problem), (0, &None));
    assert_eq!(get(".hidden/h").content, b"h\n");
    assert_eq!(get("none*").problem.as_deref(), Some("no file matches"));
    assert_eq!(get("out").problem.as_deref(), Some(CollectedFile::ONLY_DIRECTORIES), "a directory is none");
    assert_eq!(get("out/pipe").problem.as_deref(), Some("not a regular file"));
    assert!(get("out/shadow").problem.is_some() && get("out/shadow").content.is_empty());
    assert_eq!(files.iter().filter(|f| f.path == "out/binary").count(), 1, "once");
    assert_eq!(get("out/link").content, b"a\xffb", "a link inside the workspace");
    assert!(!files.iter().any(|f| f.path == "note"));
}

#[test]
fn however_a_command_ended_it_is_collected_from_and_what_it_left_runs_no_longer() {
    let marker = marker();
    let script = format!(
        "trap '' TERM INT HUP; echo partial > result; (setsid sh -c 'trap \"\" TERM HUP; sleep {marker}' &); sleep 60"
    );
    let mut request = RunRequest { collect: vec!["result".to_owned()], ..line(&script) };
    request.limits = LimitRequest { wall_ms: Some(700), ..LimitRequest::default() };
    let (report, files) = collected(lab(), request.clone());
    assert_eq!(report.ended_by, EndedBy::WallTimeout, "{report:?}");
    assert_eq!((&files[0].path[..], &files[0].content[..]), ("result", &b"partial\n"[..]));
    eventually("what it left has ended", PATIENCE, || sandboxed(&marker).is_empty());
    // A hog that has filled its memory with files.
    let hog = "echo kept > result; head -c 200M /dev/zero > /dev/shm/f; python3 -c 'x = bytearray(b\"x\") * (400 << 20); input()' < <(sleep 60)";
    let mut request = RunRequest { collect: vec!["result".to_owned()], ..line(hog) };
    request.limits = LimitRequest { memory_bytes: Some(256 << 20), ..LimitRequest::default() };
    let (report, files) = collected(lab(), request);
    assert_eq!(report.ended_by, EndedBy::OutOfMemory, "{report:?}");
    assert_eq!(files[0].content, b"kept\n", "{files:?}");
    // One that was never executed has left nothing.
    let (report, files) =
        collected(lab(), RunRequest { collect: vec!["*".to_owned()], ..argv(&["/no/such/program"]) });
    assert_eq!((report.exit_code, files.len()), (Some(127), 0));
}

#[test]
fn a_client_that_takes_the_output_late_gets_its_files_all_the_same() {
    // Ends when nobody has taken anything for a while: then everything between it and the client is full.
    let code = "import os, time\nos.set_blocking(1, False)\ntries = 0\nwhile tries < 30:\n\
                \x20 try: os.write(1, bytes(4096)); tries = 0\n\
                \x20 except BlockingIOError: tries += 1; time.sleep(0.01)\n\
                open('result', 'w').write('kept')\nos._exit(3)";
    let mut request =
        RunRequest { collect: vec!["result".to_owned()], stream: true, ..argv(&["python3", "-c", code]) };
    request.limits.memory_bytes = Some(128 << 20);
    let executor = Executor::start("");
    let (mut connection, _stdin) = blocking::run(&executor.socket, "test", request).unwrap();
    let ended = "\"event\":\"ended\"";
    let audit = || fs::read_to_string(executor.directory().join("audit.jsonl")).unwrap();
    eventually("it has ended", PATIENCE, || audit().contains(ended));
    // Longer than pipes are waited for.
    thread::sleep(Duration::from_secs(1));
    let mut files = Vec::new();
    let report = loop {
        match connection.next_event().unwrap() {
            Event::Exited(report) => break report,
            Event::File(file) => files.push(file),
            _ => {}
        }
    };
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(3)), "{report:?}");
    assert_eq!(files[0].content, b"kept", "{files:?}");
}

#[test]
fn what_is_collected_is_bounded() {
    let script = "head -c 5M /dev/zero > large; for n in 1 2 3 4 5 6; do head -c 3M /dev/zero > m$n; done; mkdir many; \
                  for n in $(seq 300); do : > many/$n; done";
    let request = |pattern: &str| RunRequest { collect: vec![pattern.to_owned()], ..line(script) };
    let (_, files) = collected(lab(), request("large"));
    assert_eq!((files[0].content.len(), files[0].size, files[0].truncated), (4 << 20, 5 << 20, true));
    let (_, files) = collected(lab(), request("m?"));
    let total: usize = files.iter().map(|f| f.content.len()).sum();
    assert_eq!((files.len(), total, files[5].truncated), (6, 16 << 20, true));
    let (_, files) = collected(lab(), request("many/*"));
    assert_eq!(files.len(), 257);
    assert_eq!(files[256].problem.as_deref(), Some("more than 256 files match"));
}

#[test]
fn a_client_that_leaves_while_files_are_collected_holds_up_nothing() {
    let executor = Executor::start("");
    for _ in 0..5 {
        let script = "for n in 1 2 3 4; do head -c 4M /dev/zero > f$n; done";
        let request = RunRequest { collect: vec!["*".to_owned()], ..line(script) };
        let (mut connection, _stdin) = blocking::run(&executor.socket, "test", request).unwrap();
        while !matches!(connection.next_event().unwrap(), Event::File(_)) {}
        connection.close();
    }
    let user = host::uid_of("execuser");
    let monitor = executor.pid();
    let left = || process::descendants(monitor).into_iter().any(|p| process::uids(p).first() == Some(&user));
    eventually("every sandbox is gone", PATIENCE, || !left());
    executor.assert_works();
}
