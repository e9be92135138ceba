//! How a command ends: closed and half-closed clients, held pipes, failed launches, a monitor that is gone.

use super::{super::pump::DRAIN_MAX, *};
use crate::monitor::link::LaunchRefusal;
use cordon_protocol::RefusalCode;
use nix::fcntl::{FcntlArg, fcntl};
use std::time::Instant;

#[test]
fn a_client_that_leaves_ends_its_command() {
    let monitor = Monitor::start();
    let (client, command) = monitor.running(line("sleep 9"), 1);
    drop(client.stream);
    assert_eq!(monitor.hear(), ToMonitor::Cancel(command.connection));
    monitor.hear_nothing();
    monitor.exit(command);
    assert_eq!(monitor.hear(), ToMonitor::Closed(client.connection));
    monitor.hear_nothing();
    monitor.stop();
}

#[test]
fn a_client_that_leaves_while_its_launch_waits_cancels_it_and_its_place_is_kept_until_the_answer() {
    let monitor = Monitor::start();
    for whole in [true, false] {
        let mut client = monitor.ask(&Request::Run(Box::new(line("x"))));
        let (launch, _descriptors) = monitor.hear_with();
        let connection = client.connection;
        assert_eq!(launch.connection(), Some(connection));
        if whole {
            client.stream = UnixStream::pair().unwrap().0;
        } else {
            half_close(&client);
        }
        assert_eq!(monitor.hear(), ToMonitor::Cancel(connection));
        monitor.hear_nothing();
        let ended = || nix::unistd::pipe().unwrap().0;
        let launched = ToServer::Launched { connection, job: 1, output_bytes: 9, capture_bytes: 9 };
        monitor.say(&launched, &[ended().as_fd(), ended().as_fd()]);
        monitor.ended(connection, fixture::outcome(EndedBy::Cancelled));
        // Its close may still be seen before its end.
        let next = [monitor.hear(), monitor.hear()];
        let drained = next.iter().position(|said| *said == ToMonitor::Drained(connection)).unwrap();
        if !whole {
            assert_eq!(client.report().ended_by, EndedBy::Cancelled);
        }
        if drained == 1 {
            assert_eq!(
                (&next[0], monitor.hear()),
                (&ToMonitor::Cancel(connection), ToMonitor::Closed(connection))
            );
        } else {
            assert_eq!(next[1], ToMonitor::Closed(connection));
        }
    }
    monitor.stop();
}

#[test]
fn a_client_that_leaves_while_output_is_stuck_ends_its_command() {
    let monitor = Monitor::start();
    let (client, mut command) = monitor.running(RunRequest { stream: true, ..line("yes") }, 1);
    let connection = command.connection;
    let writer = std::thread::spawn(move || {
        command.stdout.write_all(&vec![b'y'; 4 << 20]).unwrap();
        command
    });
    std::thread::sleep(Duration::from_millis(100));
    drop(client.stream);
    assert_eq!(monitor.hear(), ToMonitor::Cancel(connection));
    monitor.exit(writer.join().unwrap());
    assert_eq!(monitor.hear(), ToMonitor::Closed(client.connection));
    monitor.stop();
}

#[test]
fn a_client_that_only_stops_sending_cancels_and_gets_the_report() {
    let monitor = Monitor::start();
    let (mut client, mut command) = monitor.running(line("sleep 9"), 1);
    half_close(&client);
    let connection = command.connection;
    assert_eq!(monitor.hear(), ToMonitor::Cancel(connection));
    command.stdout.write_all(b"so far").unwrap();
    drop(command);
    monitor.ended(connection, fixture::outcome(EndedBy::Cancelled));
    assert_eq!(monitor.hear(), ToMonitor::Drained(connection));
    client.started("0000000000000001");
    let report = client.report();
    assert_eq!((report.ended_by, report.stdout.as_deref()), (EndedBy::Cancelled, Some("so far")));
    monitor.stop();
}

#[test]
fn a_pipe_that_is_held_open_costs_the_grace_and_no_more() {
    let monitor = Monitor::start();
    for busy in [false, true] {
        let (mut client, mut command) = monitor.running(line("sleep 9 &"), 1);
        let connection = command.connection;
        command.stdout.write_all(b"the tail").unwrap();
        let since = Instant::now();
        monitor.ended(connection, exited());
        // A survivor that goes on writing gains nothing by it.
        let mut held = command.stdout.try_clone().unwrap();
        let survivor = std::thread::spawn(move || while busy && held.write_all(&[b'y'; 4096]).is_ok() {});
        assert_eq!(monitor.hear(), ToMonitor::Drained(connection));
        let took = since.elapsed();
        assert!(took >= limits::DRAIN_GRACE && took < PATIENCE / 2, "{took:?}");
        client.started("0000000000000001");
        assert!(client.report().stdout.unwrap().starts_with("the tail"));
        survivor.join().unwrap();
        client.close(&monitor);
    }
    monitor.stop();
}

#[test]
fn what_is_in_the_pipe_is_not_lost_to_a_client_that_sleeps_through_every_grace() {
    let monitor = Monitor::start();
    let (mut client, mut command) = monitor.running(RunRequest { stream: true, ..line("x") }, 1);
    // A pipe that holds far more than the client's socket and a chunk.
    fcntl(&command.stdout, FcntlArg::F_SETPIPE_SZ(1 << 20)).unwrap();
    let total = 1_200_000;
    command.stdout.write_all(&vec![b'x'; total]).unwrap();
    client.started("0000000000000001");
    // The write end stays open, as with a survivor.
    monitor.ended(command.connection, exited());
    let mut seen = 0;
    for event in 0.. {
        match client.event() {
            Some(Event::Stdout(data)) => seen += data.len(),
            Some(Event::Exited(report)) => {
                assert_eq!((seen, report.stdout_bytes), (total, total as u64));
                break;
            }
            other => panic!("{other:?}"),
        }
        // By now the server knows of the end, and most is still in the pipe.
        if event == 8 {
            std::thread::sleep(DRAIN_MAX + Duration::from_millis(300));
        }
    }
    monitor.stop();
}

