//! Refusals that a taken-over server says it has made.

use super::*;
use cordon_executor::monitor::link::Denial;
use nix::sys::signal::Signal;
use std::time::Duration;

#[test]
fn a_refusal_of_the_server_s_is_recorded_once_of_a_peer_that_is_there_and_under_the_kernel_s_name() {
    let hostile = Hostile::start();
    let (connection, mut child) = hostile.stranger();
    let refused = |connection| {
        let profile = "default\",\"uid\":0,\"x\":\"".to_owned();
        ToMonitor::Refused { connection, profile, denial: Denial::LimitRefused }
    };
    let lines = || {
        let text = std::fs::read_to_string(hostile.directory.path().join("audit.jsonl")).unwrap();
        text.lines().filter(|line| line.contains("refused")).map(str::to_owned).collect::<Vec<_>>()
    };
    // Of numbers that nobody has, and with a reason that is none.
    for other in [0, connection + 1, u64::MAX - 1] {
        hostile.send(&refused(other), &[]);
    }
    let mut forged = refused(connection).encode();
    let last = forged.iter().rposition(|byte| *byte != 0).unwrap();
    forged[last] = 0xff;
    scm::send(hostile.link.as_fd(), &forged, &[]).unwrap();
    hostile.assert_works();
    assert_eq!(lines(), [""; 0]);
    // Again and again; then nothing more is launched for it.
    for _ in 0..5 {
        hostile.send(&refused(connection), &[]);
    }
    hostile.launch(connection, "default", AskedLimits::default(), shell("true").as_fd());
    assert_eq!(hostile.refusal(connection), LaunchRefusal::OutOfOrder);
    let seen = lines();
    assert_eq!(seen.len(), 2, "{seen:?}");
    let who = format!("\"event\":\"refused\",\"uid\":{STRANGER},\"pid\":{},\"profile\":", child.id());
    assert!(seen.iter().all(|line| line.contains(&who)), "{who}: {seen:?}");
    assert!(
        seen[0].contains("\"reason\":\"limits: one lies outside what the profile grants\",\"by\":\"server\""),
        "{seen:?}"
    );
    assert!(
        seen[1].contains("\"reason\":\"connection: it is not open") && seen[1].contains("\"by\":\"monitor\""),
        "{seen:?}"
    );
    // Nor of one whose command has been launched.
    let (launched, _stream) = hostile.peer();
    hostile.launched(launched, "default", "true");
    hostile.ended(launched);
    hostile.send(&refused(launched), &[]);
    hostile.assert_works();
    assert_eq!(lines().len(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_server_that_refuses_for_ever_does_not_fill_the_trail() {
    let mut hostile = Hostile::start();
    for _ in 0..100 {
        let (connection, stream) = hostile.peer();
        let profile = "p".repeat(64);
        hostile.send(&ToMonitor::Refused { connection, profile, denial: Denial::Busy }, &[]);
        drop(stream);
        hostile.send(&ToMonitor::Closed(connection), &[]);
    }
    hostile.assert_works();
    hostile.process.signal(Signal::SIGTERM);
    assert!(hostile.process.wait(Duration::from_secs(20)).success());
    let text = std::fs::read_to_string(hostile.directory.path().join("audit.jsonl")).unwrap();
    crate::audit::refusals::assert_all_told(&text, 100);
}

#[test]
fn a_server_that_asks_again_and_again_is_refused_each_time_and_none_of_them_is_missing() {
    let mut hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    hostile.launched(connection, "default", "true");
    hostile.ended(connection);
    // Of a peer that has had its launch, and of nobody.
    for other in [connection, connection + 1] {
        for _ in 0..150 {
            hostile.launch(other, "default", AskedLimits::default(), shell("true").as_fd());
            assert_eq!(hostile.refusal(other), LaunchRefusal::OutOfOrder);
        }
    }
    hostile.process.signal(Signal::SIGTERM);
    assert!(hostile.process.wait(Duration::from_secs(20)).success());
    let text = std::fs::read_to_string(hostile.directory.path().join("audit.jsonl")).unwrap();
    for uid in ["\"uid\":0,", "\"uid\":null,"] {
        let refused = |line: &&str| line.contains("refused\",") && line.contains(uid);
        let lines: Vec<_> = text.lines().filter(refused).collect();
        crate::audit::refusals::assert_all_told(&lines.join("\n"), 150);
    }
}

#[test]
fn commands_that_end_with_the_server_have_their_ends_in_the_trail() {
    let hostile = Hostile::start();
    let jobs: Vec<_> = (0..3)
        .map(|_| {
            let (connection, stream) = hostile.peer();
            let (job, _output) = hostile.launched(connection, "default", "sleep 600");
            (format!("{job:016x}"), stream)
        })
        .collect();
    let Hostile { link, mut process, directory } = hostile;
    drop(link);
    assert!(!process.wait(Duration::from_secs(20)).success());
    let text = std::fs::read_to_string(directory.path().join("audit.jsonl")).unwrap();
    for (job, _) in &jobs {
        let ended = format!("\"event\":\"ended\",\"job\":\"{job}\",\"ended_by\":\"cancelled\"");
        assert!(text.contains(&ended), "{job}: {text}");
    }
    assert!(text.lines().next_back().unwrap().contains("\"event\":\"stopped\""), "{text}");
}
