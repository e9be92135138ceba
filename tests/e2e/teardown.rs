//! What a sandbox was made of goes with it: mounts, namespaces, memory, descriptors and leaves, however it ended.

use crate::harness::{Executor, process};
use std::thread;

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
    let executor = Executor::start("");
    // A connection that was closed is remembered for a minute by its namespace, not by a process (tcp(7)).
    let code = "import socket\n\
                print(len(open('/proc/net/tcp').readlines()) - 1, end=' ')\n\
                s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname())\n\
                a, _ = s.accept(); c.close(); a.close(); s.close()\n\
                print(len(open('/proc/net/tcp').readlines()) - 1)";
    // More than the stock holds, one after the other.
    for round in 0..12 {
        assert_eq!(executor.python(code), "0 1\n", "round {round}");
    }
}
