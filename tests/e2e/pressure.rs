//! Clients that press: without pause, without reading, with what was never asked for. Deadlines hold all the
//! same, other peers are served, and nothing grows.

use crate::harness::{
    Executor, PATIENCE,
    client::{collect, line},
    daemon::server_of,
    eventually, host,
    lab::STRANGER,
    marker,
    process::{sandboxed, status_number},
    stretched,
    wire::Wire,
};
use crate::teardown::at_rest;
use cordon_executor::sys::scm;
use cordon_protocol::{EndedBy, Event, LimitRequest, Request, client::blocking};
use nix::{
    sys::{
        signal::{Signal, kill},
        socket::{setsockopt, sockopt::Linger},
    },
    unistd::Pid,
};
use std::{
    net::{TcpListener, TcpStream},
    os::{fd::AsFd, unix::net::UnixStream},
    process::Child,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Another user's process that does this Python until it is killed; it has connected once it prints.
fn stranger(executor: &Executor, lines: &str) -> Child {
    let code = format!("import socket, time\npath = '{}'\n{lines}", executor.socket.display());
    let mut command = host::as_user(STRANGER, STRANGER, &[host::gid_of("cordon")], "/usr/bin/python3");
    command.args(["-c", &code]).spawn().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// How long a command takes whose time by the clock is one second.
fn one_second(executor: &Executor) -> Duration {
    let mut request = line("sleep 60");
    request.limits = LimitRequest { wall_ms: Some(1000), ..LimitRequest::default() };
    let start = Instant::now();
    assert_eq!(executor.events(request).report.ended_by, EndedBy::WallTimeout);
    start.elapsed()
}

#[test]
fn connecting_without_pause_holds_up_no_deadline() {
    let executor = Executor::start("");
    let pressing =
        "while True:\n  s = socket.socket(1)\n  try: s.connect(path)\n  except OSError: pass\n  s.close()";
    let strangers: Vec<_> = (0..3).map(|_| stranger(&executor, pressing)).collect();
    thread::sleep(Duration::from_millis(300));
    let (sender, took) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| sender.send(one_second(&executor)));
        let took = took.recv_timeout(stretched(Duration::from_secs(8)));
        strangers.into_iter().for_each(end);
        assert!(took.is_ok_and(|t| t < stretched(Duration::from_secs(5))), "{took:?}");
    });
    executor.assert_works();
}

#[test]
fn a_descriptor_that_a_client_sends_holds_up_no_deadline() {
    let executor = Executor::start("");
    let monitor = Pid::from_raw(executor.pid());
    // A socket whose close waits until its peer has read, which it never does, or for twice the time below.
    const IN_TIME: Duration = Duration::from_secs(10);
    let in_time = stretched(IN_TIME);
    let l_linger = i32::try_from(in_time.as_secs() * 2).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut lingering = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (_unread, _) = listener.accept().unwrap();
    setsockopt(&lingering, Linger, &nix::libc::linger { l_onoff: 1, l_linger }).unwrap();
    lingering.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut lingering, &[0; 65536]).is_ok() {}

    let marker = marker();
    let mut request = line(&format!("sleep {marker}; :"));
    request.limits = LimitRequest { wall_ms: Some(3000), ..LimitRequest::default() };
    let (_connection, _stdin) = blocking::run(&executor.socket, "test", request).unwrap();
    eventually("it runs", PATIENCE, || !sandboxed(&marker).is_empty());
    let start = Instant::now();
    // As many as one peer may have: the next one is turned away, with what it has sent unread.
    let silent: Vec<_> = (0..512).filter_map(|_| UnixStream::connect(&executor.socket).ok()).collect();
    thread::sleep(Duration::from_millis(500));
    kill(monitor, Signal::SIGSTOP).unwrap();
    let late = UnixStream::connect(&executor.socket).unwrap();
    // From Linux 6.16 on it is refused; before that it must at least not keep the monitor.
    let _ = scm::send(late.as_fd(), b"x", &[lingering.as_fd()]);
    drop(late);
    // The copy here may wait for itself.
    thread::spawn(move || drop(lingering));
    thread::sleep(Duration::from_millis(200));
    kill(monitor, Signal::SIGCONT).unwrap();
    eventually("the deadline ends it", IN_TIME, || sandboxed(&marker).is_empty());
    assert!(start.elapsed() < in_time, "{:?}", start.elapsed());
    drop(silent);
}

#[test]
fn reports_that_nobody_reads_fill_no_memory() {
    let executor = Executor::start("[profiles.default]\nconcurrency = 2\n");
    let server = server_of(executor.pid());
    let unread: Vec<_> = (0..12)
        .map(|_| {
            let mut request = line("head -c 6M /dev/urandom; head -c 6M /dev/urandom >&2");
            request.limits = LimitRequest { capture_bytes: Some(8 << 20), ..LimitRequest::default() };
            let mut wire = Wire::greeted(&executor.socket);
            wire.send(&Request::Run(Box::new(request)));
            wire
        })
        .collect();
    // Time for all twelve to have run, were they let.
    thread::sleep(Duration::from_secs(8));
    let resident = status_number(server, "VmRSS") >> 10;
    assert!(resident < 150, "{resident} MiB");
    // Whoever reads has everything, and makes room for the next.
    for mut wire in unread {
        let report = loop {
            match wire.next().unwrap() {
                Some(Event::Exited(report)) => break report,
                Some(_) => {}
                None => panic!("the report is missing"),
            }
        };
        assert_eq!((report.stdout_bytes, report.stdout_truncated), (6 << 20, false));
    }
}

#[test]
fn two_hundred_commands_beside_clients_that_leave_have_their_own_answers() {
    let patience = stretched(PATIENCE).as_secs();
    let executor =
        Executor::start(&format!("[profiles.default]\nconcurrency = 16\nqueue_timeout = \"{patience}s\"\n"));
    let monitor = executor.pid();
    executor.assert_works();
    // What is made beforehand for later launches is there too.
    at_rest(monitor);
    let before = (descriptors(monitor), descriptors(server_of(monitor)));
    let pressing = AtomicBool::new(true);
    thread::scope(|scope| {
        // Beside them one that comes and goes at every point of a command's life.
        let executor = &executor;
        let pressing = &pressing;
        scope.spawn(move || {
            for pause in (0..).map(|n| Duration::from_millis(n % 25)) {
                if !pressing.load(Ordering::Relaxed) {
                    break;
                }
                let mut wire = Wire::greeted(&executor.socket);
                wire.send(&Request::Run(Box::new(line("cat; (sleep 60 &); yes"))));
                thread::sleep(stretched(pause));
            }
        });
        let started: Vec<_> = (0..200)
            .map(|n| blocking::run(&executor.socket, "test", line(&format!("echo {n}"))).unwrap())
            .collect();
        for (n, (connection, _stdin)) in started.into_iter().enumerate() {
            let report = collect(connection).unwrap().report;
            assert_eq!(report.stdout.as_deref(), Some(format!("{n}\n").as_str()), "{report:?}");
        }
        pressing.store(false, Ordering::Relaxed);
    });
    // Fewer where the connection that showed that it works was still being closed.
    let level = || descriptors(monitor) <= before.0 && descriptors(server_of(monitor)) <= before.1;
    eventually("everything is level", PATIENCE, level);
    executor.assert_works();
}

fn descriptors(pid: i32) -> usize {
    crate::harness::process::descriptors(pid).len()
}
