//! Standard input, output and error on their way through.

use crate::fake::{Fake, exited, report, status, stderr};
use cordon_protocol::{Action, EndedBy, Event, RunRequest, limits};
use std::{
    fs::File,
    io::{Read, Write},
    process::Stdio,
    thread,
    time::Duration,
};

fn pattern(length: u32) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect()
}

fn exit(code: i32) -> Event {
    exited(report(EndedBy::Exit, Some(code)))
}

#[test]
fn the_request_says_what_was_asked_for() {
    let fake = Fake::start(|mut peer| {
        peer.send(&exit(0));
        peer.run()
    });
    let (output, run): (_, RunRequest) =
        fake.output(&["run", "--env", "A=ü", "-n", "--timeout", "5s", "--", "echo", "a b", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(run.action, Action::Argv(vec!["echo".into(), "a b".into(), "--json".into()]));
    assert_eq!((run.env, run.limits.wall_ms), (vec![("A".into(), "ü".into())], Some(5000)));
    assert!(run.stream && !run.stdin);
}

#[test]
fn both_streams_arrive_byte_exact_and_apart() {
    let data = pattern(3_000_000);
    let sent = data.clone();
    let fake = Fake::start(move |mut peer| {
        peer.send(&Event::Started { id: "1".into() });
        for chunk in sent.chunks(limits::CHUNK_MAX) {
            peer.send(&Event::Stdout(chunk.to_vec()));
            peer.send(&Event::Stderr(b"\xff\xfe".to_vec()));
        }
        peer.send(&exit(3));
    });
    let (output, ()) = fake.output(&["run", "-n", "--", "x"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout == data);
    assert_eq!(output.stderr, b"\xff\xfe".repeat(data.len().div_ceil(limits::CHUNK_MAX)));
}

#[test]
fn output_is_written_as_it_comes_without_waiting_for_a_line() {
    let fake = Fake::start(|mut peer| {
        peer.send(&Event::Stdout(b"no newline".to_vec()));
        // The next piece waits until the first has been seen.
        let (answer, _) = peer.stdin();
        peer.send(&exit(0));
        answer
    });
    let mut child = fake.cordon(&["run", "-c", "x"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut seen = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut seen).unwrap();
    assert_eq!(&seen, b"no newline");
    child.stdin.take().unwrap().write_all(b"seen").unwrap();
    assert_eq!(status(&mut child), Some(0));
    assert_eq!(fake.finish(), b"seen");
}

#[test]
fn five_megabytes_of_input_pass_through_a_reader_that_is_slow() {
    let data = pattern(5 << 20);
    let fake = Fake::start(|mut peer| {
        assert!(peer.run().stdin);
        thread::sleep(Duration::from_millis(150));
        let (input, ended) = peer.stdin();
        assert!(ended, "the end of the input is said");
        peer.send(&exit(0));
        input
    });
    let mut child = fake.cordon(&["run", "--", "cat"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&data).unwrap();
    assert_eq!(status(&mut child), Some(0));
    assert!(fake.finish() == data);
}

#[test]
fn input_is_not_taken_faster_than_the_command_reads() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let fake = Fake::start(move |mut peer| {
        wait.recv().unwrap();
        let (input, _) = peer.stdin();
        peer.send(&exit(0));
        input.len()
    });
    let mut child = fake.cordon(&["run", "--", "cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    // A descriptor that would block says how much has been taken.
    let mut taken = 0;
    nonblocking(&stdin);
    for _ in 0..20 {
        while let Ok(n) = (&stdin).write(&[7; 65536]) {
            taken += n;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(taken < 2 << 20, "{taken} bytes are in flight though nobody reads");
    drop(stdin);
    go.send(()).unwrap();
    assert_eq!(status(&mut child), Some(0));
    assert_eq!(fake.finish(), taken);
}

fn nonblocking(fd: impl std::os::fd::AsFd) {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
}

#[test]
fn an_open_input_does_not_keep_a_finished_command() {
    let fake = Fake::start(|mut peer| peer.send(&exit(4)));
    let mut child = fake.cordon(&["run", "--", "true"]).stdin(Stdio::piped()).spawn().unwrap();
    let held_open = child.stdin.take();
    assert_eq!(status(&mut child), Some(4));
    drop(held_open);
    fake.finish();
}

#[test]
fn without_input_none_is_announced_nor_read() {
    let fake = Fake::start(|mut peer| {
        let announced = peer.run().stdin;
        peer.send(&exit(0));
        (announced, peer.next())
    });
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"not to be read").unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    let mut command = fake.cordon(&["run", "-n", "--", "x"]);
    assert_eq!(command.stdin(file.try_clone().unwrap()).status().unwrap().code(), Some(0));
    assert_eq!(fake.finish(), (false, None));
    assert_eq!(std::io::Seek::stream_position(&mut file).unwrap(), 0);
}

#[test]
fn input_that_cannot_be_read_ends_the_command_and_is_told() {
    let fake = Fake::start(|mut peer| {
        let seen = peer.stdin();
        let _ = peer.try_send(&exited(report(EndedBy::Cancelled, None)));
        seen
    });
    let directory = File::open("/").unwrap();
    let output = fake.cordon(&["run", "--", "cat"]).stdin(directory).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).starts_with("cordon: reading standard input failed: "), "{}", stderr(&output));
    assert_eq!(fake.finish(), (vec![], false), "cut off, not ended as if complete");
}

#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let fake = Fake::start(|mut peer| {
        let chunk = Event::Stdout(vec![b'y'; 4096]);
        let mut sent = 0;
        while peer.try_send(&chunk).is_ok() {
            sent += 1;
            assert!(sent < 100_000, "the connection is still open");
        }
    });
    let mut child = fake.cordon(&["run", "-n", "--", "yes"]).spawn().unwrap();
    let mut some = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(141), String::new()));
    fake.finish();
}

#[test]
fn a_full_disk_under_our_output_is_our_failure() {
    let fake = Fake::start(|mut peer| {
        peer.send(&Event::Stdout(b"x".to_vec()));
        peer.next()
    });
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = fake.cordon(&["run", "-n", "--", "x"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).starts_with("cordon: writing standard output failed: "), "{}", stderr(&output));
    fake.finish();
}

/// `cordon run` of a command that had to wait, with this standard error.
fn waited(stderr: Stdio) -> Option<i32> {
    let fake = Fake::start(|mut peer| {
        for position in [2, 1] {
            peer.send(&Event::Queued { position });
        }
        peer.send(&Event::Started { id: "1".into() });
        peer.send(&Event::Stderr(b"its own".to_vec()));
        peer.send(&exit(0));
    });
    let mut child = fake.cordon(&["run", "-n", "--", "x"]).stderr(stderr).spawn().unwrap();
    fake.finish();
    status(&mut child)
}

#[test]
fn a_person_is_told_that_a_command_waits_and_a_program_is_not() {
    let terminal = nix::pty::openpty(None, None).unwrap();
    assert_eq!(waited(terminal.slave.into()), Some(0));
    let mut seen = [0; 256];
    let mut text = String::new();
    let mut master = File::from(terminal.master);
    while !text.contains("its own") {
        let read = master.read(&mut seen).unwrap();
        text.push_str(std::str::from_utf8(&seen[..read]).unwrap());
    }
    assert_eq!(text.replace('\r', ""), "waiting: position 2\nwaiting: position 1\nits own");
    let (mut reader, writer) = std::io::pipe().unwrap();
    assert_eq!(waited(writer.into()), Some(0));
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "its own");
}
