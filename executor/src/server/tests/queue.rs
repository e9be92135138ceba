//! Commands of one peer wait for one another, so many and no more.

use super::*;
use cordon_protocol::RefusalCode;

fn small(text: &str) -> Request {
    Request::Run(Box::new(RunRequest { profile: Some("small".into()), ..line(text) }))
}

#[test]
fn one_runs_one_waits_and_the_next_is_refused() {
    let monitor = Monitor::start();
    let mut first = monitor.ask(&small("a"));
    let command = monitor.launch(1, 100, 100);
    let mut second = monitor.ask(&small("b"));
    monitor.hear_nothing();
    let mut third = monitor.ask(&small("c"));
    let refusal = third.refusal();
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert!(refusal.message.contains("1 commands of this user run already and 1 wait"), "{refusal:?}");
    third.close(&monitor);
    let mut asking = monitor.ask(&Request::Ps);
    let Some(Event::Jobs(jobs)) = asking.event() else { panic!("no jobs") };
    let rows: Vec<_> = jobs.iter().map(|j| (j.id.as_str(), j.command.as_str(), j.state.as_str())).collect();
    assert_eq!(rows, [("0000000000000001", "a", "launching"), ("-", "b", "queued")]);
    asking.close(&monitor);
    // Another peer and another profile are not held up.
    let mut other = monitor.connect_as(UID + 1, u64::MAX);
    other.open(&small("d"));
    let theirs = monitor.launch(2, 100, 100);
    assert_eq!(theirs.connection, other.connection);
    monitor.exit(command);
    let command = monitor.launch(3, 100, 100);
    assert_eq!(command.connection, second.connection);
    assert_eq!(first.report().id, "0000000000000001");
    monitor.exit(command);
    assert_eq!(second.report().id, "0000000000000003");
    monitor.stop();
}

#[test]
fn one_that_leaves_the_queue_is_never_launched() {
    let monitor = Monitor::start();
    let _first = monitor.ask(&small("a"));
    let command = monitor.launch(1, 100, 100);
    let second = monitor.ask(&small("b"));
    monitor.hear_nothing();
    second.close(&monitor);
    let third = monitor.ask(&small("c"));
    monitor.hear_nothing();
    monitor.exit(command);
    assert_eq!(monitor.launch(2, 100, 100).connection, third.connection);
    monitor.stop();
}
