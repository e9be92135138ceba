//! Standard input and output: complete, in time, and in bounded memory.

use crate::harness::{
    PATIENCE, Up,
    client::{argv, collect, line},
    eventually, marker,
    process::{sandboxed, status_number},
    shared, stretched,
};
use cordon_protocol::{EndedBy, Event, client::blocking};
use std::{
    io::{BufRead, BufReader, Read, Write},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

/// Peak resident memory of a process so far, bytes.
fn peak(pid: i32) -> u64 {
    status_number(pid, "VmHWM") << 10
}

/// 100 MB without a period that could hide a lost or doubled piece.
fn large_input() -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(100_000_000);
    while bytes.len() < 100_000_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes
}

#[test]
fn a_hundred_megabytes_pass_through_in_bounded_memory() {
    let up = Up::start();
    let input = large_input();
    // The default wall time is too short for a slow machine.
    let mut client = up.cordon(&["run", "--output", "1G", "--timeout", "30m", "--", "cat"]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = client.stdin.take().unwrap();
    let sent = input.clone();
    let writer = thread::spawn(move || stdin.write_all(&sent));
    let mut output = Vec::with_capacity(input.len());
    let mut stdout = client.stdout.take().unwrap();
    let mut client_peak = 0;
    let mut piece = vec![0; 1 << 20];
    loop {
        let n = stdout.read(&mut piece).unwrap();
        if n == 0 {
            break;
        }
        output.extend_from_slice(&piece[..n]);
        if output.len() < 90_000_000 {
            client_peak = peak(client.id() as i32);
        }
    }
    writer.join().unwrap().unwrap();
    assert_eq!(client.wait().unwrap().code(), Some(0));
    assert_eq!(output.len(), input.len());
    assert!(output == input, "the bytes are not the same");
    for (name, bytes) in
        [("client", client_peak), ("server", peak(up.server())), ("monitor", peak(up.monitor()))]
    {
        assert!((1..64 << 20).contains(&bytes), "{name}: {bytes} bytes at its peak");
    }
}

#[test]
fn http_input_comes_back_through_cat() {
    let text = "line of text\n".repeat(200_000);
    let body = serde_json::json!({"argv": ["cat"], "stdin": text, "capture_bytes": 8 << 20});
    let report = shared().exec(&body);
    assert_eq!(report.stdout_bytes, text.len() as u64);
    assert!(report.stdout.unwrap() == text);
}

#[test]
fn output_streams_while_the_command_runs() {
    let marker = marker();
    let mut client = shared().cordon(&["run", "-c", &format!("echo first; sleep {marker}")]);
    let mut client = client.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(client.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "first\n");
    // It is there, if for a moment between two programs without a command line.
    eventually("the line came while the command was running", PATIENCE, || !sandboxed(&marker).is_empty());
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
fn input_is_answered_before_its_end() {
    let mut client = shared().cordon(&["run", "-c", "while read -r x; do echo got $x; done"]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) =
        (client.stdin.take().unwrap(), BufReader::new(client.stdout.take().unwrap()));
    for word in ["one", "two"] {
        writeln!(stdin, "{word}").unwrap();
        let mut answer = String::new();
        stdout.read_line(&mut answer).unwrap();
        assert_eq!(answer, format!("got {word}\n"));
    }
    drop(stdin);
    assert_eq!(client.wait().unwrap().code(), Some(0));
}

#[test]
fn a_client_that_does_not_read_stalls_the_command_and_not_the_server() {
    let up = Up::start();
    let before = peak(up.server());
    let marker = marker();
    let mut request = argv(&["yes", &marker]);
    request.stream = true;
    request.limits.output_bytes = Some(8 << 30);
    request.limits.wall_ms = Some(30 * 60_000);
    let (mut connection, _stdin) = blocking::run(&up.socket, "test", request).unwrap();
    assert!(matches!(connection.next_event().unwrap(), Event::Started { .. }));
    let yes = sandboxed(&marker)[0];
    // Grows with what `yes` could get rid of.
    let written = || -> u64 {
        let io = std::fs::read_to_string(format!("/proc/{yes}/io")).unwrap();
        io.lines().find_map(|l| l.strip_prefix("wchar: ")).unwrap().parse().unwrap()
    };
    // Stalled: nothing more is written for a whole second.
    let start = Instant::now();
    loop {
        let seen = written();
        thread::sleep(Duration::from_secs(1));
        if written() == seen {
            break;
        }
        assert!(start.elapsed() < stretched(Duration::from_secs(30)), "`yes` never stalled");
    }
    assert!(peak(up.server()) < before + (24 << 20), "{} after {before}", peak(up.server()));
    // Reading again lets it go on.
    let stalled_at = written();
    let mut read = 0;
    while read < 64 << 20 {
        match connection.next_event().unwrap() {
            Event::Stdout(piece) => read += piece.len(),
            other => panic!("it did not go on: {other:?}"),
        }
    }
    assert!(written() > stalled_at);
    assert!(peak(up.server()) < before + (24 << 20));
    up.assert_works();
}

#[test]
fn a_command_that_does_not_read_its_input_holds_up_nothing() {
    let input = vec![b'x'; 8 << 20];
    let ran = shared().run_with(&["-c", "echo done"], &input);
    assert_eq!((ran.status, ran.text().as_str()), (0, "done\n"));
    let ran = shared().run_with(&["--", "head", "-c", "3"], &input);
    assert_eq!((ran.status, ran.text().as_str()), (0, "xxx"));
}

#[test]
fn a_full_stderr_does_not_block_stdout() {
    let report = shared().report(&["-c", "head -c 5M /dev/zero >&2; echo after"]);
    assert_eq!((report.stdout.as_deref(), report.stderr_bytes), (Some("after\n"), 5 << 20));
}

#[test]
fn the_tail_written_just_before_the_exit_is_never_lost() {
    for round in 0..200 {
        let report = shared().events(line("head -c 100000 /dev/zero | tr '\\0' x; printf tail")).report;
        let text = report.stdout.unwrap();
        assert!(text.ends_with("xtail") && text.len() == 100_004, "round {round}: {}", text.len());
    }
}

#[test]
fn what_was_written_before_the_exit_reaches_a_client_that_reads_only_after_it() {
    let marker = marker();
    // Writes until everything between it and a client that does not read is full, says how much that was, ends.
    let code = "import os, time\nos.set_blocking(1, False)\nwritten, last = 0, time.monotonic()\n\
                while time.monotonic() < last + 0.5:\n  \
                  try: written += os.write(1, b'x' * 4096); last = time.monotonic()\n  \
                  except BlockingIOError: time.sleep(0.01)\n\
                os.write(2, str(written).encode())";
    let mut request = argv(&["python3", "-c", code, &marker]);
    request.stream = true;
    let (connection, _stdin) = blocking::run(&shared().socket, "test", request).unwrap();
    eventually("it runs", PATIENCE, || !sandboxed(&marker).is_empty());
    eventually("it has ended", PATIENCE, || sandboxed(&marker).is_empty());
    // What the monitor says of another command comes after what it has said of the end of this one.
    shared().assert_works();
    let events = collect(connection).unwrap();
    assert_eq!(String::from_utf8(events.stderr).unwrap(), events.stdout.len().to_string());
    assert_eq!(events.report.stdout_bytes, events.stdout.len() as u64);
}

#[test]
fn a_grandchild_that_keeps_the_pipe_open_delays_nothing_and_dies() {
    let _verdict = crate::escape::probe!();
    let marker = marker();
    let script = format!("(setsid sleep {marker} &) ; echo done");
    let start = Instant::now();
    let report = shared().report(&["--timeout", "50s", "-c", &script]);
    assert_eq!((report.ended_by, report.stdout.as_deref()), (EndedBy::Exit, Some("done\n")));
    assert!(start.elapsed() < stretched(Duration::from_secs(10)), "{:?}", start.elapsed());
    eventually("the grandchild is dead", Duration::from_secs(5), || sandboxed(&marker).is_empty());
}

#[test]
fn closed_streams_are_no_problem() {
    let report = shared().report(&["-c", "exec >&- 2>&- <&-; exit 5"]);
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(5)));
}

#[test]
fn without_input_standard_input_is_empty() {
    assert_eq!(shared().run(&["-n", "--", "cat"]).status, 0);
    let events = shared().events(line("readlink /proc/self/fd/0; cat | wc -c"));
    assert_eq!(events.report.stdout.as_deref(), Some("/dev/null\n0\n"));
    let ran = shared().run_with(&["-n", "--", "wc", "-c"], b"not passed on");
    assert_eq!(ran.text(), "0\n");
}

#[test]
fn two_streams_keep_their_order_each() {
    let mut request = line("for i in $(seq 2000); do echo o$i; echo e$i >&2; done");
    request.stream = true;
    let (connection, _stdin) = blocking::run(&shared().socket, "test", request).unwrap();
    let events = collect(connection).unwrap();
    let expected = |letter| (1..=2000).map(|i| format!("{letter}{i}\n")).collect::<String>();
    assert_eq!(String::from_utf8(events.stdout).unwrap(), expected('o'));
    assert_eq!(String::from_utf8(events.stderr).unwrap(), expected('e'));
}
