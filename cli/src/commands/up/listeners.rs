//! The gateway's sockets, bound by root and handed to it: its own user could not make the second one, and a
//! port that is taken is told before anything is started.

use super::{
    accounts,
    directory::{Directory, set_owner},
};
use crate::failure::Failure;
use std::{
    net::{Ipv4Addr, TcpListener},
    os::unix::net::UnixListener,
};

/// Both sockets, listening.
#[derive(Debug)]
pub(super) struct Listeners {
    /// On 127.0.0.1, guarded by the token.
    pub(super) http: TcpListener,
    /// `gateway.sock`, guarded by the group.
    pub(super) local: UnixListener,
}

/// Binds the port, before anything is made: one that is taken is the most likely failure.
pub(super) fn bind_port(port: u16) -> Result<TcpListener, Failure> {
    let next = "choose another port with --port N, or end what listens there (`ss -ltnp` shows it)";
    let failed = |e| Failure::new(format!("listening on port {port} of 127.0.0.1"), e, next);
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)
}

impl Listeners {
    /// Binds the other one too; also the port, which the system chose where 0 was asked for.
    pub(super) fn complete(http: TcpListener, directory: &Directory) -> Result<(Self, u16), Failure> {
        let next = "choose another port with --port N";
        let port = http.local_addr().map_err(|e| Failure::new("looking up the port", e, next))?.port();
        let path = directory.gateway_socket();
        let failed = |e| {
            let what = format!("listening at {}", path.display());
            Failure::new(what, e, "choose another directory with --dir")
        };
        let local = UnixListener::bind(&path).map_err(failed)?;
        set_owner(&path, None, Some(accounts::GROUP), 0o660)?;
        Ok((Self { http, local }, port))
    }
}
