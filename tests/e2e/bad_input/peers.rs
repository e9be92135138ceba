//! Peers that say nothing, are not allowed, or are too many.

use super::*;
use crate::harness::{
    Executor, PATIENCE,
    client::{line, public_copy},
    daemon::open_directory,
    eventually, host,
    lab::STRANGER,
    process::run,
    shared, stretched,
    wire::Wire,
};
use cordon_protocol::{
    RefusalCode,
    limits::{self},
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::{io::Read, os::unix::net::UnixStream, time::Duration};

#[test]
fn a_thousand_silent_connections_keep_nobody_else_out() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(4096).min(hard), hard).unwrap();
    let executor = Executor::start("");
    let silent: Vec<_> = (0..1000).filter_map(|_| UnixStream::connect(&executor.socket).ok()).collect();
    assert!(silent.len() > 500, "{}", silent.len());
    // Another peer has its own share.
    let directory = open_directory();
    let cordon = public_copy(&crate::harness::build::programs().cordon, directory.path());
    let mut command = host::as_user(STRANGER, STRANGER, &[host::gid_of("cordon")], &cordon.to_string_lossy());
    command.args(["run", "--", "echo", "served"]).env("CORDON_SOCKET", &executor.socket);
    let ran = run(command, &[]);
    assert_eq!((ran.status, ran.text().as_str()), (0, "served\n"), "{ran:?}");
    // Who says nothing is told so and let go; so is who had no room.
    for mut stream in silent {
        stream.set_read_timeout(Some(limits::HELLO_TIMEOUT + stretched(Duration::from_secs(20)))).unwrap();
        let mut rest = Vec::new();
        let end = stream.read_to_end(&mut rest);
        assert!(end.is_ok() || end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
    }
    executor.assert_works();
}

#[test]
fn a_client_that_says_hello_and_nothing_more_is_let_go() {
    let mut wire = Wire::greeted(&shared().socket);
    assert_eq!(wire.refusal().code, RefusalCode::Timeout);
}

#[test]
fn a_peer_that_is_not_allowed_runs_nothing() {
    let directory = open_directory();
    let cordon = public_copy(&crate::harness::build::programs().cordon, directory.path());
    let executor = Executor::start("[profiles.default]\npeers = ['root']\n");
    let attempt = |uid: u32, groups: &[u32]| {
        let mut command = host::as_user(uid, uid, groups, &cordon.to_string_lossy());
        command.args(["run", "--", "echo", "ran"]).env("CORDON_SOCKET", &executor.socket);
        run(command, &[])
    };
    let group = host::gid_of("cordon");
    // Not in the group: the socket does not open. In it: no profile is theirs. Nobody is never a peer.
    let cases: [(u32, &[u32], &str); 3] =
        [(STRANGER, &[], "ermission denied"), (STRANGER, &[group], ""), (65534, &[group], "")];
    for (uid, groups, word) in cases {
        let ran = attempt(uid, groups);
        assert_eq!((ran.status, ran.stdout.len()), (125, 0), "{uid}: {ran:?}");
        assert!(ran.stderr.len() > 20 && ran.stderr.contains(word), "{uid}: {ran:?}");
    }
    executor.assert_works();
    // Nobody is refused even where a profile would have it.
    let open = Executor::start("[profiles.default]\npeers = ['root', '@cordon', 'uid:65534']\n");
    let mut command = host::as_user(65534, 65534, &[group], &cordon.to_string_lossy());
    command.args(["run", "--", "echo", "ran"]).env("CORDON_SOCKET", &open.socket);
    assert_eq!(run(command, &[]).status, 125);
    let mut command = host::as_user(STRANGER, STRANGER, &[group], &cordon.to_string_lossy());
    command.args(["run", "--", "echo", "ran"]).env("CORDON_SOCKET", &open.socket);
    assert_eq!(run(command, &[]).text(), "ran\n", "the control");
}

#[test]
fn an_executor_that_is_full_says_so() {
    let executor = Executor::start("[profiles.default]\nconcurrency = 1\nqueue = 1\n");
    let first = cordon_protocol::client::blocking::run(&executor.socket, "test", line("sleep 60")).unwrap();
    eventually("the first runs", PATIENCE, || {
        let jobs = cordon_protocol::client::blocking::ps(&executor.socket, "test").unwrap();
        jobs.iter().any(|j| j.state == "running")
    });
    let second =
        cordon_protocol::client::blocking::run(&executor.socket, "test", line("echo second")).unwrap();
    eventually("the second waits", PATIENCE, || {
        let jobs = cordon_protocol::client::blocking::ps(&executor.socket, "test").unwrap();
        jobs.iter().any(|j| j.state == "queued")
    });
    assert_says(&executor.refusal(line("echo third")), &["busy"]);
    drop(first);
    let report = crate::harness::client::collect(second.0).unwrap().report;
    assert_eq!(report.stdout.as_deref(), Some("second\n"));
}
