//! Files that are moved aside: nothing is lost, and what is taken out is missed.

use super::*;

#[test]
fn whoever_follows_the_trail_sees_each_command_also_after_a_rotation() {
    let executor = Executor::start("");
    let mut command = process::tied(&programs().cordon);
    command.args(["audit", "show", "--follow", "--file"]).arg(trail(&executor));
    let following = process::Process::start(command);
    following.wait_for("started");
    let run = |text: &str| {
        executor.report(&["-c", text]);
        following.wait_for(&format!("/bin/bash -c '{text}'"));
        following.wait_for("ended");
    };
    run("echo first");
    for path in [trail(&executor), texts(&executor)] {
        fs::rename(&path, path.with_extension("jsonl.1")).unwrap();
    }
    run("echo second");
    let rotated = fs::read_to_string(trail(&executor)).unwrap();
    assert!(rotated.contains("\"launch\"") && !rotated.contains("\"started\""), "{rotated}");
    run("echo third");
    assert_eq!(verify(&executor).status, 0);
    eventually("the texts are in the new file", PATIENCE, || {
        fs::read_to_string(texts(&executor)).is_ok_and(|text| text.lines().count() == 2)
    });
    following.signal(Signal::SIGTERM);
}

#[test]
fn texts_that_have_grown_are_moved_aside_and_the_trail_is_not() {
    let executor = Executor::start("audit_max_size = \"64K\"\naudit_keep = 3\n");
    let mut command = process::tied(&programs().cordon);
    command.args(["audit", "show", "--follow", "--file"]).arg(trail(&executor));
    let following = process::Process::start(command);
    let padding = "a".repeat(30_000);
    let run = || executor.report(&["-c", &format!(": {padding}")]).id;
    let mut jobs = Vec::new();
    while !older(texts(&executor), 2).exists() {
        jobs.push(run());
    }
    // Whoever follows and whoever looks later sees each.
    let shown = show(&executor, &[]);
    for job in &jobs {
        following.wait_for(&format!("launch  {job}"));
        let launch = shown.find(&format!("launch  {job}")).unwrap();
        assert!(shown[launch..].lines().nth(1).unwrap().contains("/bin/bash -c ': aaa"), "{job}");
    }
    let verified = verify(&executor);
    let says = format!("{} texts are of what ran", jobs.len());
    assert!(verified.status == 0 && verified.text().contains(&says), "{verified:?}");
    assert!(verified.stderr.is_empty() && !older(trail(&executor), 1).exists(), "{verified:?}");
    let meta = fs::metadata(older(texts(&executor), 1)).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o640, 0, 0));
    let away = executor.directory().join("away");
    for number in [2, 1] {
        let file = older(texts(&executor), number);
        fs::rename(&file, &away).unwrap();
        let verified = verify(&executor);
        assert!(verified.status == 1 && verified.stderr.contains("its text is missing"), "{verified:?}");
        fs::rename(&away, &file).unwrap();
    }
    // Of a part of the texts, those of the others are elsewhere.
    let copies = tempfile::tempdir().unwrap();
    let (copied, part) = (copies.path().join("audit.jsonl"), copies.path().join("commands.jsonl"));
    fs::copy(trail(&executor), &copied).unwrap();
    fs::copy(older(texts(&executor), 1), &part).unwrap();
    let copy = |options: &[&str]| {
        let mut command = Command::new(&programs().cordon);
        command.args(["audit", "verify", "--file"]).arg(&copied).args(options);
        process::run(command, &[])
    };
    let (partial, whole) = (copy(&["--partial"]), copy(&[]));
    assert!(partial.status == 0 && partial.stderr.contains("without a text"), "{partial:?}");
    assert!(whole.status == 1 && whole.stderr.contains("its text is missing"), "{whole:?}");
    let text = fs::read_to_string(&part).unwrap();
    let without: Vec<_> = text.split_inclusive('\n').enumerate().filter(|(at, _)| *at != 1).collect();
    assert!(without.len() > 1, "one between two others is taken out");
    fs::write(&part, without.into_iter().map(|(_, line)| line).collect::<String>()).unwrap();
    let partial = copy(&["--partial"]);
    assert!(partial.status == 1 && partial.stderr.contains("its text is missing"), "{partial:?}");
    // More of them than stay: the oldest go, as the trail says, which still has each line.
    while !show(&executor, &[]).contains("rotation: texts before") {
        jobs.push(run());
    }
    assert!(older(texts(&executor), 3).exists() && !older(texts(&executor), 4).exists());
    let shown = show(&executor, &[]);
    assert!(jobs.iter().all(|job| shown.contains(&format!("launch  {job}"))), "{shown}");
    let verified = verify(&executor);
    assert!(verified.status == 0 && verified.stderr.contains("without a text"), "{verified:?}");
    fs::rename(older(texts(&executor), 3), &away).unwrap();
    let verified = verify(&executor);
    assert!(verified.status == 1 && verified.stderr.contains("its text is missing"), "{verified:?}");
    following.signal(Signal::SIGTERM);
}

