//! Commands of one peer wait for one another, those of all for a place, so many and no more.

use super::*;
use crate::{config::Policy, profile::Profile, server::news::BETWEEN_NEWS, sys::memfd::sealed};
use cordon_protocol::{RefusalCode, codec::encode_frame};
use std::{net::Shutdown, time::Instant};

fn small(text: &str) -> Request {
    Request::Run(Box::new(RunRequest { profile: Some("small".into()), ..line(text) }))
}

/// Profile `small` takes one command at once and lets five wait.
fn five_may_wait() -> Config {
    let mut config = fixture::config();
    config.profiles.entry("small".into()).and_modify(|profile| profile.queue = 5);
    config
}

fn start(config: Config) -> Monitor {
    Monitor::start_with(config, || {})
}

impl Client {
    fn queued(&mut self, position: u32) {
        assert_eq!(self.event(), Some(Event::Queued { position }));
    }
}

#[test]
fn one_runs_one_waits_and_the_next_is_refused() {
    let monitor = Monitor::start();
    let mut first = monitor.ask(&small("a"));
    let command = monitor.launch(1, 100, 100);
    let mut second = monitor.ask(&small("b"));
    second.queued(1);
    let mut third = monitor.ask(&small("c"));
    let refusal = third.refusal();
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert!(
        refusal.message.contains("1 command of this user running already and 1 in the queue"),
        "{refusal:?}"
    );
    third.denied(&monitor, "small", Denial::Busy);
    third.close(&monitor);
    let mut asking = monitor.ask(&Request::Ps);
    let Some(Event::Jobs(jobs)) = asking.event() else { panic!("no jobs") };
    let rows: Vec<_> =
        jobs.iter().map(|j| (j.id.as_str(), j.command.as_str(), j.state.as_str(), j.position)).collect();
    assert_eq!(rows, [("0000000000000001", "a", "launching", None), ("-", "b", "queued", Some(1))]);
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
fn positions_count_down_in_order_and_one_that_leaves_frees_its_own() {
    let monitor = start(five_may_wait());
    let _first = monitor.ask(&small("a"));
    let command = monitor.launch(1, 100, 100);
    let mut waiting: Vec<_> = (1..=5)
        .map(|position| {
            let mut client = monitor.ask(&small("b"));
            client.queued(position);
            client
        })
        .collect();
    // The second of them leaves, by a half close: those behind it move up, the one before it hears nothing.
    let leaving = waiting.remove(1);
    leaving.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(monitor.hear(), ToMonitor::Closed(leaving.connection));
    for (client, position) in waiting[1..].iter_mut().zip(2..) {
        client.queued(position);
    }
    monitor.exit(command);
    for at in 0..waiting.len() {
        let command = monitor.launch(2, 100, 100);
        assert_eq!(command.connection, waiting[at].connection, "in the order of arrival");
        for (client, position) in waiting[at + 1..].iter_mut().zip(1..) {
            client.queued(position);
        }
        // Nothing more was said to whoever has its turn.
        monitor.say(&ToServer::Executed(command.connection), &[]);
        waiting[at].started("0000000000000002");
        monitor.exit(command);
    }
    monitor.stop();
}

#[test]
fn where_positions_change_fast_few_are_told_and_the_last_one_always() {
    let mut config = fixture::config();
    config.profiles.entry("small".into()).and_modify(|profile| profile.queue = 50);
    let monitor = start(config);
    let _first = monitor.ask(&small("a"));
    let mut command = monitor.launch(1, 100, 100);
    let begun = Instant::now();
    let mut waiting: Vec<_> = (1..=50).map(|_| monitor.ask(&small("b"))).collect();
    let mut last = waiting.pop().unwrap();
    last.queued(50);
    for _ in &waiting {
        monitor.exit(command);
        command = monitor.launch(2, 100, 100);
    }
    let mut told = vec![50];
    while told.last() != Some(&1) {
        let Some(Event::Queued { position }) = last.event() else { panic!("{told:?}") };
        told.push(position);
    }
    // However slow this is, they were no closer together.
    let most = begun.elapsed().as_millis() / BETWEEN_NEWS.as_millis() + 1;
    assert!(
        told.len() as u128 <= most && told.is_sorted_by(|before, after| before > after),
        "{most}: {told:?}"
    );
    monitor.stop();
}

#[test]
fn one_that_leaves_the_queue_is_never_launched() {
    let monitor = Monitor::start();
    let _first = monitor.ask(&small("a"));
    let command = monitor.launch(1, 100, 100);
    let mut second = monitor.ask(&small("b"));
    second.queued(1);
    second.close(&monitor);
    let mut third = monitor.ask(&small("c"));
    third.queued(1);
    monitor.exit(command);
    assert_eq!(monitor.launch(2, 100, 100).connection, third.connection);
    monitor.stop();
}

#[test]
fn one_that_waits_too_long_is_told_how_long_and_its_place_in_the_queue_is_free() {
    let mut config = fixture::config();
    config.profiles.entry("small".into()).and_modify(|profile| profile.queue_timeout = 30);
    let monitor = start(config);
    let _first = monitor.ask(&small("a"));
    let command = monitor.launch(1, 100, 100);
    for _ in 0..2 {
        let mut waiting = monitor.ask(&small("b"));
        waiting.queued(1);
        let refusal = waiting.refusal();
        assert_eq!(refusal.code, RefusalCode::Busy);
        let says = "no place came free within 30ms, for which this command has waited, behind 1 command of this user running";
        assert!(refusal.message.contains(says), "{refusal:?}");
        assert!(refusal.hint.unwrap().contains("profiles.small.queue_timeout"));
        waiting.denied(&monitor, "small", Denial::Busy);
        waiting.close(&monitor);
    }
    monitor.exit(command);
    monitor.stop();
}

#[test]
fn a_peer_that_floods_and_reads_nothing_holds_up_no_other() {
    let mut config = fixture::config();
    config.max_commands = 2;
    let monitor = start(config);
    let flood: Vec<_> = (0..6).map(|n| monitor.ask(&Request::Run(Box::new(line(&n.to_string()))))).collect();
    let (first, second) = (monitor.launch(1, 100, 1 << 20), monitor.launch(2, 100, 1 << 20));
    let mut calm = monitor.connect_as(UID + 1, u64::MAX);
    calm.open(&Request::Run(Box::new(line("calm"))));
    calm.queued(1);
    // A report that nobody takes: the command's place is free all the same, and goes to the peer without any,
    // though four of the other's were there before.
    let mut command = first;
    monitor.say(&ToServer::Executed(command.connection), &[]);
    command.stdout.write_all(&[b'x'; 60_000]).unwrap();
    command.stderr.write_all(&[b'x'; 60_000]).unwrap();
    monitor.exit(command);
    let command = monitor.launch(3, 100, 100);
    assert_eq!(command.connection, calm.connection);
    monitor.exit(command);
    assert_eq!(calm.report().id, "0000000000000003");
    // Then it is first come, first served among the flood.
    assert_eq!(monitor.launch(4, 100, 100).connection, flood[2].connection);
    calm.close(&monitor);
    drop(second);
    monitor.stop();
}

#[test]
fn a_changed_policy_holds_for_whoever_asks_then_and_for_those_that_wait() {
    let mut config = five_may_wait();
    let monitor = start(config.clone());
    let _first = monitor.ask(&small("a"));
    let command = monitor.launch(1, 100, 100);
    let mut waiting = [monitor.ask(&small("b")), monitor.ask(&small("c"))];
    waiting[0].queued(1);
    waiting[1].queued(2);
    // Of one that has connected before and asks afterwards, what it may use is known by name.
    let mut early = monitor.connect_as(UID, 0b10);
    monitor.hear_nothing();
    let mut changed = config.profiles["small"].clone();
    changed.concurrency = 2;
    config.profiles.insert("small".into(), changed.clone());
    config.profiles.insert("another".into(), Profile { name: "another".into(), ..changed });
    config.profiles.remove("default");
    let Config { cwd, free_space_min, max_commands, profiles, sha256, .. } = config;
    let policy = Policy { cwd, free_space_min, max_commands, profiles, sha256 };
    let mut file = File::from(sealed(&policy.encode().unwrap()).unwrap());
    file.rewind().unwrap();
    monitor.say(&ToServer::Policy, &[file.as_fd()]);
    // There is a second place now.
    assert_eq!(monitor.launch(2, 100, 100).connection, waiting[0].connection);
    waiting[1].queued(1);
    early.open(&Request::Profiles);
    let Some(Event::Profiles(profiles)) = early.event() else { panic!("no profiles") };
    assert_eq!(profiles.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["small"]);
    early.close(&monitor);
    let mut gone = monitor.ask(&Request::Run(Box::new(line("d"))));
    assert_eq!(gone.refusal().code, RefusalCode::UnknownProfile);
    gone.denied(&monitor, "default", Denial::UnknownProfile);
    gone.close(&monitor);
    let new = RunRequest { profile: Some("another".into()), ..line("e") };
    let new = monitor.ask(&Request::Run(Box::new(new)));
    assert_eq!(monitor.launch(3, 100, 100).connection, new.connection);
    drop(command);
    monitor.stop();
}

#[test]
fn large_requests_wait_for_room_and_are_refused_where_none_comes_free() {
    let monitor = start(five_may_wait());
    let file = |size: usize| cordon_protocol::FileIn { path: "f".into(), content: vec![7; size], mode: None };
    let large = |text: &str| {
        let files =
            (0..12).map(|n| cordon_protocol::FileIn { path: n.to_string(), ..file(1 << 20) }).collect();
        Request::Run(Box::new(RunRequest { profile: Some("small".into()), files, ..line(text) }))
    };
    let _running = monitor.ask(&small("a"));
    let command = monitor.launch(1, 100, 100);
    // Two of them wait in the queue with 12 MiB each; the peer's half has no room for a third.
    let mut waiting = [monitor.ask(&large("b")), monitor.ask(&large("c"))];
    waiting[0].queued(1);
    waiting[1].queued(2);
    let mut third = monitor.connect();
    third.send(&hello(limits::PROTOCOL_VERSION));
    let frame = encode_frame(&large("d"), limits::REQUEST_FRAME_MAX).unwrap();
    let mut stream = third.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || stream.write_all(&frame));
    // An ordinary request needs none, and another peer has its own half.
    let mut ordinary = monitor.ask(&small("e"));
    ordinary.queued(3);
    let mut other = monitor.connect_as(UID + 1, u64::MAX);
    other.open(&large("f"));
    let (launch, _) = monitor.hear_with();
    assert_eq!(launch.connection(), Some(other.connection));
    let refusal = third.refusal();
    assert_eq!(refusal.code, RefusalCode::Busy);
    assert!(refusal.message.contains("no room for it within 10 s"), "{refusal:?}");
    assert!(sending.join().unwrap().is_ok(), "what it still sent was thrown away");
    third.close(&monitor);
    // Once one of them has gone on into its memory file there is room again.
    monitor.exit(command);
    let (launch, _descriptors) = monitor.hear_with();
    assert_eq!(launch.connection(), Some(waiting[0].connection));
    let mut fourth = monitor.ask(&large("g"));
    fourth.queued(3);
    monitor.stop();
}
