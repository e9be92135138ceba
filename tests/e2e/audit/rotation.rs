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
fn a_trail_that_has_grown_is_moved_aside_and_a_file_that_is_taken_out_is_missed() {
    let executor = Executor::start("audit_max_size = \"64K\"\naudit_keep = 3\n");
    let mut command = process::tied(&programs().cordon);
    command.args(["audit", "show", "--follow", "--file"]).arg(trail(&executor));
    let following = process::Process::start(command);
    let padding = "a".repeat(30_000);
    let older = |path: PathBuf, number: u32| PathBuf::from(format!("{}.{number}", path.display()));
    let run = || executor.report(&["-c", &format!(": {padding}")]).id;
    let mut jobs = Vec::new();
    while !older(trail(&executor), 2).exists() {
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
    assert!(verified.status == 0 && verified.text().contains("lines in 3 files hold"), "{verified:?}");
    assert!(verified.text().contains(&says), "{verified:?}");
    for path in [trail(&executor), texts(&executor)] {
        let meta = fs::metadata(older(path, 1)).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o640, 0, 0));
    }
    // Any of the files.
    let away = executor.directory().join("away");
    for (path, number, says) in [
        (trail(&executor), 2, "an older file is missing"),
        (trail(&executor), 1, "missing, doubled or moved"),
        (texts(&executor), 2, "its text is missing"),
        (texts(&executor), 1, "its text is missing"),
    ] {
        let file = older(path, number);
        fs::rename(&file, &away).unwrap();
        let verified = verify(&executor);
        assert!(verified.status == 1 && verified.stderr.contains(says), "{file:?}: {verified:?}");
        fs::rename(&away, &file).unwrap();
    }
    assert_eq!(verify(&executor).status, 0);
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
    // A line of one.
    let file = older(trail(&executor), 2);
    let whole = fs::read_to_string(&file).unwrap();
    fs::write(&file, whole.replacen("\"uid\":0", "\"uid\":1", 1)).unwrap();
    let verified = verify(&executor);
    assert!(verified.status == 1 && verified.stderr.contains("audit.jsonl.2: line"), "{verified:?}");
    fs::write(&file, whole).unwrap();
    // More of them than stay: the oldest go, as the trail says.
    while !older(trail(&executor), 3).exists() || !show(&executor, &[]).contains("rotation: lines before") {
        run();
    }
    assert!(!older(trail(&executor), 4).exists() && !older(texts(&executor), 4).exists());
    let verified = verify(&executor);
    assert!(verified.status == 0 && verified.text().contains("lines in 4 files hold"), "{verified:?}");
    // A text put before the oldest: the trail cannot know of it, and it is not called good.
    let file = older(texts(&executor), 3);
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
    fs::rename(older(trail(&executor), 3), &away).unwrap();
    let verified = verify(&executor);
    assert!(verified.status == 1 && verified.stderr.contains("an older file is missing"), "{verified:?}");
    following.signal(Signal::SIGTERM);
}
