//! Output and input of a running command: captured, streamed, limited, held back.

use super::*;
use crate::sealed::Work;
use cordon_protocol::{Encoding, LimitName, RefusalCode};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::{io::ErrorKind, os::fd::AsFd, time::Instant};

fn streamed(text: &str) -> RunRequest {
    RunRequest { stream: true, ..line(text) }
}

fn with_stdin(text: &str) -> RunRequest {
    RunRequest { stdin: true, ..line(text) }
}

#[test]
fn captured_output_comes_back_whole_with_its_totals() {
    let monitor = Monitor::start();
    let mut client = monitor.ask(&Request::Run(Box::new(line("x"))));
    let mut command = monitor.launch(0x2a, 1 << 20, 1000);
    let argv = ["/bin/bash", "-c", "x"].map(str::to_owned);
    assert_eq!(command.request.work, Work::Program(argv.into()));
    // Output may be there before the word that the program runs.
    command.stdout.write_all("grüße".as_bytes()).unwrap();
    command.stderr.write_all(b"\xff\x00").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    client.stream.set_nonblocking(true).unwrap();
    let early = client.stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(early.kind(), ErrorKind::WouldBlock);
    client.stream.set_nonblocking(false).unwrap();
    monitor.say(&ToServer::Executed(command.connection), &[]);
    client.started("000000000000002a");
    monitor.exit(command);
    let report = client.report();
    assert_eq!((report.stdout.as_deref(), report.stdout_encoding), (Some("grüße"), Encoding::Utf8));
    assert_eq!((report.stderr.as_deref(), report.stderr_encoding), (Some("/wA="), Encoding::Base64));
    assert_eq!((report.stdout_bytes, report.stderr_bytes), (7, 2));
    assert_eq!((report.stdout_truncated, report.exit_code, report.hint), (false, Some(0), None));
    client.close(&monitor);
    monitor.hear_nothing();
    monitor.stop();
}

#[test]
fn more_than_is_captured_leaves_head_and_tail() {
    let monitor = Monitor::start();
    let mut client = monitor.ask(&Request::Run(Box::new(line("x"))));
    let mut command = monitor.launch(1, 64 << 20, 1000);
    monitor.say(&ToServer::Executed(command.connection), &[]);
    let bytes: Vec<u8> = (0..300_000).map(|i| b'a' + u8::try_from(i % 26).unwrap()).collect();
    command.stdout.write_all(&bytes).unwrap();
    monitor.exit(command);
    client.started("0000000000000001");
    let report = client.report();
    let expected = [&bytes[..500], &bytes[299_500..]].concat();
    assert_eq!(report.stdout.unwrap().into_bytes(), expected);
    assert_eq!((report.stdout_bytes, report.stdout_truncated), (300_000, true));
    monitor.stop();
}

#[test]
fn streamed_output_comes_as_it_is_produced() {
    let monitor = Monitor::start();
    let (mut client, mut command) = monitor.running(streamed("x"), 1);
    client.started("0000000000000001");
    command.stdout.write_all(b"one").unwrap();
    assert_eq!(client.event(), Some(Event::Stdout(b"one".into())));
    command.stderr.write_all(b"two").unwrap();
    assert_eq!(client.event(), Some(Event::Stderr(b"two".into())));
    command.stdout.write_all(b"tail").unwrap();
    monitor.exit(command);
    assert_eq!(client.event(), Some(Event::Stdout(b"tail".into())));
    let report = client.report();
    assert_eq!((report.stdout, report.stderr, report.stdout_truncated), (None, None, false));
    assert_eq!((report.stdout_bytes, report.stderr_bytes), (7, 3));
    monitor.stop();
}

