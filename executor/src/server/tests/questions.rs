//! `ps`, `kill`, `profiles` and `doctor`, and the end of the executor.

use super::*;
use cordon_protocol::RefusalCode;

#[test]
fn a_peer_sees_its_own_commands_only() {
    let monitor = Monitor::start();
    let (_client, _command) = monitor.running(line("sleep 9\n"), 0xab);
    let mut other = monitor.connect_as(UID + 1, u64::MAX);
    other.open(&Request::Run(Box::new(line("secret"))));
    let _theirs = monitor.launch(0xcd, 1, 1);
    let mut asking = monitor.ask(&Request::Ps);
    let Some(Event::Jobs(jobs)) = asking.event() else { panic!("no jobs") };
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!((job.id.as_str(), job.command.as_str()), ("00000000000000ab", "sleep 9\\n"));
    assert_eq!((job.state.as_str(), job.profile.as_str()), ("running", "default"));
    asking.close(&monitor);
    let mut asking = monitor.connect_as(UID + 1, u64::MAX);
    asking.open(&Request::Ps);
    let Some(Event::Jobs(jobs)) = asking.event() else { panic!("no jobs") };
    assert_eq!((jobs.len(), jobs[0].state.as_str()), (1, "launching"));
    monitor.stop();
}

#[test]
fn kill_asks_the_monitor() {
    let monitor = Monitor::start();
    for found in [true, false] {
        let mut client = monitor.ask(&Request::Kill { id: "00000000000000ab".into() });
        let asked = ToMonitor::KillJob { connection: client.connection, job: 0xab };
        assert_eq!(monitor.hear(), asked);
        monitor.say(&ToServer::KillAnswer { connection: client.connection, found }, &[]);
        if found {
            assert_eq!(client.event(), Some(Event::Killed { id: "00000000000000ab".into() }));
        } else {
            let refusal = client.refusal();
            assert_eq!(refusal.code, RefusalCode::NotFound);
            assert_eq!(refusal.message, "id: no command `00000000000000ab` of this user is running");
        }
        client.close(&monitor);
    }
    let mut client = monitor.ask(&Request::Kill { id: "../x".into() });
    assert_eq!(client.refusal().message, "id: `../x` is not sixteen hexadecimal digits");
    client.close(&monitor);
    monitor.hear_nothing();
    monitor.stop();
}

#[test]
fn profiles_are_those_of_the_peer_and_doctor_tells_the_layers() {
    let monitor = Monitor::start();
    for (bits, expected) in [(0, &[][..]), (1, &["default"]), (2, &["small"]), (3, &["default", "small"])] {
        let mut client = monitor.connect_as(UID, bits);
        client.open(&Request::Profiles);
        let Some(Event::Profiles(profiles)) = client.event() else { panic!("no profiles") };
        assert_eq!(profiles.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), expected);
        client.close(&monitor);
    }
    for (errno, detail, health) in [(None, "", Health::Ok), (Some(28), "/log: full", Health::Missing)] {
        let mut client = monitor.ask(&Request::Doctor);
        assert_eq!(monitor.hear(), ToMonitor::CheckTrail(client.connection));
        monitor.say(&ToServer::Trail { connection: client.connection, errno, detail: detail.into() }, &[]);
        let Some(Event::Doctor(mut found)) = client.event() else { panic!("no layers") };
        let trail = found.pop().unwrap();
        assert_eq!((found, trail.health, trail.layer.as_str()), (layers(), health, "audit"));
        assert!(trail.detail.ends_with(detail), "{trail:?}");
        assert_eq!(trail.remedy.is_some_and(|remedy| remedy.contains("make room")), errno.is_some());
        client.close(&monitor);
    }
    monitor.stop();
}

#[test]
fn an_ending_executor_takes_no_more_and_lets_the_running_end() {
    let monitor = Monitor::start();
    let request = |text: &str| RunRequest { profile: Some("small".into()), ..line(text) };
    let (mut running, command) = monitor.running(request("a"), 1);
    let mut waiting = monitor.ask(&Request::Run(Box::new(request("b"))));
    let mut silent = monitor.connect();
    silent.send(&hello(1));
    let mut late = monitor.connect();
    late.send(&hello(1));
    assert_eq!(waiting.event(), Some(Event::Queued { position: 1 }));
    monitor.hear_nothing();
    monitor.say(&ToServer::Drain, &[]);
    assert_eq!(waiting.refusal().code, RefusalCode::ShuttingDown);
    waiting.denied(&monitor, "small", Denial::ShuttingDown);
    waiting.close(&monitor);
    silent.send(&Request::Ps);
    assert_eq!(silent.refusal().code, RefusalCode::ShuttingDown);
    silent.close(&monitor);
    // Of these two only this one was a launch.
    late.send(&Request::Run(Box::new(line("c"))));
    assert_eq!(late.refusal().code, RefusalCode::ShuttingDown);
    late.denied(&monitor, "default", Denial::ShuttingDown);
    late.close(&monitor);
    running.started("0000000000000001");
    monitor.exit(command);
    assert_eq!(running.report().exit_code, Some(0));
    monitor.stop();
}
