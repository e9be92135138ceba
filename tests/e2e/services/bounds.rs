//! Amounts: large transfers, many connections, refusals, ends.

use super::*;
use crate::harness::{client::line, daemon::server_of, marker, process::sandboxed, stretched};
use cordon_protocol::{EndedBy, Event, client::blocking};
use std::{
    io::{Read, Write},
    net::Shutdown,
    sync::{Arc, Barrier},
};

/// Sends back what it gets, as it gets it.
fn echo(mut stream: TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read) = stream.read(&mut buffer) {
        if read == 0 || stream.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
}

#[test]
fn much_goes_both_ways_to_the_byte_and_stays_in_no_memory() {
    let port = service(echo);
    let executor = start(&[port]);
    let server = server_of(executor.pid());
    // Once before, so that what is allocated for good is there.
    python(&executor, &format!("s = connect({port}); s.sendall(b'x'); s.recv(1)"));
    let peak = || process::status_number(server, "VmHWM");
    let before = peak();
    let report = python(
        &executor,
        &format!(
            "import hashlib, random, threading\n\
             s = connect({port}); sent, got, total = hashlib.sha256(), hashlib.sha256(), 0\n\
             def send():\n    r = random.Random(1)\n    for _ in range(64):\n        piece = r.randbytes(1 << 20); sent.update(piece); s.sendall(piece)\n    s.shutdown(socket.SHUT_WR)\n\
             t = threading.Thread(target=send); t.start()\n\
             while piece := s.recv(1 << 16): got.update(piece); total += len(piece)\n\
             t.join(); print(total, sent.digest() == got.digest())"
        ),
    );
    assert_eq!(output(&report), format!("{} True", 64 << 20));
    assert_eq!(used(&report), [(port, 1, 0)]);
    let grown = peak() - before;
    assert!(grown < 8 << 10, "the server half grew by {grown} KiB");
}