#[test]
fn a_client_that_does_not_read_makes_the_command_wait() {
    let monitor = Monitor::start();
    let (mut client, mut command) = monitor.running(streamed("x"), 1);
    let total = 4 << 20;
    let writer = std::thread::spawn(move || {
        command.stdout.write_all(&vec![7; total]).unwrap();
        command
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(!writer.is_finished(), "4M fit nowhere");
    client.started("0000000000000001");
    let mut seen = 0;
    while seen < total {
        let Some(Event::Stdout(data)) = client.event() else { panic!("after {seen} bytes") };
        assert!(data.len() <= limits::CHUNK_MAX && data.iter().all(|b| *b == 7));
        seen += data.len();
    }
    monitor.exit(writer.join().unwrap());
    assert_eq!(client.report().stdout_bytes, total as u64);
    monitor.stop();
}

#[test]
fn beyond_the_output_limit_the_monitor_is_told_once_and_the_rest_is_counted() {
    let monitor = Monitor::start();
    for stream in [false, true] {
        let mut client = monitor.ask(&Request::Run(Box::new(RunRequest { stream, ..line("yes") })));
        let mut command = monitor.launch(1, 10, 1000);
        let connection = command.connection;
        monitor.say(&ToServer::Executed(connection), &[]);
        client.started("0000000000000001");
        // One after the other, so that which of them the limit cuts is known.
        let read = || std::thread::sleep(Duration::from_millis(100));
        command.stdout.write_all(b"012345").unwrap();
        read();
        command.stderr.write_all(b"6789").unwrap();
        read();
        monitor.hear_nothing();
        command.stderr.write_all(b"!").unwrap();
        assert_eq!(monitor.hear(), ToMonitor::OutputExceeded(connection));
        // A command that goes on is drained, or it could not end.
        command.stdout.write_all(&[b'y'; 200_000]).unwrap();
        drop(command);
        monitor.ended(connection, fixture::outcome(EndedBy::OutputLimit));
        assert_eq!(monitor.hear(), ToMonitor::Drained(connection));
        if stream {
            assert_eq!(client.event(), Some(Event::Stdout(b"012345".into())));
            assert_eq!(client.event(), Some(Event::Stderr(b"6789".into())));
        }
        let report = client.report();
        assert_eq!((report.stdout_bytes, report.stderr_bytes), (200_006, 5));
        assert_eq!((report.stdout_truncated, report.stderr_truncated), (true, true));
        assert_eq!(report.limits_hit, [LimitName::Output]);
        if !stream {
            assert_eq!((report.stdout.as_deref(), report.stderr.as_deref()), (Some("012345"), Some("6789")));
        }
        assert!(report.hint.unwrap().remedy.contains("output_bytes"));
        client.close(&monitor);
        monitor.hear_nothing();
    }
    monitor.stop();
}

#[test]
fn standard_input_arrives_whole_and_ends() {
    let monitor = Monitor::start();
    let (mut client, mut command) = monitor.running(with_stdin("cat"), 1);
    assert!(matches!(command.launch, ToMonitor::Launch { stdin: true, .. }));
    let data: Vec<u8> = (0..1_000_000u32).map(|i| i.to_le_bytes()[1]).collect();
    let sent = data.clone();
    let mut writing = client.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        for piece in sent.chunks(limits::CHUNK_MAX) {
            let frame = encode_frame(&Request::Stdin(piece.to_vec()), limits::REQUEST_FRAME_MAX).unwrap();
            writing.write_all(&frame).unwrap();
        }
        writing.write_all(&encode_frame(&Request::StdinEnd, 100).unwrap()).unwrap();
    });
    let mut read = Vec::new();
    command.stdin.take().unwrap().read_to_end(&mut read).unwrap();
    assert!(read == data);
    writer.join().unwrap();
    client.started("0000000000000001");
    monitor.exit(command);
    assert_eq!(client.report().ended_by, EndedBy::Exit);
    client.close(&monitor);
    monitor.stop();
}

#[test]
fn input_for_a_command_that_never_reads_holds_the_client_and_its_close_is_seen() {
    let monitor = Monitor::start();
    let (mut client, command) = monitor.running(with_stdin("sleep 9"), 1);
    let frame = encode_frame(&Request::Stdin(vec![1; limits::CHUNK_MAX]), limits::REQUEST_FRAME_MAX).unwrap();
    client.started("0000000000000001");
    client.stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let held = (0..200).find_map(|_| client.stream.write_all(&frame).err());
    assert_eq!(held.unwrap().kind(), ErrorKind::WouldBlock, "12M fit nowhere");
    monitor.hear_nothing();
    let closed = Instant::now();
    drop(client.stream);
    assert_eq!(monitor.hear(), ToMonitor::Cancel(command.connection));
    assert!(closed.elapsed() < Duration::from_secs(2));
    monitor.exit(command);
    assert_eq!(monitor.hear(), ToMonitor::Closed(client.connection));
    monitor.hear_nothing();
    monitor.stop();
}

