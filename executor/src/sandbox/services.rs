//! Listening sockets in a sandbox's own network: where the services of the host appear to its command.

use super::steps::{About, Fault};
use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
        sockopt,
    },
};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
};

/// Connections of one socket that may wait to be accepted; further ones are tried again by the command's kernel.
pub const BACKLOG: i32 = 64;
/// Bytes that the kernel keeps for each direction of a connection. An accepted one has those of the socket that it
/// came by; left alone they grow to megabytes, which nothing counts against the command.
pub const KERNEL_BUFFER: usize = 128 << 10;

/// A socket for each port on 127.0.0.1, then, where there is IPv6, one for each on `::1`. They do not block.
///
/// # Errors
/// The address that could not be listened on.
pub fn listen_inside(ports: &[u16]) -> Result<Vec<OwnedFd>, Fault> {
    let mut listening = Vec::with_capacity(ports.len() * 2);
    let on = |address: IpAddr, port: u16| {
        let address = SocketAddr::new(address, port);
        listen_on(address).map_err(|errno| (errno, address))
    };
    let failed = |(errno, address): (Errno, SocketAddr)| Err(errno).about(address);
    for port in ports {
        listening.push(on(Ipv4Addr::LOCALHOST.into(), *port).or_else(failed)?);
    }
    for port in ports {
        match on(Ipv6Addr::LOCALHOST.into(), *port) {
            // A host without IPv6 gives its sandboxes none.
            Err((Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL, _)) if listening.len() == ports.len() => break,
            other => listening.push(other.or_else(failed)?),
        }
    }
    Ok(listening)
}

fn listen_on(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let made = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&made, sockopt::RcvBuf, &KERNEL_BUFFER)?;
    setsockopt(&made, sockopt::SndBuf, &KERNEL_BUFFER)?;
    // As above: no piece waits for another in one that is relayed.
    setsockopt(&made, sockopt::TcpNoDelay, &true)?;
    bind(made.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&made, Backlog::new(BACKLOG)?)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::seccomp::{
        self, Policy, Verdict, compile,
        rule::{Case, Rule, Test},
        table,
    };
    use nix::sys::socket::getsockname;
    use std::{net::TcpListener, os::fd::AsFd, thread};

    const NO_IPV6: Rule = Rule::Cases {
        cases: &[Case {
            tests: &[Test::among(0, &[libc::AF_INET6.cast_unsigned()])],
            verdict: Verdict::Errno(Errno::EAFNOSUPPORT),
        }],
        otherwise: Verdict::Allow,
    };

    /// Makes this thread's host one without IPv6, as far as sockets go.
    fn without_ipv6() {
        let calls = (0..=400).filter(|number| table::name_of(*number).is_some());
        let rows = calls.map(|number| {
            let rule = if number == libc::SYS_socket { NO_IPV6 } else { Rule::Always(Verdict::Allow) };
            (number, rule, "test")
        });
        seccomp::apply(&compile(&Policy::of_rules(rows).unwrap()).unwrap()).unwrap();
    }

    /// Ports that were free a moment ago.
    fn free() -> Vec<u16> {
        let listeners = [(); 2].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
        listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
    }

    fn listened(ports: Vec<u16>) -> Result<Vec<SocketAddr>, Fault> {
        let made = listen_inside(&ports)?;
        let address = |fd: &OwnedFd| {
            let storage: SockaddrStorage = getsockname(fd.as_fd().as_raw_fd()).unwrap();
            match (storage.as_sockaddr_in(), storage.as_sockaddr_in6()) {
                (Some(four), _) => SocketAddr::new(four.ip().into(), four.port()),
                (_, Some(six)) => SocketAddr::new(six.ip().into(), six.port()),
                _ => panic!("{storage:?}"),
            }
        };
        Ok(made.iter().map(address).collect())
    }

    #[test]
    fn each_port_has_a_socket_for_each_kind_of_address_that_there_is() {
        let of =
            |ports: &[u16], ip: IpAddr| ports.iter().map(|p| SocketAddr::new(ip, *p)).collect::<Vec<_>>();
        let ports = free();
        let mut expected = of(&ports, Ipv4Addr::LOCALHOST.into());
        let six = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
        expected.extend(of(&ports, Ipv6Addr::LOCALHOST.into()).into_iter().filter(|_| six));
        assert_eq!(listened(ports), Ok(expected));
        let ports = free();
        let expected = of(&ports, Ipv4Addr::LOCALHOST.into());
        let found = thread::spawn(move || {
            without_ipv6();
            listened(ports)
        });
        assert_eq!(found.join().unwrap(), Ok(expected));
    }

    #[test]
    fn an_address_that_is_taken_is_named() {
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let fault = listened(vec![port]).unwrap_err();
        assert_eq!((fault.errno, fault.detail), (Errno::EADDRINUSE, format!("127.0.0.1:{port}")));
    }
}
