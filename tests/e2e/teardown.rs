//! What a sandbox was made of goes with it: mounts, namespaces, memory, descriptors and leaves, however it ended.

use crate::harness::{
    Executor, PATIENCE,
    client::{argv, line},
    eventually, host, marker,
    process::{self, sandboxed},
    stretched,
};
use cordon_protocol::{CgroupMode, EndedBy, Event, client::blocking};
use cordon_tests::{belongings::Belongings, host as kernel};
use std::{collections::BTreeSet, thread};

/// Network namespaces that a monitor at rest keeps open: its stock, and its own to return to.
const NETWORKS: usize = 5;

/// What a monitor has once its stock is full: while it fills it, it has a socket more for a moment.
pub(crate) fn at_rest(monitor: i32) -> Belongings {
    eventually("the stock of network namespaces is full", PATIENCE, || {
        process::descriptors(monitor).iter().filter(|link| link.starts_with("net:")).count() == NETWORKS
    });
    Belongings::of(monitor)
}

/// Fails unless the monitor comes to have nothing more and nothing less than before.
pub(crate) fn assert_restored(before: &Belongings, monitor: i32, what: &str) {
    let mut found = Belongings::of(monitor);
    let start = std::time::Instant::now();
    while !found.is_again(before) {
        assert!(start.elapsed() < stretched(PATIENCE), "{what}: {found:#?}\nis not {before:#?}");
        thread::sleep(std::time::Duration::from_millis(10));
        found = Belongings::of(monitor);
    }
}

/// Pages of all file systems in memory, bytes.
fn shared_memory() -> u64 {
    kernel::number("/proc/meminfo", "Shmem").unwrap() << 10
}

#[test]
fn however_a_command_ends_nothing_of_its_sandbox_is_left() {
    let executor = Executor::start("");
    let monitor = executor.pid();
    let before = at_rest(monitor);
    assert!(before.count("processes") == 1, "the server alone: {before:?}");
    let fill = "head -c 1M /dev/zero > /tmp/x; cp /tmp/x ~; cp /tmp/x /dev/shm";
    // The control: while one runs there is more of everything.
    let mut request = line(&format!("{fill}; echo; sleep 600; :"));
    request.stream = true;
    let (mut connection, _stdin) = blocking::run(&executor.socket, "test", request).unwrap();
    while !matches!(connection.next_event().unwrap(), Event::Stdout(_)) {}
    let now = Belongings::of(monitor);
    assert!(now.count("namespaces") > before.count("namespaces"), "{now:?}");
    assert!(now.count("processes") > before.count("processes"), "{now:?}");
    connection.close();
    assert_restored(&before, monitor, "a closed connection");
    let bomb = "x = bytearray(b'x') * (300 << 20); import time; time.sleep(60)";
    let child = format!("{fill}; (setsid sleep 600 &); exit 3");
    let ends: [(&[&str], EndedBy); 8] = [
        (&["-c", fill], EndedBy::Exit),
        (&["-c", &child], EndedBy::Exit),
        (&["-c", "kill -KILL $$"], EndedBy::Signal),
        (
            &["--timeout", "300ms", "-c", "trap '' TERM; (setsid sleep 600 &); sleep 600"],
            EndedBy::WallTimeout,
        ),
        (&["--memory", "64M", "--", "python3", "-c", bomb], EndedBy::OutOfMemory),
        (&["--output", "1M", "--", "yes"], EndedBy::OutputLimit),
        (&["--", "/no/such/program"], EndedBy::LaunchFailed),
        (&["--", "/etc"], EndedBy::LaunchFailed),
    ];
    for (arguments, ended_by) in ends {
        assert_eq!(executor.report(arguments).ended_by, ended_by, "{arguments:?}");
        assert_restored(&before, monitor, &format!("{arguments:?}"));
    }
}