#[test]
fn that_a_client_leaves_is_no_end_of_its_standard_input() {
    let monitor = Monitor::start();
    let (mut client, command) = monitor.running(with_stdin("cat"), 1);
    client.started("0000000000000001");
    client.send(&Request::Stdin(b"half".to_vec()));
    let stdin = command.stdin.as_ref().unwrap();
    (&*stdin).read_exact(&mut [0; 4]).unwrap();
    drop(client.stream);
    assert_eq!(monitor.hear(), ToMonitor::Cancel(command.connection));
    // What comes from it would be taken for all there was.
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::ZERO), Ok(0));
    monitor.exit(command);
    assert_eq!(monitor.hear(), ToMonitor::Closed(client.connection));
    monitor.stop();
}

#[test]
fn what_is_put_in_goes_on_in_pieces_and_only_the_clients_end_is_one() {
    let monitor = Monitor::start();
    let put = RunRequest {
        stdin: true,
        workspace: Some("work".to_owned()),
        ..RunRequest::new(Action::Write { path: "file".to_owned(), mode: None })
    };
    for ends in [true, false] {
        let (mut client, mut command) = monitor.running(put.clone(), 1);
        client.started("0000000000000001");
        for piece in [&b"one"[..], b"", b"more"] {
            client.send(&Request::Stdin(piece.to_vec()));
        }
        let sent = [&[3, 0, 0, 0], &b"one"[..], &[4, 0, 0, 0], b"more"].concat();
        let mut stdin = command.stdin.take().unwrap();
        let mut read: Vec<u8> = Vec::new();
        while read.len() < sent.len() {
            let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut fds, 5000_u16), Ok(1), "{read:?}");
            let mut piece = [0; 16];
            let length = stdin.read(&mut piece).unwrap();
            read.extend(&piece[..length]);
        }
        assert_eq!(read, sent);
        if ends {
            client.send(&Request::StdinEnd);
        } else {
            drop(client.stream);
            assert_eq!(monitor.hear(), ToMonitor::Cancel(command.connection));
        }
        monitor.exit(command);
        let mut rest = Vec::new();
        stdin.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, if ends { vec![0; 4] } else { Vec::new() });
        assert_eq!(monitor.hear(), ToMonitor::Closed(client.connection));
    }
    monitor.stop();
}

#[test]
fn input_that_the_command_does_not_want_is_thrown_away() {
    let monitor = Monitor::start();
    let (mut client, mut command) = monitor.running(with_stdin("true"), 1);
    drop(command.stdin.take());
    for _ in 0..64 {
        client.send(&Request::Stdin(vec![1; limits::CHUNK_MAX]));
    }
    client.send(&Request::StdinEnd);
    client.started("0000000000000001");
    monitor.hear_nothing();
    monitor.exit(command);
    assert_eq!(client.report().exit_code, Some(0));
    monitor.stop();
}

#[test]
fn input_that_was_not_announced_ends_the_command() {
    let monitor = Monitor::start();
    let oversize = vec![0; limits::CHUNK_MAX + 1];
    for (request, frame, code, text) in [
        (line("x"), Request::Stdin(vec![1]), RefusalCode::OutOfOrder, "frame Stdin is out of order"),
        (line("x"), Request::StdinEnd, RefusalCode::OutOfOrder, "frame StdinEnd is out of order"),
        (with_stdin("x"), Request::Ps, RefusalCode::OutOfOrder, "frame Ps is out of order"),
        (with_stdin("x"), Request::Stdin(oversize), RefusalCode::BadFrame, "over the limit of 65548 bytes"),
    ] {
        let (mut client, mut command) = monitor.running(RunRequest { stream: true, ..request }, 1);
        client.started("0000000000000001");
        client.send(&frame);
        assert_eq!(monitor.hear(), ToMonitor::Cancel(command.connection));
        // What it still says is for nobody.
        command.stdout.write_all(b"late").unwrap();
        monitor.exit(command);
        let refusal = client.refusal();
        assert_eq!(refusal.code, code);
        assert!(refusal.message.contains(text), "{}", refusal.message);
        client.close(&monitor);
    }
    // Nothing follows the end of input either.
    let (mut client, command) = monitor.running(with_stdin("x"), 1);
    client.started("0000000000000001");
    client.send(&Request::StdinEnd);
    client.send(&Request::StdinEnd);
    assert_eq!(monitor.hear(), ToMonitor::Cancel(command.connection));
    monitor.exit(command);
    assert_eq!(client.refusal().code, RefusalCode::OutOfOrder);
    monitor.stop();
}
