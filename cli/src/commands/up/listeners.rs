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

/// Binds both; also the port, which the system chose where 0 was asked for.
pub(super) fn bind(directory: &Directory, port: u16) -> Result<(Listeners, u16), Failure> {
    let next = "choose another port with --port N, or end what listens there (`ss -ltnp` shows it)";
    let failed = |e| Failure::new(format!("listening on port {port} of 127.0.0.1"), e, next);
    let http = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    let port = http.local_addr().map_err(failed)?.port();
    let path = directory.gateway_socket();
    let failed = |e| {
        let what = format!("listening at {}", path.display());
        Failure::new(what, e, "choose another directory with --dir")
    };
    let local = UnixListener::bind(&path).map_err(failed)?;
    set_owner(&path, None, Some(accounts::GROUP), 0o660)?;
    Ok((Listeners { http, local }, port))
}
