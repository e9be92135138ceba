//! The server does all its work with no more than its list of system calls, and no file or network.

use super::{super::lockdown, *};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use std::{
    collections::{BTreeSet, HashSet},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// A program that ends this whole process at a call that is not in the list.
fn filter(relays: bool) -> BpfProgram {
    let policy = lockdown::policy(relays).unwrap();
    let listed = policy.rows().iter().map(|row| i64::from(row.number));
    // A second program is loaded after this one.
    let rules = listed.chain([libc::SYS_seccomp]).map(|number| (number, vec![])).collect();
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
        let abi = lockdown::restrict(&BTreeSet::new()).unwrap();
        seccompiler::apply_filter(&filter(false)).unwrap();
        let result =
            super::super::run(theirs, fixture::config(), layers(), 0, super::super::Landmarks::default());
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
        std::thread::spawn(move || (reach(), lockdown::restrict(&BTreeSet::new()).unwrap(), reach()))
            .join()
            .unwrap();
    std::fs::remove_file(std::env::temp_dir().join("cordon-lockdown-probe")).unwrap();
    assert_eq!(before, [Ok(()); 4], "the same probes, unrestricted");
    let denied = Err(std::io::ErrorKind::PermissionDenied);
    assert_eq!(after[..2], [denied; 2]);
    // TCP is part of ABI 4 and later.
    let expected = if abi >= 4 { denied } else { Ok(()) };
    assert_eq!(after[2..], [expected; 2], "ABI {abi}");
}

#[test]
fn a_server_that_relays_reaches_its_ports_and_no_other_and_binds_none() {
    let listeners = [(); 2].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    let [service, other] = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
    let reach = move || {
        let [service, other] = [service, other].map(|address| TcpStream::connect(address).map(drop));
        let bound = TcpListener::bind(("127.0.0.1", 0)).map(drop);
        [service, other, bound].map(|r| r.map_err(|e| e.kind()))
    };
    let ports = BTreeSet::from([service.port()]);
    let (before, abi, after) =
        std::thread::spawn(move || (reach(), lockdown::restrict(&ports).unwrap(), reach())).join().unwrap();
    assert_eq!(before, [Ok(()); 3], "the same probes, unrestricted");
    let denied = if abi >= 4 { Err(std::io::ErrorKind::PermissionDenied) } else { Ok(()) };
    assert_eq!(after, [Ok(()), denied, denied], "ABI {abi}");
}

#[test]
fn a_server_that_relays_makes_tcp_sockets_only_and_connects_with_connect_only() {
    use crate::sandbox::seccomp::{Verdict, policy::ARCH_X86_64};
    let allows = |relays, call: libc::c_long, arguments: [i32; 6]| {
        let policy = lockdown::policy(relays).unwrap();
        let arguments = arguments.map(|argument| u64::from(argument.cast_unsigned()));
        policy.verdict(ARCH_X86_64, u32::try_from(call).unwrap(), &arguments) == Verdict::Allow
    };
    let socket = |family, kind, protocol| allows(true, libc::SYS_socket, [family, kind, protocol, 0, 0, 0]);
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    for family in [libc::AF_INET, libc::AF_INET6] {
        assert!(socket(family, libc::SOCK_STREAM | flags, libc::IPPROTO_TCP));
        for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET] {
            assert!(!socket(family, kind | flags, libc::IPPROTO_TCP), "{family} {kind}");
        }
        for protocol in [0, libc::IPPROTO_MPTCP, libc::IPPROTO_SCTP, 256] {
            assert!(!socket(family, libc::SOCK_STREAM, protocol), "{family} {protocol}");
        }
    }
    for family in [libc::AF_UNIX, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_VSOCK] {
        assert!(!socket(family, libc::SOCK_STREAM, libc::IPPROTO_TCP), "{family}");
    }
    let fast = libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL;
    for relays in [false, true] {
        assert!(allows(relays, libc::SYS_sendto, [3, 0, 0, libc::MSG_NOSIGNAL, 0, 0]));
        assert!(allows(relays, libc::SYS_sendmsg, [3, 0, libc::MSG_NOSIGNAL, 0, 0, 0]));
        for never in [libc::SYS_bind, libc::SYS_listen, libc::SYS_sendmmsg, libc::SYS_io_uring_setup] {
            assert!(!allows(relays, never, [0; 6]), "{never}");
        }
    }
    assert!(!allows(true, libc::SYS_sendto, [3, 0, 0, fast, 0, 0]));
    assert!(!allows(true, libc::SYS_sendmsg, [3, 0, fast, 0, 0, 0]));
    let option = |level, name| allows(true, libc::SYS_setsockopt, [3, level, name, 0, 0, 0]);
    assert!(option(libc::SOL_SOCKET, libc::SO_LINGER) && option(libc::IPPROTO_TCP, libc::TCP_NODELAY));
    for (level, name) in [
        (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT),
        (libc::IPPROTO_TCP, libc::SO_LINGER),
        (libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
        (libc::SOL_SOCKET, libc::SO_MARK),
        (libc::SOL_IP, libc::TCP_NODELAY),
    ] {
        assert!(!option(level, name), "{level} {name}");
    }
    // Without services there is none of it.
    for (number, ..) in lockdown::SERVICE_SYSCALLS {
        let both = lockdown::SYSCALLS.iter().any(|(plain, _)| plain == number);
        assert_eq!(lockdown::policy(false).unwrap().row(u32::try_from(*number).unwrap()).is_some(), both);
    }
}

#[test]
fn the_list_is_enough_for_a_server_that_relays() {
    let port = super::services::echo().port();
    let monitor = Monitor::start_relaying(super::services::config(&[port]), 64, move || {
        lockdown::restrict(&BTreeSet::from([port])).unwrap();
        // What the list has no call for ends this process; what it has one for is as the list says.
        seccompiler::apply_filter(&filter(true)).unwrap();
        seccompiler::apply_filter(&lockdown::filter(true).unwrap()).unwrap();
    });
    super::services::relays_and_refuses(&monitor, port);
    // A thread of the standard library ends with more calls than a process does: it goes on.
    std::mem::forget(monitor);
}
