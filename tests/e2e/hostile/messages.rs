//! Messages that are none, come out of order, or concern somebody else.

use super::*;
use crate::harness::{
    PATIENCE,
    build::programs,
    daemon::{NotifySocket, ensure_users, in_scope, open_directory, write_configuration},
    eventually, marker,
    process::{Process, sandboxed},
    stretched,
};
use cordon_executor::{
    monitor::link::{AskedLimits, LaunchRefusal, MESSAGE_LEN, ServiceCounts, ToMonitor, ToServer},
    sys::scm,
};
use cordon_protocol::EndedBy;
use nix::{
    sys::{
        signal::{Signal, kill},
        socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt::SndBufForce},
    },
    unistd::Pid,
};
use std::{
    os::fd::AsFd,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

#[test]
fn an_honest_server_is_served() {
    let hostile = Hostile::start();
    hostile.assert_works();
    hostile.assert_works();
}

#[test]
fn a_job_of_another_uid_is_not_killed() {
    let _verdict = crate::escape::probe!();
    let hostile = Hostile::start();
    let (root, _stream) = hostile.peer();
    let (stranger, mut child) = hostile.stranger();
    let marker = marker();
    let (job, _output) = hostile.launched(root, "default", &format!("sleep {marker}; :"));
    let answer = |found| ToServer::KillAnswer { connection: stranger, found };
    hostile.send(&ToMonitor::KillJob { connection: stranger, job }, &[]);
    assert_eq!(hostile.next().0, answer(false));
    hostile.send(&ToMonitor::KillJob { connection: stranger, job: job + 1 }, &[]);
    assert_eq!(hostile.next().0, answer(false));
    eventually("sleep runs", PATIENCE, || !sandboxed(&marker).is_empty());
    // The control: root's own second connection may.
    let (second, _stream) = hostile.peer();
    hostile.send(&ToMonitor::KillJob { connection: second, job }, &[]);
    let mut seen = vec![hostile.next().0, hostile.next().0];
    seen.retain(|m| *m != ToServer::KillAnswer { connection: second, found: true });
    assert!(
        matches!(&seen[..], [ToServer::Ended { connection, outcome }]
            if *connection == root && outcome.ended_by == EndedBy::Cancelled),
        "{seen:?}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_is_no_message_is_not_obeyed() {
    let _verdict = crate::escape::probe!();
    let hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    let marker = marker();
    let (_job, _output) = hostile.launched(connection, "default", &format!("sleep {marker}; :"));
    let mut trailing = ToMonitor::Cancel(connection).encode();
    trailing[MESSAGE_LEN - 1] = 1;
    let whole = ToMonitor::Cancel(connection).encode();
    let longer = [&whole[..], &[0]].concat();
    let garbage = [0xa5; MESSAGE_LEN];
    for bytes in [&b"x"[..], &garbage, &trailing, &whole[..MESSAGE_LEN - 1], &longer, &[0; 100_000]] {
        scm::send(hostile.link.as_fd(), bytes, &[]).unwrap();
    }
    hostile.assert_quiet();
    assert!(!sandboxed(&marker).is_empty(), "a message that is not one cancelled the command");
    hostile.assert_works();
}

#[test]
fn messages_out_of_order_change_nothing() {
    let hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    for message in [
        ToMonitor::Drained(connection),
        ToMonitor::Cancel(connection),
        ToMonitor::OutputExceeded(connection),
        ToMonitor::Cancel(u64::MAX - 1),
        ToMonitor::Closed(u64::MAX - 1),
        ToMonitor::Drained(0),
        ToMonitor::Pong,
    ] {
        hostile.send(&message, &[]);
    }
    hostile.assert_quiet();
    let marker = marker();
    hostile.launched(connection, "default", &format!("sleep {marker}; :"));
    // A second launch on the same connection, and an end that has not come.
    hostile.launch(connection, "default", AskedLimits::default(), shell("true").as_fd());
    assert_eq!(hostile.refusal(connection), LaunchRefusal::OutOfOrder);
    hostile.send(&ToMonitor::Drained(connection), &[]);
    hostile.assert_quiet();
    // Nor does a refused launch leave the connection another try.
    let (refused, _stream) = hostile.peer();
    hostile.launch(refused, "nope", AskedLimits::default(), shell("true").as_fd());
    assert_eq!(hostile.refusal(refused), LaunchRefusal::UnknownProfile);
    hostile.launch(refused, "default", AskedLimits::default(), shell("true").as_fd());
    assert_eq!(hostile.refusal(refused), LaunchRefusal::OutOfOrder);
    assert!(!sandboxed(&marker).is_empty(), "the command still runs");
    // The control: a cancel in its place is obeyed.
    hostile.send(&ToMonitor::Cancel(connection), &[]);
    assert_eq!(hostile.ended(connection).ended_by, EndedBy::Cancelled);
    hostile.assert_works();
}

#[test]
fn a_connection_that_was_closed_is_nobody() {
    let hostile = Hostile::start();
    let (closed, _stream) = hostile.peer();
    let (running, _second_stream) = hostile.peer();
    let marker = marker();
    let (job, _output) = hostile.launched(running, "default", &format!("sleep {marker}; :"));
    hostile.send(&ToMonitor::Closed(closed), &[]);
    for connection in [closed, running + 1, 0] {
        hostile.send(&ToMonitor::KillJob { connection, job }, &[]);
        assert_eq!(hostile.next().0, ToServer::KillAnswer { connection, found: false });
    }
    hostile.launch(closed, "default", AskedLimits::default(), shell("true").as_fd());
    assert_eq!(hostile.refusal(closed), LaunchRefusal::OutOfOrder);
    assert!(!sandboxed(&marker).is_empty(), "the command still runs");
    // Its number is never another's, and the control: a connection that is open may.
    let (next, _third_stream) = hostile.peer();
    assert!(next > running && running > closed, "{closed} {running} {next}");
    hostile.send(&ToMonitor::KillJob { connection: next, job }, &[]);
    let seen = [hostile.next().0, hostile.next().0];
    assert!(seen.contains(&ToServer::KillAnswer { connection: next, found: true }), "{seen:?}");
    // A command goes with its connection.
    let (leaving, _fourth_stream) = hostile.peer();
    hostile.launched(leaving, "default", "sleep 600");
    hostile.send(&ToMonitor::Closed(leaving), &[]);
    assert_eq!(hostile.ended(leaving).ended_by, EndedBy::Cancelled);
}

#[test]
fn a_flood_of_messages_holds_up_no_deadline() {
    let hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    let marker = marker();
    let asked = AskedLimits { wall_ms: Some(1000), ..AskedLimits::default() };
    hostile.launch(connection, "default", asked, shell(&format!("sleep {marker}; :")).as_fd());
    eventually("sleep runs", PATIENCE, || !sandboxed(&marker).is_empty());
    // Each costs the monitor more (a refusal in the audit trail) than it costs here, and many wait at a time:
    // one that took in all there is would never come to an end of them.
    setsockopt(&hostile.link, SndBufForce, &(8 << 20)).unwrap();
    let launch = launch_message(u64::MAX - 1, |launch| launch.profile = "nope".to_owned());
    let flooding = AtomicBool::new(true);
    // Whoever reads must keep up with a monitor that comes before others.
    let own = nix::unistd::gettid().to_string();
    assert!(Command::new("renice").args(["-n", "-19", "-p", &own]).output().unwrap().status.success());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let message = launch.encode();
                while flooding.load(Ordering::Relaxed)
                    && scm::send(hostile.link.as_fd(), &message, &[]).is_ok()
                {
                    std::hint::spin_loop();
                }
            });
        }
        let start = Instant::now();
        let mut outcome = None;
        // Read all the while: of a server that does not the monitor ends by itself.
        while outcome.is_none() && start.elapsed() < stretched(PATIENCE) {
            if let Some((ToServer::Ended { connection: of, outcome: ended }, _)) = hostile.receive() {
                outcome = (of == connection).then_some(ended.ended_by);
            }
        }
        flooding.store(false, Ordering::Relaxed);
        assert_eq!(outcome, Some(EndedBy::WallTimeout), "after {:?}", start.elapsed());
    });
}

