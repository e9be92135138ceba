//! SIGHUP: what the configuration says now holds for commands from now on, all of it or nothing.

mod roots;
mod starved;
mod up;

use crate::harness::{
    Executor, PATIENCE,
    client::{collect, line},
    daemon::{NotifySocket, ensure_users, open_directory, write_configuration},
    eventually, marker, stretched,
};
use cordon_protocol::{Event, LimitRequest, RunRequest, client::blocking};
use nix::sys::signal::Signal;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Instant,
};

/// An executor that tells this test what it tells systemd.
struct Reloading {
    executor: Executor,
    notify: NotifySocket,
}

impl Reloading {
    fn start(configuration: &str) -> Self {
        ensure_users();
        let directory = open_directory();
        let file = write_configuration(directory.path(), "available", configuration);
        let mut command = crate::harness::daemon::in_scope(&crate::harness::build::programs().executor);
        command.arg("--config").arg(file);
        let (executor, notify) = Executor::wait_ready_and_listen(command, directory);
        Self { executor, notify }
    }

    /// Writes another configuration and has it read; what systemd is told of it.
    fn reload(&mut self, configuration: &str) -> String {
        write_configuration(self.executor.directory(), "available", configuration);
        self.reread()
    }

    fn reread(&mut self) -> String {
        self.executor.process().signal(Signal::SIGHUP);
        let start = Instant::now();
        let mut told = String::new();
        while !told.contains("READY=1") {
            assert!(start.elapsed() < stretched(PATIENCE), "{told}\n{}", self.executor.process().log());
            told.push_str(&self.notify.message().unwrap_or_default());
        }
        let (begun, ended) = told.split_once("READY=1\n").unwrap();
        assert!(begun.contains("RELOADING=1\n") && begun.contains("MONOTONIC_USEC="), "{told}");
        ended.to_owned()
    }
}

fn asks_for(memory: u64) -> RunRequest {
    let limits = LimitRequest { memory_bytes: Some(memory), ..LimitRequest::default() };
    RunRequest { limits, ..line("echo ran") }
}

#[test]
fn a_new_limit_holds_for_the_next_command_and_a_running_one_is_not_disturbed() {
    let mut reloading = Reloading::start("");
    let request = RunRequest { stdin: true, ..line("read x; echo $x; cat /etc/hostname") };
    let (mut running, mut stdin) = blocking::run(&reloading.executor.socket, "test", request).unwrap();
    assert!(matches!(running.next_event().unwrap(), Event::Started { .. }));
    let status = reloading.reload(
        "[profiles.default]\nlimits.memory = { default = \"64M\", ceiling = \"64M\" }\nhide = [\"/etc/cordon\", \"/etc/hostname\"]",
    );
    assert_eq!(status, "STATUS=Configuration read anew: 1 profile\n");
    let refusal = reloading.executor.refusal(asks_for(65 << 20));
    assert!(refusal.starts_with("limit_refused: ") && refusal.contains("64M"), "{refusal}");
    assert_eq!(reloading.executor.events(asks_for(64 << 20)).report.stdout.as_deref(), Some("ran\n"));
    // The default, of which only the monitor knows; and the root, in which a file is missing now.
    let shown = reloading.executor.inside("ls /etc/hostname 2>&1 | grep -c 'No such file'");
    assert_eq!(shown, "1\n");
    let hog = "python3 -c 'x = bytearray(b\"x\") * (100 << 20)'";
    let report = reloading.executor.report(&["-c", hog]);
    assert_eq!(report.ended_by, cordon_protocol::EndedBy::OutOfMemory, "{report:?}");
    // It has the root that it had.
    stdin.send(b"still here\n").unwrap();
    stdin.end().unwrap();
    let report = collect(running).unwrap().report;
    let hostname = fs::read_to_string("/etc/hostname").unwrap();
    assert_eq!(report.stdout, Some(format!("still here\n{hostname}")), "{report:?}");
    assert_eq!(reloading.reload(""), "STATUS=Configuration read anew: 1 profile\n");
    assert_eq!(reloading.executor.inside("cat /etc/hostname"), hostname);
}

