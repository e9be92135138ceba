//! How `cordon up` ends: told to, told twice, with one of its parts, or killed.

use super::processes_of;
use crate::harness::{
    Executor, PATIENCE, Up,
    build::programs,
    client::line,
    daemon::{free_port, open_directory},
    eventually, host, marker,
    process::{self, Process},
    shared,
};
use cordon_protocol::client::blocking;
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

/// What `cordon up` itself says last, with the lines that belong to it.
fn last_words(log: &str) -> &str {
    &log[log.rfind("\ncordon: ").unwrap() + 1..]
}

#[test]
fn a_part_that_ends_is_told_with_how_it_ended_and_its_last_lines() {
    let cases: [(Part, Signal, &str, &str); 3] = [
        (Up::gateway, Signal::SIGTERM, "cordon: cordon-gateway ended as when it is told to", "Ctrl-C"),
        (Up::gateway, Signal::SIGKILL, "cordon: cordon-gateway was killed (SIGKILL)", "dmesg"),
        (Up::monitor, Signal::SIGTERM, "cordon: cordon-executor ended as when it is told to", "Ctrl-C"),
    ];
    for (part, signal, says, remedy) in cases {
        let mut up = Up::start();
        up.process().wait_for("Serving");
        kill(Pid::from_raw(part(&up)), signal).unwrap();
        assert_eq!(up.process().wait(Duration::from_secs(30)).code(), Some(1));
        let log = up.process().log();
        // At once, and not when the other has ended too, which may take its time.
        let name = says.split_whitespace().nth(1).unwrap();
        let told = log.find(&format!("cordon: {name} has ended (")).unwrap_or_else(|| panic!("{log}"));
        let other = if name == "cordon-gateway" {
            "cordon-executor: ending, nothing more"
        } else {
            "cordon-gateway: stopping"
        };
        assert!(log.find(other).is_none_or(|ended| told < ended), "{log}");
        let lines: Vec<_> = last_words(&log).lines().collect();
        assert!(lines[0].starts_with(says) && lines[0].ends_with("; its last lines:"), "{log}");
        let next = lines.iter().position(|line| line.starts_with("  next: ")).unwrap();
        // One at least, and not all that it has ever said.
        assert!((2..=4).contains(&next), "{log}");
        assert!(lines[1..next].iter().all(|line| line.starts_with("    ") && !line.contains(" | ")), "{log}");
        assert!(lines[next].contains(remedy) && !lines[next].contains("doctor"), "{log}");
    }
}

#[test]
fn what_still_runs_at_the_end_is_counted() {
    let mut executor = Executor::start("");
    let marker = marker();
    let _running = blocking::run(&executor.socket, "test", line(&format!("sleep {marker}; :"))).unwrap();
    eventually("it runs", PATIENCE, || !process::sandboxed(&marker).is_empty());
    executor.process().signal(Signal::SIGTERM);
    executor.process().wait_for("running: 1 command");
    executor.process().wait(Duration::from_secs(30));
    assert!(!executor.process().log().contains("1 commands"), "{}", executor.process().log());
}

/// Started as from the background of a script.
fn in_the_background(directory: &Path) -> Process {
    let mut command = process::tied(Path::new("bash"));
    command.args(["-c", "trap '' INT QUIT; exec \"$@\"", "bash"]).arg(&programs().cordon);
    command.args(["up", "--dir"]).arg(directory).args(["--port", &free_port().to_string()]);
    Process::start(command)
}

#[test]
fn in_the_background_of_a_script_it_ends_by_sigterm_and_says_so() {
    shared();
    let directory = open_directory();
    let mut up = in_the_background(directory.path());
    up.wait_for("Serving until SIGTERM");
    up.signal(Signal::SIGINT);
    up.signal(Signal::SIGQUIT);
    // Handled after those two, had they been anything to handle.
    up.signal(Signal::SIGHUP);
    up.wait_for("configuration read anew: 1 profile");
    up.signal(Signal::SIGTERM);
    assert!(up.wait(Duration::from_secs(30)).success());
    assert_eq!(processes_of(directory.path()), Vec::<String>::new());
}

#[test]
fn sigquit_ends_it_like_every_signal_to_end() {
    let mut up = Up::start();
    up.process().wait_for("Serving until Ctrl-C");
    up.process().signal(Signal::SIGQUIT);
    assert!(up.process().wait(Duration::from_secs(30)).success());
    assert!(!up.directory().join("executor.sock").exists() && !up.directory().join("gateway.sock").exists());
}

/// One whose monitor was stopped before the first command had its answer; none where it was too late.
fn held_before_it_serves(directory: &Path) -> Option<(Process, Pid)> {
    let mut up = Process::start(Up::command(directory, free_port()));
    up.wait_for("cordon-executor: listening on");
    let is_monitor = |pid: &i32| process::exe(*pid).is_some_and(|exe| exe.ends_with("cordon-executor"));
    let monitor = Pid::from_raw(process::descendants(up.pid()).into_iter().find(is_monitor).unwrap());
    kill(monitor, Signal::SIGSTOP).unwrap();
    if !up.log().contains("Serving") {
        return Some((up, monitor));
    }
    kill(monitor, Signal::SIGCONT).unwrap();
    up.signal(Signal::SIGTERM);
    up.wait(Duration::from_secs(30));
    None
}

#[test]
fn told_to_read_its_profiles_before_it_serves_it_does_so_then() {
    shared();
    let directory = open_directory();
    let (mut up, monitor) = (0..20).find_map(|_| held_before_it_serves(directory.path())).unwrap();
    fs::write(directory.path().join("profiles.toml"), "[profiles.added]\n").unwrap();
    up.signal(Signal::SIGHUP);
    kill(monitor, Signal::SIGCONT).unwrap();
    up.wait_for("configuration read anew: 2 profiles");
    up.signal(Signal::SIGTERM);
    assert!(up.wait(Duration::from_secs(30)).success());
}