#[test]
fn what_is_no_message_does_not_fill_the_log() {
    let hostile = Hostile::start();
    for _ in 0..2000 {
        scm::send(hostile.link.as_fd(), b"garbage", &[]).unwrap();
    }
    hostile.assert_works();
    let lines = hostile.process.log().lines().filter(|l| l.contains("malformed")).count();
    assert!((1..=100).contains(&lines), "{lines}");
}

#[test]
fn launches_out_of_order_do_not_fill_the_trail() {
    let hostile = Hostile::start();
    let request = shell("true");
    for _ in 0..300 {
        hostile.launch(0, "default", AskedLimits::default(), request.as_fd());
        assert_eq!(hostile.refusal(0), LaunchRefusal::OutOfOrder);
    }
    let trail = std::fs::read_to_string(hostile.directory.path().join("audit.jsonl")).unwrap();
    let lines = trail.lines().filter(|line| line.contains("one connection carries one")).count();
    assert!((1..=100).contains(&lines), "{lines}");
    // What each connection is refused once is still recorded.
    let (connection, _stream) = hostile.peer();
    hostile.launch(connection, "nope", AskedLimits::default(), request.as_fd());
    assert_eq!(hostile.refusal(connection), LaunchRefusal::UnknownProfile);
    let trail = std::fs::read_to_string(hostile.directory.path().join("audit.jsonl")).unwrap();
    assert!(
        trail
            .lines()
            .last()
            .unwrap()
            .contains("profile: there is none of this name for this user; name another"),
        "{trail}"
    );
}