#[test]
fn a_trail_that_has_grown_is_moved_aside_and_a_file_that_is_taken_out_is_missed() {
    let executor = Executor::start("audit_max_size = \"64K\"\naudit_keep = 2\n");
    let mut command = process::tied(&programs().cordon);
    command.args(["audit", "show", "--follow", "--file"]).arg(trail(&executor));
    let following = process::Process::start(command);
    let run = || {
        let mut connection = blocking::run(&executor.socket, "test", line("echo short")).unwrap().0;
        loop {
            if let Event::Exited(report) = connection.next_event().unwrap() {
                break report.id;
            }
        }
    };
    while !older(trail(&executor), 2).exists() {
        following.wait_for(&format!("launch  {}", run()));
    }
    let told = || show(&executor, &[]).contains("rotation: lines before");
    while !told() {
        (0..20).for_each(|_| drop(run()));
    }
    let whole = verify(&executor);
    assert!(whole.status == 0 && whole.text().contains("lines in 3 files hold"), "{whole:?}");
    assert!(whole.stderr.is_empty(), "{whole:?}");
    for path in [trail(&executor), texts(&executor)] {
        assert!(older(path.clone(), 2).exists() && !older(path, 3).exists());
    }
    // A copy of one, elsewhere: neither end is known.
    let copies = tempfile::tempdir().unwrap();
    for path in [trail(&executor), texts(&executor)] {
        fs::copy(older(path.clone(), 1), copies.path().join(path.file_name().unwrap())).unwrap();
    }
    let copy = |options: &[&str]| {
        let mut command = Command::new(&programs().cordon);
        command.args(["audit", "verify", "--file"]).arg(copies.path().join("audit.jsonl")).args(options);
        process::run(command, &[])
    };
    let (part, whole) = (copy(&["--partial"]), copy(&[]));
    assert!(part.status == 0 && part.stderr.is_empty(), "{part:?}");
    assert!(whole.status == 1 && whole.stderr.contains("an older file is missing"), "{whole:?}");
    // A text put before the oldest: the trail cannot know of it, and it is not called good.
    let file = older(texts(&executor), 2);
    let whole = fs::read_to_string(&file).unwrap();
    let forged = whole.lines().next().unwrap();
    let job = serde_json::from_str::<Value>(forged).unwrap()["job"].as_str().unwrap().to_owned();
    let forged = forged.replace(&job, "0123456789abcdef");
    fs::write(&file, format!("{forged}\n{whole}")).unwrap();
    let verified = verify(&executor);
    let named = "command 0123456789abcdef: its text is older than the trail";
    assert!(verified.status == 3 && verified.stderr.contains(named), "{verified:?}");
    fs::write(&file, whole).unwrap();
    assert_eq!(verify(&executor).status, 0);
    let away = executor.directory().join("away");
    for (path, says) in
        [(trail(&executor), "an older file is missing"), (texts(&executor), "its text is missing")]
    {
        let file = older(path, 2);
        fs::rename(&file, &away).unwrap();
        let verified = verify(&executor);
        assert!(verified.status == 1 && verified.stderr.contains(says), "{verified:?}");
        fs::rename(&away, &file).unwrap();
    }
    following.signal(Signal::SIGTERM);
}

#[test]
fn an_older_file_of_the_trail_that_is_taken_out_or_changed_is_missed() {
    let executor = Executor::start("");
    for number in [2, 1] {
        executor.run(&["--", "true"]);
        fs::rename(trail(&executor), older(trail(&executor), number)).unwrap();
    }
    executor.run(&["--", "true"]);
    let verified = verify(&executor);
    assert!(verified.status == 0 && verified.text().contains("lines in 3 files hold"), "{verified:?}");
    let away = executor.directory().join("away");
    for (number, says) in [(2, "an older file is missing"), (1, "missing, doubled or moved")] {
        let file = older(trail(&executor), number);
        fs::rename(&file, &away).unwrap();
        let verified = verify(&executor);
        assert!(verified.status == 1 && verified.stderr.contains(says), "{verified:?}");
        fs::rename(&away, &file).unwrap();
    }
    let file = older(trail(&executor), 2);
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, whole.replacen("\"uid\":0", "\"uid\":1", 1)).unwrap();
    let verified = verify(&executor);
    assert!(verified.status == 1 && verified.stderr.contains("audit.jsonl.2: line"), "{verified:?}");
}

#[test]
fn of_a_peer_with_many_long_texts_the_beginning_is_kept_and_said_to_be() {
    let executor = Executor::start("");
    let padding = "b".repeat(60_000);
    let run = || executor.report(&["-c", &format!(": {padding}")]).id;
    let begun = loop {
        let job = run();
        if fs::read_to_string(texts(&executor)).unwrap().contains("\"begun\":true") {
            break job;
        }
    };
    let verified = verify(&executor);
    // Nothing is wrong, and it is not called good: nobody can compare it.
    let named = format!("command {begun}: its text was cut");
    assert!(verified.status == 3 && verified.stderr.contains(&named), "{verified:?}");
    assert!(verified.text().contains("and 1 was cut"), "{verified:?}");
    let shown = show(&executor, &[]);
    let last = shown.lines().rfind(|line| line.contains(&padding[..500])).unwrap();
    assert!(last.contains("/bin/bash") && last.ends_with("… (cut)") && last.len() < 1100, "{last}");
    let whole = fs::read_to_string(texts(&executor)).unwrap();
    fs::write(texts(&executor), whole.replace("\"begun\":true", "\"begun\":false")).unwrap();
    let verified = verify(&executor);
    assert!(verified.status == 1 && verified.stderr.contains("its text was changed"), "{verified:?}");
}

fn older(path: PathBuf, number: u32) -> PathBuf {
    PathBuf::from(format!("{}.{number}", path.display()))
}
