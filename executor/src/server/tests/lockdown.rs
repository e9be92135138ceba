//! The server does all its work with no more than its list of system calls, and no file or network.

use super::{super::lockdown, *};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::{
    collections::HashSet,
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// A program that ends this whole process at a call that is not in the list.
fn filter() -> BpfProgram {
    let rules = lockdown::SYSCALLS.iter().map(|(number, _)| (*number, vec![])).collect();
    let filter =
        SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, TargetArch::x86_64);
    filter.unwrap().try_into().unwrap()
}

#[test]
fn each_call_is_listed_once_with_its_reason() {
    let numbers: HashSet<_> = lockdown::SYSCALLS.iter().map(|(number, _)| number).collect();
    assert_eq!(numbers.len(), lockdown::SYSCALLS.len());
    assert!(lockdown::SYSCALLS.iter().all(|(_, reason)| reason.len() > 5));
    for never in [libc::SYS_execve, libc::SYS_socket, libc::SYS_openat, libc::SYS_ptrace, libc::SYS_kill] {
        assert!(!numbers.contains(&never), "{never}");
    }
}

#[test]
fn the_list_is_enough_for_everything_a_server_does() {
    let (sender, ended) = mpsc::channel();
    let (link, theirs) = link_pair();
    setsockopt(&link, ReceiveTimeout, &TimeVal::new(10, 0)).unwrap();
    let server = std::thread::spawn(move || {
        let abi = lockdown::restrict().unwrap();
        seccompiler::apply_filter(&filter()).unwrap();
        let result = super::super::run(theirs, fixture::config(), layers());
        sender.send((abi, result)).unwrap();
        // A thread of the standard library ends with more calls than a process does.
        loop {
            std::thread::park();
        }
    });
    let monitor = Monitor { link, next: Cell::new(1), server: std::thread::spawn(|| Ok(())) };
    // A large request, captured.
    let request = RunRequest { stdin: true, env: vec![("A".into(), "b".repeat(100_000))], ..line("cat") };
    let (mut client, mut command) = monitor.running(request, 1);
    for _ in 0..100 {
        client.send(&Request::Stdin(vec![b'i'; 10_000]));
        command.stdin.as_mut().unwrap().read_exact(&mut [0; 10_000]).unwrap();
        command.stdout.write_all(&[b'o'; 30_000]).unwrap();
    }
    client.started("0000000000000001");
    monitor.exit(command);
    assert_eq!(client.report().stdout_bytes, 3_000_000);
    // Streamed to one that leaves; a pipe that stays open.
    let (mut client, mut command) = monitor.running(RunRequest { stream: true, ..line("x") }, 2);
    client.started("0000000000000002");
    command.stdout.write_all(&[b'o'; 1000]).unwrap();
    assert_eq!(client.event(), Some(Event::Stdout(vec![b'o'; 1000])));
    assert_eq!(monitor.hear(), ToMonitor::Closed(1));
    client.stream.shutdown(Shutdown::Both).unwrap();
    assert_eq!(monitor.hear(), ToMonitor::Cancel(command.connection));
    monitor.ended(command.connection, fixture::outcome(EndedBy::Cancelled));
    assert_eq!(monitor.hear(), ToMonitor::Drained(command.connection));
    assert_eq!(monitor.hear(), ToMonitor::Closed(command.connection));
    // A refusal, and a question.
    let mut client = monitor.connect();
    client.send(&hello(9));
    client.refusal();
    client.close(&monitor);
    assert!(matches!(monitor.ask(&Request::Ps).event(), Some(Event::Jobs(_))));
    drop(monitor.link);
    let (abi, result) = ended.recv_timeout(PATIENCE).unwrap();
    result.unwrap();
    assert!(abi >= 1, "this kernel has no Landlock");
    drop(server);
}

#[test]
fn restricted_it_reaches_no_file_and_no_port() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let reach = move || {
        let file = File::open("/etc/passwd").map(drop);
        let made = File::create(std::env::temp_dir().join("cordon-lockdown-probe")).map(drop);
        let connected = TcpStream::connect(address).map(drop);
        let bound = TcpListener::bind(("127.0.0.1", 0)).map(drop);
        [file, made, connected, bound].map(|r| r.map_err(|e| e.kind()))
    };
    let (before, abi, after) =
        std::thread::spawn(move || (reach(), lockdown::restrict().unwrap(), reach())).join().unwrap();
    std::fs::remove_file(std::env::temp_dir().join("cordon-lockdown-probe")).unwrap();
    assert_eq!(before, [Ok(()); 4], "the same probes, unrestricted");
    let denied = Err(std::io::ErrorKind::PermissionDenied);
    assert_eq!(after[..2], [denied; 2]);
    // TCP is part of ABI 4 and later.
    let expected = if abi >= 4 { denied } else { Ok(()) };
    assert_eq!(after[2..], [expected; 2], "ABI {abi}");
}
