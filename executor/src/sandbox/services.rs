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
