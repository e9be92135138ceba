//! How `cordon up` ends: told to, told twice, with one of its parts, or killed.

use super::processes_of;
use crate::harness::{
    PATIENCE, Up,
    daemon::{free_port, open_directory},
    eventually, host, marker,
    process::{self, Process},
    shared,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{fs, net::TcpStream, path::Path, time::Duration};

/// Finds a part of an instance.
type Part = fn(&Up) -> i32;

/// Another one in the same place works, and sweeps what the killed one could not remove.
fn assert_starts_again(up: &Up) {
    let mut command = Up::command(up.directory(), free_port());
    command.arg("--once");
    let ran = process::run(command, &[]);
    assert_eq!(ran.status, 0, "{ran:?}");
}

#[test]
fn it_ends_with_any_of_its_parts() {
    let parts: [(&str, Part); 3] =
        [("gateway", Up::gateway), ("monitor", Up::monitor), ("server", Up::server)];
    for (name, part) in parts {
        let mut up = Up::start();
        kill(Pid::from_raw(part(&up)), Signal::SIGKILL).unwrap();
        let status = up.process().wait(Duration::from_secs(30));
        assert!(!status.success(), "{name}: {status}");
        eventually("nothing of it runs", PATIENCE, || processes_of(up.directory()).is_empty());
        assert!(TcpStream::connect(("127.0.0.1", up.port)).is_err(), "{name}: the port still answers");
        assert_starts_again(&up);
    }
}

#[test]
fn a_second_signal_does_not_wait_for_commands_and_says_so() {
    let mut up = Up::start();
    let marker = marker();
    // One behind each daemon, so that both would wait.
    let run = Process::start(up.cordon(&["run", "--", "sleep", &marker]));
    let mut post = process::tied(Path::new("curl"));
    post.args(["-sS", "-H", "Content-Type: application/json", "-d"])
        .arg(format!("{{\"argv\": [\"sleep\", \"{marker}\"]}}"))
        .arg("--unix-socket")
        .arg(up.directory().join("gateway.sock"))
        .arg("http://localhost/v1/exec");
    let post = Process::start(post);
    eventually("both run", PATIENCE, || process::sandboxed(&marker).len() == 2);
    up.process().signal(Signal::SIGINT);
    up.process().wait_for("a second signal ends them at once");
    up.process().signal(Signal::SIGINT);
    let status = up.process().wait(Duration::from_secs(30));
    assert_eq!(status.code(), Some(130));
    let log = up.process().log();
    let last = log.lines().rfind(|line| line.starts_with("cordon: ")).unwrap();
    let says = "cordon: told a second time (SIGINT): killed cordon-gateway and cordon-executor, and with";
    assert!(last.starts_with(says), "{log}");
    eventually("nothing of it runs", PATIENCE, || process::sandboxed(&marker).is_empty());
    drop((run, post));
    assert_starts_again(&up);
}

#[test]
fn its_parts_end_with_it() {
    let mut up = Up::start();
    up.process().signal(Signal::SIGKILL);
    up.process().wait(Duration::from_secs(30));
    eventually("nothing of it runs", PATIENCE, || processes_of(up.directory()).is_empty());
    assert_starts_again(&up);
}

#[test]
fn what_an_ended_one_left_is_no_obstacle_to_the_next() {
    let directory = open_directory();
    for _ in 0..2 {
        let mut process = Process::start(Up::command(directory.path(), free_port()));
        process.wait_for("curl");
        process.signal(Signal::SIGKILL);
        process.wait(Duration::from_secs(30));
        eventually("nothing of it runs", PATIENCE, || processes_of(directory.path()).is_empty());
    }
    let mut process = Process::start(Up::command(directory.path(), free_port()));
    process.wait_for("curl");
    process.signal(Signal::SIGTERM);
    assert!(process.wait(Duration::from_secs(30)).success());
}

#[test]
fn told_to_stop_at_any_moment_it_leaves_nothing() {
    shared();
    let directory = open_directory();
    for delay in [0, 5, 10, 20, 40, 60, 90, 130, 200, 300] {
        let mut process = Process::start(Up::command(directory.path(), free_port()));
        std::thread::sleep(Duration::from_millis(delay));
        process.signal(Signal::SIGTERM);
        process.wait(Duration::from_secs(30));
        assert_eq!(processes_of(directory.path()), Vec::<String>::new(), "after {delay} ms");
        assert_eq!(host::mounts_with(&directory.path().to_string_lossy()), Vec::<String>::new());
        let state = directory.path().join("state");
        let entries = [directory.path(), &state].into_iter().flat_map(fs::read_dir).flatten().flatten();
        let sockets: Vec<_> =
            entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "sock")).collect();
        assert_eq!(sockets, Vec::<std::path::PathBuf>::new(), "after {delay} ms");
        // Named in its log where the host's cgroups are lesser.
        let log = process.log();
        let groups = log
            .split([' ', ':', ';'])
            .filter(|word| word.starts_with("/sys/fs/cgroup/") && word.contains("/cordon-"));
        for group in groups {
            assert!(!std::path::Path::new(group).exists(), "{group} after {delay} ms");
        }
    }
}

#[test]
fn it_hears_of_its_parts_whatever_signals_its_starter_ignored() {
    let deaf = |directory: &std::path::Path| {
        let up = Up::command(directory, free_port());
        let mut command = std::process::Command::new("env");
        command.args(["--ignore-signal=CHLD", "--block-signal"]).arg(up.get_program()).args(up.get_args());
        command
    };
    let directory = open_directory();
    let mut command = deaf(directory.path());
    command.arg("--once");
    let ran = process::run(command, &[]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let mut process = Process::start(deaf(directory.path()));
    process.wait_for("Serving");
    let gateway = process::descendants(process.pid());
    let gateway =
        gateway.into_iter().find(|pid| process::uids(*pid).first() == Some(&host::uid_of("cordon")));
    kill(Pid::from_raw(gateway.unwrap()), Signal::SIGKILL).unwrap();
    assert!(!process.wait(Duration::from_secs(30)).success());
    assert_eq!(processes_of(directory.path()), Vec::<String>::new());
}