#[test]
fn a_command_that_left_others_behind_counts_until_they_are_torn_down() {
    let _verdict = crate::escape::probe!();
    let hostile = Hostile::start();
    // The monitor itself tears down after a moment what the server does not ask it to: try before that.
    let counted = (0..5).any(|_| {
        let ((first, _stream), (second, _other)) = (hostile.peer(), hostile.peer());
        let marker = marker();
        hostile.launched(first, "single", &format!("(setsid sleep {marker} &); exit 0"));
        assert_eq!(hostile.ended(first).ended_by, EndedBy::Exit);
        hostile.launch(second, "single", AskedLimits::default(), shell("true").as_fd());
        let busy = LaunchRefusal::Busy { concurrency: 1 };
        let refused = hostile.next().0 == ToServer::LaunchRefused { connection: second, refusal: busy };
        while !refused && !matches!(hostile.next().0, ToServer::Ended { .. }) {}
        for connection in [first, second] {
            hostile.send(&ToMonitor::Drained(connection), &[]);
        }
        eventually("what it left is gone", PATIENCE, || sandboxed(&marker).is_empty());
        refused
    });
    assert!(counted);
    let (third, _third_stream) = hostile.peer();
    hostile.launched(third, "single", "true");
    assert_eq!(hostile.ended(third).ended_by, EndedBy::Exit);
}

#[test]
fn a_command_that_is_cancelled_while_it_is_launched_was_cancelled() {
    let hostile = Hostile::start();
    for _ in 0..20 {
        let (connection, _stream) = hostile.peer();
        hostile.launch(connection, "default", AskedLimits::default(), shell("sleep 60").as_fd());
        hostile.send(&ToMonitor::Cancel(connection), &[]);
        assert!(matches!(hostile.next().0, ToServer::Launched { connection: of, .. } if of == connection));
        let outcome = loop {
            match hostile.next().0 {
                ToServer::Executed(of) if of == connection => {}
                ToServer::Ended { connection: of, outcome } if of == connection => break outcome,
                other => panic!("not ended: {other:?}"),
            }
        };
        assert_eq!((outcome.ended_by, outcome.step), (EndedBy::Cancelled, None));
    }
}

#[test]
fn the_cause_that_came_first_stays_the_cause() {
    let hostile = Hostile::start();
    let monitor = Pid::from_raw(hostile.process.pid());
    let causes = |connection| {
        let exceeded = (ToMonitor::OutputExceeded(connection), EndedBy::OutputLimit);
        [exceeded, (ToMonitor::Cancel(connection), EndedBy::Cancelled)]
    };
    for first in [0, 1] {
        let (connection, _stream) = hostile.peer();
        let (_job, _output) = hostile.launched(connection, "default", "sleep 60; :");
        // Both have come before the monitor looks at either.
        kill(monitor, Signal::SIGSTOP).unwrap();
        let causes = causes(connection);
        hostile.send(&causes[first].0, &[]);
        hostile.send(&causes[1 - first].0, &[]);
        kill(monitor, Signal::SIGCONT).unwrap();
        assert_eq!(hostile.ended(connection).ended_by, causes[first].1);
    }
}