#[test]
fn what_neither_side_reads_stays_in_no_memory_of_the_server() {
    // Each connection is filled from both sides, and nobody reads.
    let port = service(|mut stream| while stream.write_all(&[0; 1 << 16]).is_ok() {});
    let executor = start(&[port]);
    let server = server_of(executor.pid());
    python(&executor, &format!("connect({port}).recv(1)"));
    let before = process::status_number(server, "VmRSS");
    let code = format!(
        "import select, socket, time\n\
         s = [socket.create_connection(('127.0.0.1', {port}), 30) for _ in range(64)]\n\
         for c in s: c.setblocking(False)\n\
         while ready := select.select([], s, [], 0.5)[1]:\n    for c in ready: c.send(b'x' * 65536)\n\
         print('full', flush=True); time.sleep(300)"
    );
    let mut request = crate::harness::client::argv(&["/usr/bin/python3", "-c", &code]);
    request.stream = true;
    let (mut connection, _stdin) = blocking::run(&executor.socket, "test", request).unwrap();
    loop {
        match connection.next_event().unwrap() {
            Event::Stdout(text) => break assert_eq!(text, b"full\n"),
            Event::Started { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let grown = process::status_number(server, "VmRSS").saturating_sub(before);
    // One piece of 16 KiB for each direction of each connection, and room for what an allocator keeps.
    assert!(grown < 6 << 10, "the server half grew by {grown} KiB");
    // Others are served meanwhile.
    let other =
        executor.report(&["-c", &format!("exec 3<>/dev/tcp/127.0.0.1/{port}; head -c 1000000 <&3 | wc -c")]);
    assert_eq!((output(&other), used(&other)), ("1000000", vec![(port, 1, 0)]));
    drop(connection);
}

#[test]
fn of_a_hundred_connections_at_once_the_cap_holds_and_the_rest_is_refused_at_once() {
    let port = service(|mut stream| {
        stream.write_all(b"!").unwrap();
        let _ = stream.read(&mut [0]);
    });
    let executor = start(&[port]);
    let code = format!(
        "s = [tried(lambda: connect({port})) for _ in range(100)]\n\
         got = [c if isinstance(c, str) else tried(lambda: c.recv(1)) for c in s]\n\
         print(got.count(b'!'), got.count('ECONNRESET'))"
    );
    let report = python(&executor, &code);
    assert_eq!(output(&report), "64 36");
    assert_eq!(used(&report), [(port, 64, 36)]);
    let line = only_line(&executor, &report, "service_refused");
    assert_eq!(
        (&line["port"], &line["over_cap"], &line["unreachable"]),
        (&port.into(), &36.into(), &0.into())
    );
    // One after the other there is no end to them, and a flood of them harms nobody.
    let code = format!("for _ in range(1500): tried(lambda: connect({port}).close())\nprint('done')");
    let report = python(&executor, &code);
    assert_eq!(output(&report), "done");
    executor.assert_works();
    let (_, connections, refused) = used(&report)[0];
    assert_eq!(connections + refused, 1500, "{connections} {refused}");
    assert_verified(&executor);
}

#[test]
fn a_service_that_does_not_listen_is_a_clear_failure_and_stands_in_the_trail() {
    let (gone, there) = (nothing(), service(echo));
    let executor = start(&[gone, there]);
    // curl(1): 7 is a failure to connect, 52, 55 and 56 one to send or to receive; 28 would be a time-out.
    let report = executor.report(&["-c", &format!("curl -sS --max-time 60 http://127.0.0.1:{gone}/")]);
    assert!(matches!(report.exit_code, Some(7 | 52 | 55 | 56)), "{report:?}");
    let report = python(&executor, &format!("print(tried(lambda: connect({gone}).recv(1)))"));
    assert_eq!((output(&report), used(&report)), ("ECONNRESET", vec![(gone, 0, 1), (there, 0, 0)]));
    let services = only_line(&executor, &report, "services");
    let expected = serde_json::json!([
        {"port": gone, "connections": 0, "refused": 1}, {"port": there, "connections": 0, "refused": 0}
    ]);
    assert_eq!(services["services"], expected);
    let refused = only_line(&executor, &report, "service_refused");
    let numbers = ["port", "over_cap", "unreachable"].map(|key| refused[key].as_u64().unwrap());
    assert_eq!(numbers, [gone.into(), 0, 1]);
    let trail_of =
        |report: &ExitReport| ["services", "service_refused"].map(|e| trail(&executor, report, e).len());
    assert_eq!(trail_of(&executor.report(&["--", "true"])), [0, 0], "one that used none");
    let file = executor.directory().join("audit.jsonl");
    let shown =
        process::run(executor.cordon(&["audit", "show", "--file", &file.to_string_lossy()]), &[]).text();
    assert!(shown.contains(&format!("port {gone}: 0 too many at once, 1 unreachable")), "{shown}");
    assert_verified(&executor);
}

#[test]
fn with_the_command_its_connections_end_whoever_kept_them() {
    let (port, connections) = handed_over();
    let executor = start(&[port]);
    let server = server_of(executor.pid());
    let sockets = || process::descriptors(server).iter().filter(|d| d.contains("socket:")).count();
    let own = sockets();
    // Left to a process in a session of its own, which outlives the command.
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo hi >&3; (setsid sleep 300 &) ; exit 3");
    let report = executor.report(&["-c", &script]);
    assert_eq!((report.exit_code, used(&report)), (Some(3), vec![(port, 1, 0)]));
    let mut host = connections.recv_timeout(stretched(PATIENCE)).unwrap();
    let mut got = [0; 16];
    assert_eq!(host.read(&mut got).unwrap(), 3);
    // A reset, or the end: both are one.
    assert!(!matches!(host.read(&mut got), Ok(1..)), "it goes on");
    // Cancelled in the middle.
    let held = marker();
    let request = line(&format!("exec 3<>/dev/tcp/127.0.0.1/{port}; sleep {held}"));
    let run = blocking::run(&executor.socket, "test", request).unwrap();
    let mut host = connections.recv_timeout(stretched(PATIENCE)).unwrap();
    eventually("it runs", PATIENCE, || !sandboxed(&held).is_empty());
    drop(run);
    assert!(!matches!(host.read(&mut got), Ok(1..)));
    eventually("the server half has let go of every socket of theirs", PATIENCE, || sockets() <= own);
}

#[test]
fn what_is_written_and_left_at_once_arrives() {
    let (sender, arrived) = std::sync::mpsc::channel();
    let port = service(move |mut stream| {
        let mut all = Vec::new();
        sender.send(stream.read_to_end(&mut all).map_err(|e| e.kind())).unwrap();
    });
    let executor = start(&[port]);
    for _ in 0..20 {
        let script = format!("head -c 300000 /dev/zero > /dev/tcp/127.0.0.1/{port}");
        let report = executor.report(&["-c", &script]);
        assert_eq!((report.exit_code, used(&report)), (Some(0), vec![(port, 1, 0)]));
        assert_eq!(arrived.recv_timeout(stretched(PATIENCE)), Ok(Ok(300_000)));
    }
}

#[test]
fn two_sandboxes_at_once_have_their_own() {
    let together = Arc::new(Barrier::new(4));
    let port = service(move |mut stream| {
        // Answered when those of both are there.
        together.wait();
        stream.write_all(b"!").unwrap();
    });
    let executor = start(&[port]);
    let code = |count: u32| {
        format!(
            "s = [connect({port}) for _ in range({count})]\nprint(b''.join(c.recv(1) for c in s).decode())\n\
             l = socket.socket(); l.bind(('127.0.0.1', 9000)); l.listen()"
        )
    };
    let (first, second) = thread::scope(|scope| {
        let first = scope.spawn(|| python(&executor, &code(3)));
        (python(&executor, &code(1)), first.join().unwrap())
    });
    assert_eq!((output(&first), used(&first)), ("!", vec![(port, 1, 0)]));
    assert_eq!((output(&second), used(&second)), ("!!!", vec![(port, 3, 0)]));
}

#[test]
fn what_is_over_its_time_is_told_with_its_connections() {
    let (port, connections) = handed_over();
    let executor = start(&[port]);
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; echo x >&3; sleep 300");
    let report = executor.report(&["--timeout", "1s", "-c", &script]);
    assert_eq!((report.ended_by, used(&report)), (EndedBy::WallTimeout, vec![(port, 1, 0)]));
    let mut host = connections.recv_timeout(stretched(PATIENCE)).unwrap();
    let mut all = Vec::new();
    let _ = host.read_to_end(&mut all);
    assert_eq!(all, b"x\n");
}

#[test]
fn few_open_files_are_for_clients_and_launches_before_they_are_for_services() {
    let port = service(|mut stream| drop(stream.read(&mut [0])));
    // Room for 72 connections to services, where six commands want 64 each.
    let (command, directory) = crate::starts::started_with(
        &profile(&[port]),
        "resource.setrlimit(resource.RLIMIT_NOFILE, (640, 640))",
    );
    let executor = Executor::wait_ready(command, directory);
    let held = marker();
    let script = format!(
        "for i in {{1..64}}; do exec {{fd}}<>/dev/tcp/127.0.0.1/{port}; done 2> /dev/null; sleep {held}; :"
    );
    let runs: Vec<_> =
        (0..6).map(|_| blocking::run(&executor.socket, "test", line(&script)).unwrap()).collect();
    eventually("all hold what they got", PATIENCE, || sandboxed(&held).len() >= 12);
    executor.assert_works();
    let clients: Vec<_> =
        (0..60).map_while(|_| std::os::unix::net::UnixStream::connect(&executor.socket).ok()).collect();
    let used = process::descriptors(server_of(executor.pid())).len();
    assert!(clients.len() == 60 && used < 640, "{used} descriptors");
    drop(clients);
    drop(runs);
    eventually("it serves again", PATIENCE, || executor.run(&["--", "true"]).status == 0);
}