#[test]
fn profiles_and_peers_come_and_go() {
    let mut reloading = Reloading::start("[profiles.old]\n[profiles.mine]\n");
    assert_eq!(reloading.executor.inside_profile("old", "echo works"), "works\n");
    let status = reloading.reload("[profiles.new]\n[profiles.mine]\npeers = [\"uid:54321\"]\n");
    assert_eq!(status, "STATUS=Configuration read anew: 3 profiles\n");
    assert_eq!(reloading.executor.inside_profile("new", "echo works"), "works\n");
    for gone in ["old", "mine"] {
        let refusal =
            reloading.executor.refusal(RunRequest { profile: Some(gone.into()), ..line("echo ran") });
        assert!(refusal.starts_with("unknown_profile: "), "{gone}: {refusal}");
    }
    let names: Vec<_> = blocking::profiles(&reloading.executor.socket, "test").unwrap();
    assert_eq!(names.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["default", "new"]);
}

#[test]
fn one_that_waited_meanwhile_runs_by_what_holds_then() {
    let mut reloading = Reloading::start("max_commands = 1\n[profiles.other]\n");
    let running = blocking::run(&reloading.executor.socket, "test", line("exec sleep 600")).unwrap();
    let waiting = |profile: &str| {
        let request = RunRequest { profile: Some(profile.into()), ..asks_for(512 << 20) };
        let mut waiting = blocking::run(&reloading.executor.socket, "test", request).unwrap();
        assert!(matches!(waiting.0.next_event().unwrap(), Event::Queued { position: 1 }));
        waiting
    };
    let (mut lower, mut gone) = (waiting("default"), waiting("other"));
    reloading.reload(
        "max_commands = 1\n[profiles.default]\nlimits.memory = { default = \"64M\", ceiling = \"64M\" }",
    );
    drop(running);
    let refusal = lower.0.next_event().unwrap_err().to_string();
    assert!(refusal.contains("512M") && refusal.contains("ceiling"), "{refusal}");
    let refusal = gone.0.next_event().unwrap_err().to_string();
    assert!(refusal.contains("there is no profile `other`"), "{refusal}");
    reloading.executor.assert_works();
}

#[test]
fn more_places_are_there_at_once() {
    let mut reloading = Reloading::start("max_commands = 1\n");
    let _running = blocking::run(&reloading.executor.socket, "test", line("exec sleep 600")).unwrap();
    let (mut waiting, _stdin) = blocking::run(&reloading.executor.socket, "test", line("echo ran")).unwrap();
    assert_eq!(waiting.next_event().unwrap(), Event::Queued { position: 1 });
    reloading.reload("max_commands = 2\n");
    assert_eq!(collect(waiting).unwrap().report.stdout.as_deref(), Some("ran\n"));
}

/// What is bad about it, what makes it so, what is said.
type Bad<'a> = (&'a str, Box<dyn Fn() + 'a>, &'a str);

#[test]
fn a_bad_file_keeps_the_old_policy_and_says_so() {
    let mut reloading = Reloading::start("[profiles.here]\n");
    let elsewhere = reloading.executor.directory().join("elsewhere");
    let file = reloading.executor.directory().join("executor.toml");
    let text = fs::read_to_string(&file).unwrap();
    let write = |text: &str| fs::write(&file, text).unwrap();
    let cases: [Bad<'_>; 9] = [
        ("no TOML", Box::new(|| write("[profiles.x\n")), "executor.toml"),
        (
            "an unknown key",
            Box::new(|| write(&format!("{text}[profiles.x]\nreed = []\n"))),
            "unknown field `reed`",
        ),
        (
            "a bad value",
            Box::new(|| write(&format!("{text}[profiles.x]\nconcurrency = 0\n"))),
            "concurrency: 0",
        ),
        (
            "another socket",
            Box::new(|| write(&text.replace("executor.sock", "other.sock"))),
            "socket has changed",
        ),
        ("another state", Box::new(|| write(&text.replace("/state", "/other"))), "state_dir has changed"),
        ("another trail", Box::new(|| write(&text.replace("audit.jsonl", "x.jsonl"))), "audit has changed"),
        ("another home", Box::new(|| write(&format!("home = \"/home/x\"\n{text}"))), "home has changed"),
        (
            "somebody's",
            Box::new(|| fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap()),
            "can be written by others",
        ),
        ("gone", Box::new(|| fs::rename(&file, &elsewhere).unwrap()), "cannot read"),
    ];
    for (what, change, says) in cases {
        change();
        let status = reloading.reread();
        assert!(status.starts_with("STATUS=The configuration stays as it was: "), "{what}: {status}");
        assert!(status.contains(says), "{what}: {status}");
        eventually("the log has it", PATIENCE, || reloading.executor.process().log().contains(says));
        assert_eq!(reloading.executor.inside_profile("here", "echo works"), "works\n", "{what}");
    }
    fs::rename(&elsewhere, &file).unwrap();
    assert_eq!(reloading.reload("[profiles.here]\n"), "STATUS=Configuration read anew: 2 profiles\n");
}

