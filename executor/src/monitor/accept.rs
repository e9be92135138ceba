//! Taking in those who connect.
//!
//! A few in each round of the loop, so that nobody who connects without pause keeps the monitor from its
//! deadlines. And every socket goes to the server half, also one that is turned away: what a client has sent
//! may carry descriptors, closing the socket closes them, and a client can have made that take for ever (a
//! lingering TCP socket, a file of a dead server). From Linux 6.16 on it cannot send any.

use super::{Monitor, link::ConnectionRefusal, link::ToServer, peers::Peer};
use cordon_protocol::limits;
use nix::errno::Errno;
use std::{
    io,
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
    fn next(&mut self, now: Instant) -> Option<OwnedFd> {
        if self.closed_until.is_some_and(|until| now < until) {
            return None;
        }
        self.closed_until = None;
        match self.listener.accept() {
            Ok((stream, _)) => Some(stream.into()),
            Err(error) => {
                self.close_for(&error, now);
                None
            }
        }
    }

    /// Closes for a while where the error is one that stays: what has not been accepted would be told of again
    /// and again.
    fn close_for(&mut self, error: &io::Error, now: Instant) {
        let errno = error.raw_os_error().map(Errno::from_raw);
        if matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM)) {
            self.closed_until = Some(now + PAUSE);
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
            let now = Instant::now();
            let Some(socket) = self.door.as_mut().and_then(|door| door.next(now)) else { return };
            let message = self.welcome(&socket);
            self.outbox.push(&message, vec![socket]);
        }
    }

    fn welcome(&mut self, socket: &OwnedFd) -> ToServer {
        let Ok(peer) = Peer::of(socket) else { return ToServer::TurnedAway(ConnectionRefusal::Nobody) };
        let profiles =
            self.plans.all().enumerate().take(limits::PROFILES_MAX).fold(0, |bits, (i, plan)| {
                bits | u64::from(plan.profile.allows(peer.uid, &peer.groups)) << i
            });
        let uid = peer.uid;
        match self.connections.admit(peer) {
            Ok(connection) => ToServer::Connection { connection, uid, profiles },
            Err(refusal) => ToServer::TurnedAway(refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    };

    #[test]
    fn without_a_descriptor_for_it_nobody_is_taken_in_for_a_while_and_then_everybody() {
        let name = format!("cordon-door-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (mut door, now) = (Door::new(listener), Instant::now());
        assert!(door.next(now).is_none() && door.opens().is_none() && door.watched().is_some());
        let _client = UnixStream::connect_addr(&address).unwrap();
        for errno in [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM] {
            door.close_for(&errno.into(), now);
            // Else it would be told of at once, again and again.
            assert!(door.watched().is_none(), "{errno}");
            assert_eq!(door.opens(), Some(now + PAUSE));
            assert!(door.next(now + PAUSE - Duration::from_millis(1)).is_none());
            assert!(door.next(now + PAUSE).is_some() && door.opens().is_none() && door.watched().is_some());
            let _next = UnixStream::connect_addr(&address).unwrap();
        }
        // One who has gone again, and nobody at all, keep nobody out.
        for errno in [Errno::ECONNABORTED, Errno::EAGAIN, Errno::EINTR] {
            door.close_for(&errno.into(), now);
            assert!(door.opens().is_none() && door.watched().is_some(), "{errno}");
        }
    }
}