#[test]
fn a_failed_launch_never_starts() {
    let monitor = Monitor::start();
    let mut client = monitor.ask(&Request::Run(Box::new(RunRequest { stream: true, ..line("x") })));
    let mut command = monitor.launch(3, 1000, 1000);
    let connection = command.connection;
    // Nothing that the launch itself wrote is taken for the command's.
    command.stderr.write_all(b"noise").unwrap();
    drop(command);
    let mut outcome = fixture::outcome(EndedBy::LaunchFailed);
    (outcome.step, outcome.errno, outcome.exit_code) = (Some("exec".into()), 2, Some(127));
    outcome.detail = "nonesuch".into();
    monitor.ended(connection, outcome);
    assert_eq!(monitor.hear(), ToMonitor::Drained(connection));
    let report = client.report();
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::LaunchFailed, Some(127)));
    assert_eq!((report.step.as_deref(), report.id.as_str()), (Some("exec"), "0000000000000003"));
    assert_eq!(report.hint.unwrap().what, "nonesuch");
    monitor.stop();
}

#[test]
fn what_the_monitor_refuses_is_told_in_words() {
    let monitor = Monitor::start();
    for (refusal, code, text) in [
        (
            LaunchRefusal::Busy { concurrency: 3 },
            RefusalCode::Busy,
            "commands of this user run already as may at once (3)",
        ),
        (LaunchRefusal::UnknownProfile, RefusalCode::UnknownProfile, "no profile `default` for this user"),
        (LaunchRefusal::OneAtATime, RefusalCode::Busy, "one command at a time"),
        (LaunchRefusal::ShuttingDown, RefusalCode::ShuttingDown, "shutting down"),
        (LaunchRefusal::BadRequestFile, RefusalCode::Internal, "internal failure"),
    ] {
        let mut client = monitor.ask(&Request::Run(Box::new(line("x"))));
        let ToMonitor::Launch { connection, .. } = monitor.hear() else { panic!("no launch") };
        monitor.say(&ToServer::LaunchRefused { connection, refusal }, &[]);
        let refused = client.refusal();
        assert_eq!(refused.code, code);
        assert!(refused.message.contains(text), "{}", refused.message);
        client.close(&monitor);
        monitor.hear_nothing();
    }
    monitor.stop();
}

#[test]
fn a_bad_request_is_refused_before_anything_is_launched() {
    let monitor = Monitor::start();
    let request = RunRequest { cwd: Some("/proc/self/fd/3".into()), ..line("x") };
    let mut client = monitor.ask(&Request::Run(Box::new(request)));
    assert_eq!(client.refusal().code, RefusalCode::BadRequest);
    client.denied(&monitor, "default", Denial::BadRequest);
    client.close(&monitor);
    // Of a name there is as much as a message has room for.
    let long = "ä".repeat(100);
    let request = RunRequest { profile: Some(long.clone()), ..line("x") };
    let mut client = monitor.ask(&Request::Run(Box::new(request)));
    assert_eq!(client.refusal().code, RefusalCode::UnknownProfile);
    client.denied(&monitor, &long[..limits::NAME_MAX_BYTES], Denial::UnknownProfile);
    client.close(&monitor);
    let limits = cordon_protocol::LimitRequest { pids: Some(0), ..Default::default() };
    let mut client = monitor.ask(&Request::Run(Box::new(RunRequest { limits, ..line("x") })));
    assert_eq!(client.refusal().code, RefusalCode::LimitRefused);
    client.denied(&monitor, "default", Denial::LimitRefused);
    client.close(&monitor);
    monitor.hear_nothing();
    monitor.stop();
}

#[test]
fn a_large_report_reaches_a_client_that_writes_before_it_reads() {
    let monitor = Monitor::start();
    let mut client = monitor.ask(&Request::Run(Box::new(RunRequest { stdin: true, ..line("x") })));
    let mut command = monitor.launch(1, 64 << 20, 4 << 20);
    monitor.say(&ToServer::Executed(command.connection), &[]);
    command.stdout.write_all(&vec![b'x'; 4 << 20]).unwrap();
    monitor.exit(command);
    for _ in 0..64 {
        client.send(&Request::Stdin(vec![1; limits::CHUNK_MAX]));
    }
    client.started("0000000000000001");
    assert_eq!(client.report().stdout.unwrap().len(), 4 << 20);
    monitor.stop();
}

#[test]
fn without_its_monitor_the_server_ends_at_once_whatever_runs() {
    let monitor = Monitor::start();
    let (mut client, command) = monitor.running(line("sleep 9"), 1);
    client.started("0000000000000001");
    monitor.stop();
    assert_eq!(client.event(), None, "closed without a report");
    drop(command);
}

#[test]
fn a_monitor_that_breaks_the_link_is_left() {
    let monitor = Monitor::start();
    scm::send(monitor.link.as_fd(), &[0xff; MESSAGE_LEN], &[]).unwrap();
    let error = monitor.server.join().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "server: link to the monitor failed: malformed link message");
}
