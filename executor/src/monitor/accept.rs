//! Taking in those who connect.
//!
//! A few in each round of the loop, so that nobody who connects without pause keeps the monitor from its
//! deadlines. And every socket goes to the server half, also one that is turned away: what a client has sent
//! may carry descriptors, closing the socket closes them, and a client can have made that take for ever (a
//! lingering TCP socket, a file of a dead server). From Linux 6.16 on it cannot send any.

use super::{Monitor, link::ConnectionRefusal, link::ToServer, peers::Peer};
use nix::errno::Errno;
use std::{
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixListener,
    },
    time::{Duration, Instant},
};

/// Connections taken in one round.
const ROUND: usize = 16;
/// How long nobody is taken in when there is no descriptor for it: until then asking again only costs time.
const PAUSE: Duration = Duration::from_millis(100);

/// The listening socket, and when it is next looked at.
#[derive(Debug)]
pub(super) struct Door {
    listener: UnixListener,
    closed_until: Option<Instant>,
}

impl Door {
    /// An open door.
    pub(super) fn new(listener: UnixListener) -> Self {
        Self { listener, closed_until: None }
    }

    /// When it opens again.
    pub(super) fn opens(&self) -> Option<Instant> {
        self.closed_until
    }

    /// The descriptor to poll; none while it is closed.
    pub(super) fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.closed_until.is_none().then(|| self.listener.as_fd())
    }

    /// Who has connected; none when there is nobody, or no descriptor for it.
    fn next(&mut self) -> Option<OwnedFd> {
        if self.closed_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        self.closed_until = None;
        match self.listener.accept() {
            Ok((stream, _)) => Some(stream.into()),
            Err(error) => {
                let errno = error.raw_os_error().map(Errno::from_raw);
                if matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)) {
                    self.closed_until = Some(Instant::now() + PAUSE);
                }
                None
            }
        }
    }
}

impl Monitor {
    /// Accepts who has connected, numbers the connection and hands it to the server.
    pub(super) fn accept(&mut self) {
        for _ in 0..ROUND {
            if self.outbox.is_long() {
                return;
            }
            let Some(socket) = self.door.as_mut().and_then(Door::next) else { return };
            let message = self.welcome(&socket);
            self.outbox.push(&message, vec![socket]);
        }
    }

    fn welcome(&mut self, socket: &OwnedFd) -> ToServer {
        let Ok(peer) = Peer::of(socket) else { return ToServer::TurnedAway(ConnectionRefusal::Nobody) };
        let profiles =
            self.plans.all().enumerate().take(64).fold(0, |bits, (i, plan)| {
                bits | u64::from(plan.profile.allows(peer.uid, &peer.groups)) << i
            });
        let uid = peer.uid;
        match self.connections.admit(peer) {
            Ok(connection) => ToServer::Connection { connection, uid, profiles },
            Err(refusal) => ToServer::TurnedAway(refusal),
        }
    }
}
