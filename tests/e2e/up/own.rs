//! What `cordon up` makes, what a person has put beside it, and what `--undo` takes away.

use crate::harness::{
    Client, Up,
    build::programs,
    daemon::{free_port, open_directory},
    process::{self, Process},
    shared,
};
use nix::sys::signal::Signal;
use std::{fs, os::unix::fs::chown, path::Path, time::Duration};

#[test]
fn undo_clears_the_directory_and_leaves_users_that_somebody_runs_with() {
    const USER: &str = "cordon-e2e-kept";
    shared().assert_works();
    let directory = open_directory();
    let _made = super::Made(USER);
    let mut command = Up::command(directory.path(), free_port());
    // Nobody else runs with this one; but that is nowhere to be seen.
    command.arg("--once").env("EXEC_USER", USER);
    assert_eq!(process::run(command, &[]).status, 0);
    assert!(directory.path().join("token").exists());
    let mut undo = process::tied(&programs().cordon);
    undo.args(["up", "--undo", "--dir"]).arg(directory.path());
    let ran = process::run(undo, &[]);
    // The shared instance runs with the users: they stay, and that is said.
    let kept = ran.stderr.lines().find(|line| line.starts_with("cordon: kept the users ")).unwrap();
    let says = ["cordon-exec, ", "execuser", USER, "another `cordon up` runs", "once it has ended"];
    assert!(ran.status == 0 && says.iter().all(|word| kept.contains(word)), "{ran:?}");
    let exists = |name| nix::unistd::User::from_name(name).unwrap().is_some();
    assert!(exists(USER) && exists("execuser"));
    let entries = fs::read_dir(directory.path()).into_iter().flatten().flatten();
    let left: Vec<_> = entries.map(|e| e.path()).collect();
    assert!(left.is_empty(), "{left:?}");
    shared().assert_works();
}

#[test]
fn profiles_of_a_person_s_own_are_used_and_survive() {
    let directory = open_directory();
    let file = directory.path().join("profiles.toml");
    let text = "[profiles.mine]\nenv = { MINE = \"yes\" }\nlimits.pids = { ceiling = 2000 }\n";
    fs::write(&file, text).unwrap();
    let client = Client { socket: directory.path().join("executor.sock") };
    // From the second start on too.
    for _ in 0..2 {
        let mut process = Process::start(Up::command(directory.path(), free_port()));
        process.wait_for("Serving");
        let ran = client.run(&["--profile", "mine", "--pids", "2000", "-c", "echo $MINE"]);
        assert_eq!((ran.status, &*ran.text()), (0, "yes\n"), "{ran:?}");
        process.signal(Signal::SIGTERM);
        assert!(process.wait(Duration::from_secs(30)).success());
    }
    shared();
    let mut undo = process::tied(&programs().cordon);
    undo.args(["up", "--undo", "--dir"]).arg(directory.path());
    assert_eq!(process::run(undo, &[]).status, 0);
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!((left, fs::read_to_string(&file).unwrap()), (vec!["profiles.toml".into()], text.to_owned()));
}

#[test]
fn profiles_that_cannot_be_used_are_named_with_file_and_line_before_anything_starts() {
    shared();
    let stranger = |file: &Path| chown(file, Some(crate::harness::lab::STRANGER), None).unwrap();
    type Change<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, Change<'_>, &[&str]); 5] = [
        (
            "profles = 1",
            &|_| {},
            &["profiles.toml", "unknown field `profles`; this file has [profiles.NAME] tables alone"],
        ),
        ("[profiles.p]\n\nreed = []", &|_| {}, &["profiles.toml", "line 3", "`reed`"]),
        ("[profiles.p]\nread = ['usr']", &|_| {}, &["profiles.toml, line 2", "read: `usr`"]),
        ("socket = '/tmp/x'", &|_| {}, &["profiles.toml", "`socket` is not for this file"]),
        ("[profiles.p]", &stranger, &["profiles.toml", "does not belong to root"]),
    ];
    for (text, change, says) in cases {
        let directory = open_directory();
        let file = directory.path().join("profiles.toml");
        fs::write(&file, text).unwrap();
        change(&file);
        let ran = process::run(Up::command(directory.path(), free_port()), &[]);
        assert!(ran.status == 1 && says.iter().all(|word| ran.stderr.contains(word)), "{text}: {ran:?}");
        assert!(!ran.stderr.contains("listening on"), "{ran:?}");
    }
}

#[test]
fn what_is_somebody_else_s_is_left_alone() {
    let directory = open_directory();
    fs::create_dir(directory.path().join("state")).unwrap();
    for name in ["state/precious", "token"] {
        fs::write(directory.path().join(name), "precious").unwrap();
    }
    let mut command = Up::command(directory.path(), free_port());
    command.arg("--once");
    let ran = process::run(command, &[]);
    assert!(ran.status != 0 && ran.stderr.contains("not `cordon up`'s"), "{ran:?}");
    let mut undo = process::tied(&programs().cordon);
    undo.args(["up", "--undo", "--dir"]).arg(directory.path());
    // With the shared instance running, the users stay.
    shared();
    assert_eq!(process::run(undo, &[]).status, 0);
    for name in ["state/precious", "token"] {
        assert_eq!(fs::read_to_string(directory.path().join(name)).unwrap(), "precious");
    }
}