#[test]
fn an_ending_monitor_launches_nothing_more() {
    let mut hostile = Hostile::start();
    let (running, _stream) = hostile.peer();
    let (late, _stream) = hostile.peer();
    let (_job, _output) = hostile.launched(running, "default", "sleep 60; :");
    hostile.process.signal(Signal::SIGTERM);
    assert_eq!(hostile.next().0, ToServer::Drain);
    hostile.launch(late, "default", AskedLimits::default(), shell("true").as_fd());
    assert_eq!(hostile.refusal(late), LaunchRefusal::ShuttingDown);
    hostile.send(&ToMonitor::Cancel(running), &[]);
    assert_eq!(hostile.ended(running).ended_by, EndedBy::Cancelled);
    assert!(hostile.process.wait(Duration::from_secs(20)).success());
}

#[test]
fn a_server_that_hangs_up_ends_the_monitor_and_every_command() {
    let mut hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    let marker = marker();
    let (_job, output) = hostile.launched(connection, "default", &format!("sleep {marker}; :"));
    drop(output);
    let Hostile { link, process, directory } = &mut hostile;
    let (other, _end) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    drop(std::mem::replace(link, other));
    assert!(!process.wait(Duration::from_secs(20)).success());
    eventually("the command is dead", Duration::from_secs(10), || sandboxed(&marker).is_empty());
    assert!(directory.path().exists());
}

#[test]
fn the_normal_build_takes_no_link_from_its_environment() {
    ensure_users();
    let (_ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "available", "");
    let notify = NotifySocket::bind(directory.path());
    let mut command: Command = in_scope("/bin/sh".as_ref());
    command.args(["-c", "exec 3<&0 </dev/null; exec \"$0\" --config \"$1\""]);
    command.arg(&programs().executor).arg(file);
    command.env("CORDON_TEST_LINK", "3").env("NOTIFY_SOCKET", &notify.path);
    let process = Process::start_with_stdin(command, Stdio::from(theirs));
    eventually("it is ready", PATIENCE, || notify.ready());
    crate::harness::daemon::server_of(process.pid());
}

#[test]
fn numbers_of_services_are_taken_once_from_a_command_that_had_some_and_has_ended() {
    let hostile = Hostile::start();
    let counts = |many| vec![ServiceCounts { connections: 7, over_cap: 1, unreachable: 2 }; many];
    let services = |connection, many| ToMonitor::Services { connection, counts: counts(many) };
    let lines = || {
        let text = std::fs::read_to_string(hostile.directory.path().join("audit.jsonl")).unwrap();
        text.lines().filter(|line| line.contains("\"event\":\"service")).count()
    };
    // One without services, and a number that nobody has.
    let (connection, _stream) = hostile.peer();
    hostile.launched(connection, "default", "true");
    hostile.ended(connection);
    for whose in [connection, connection + 1] {
        hostile.send(&services(whose, 2), &[]);
        hostile.send(&services(whose, 0), &[]);
    }
    let mut streams = Vec::new();
    let mut served = || {
        let (connection, stream) = hostile.peer();
        streams.push(stream);
        let request = shell("read -t 600 <&1 || true");
        hostile.launch(connection, "served", AskedLimits::default(), request.as_fd());
        let (launched, output) = hostile.next();
        assert!(matches!(launched, ToServer::Launched { .. }), "{launched:?}");
        let (message, sockets) = hostile.next();
        let ToServer::Services { connection: of, ports } = message else { panic!("{message:?}") };
        // One for each port, and again where there is IPv6.
        let expected: Vec<u16> = [1, 2].into_iter().cycle().take(sockets.len()).collect();
        assert_eq!((of, ports), (connection, expected));
        assert!([2, 4].contains(&sockets.len()), "{sockets:?}");
        assert_eq!(hostile.next().0, ToServer::Executed(connection));
        (connection, output)
    };
    // While it runs; then of another number of services, with which its turn is over.
    let (first, output) = served();
    hostile.send(&services(first, 2), &[]);
    hostile.send(&ToMonitor::Cancel(first), &[]);
    hostile.ended(first);
    assert_eq!(lines(), 0);
    hostile.send(&services(first, 3), &[]);
    hostile.send(&services(first, 2), &[]);
    drop(output);
    let (second, _output) = served();
    hostile.send(&ToMonitor::Cancel(second), &[]);
    hostile.ended(second);
    assert_eq!(lines(), 0);
    // As it should be, and once more. Two that were refused have a line each.
    hostile.send(&services(second, 2), &[]);
    hostile.send(&services(second, 2), &[]);
    hostile.assert_works();
    assert_eq!(lines(), 3);
}