#[test]
fn what_a_command_stored_in_memory_is_given_back_whatever_ended_it() {
    const FILE: u64 = 150 << 20;
    const AT_ONCE: u64 = 3;
    const ROUNDS: u64 = 3;
    let executor = Executor::start("");
    let before = shared_memory();
    for _ in 0..ROUNDS {
        let marker = marker();
        // The control: it is stored in memory, of which there is so much less.
        let full = format!(
            "head -c {FILE} /dev/zero > /tmp/x; [ $(stat -fc %T /tmp) = tmpfs ] && \
             [ $(df -B1 --output=used /tmp | tail -1) -ge {FILE} ] && sleep {marker}; :"
        );
        thread::scope(|scope| {
            let runs: Vec<_> =
                (0..AT_ONCE).map(|_| scope.spawn(|| executor.report(&["-c", &full]))).collect();
            eventually("all have stored it", PATIENCE, || sandboxed(&marker).len() as u64 == AT_ONCE * 2);
            let ends: BTreeSet<_> =
                blocking::ps(&executor.socket, "test").unwrap().into_iter().map(|job| job.id).collect();
            for id in ends {
                blocking::kill(&executor.socket, "test", &id).unwrap();
            }
            for run in runs {
                assert_eq!(run.join().unwrap().ended_by, EndedBy::Cancelled);
            }
            executor.inside(&format!("head -c {FILE} /dev/zero > /tmp/x"));
        });
    }
    let stored = FILE * (AT_ONCE + 1) * ROUNDS;
    eventually("it is given back", PATIENCE, || shared_memory() < before + stored / 3);
}

/// Namespaces of the network that a process holds by descriptor, with its own.
fn networks(pid: i32) -> usize {
    process::descriptors(pid).iter().filter(|link| link.starts_with("net:")).count()
}

#[test]
fn the_stock_of_network_namespaces_stays_small_however_busy_the_monitor_is() {
    let executor = Executor::start("");
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| executor.inside("for i in $(seq 300); do sleep 0.005; done"));
        }
        scope.spawn(|| (0..20).for_each(|_| executor.assert_works()));
    });
    let held = networks(executor.pid());
    assert!(held <= 5, "{held}");
}

#[test]
fn no_command_finds_the_network_of_an_earlier_one() {
    let _verdict = crate::escape::probe!();
    let executor = Executor::start("");
    // A connection that was closed is remembered for a minute by its namespace, not by a process (tcp(7)).
    let code = "import socket\n\
                print(len(open('/proc/net/tcp').readlines()) - 1, end=' ')\n\
                s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname())\n\
                a, _ = s.accept(); c.close(); a.close(); s.close()\n\
                print(len(open('/proc/net/tcp').readlines()) - 1)";
    // More than the stock holds, one after the other.
    for round in 0..12 {
        let seen = executor.python(code);
        let (before, after) = seen.trim().split_once(' ').unwrap();
        assert!(before == "0" && after != "0", "round {round}: {seen}");
    }
}

#[test]
fn what_counts_shared_memory_holds_nothing_open_of_the_monitors() {
    if host::cgroup_mode() == CgroupMode::V2 {
        // The kernel counts it.
        return;
    }
    let executor = Executor::start("");
    let monitor = executor.pid();
    let code = "import os, time\nx = bytearray(b'x') * (40 << 20)\n\
        for i in range(5):\n    if os.fork() == 0: time.sleep(60); os._exit(0)\n\
        print('forked', flush=True)\ntime.sleep(60)";
    let mut request = argv(&["python3", "-c", code]);
    request.stream = true;
    request.limits.memory_bytes = Some(128 << 20);
    let (mut connection, _stdin) = blocking::run(&executor.socket, "test", request).unwrap();
    while !matches!(connection.next_event().unwrap(), Event::Stdout(_)) {}
    // Root's, and no process of a sandbox: those are of other users, or about to be.
    let counts = |pid: &i32| process::uids(*pid) == [0; 4];
    let holds = |pid: i32| process::descriptors(pid).iter().any(|link| link.starts_with("socket:"));
    assert!(holds(monitor), "the control");
    // It is copied with everything first.
    eventually("one is seen without a socket", PATIENCE, || {
        process::descendants(monitor)
            .into_iter()
            .filter(counts)
            .any(|pid| !holds(pid) && process::exe(pid).is_some())
    });
    connection.close();
}
