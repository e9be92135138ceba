//! Nothing is left over: the short form of `just soak`, and that it would see what is.

use crate::harness::{
    PATIENCE,
    build::programs,
    crowd, eventually,
    host::uid_of,
    marker,
    process::{self, sandboxed},
    stretched,
};
use cordon_protocol::EndedBy;
use cordon_tests::{
    host,
    soak::{Mix, Outcome, Plan, soak},
    up::{Http, Up},
};
use serde_json::json;
use std::{fs, os::unix::fs::chown, process::Command, time::Duration};

fn run(mix: Mix, runs: usize, patience: Duration, meddle: impl FnOnce(&Up, i32)) -> Outcome {
    // Its fork bombs are small, but count together with others' processes.
    let _alone = crowd::alone();
    let log = tempfile::NamedTempFile::new().unwrap();
    let plan = Plan { cordon: &programs().cordon, log: log.path(), mix, runs, patience };
    soak(&plan, meddle)
        .unwrap_or_else(|e| panic!("{e}\n{}", fs::read_to_string(log.path()).unwrap_or_default()))
}

#[test]
fn after_three_hundred_runs_of_every_kind_nothing_is_left() {
    let outcome = run(Mix::Ordinary, 300, stretched(PATIENCE), |_, _| {});
    assert!(outcome.faults.is_empty(), "{:#?}\n{outcome}", outcome.faults);
}

#[test]
fn after_three_thousand_malformed_requests_nothing_is_left_and_it_works() {
    let outcome = run(Mix::Malformed, 3000, stretched(PATIENCE), |_, _| {});
    assert!(outcome.faults.is_empty(), "{:#?}\n{outcome}", outcome.faults);
}

/// Stressors for stress-ng(1), all of a line at once: system calls with arguments that mean nothing, everything
/// below /proc and /sys, processes, memory, sockets, files, and what a sandbox forbids.
const STRESS: [&str; 7] = [
    "--sysinval 1 --enosys 1",
    "--procfs 1 --sysfs 1 --dev 1",
    "--fork 4 --vfork 2 --clone 2 --zombie 2 --daemon 2 --kill 1 --signal 1 --sigq 1",
    "--vm 1 --vm-bytes 64M --mmap 1 --shm 1 --shm-sysv 1 --memfd 1 --msg 1 --sem-sysv 1 --mq 1",
    "--sock 1 --udp 1 --epoll 1 --netlink-task 1 --rawsock 1 --sockabuse 1",
    "--inotify 1 --fanotify 1 --eventfd 1 --flock 1 --lockf 1 --dir 1 --link 1 --rename 1 --xattr 1 --chmod 1",
    "--ptrace 1 --seccomp 1 --key 1 --bad-altstack 1 --stack 1 --rlimit 1 --get 1 --prctl 1",
];

#[test]
fn after_stress_of_every_kind_nothing_is_left_and_it_works() {
    let outcome = run(Mix::Malformed, 100, stretched(PATIENCE), |up, _| {
        for stressors in STRESS {
            let line = format!("exec stress-ng {stressors} --timeout 2s --temp-path /tmp --metrics-brief");
            let body = json!({"command": line, "timeout_ms": 300_000}).to_string();
            let report = Http::connect(up).unwrap().exec(&body).unwrap();
            // That one fails which the sandbox forbids is as it should be; they have their time, or all the memory.
            let said = format!(
                "{}{}",
                report.stdout.as_deref().unwrap_or_default(),
                report.stderr.as_deref().unwrap_or_default()
            );
            let had_its_time = report.wall_ms > 1500.0 || report.ended_by == EndedBy::OutOfMemory;
            assert!(had_its_time && said.contains("dispatching hogs"), "{stressors}: {report:?}");
        }
    });
    assert!(outcome.faults.is_empty(), "{:#?}\n{outcome}", outcome.faults);
}

#[test]
fn what_is_left_over_is_seen() {
    let marker = marker();
    let line = format!("head -c 6M /dev/zero | tr '\\0' x; sleep {marker}; :");
    let mut held = Vec::new();
    let mut leaf = None;
    let temporary = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
    let outcome = run(Mix::Ordinary, 0, Duration::from_secs(1), |up, monitor| {
        // A command that does not end has something of everything.
        let mut http = Http::connect(up).unwrap();
        let body = json!({"command": line, "capture_bytes": 8 << 20}).to_string();
        http.send("POST /v1/exec", "Content-Type: application/json\r\n", &body).unwrap();
        eventually("it runs", PATIENCE, || !sandboxed(&marker).is_empty());
        held.push(http);
        fs::write(up.directory.join("state/left"), "").unwrap();
        chown(temporary.path(), Some(uid_of("execuser")), None).unwrap();
        leaf = host::cgroups_of(monitor).map(|own| own.join("left"));
        if let Some(leaf) = &leaf {
            fs::create_dir(leaf).unwrap();
        }
        // The monitor's mounts are its own.
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).unwrap();
        let monitor = monitor.to_string();
        assert_ne!(namespace(&monitor), namespace("self"));
        let mut mount = Command::new("nsenter");
        mount.args(["-t", &monitor, "-m", "mount", "-t", "tmpfs", "left", "/mnt"]);
        let ran = process::run(mount, &[]);
        assert_eq!(ran.status, 0, "{ran:?}");
    });
    if let Some(leaf) = &leaf {
        let _ = fs::remove_dir(leaf);
    }
    let expected = [
        ("cgroups: ", leaf.is_some()),
        ("files: ", true),
        ("gateway's descriptors: ", true),
        ("monitor's descriptors: ", true),
        ("mounts elsewhere: /mnt", true),
        ("namespaces: ", true),
        ("processes: ", true),
        ("processes of the host with its mark: ", true),
        ("processes of the instance: ", true),
        ("server's descriptors: ", true),
        ("temporary files: /var/tmp/", true),
        ("server: own memory, ", true),
    ];
    for (what, _) in expected.iter().filter(|(_, there)| *there) {
        let found = outcome.faults.iter().any(|fault| fault.contains(what));
        assert!(found, "{what} is not among {:#?}\n{outcome}", outcome.faults);
    }
}