#[test]
fn reading_anew_disturbs_no_command_of_many() {
    let mut reloading = Reloading::start("[profiles.a]\n");
    let done = AtomicU32::new(0);
    let stop = AtomicBool::new(false);
    let socket = reloading.executor.socket.clone();
    let roots = reloading.executor.directory().join("state/roots");
    thread::scope(|scope| {
        for n in 0..3 {
            let (done, stop, socket) = (&done, &stop, &socket);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let text = format!("echo {n}; cat /etc/hostname >/dev/null && echo read");
                    let (connection, _stdin) = blocking::run(socket, "test", line(&text)).unwrap();
                    let report = collect(connection).unwrap().report;
                    assert_eq!(report.stdout, Some(format!("{n}\nread\n")), "{report:?}");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Each has seen some commands, of which one or another is being launched.
        let touched = Touched::new();
        for round in 0..20 {
            let before = done.load(Ordering::Relaxed);
            touched.touch(round);
            let status = reloading.reload(&format!("[profiles.p{round}]\n"));
            assert_eq!(status, "STATUS=Configuration read anew: 2 profiles\n");
            eventually("commands go on", PATIENCE, || {
                done.load(Ordering::Relaxed) > before + 3 || thread::panicking()
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    // Nothing is left of the roots that were in force.
    reloading.reread();
    eventually("old roots are gone", PATIENCE, || {
        reloading.executor.assert_works();
        fs::read_dir(&roots).unwrap().count() == 2
    });
}

/// A file in /etc that changes, and goes in the end.
struct Touched(std::path::PathBuf);

impl Touched {
    fn new() -> Self {
        Self(format!("/etc/cordon-test-{}", marker()).into())
    }

    fn touch(&self, round: u32) {
        fs::write(&self.0, round.to_string()).unwrap();
    }
}

impl Drop for Touched {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn the_trail_says_which_configuration_is_in_force() {
    let mut reloading = Reloading::start("[profiles.old]\n");
    let file = reloading.executor.directory().join("executor.toml");
    let hash = || cordon_protocol::audit::sha256(&fs::read(&file).unwrap());
    let old = hash();
    let seen = |reloading: &Reloading| {
        let text = fs::read_to_string(reloading.executor.directory().join("audit.jsonl")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let of = lines.filter(|line| line["sha256"].is_string());
        of.map(|line| {
            assert_eq!(line["file"].as_str(), file.to_str());
            let hash = line["sha256"].as_str().unwrap().to_owned();
            (line["event"].as_str().unwrap().to_owned(), line["taken_over"].as_bool(), hash)
        })
        .collect::<Vec<_>>()
    };
    let mut expected = vec![("started".to_owned(), None, old.clone())];
    assert_eq!(seen(&reloading), expected);
    let mut reloaded = |reloading: &Reloading, taken_over, hash| {
        expected.push(("reloaded".to_owned(), Some(taken_over), hash));
        assert_eq!(seen(reloading), expected);
    };
    reloading.reload("secret = \"7\"\n");
    reloaded(&reloading, false, old.clone());
    reloading.reload("[profiles.new]\n");
    let new = hash();
    assert_ne!(new, old);
    reloaded(&reloading, true, new.clone());
    reloading.reload("audit_keep = 9\n");
    reloaded(&reloading, false, new);
    let trail = fs::read_to_string(reloading.executor.directory().join("audit.jsonl")).unwrap();
    assert!(!trail.contains("secret"), "{trail}");
}

#[test]
fn a_policy_that_cannot_be_recorded_does_not_hold() {
    let mut reloading = Reloading::start("[profiles.old]\n");
    let trail = reloading.executor.directory().join("audit.jsonl");
    let away = reloading.executor.directory().join("away");
    fs::rename(&trail, &away).unwrap();
    fs::create_dir(&trail).unwrap();
    let status = reloading.reload("[profiles.new]\n");
    assert!(status.contains("The configuration stays as it was"), "{status}");
    eventually("its roots are gone", PATIENCE, || reloading.roots(2) == 0);
    fs::remove_dir(&trail).unwrap();
    fs::rename(&away, &trail).unwrap();
    assert_eq!(reloading.executor.inside_profile("old", "echo works"), "works\n");
    let status = reloading.reload("[profiles.new]\n");
    assert_eq!(status, "STATUS=Configuration read anew: 2 profiles\n");
    assert_eq!(reloading.executor.inside_profile("new", "echo works"), "works\n");
}
