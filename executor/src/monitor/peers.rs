//! Who is connected: credentials from the kernel, a number for each connection, a cap for each peer.

use crate::{
    config::OVERFLOW_UID,
    monitor::link::{ConnectionId, ConnectionRefusal},
    sys::socket::peer_groups,
};
use cordon_protocol::limits;
use nix::{
    errno::Errno,
    sys::socket::{getsockopt, sockopt::PeerCredentials},
};
use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
};

/// A process that has connected, as the kernel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    /// Effective uid when it connected (SO_PEERCRED, unix(7)).
    pub(super) uid: u32,
    /// Effective and supplementary gids when it connected (SO_PEERGROUPS).
    pub(super) groups: Vec<u32>,
}

impl Peer {
    /// Reads who is at the other end.
    ///
    /// # Errors
    /// errno of getsockopt(2); `EACCES` for the uid that stands for nobody.
    pub(super) fn of(socket: &OwnedFd) -> Result<Self, Errno> {
        let credentials = getsockopt(socket, PeerCredentials)?;
        if credentials.uid() == OVERFLOW_UID || credentials.uid() == u32::MAX {
            return Err(Errno::EACCES);
        }
        let mut groups = peer_groups(socket.as_fd())?;
        groups.push(credentials.gid());
        Ok(Self { uid: credentials.uid(), groups })
    }
}

/// What a connection may still do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing launched yet.
    Open,
    /// Its one command has been launched, or refused.
    Used,
}

/// A connection that the server holds.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    /// Whose.
    pub(super) peer: Peer,
    /// What it may still do.
    pub(super) stage: Stage,
}

/// Open files that each half needs beside those of connections.
const OTHER_FILES: u64 = 64;
/// Open files of a connection in the server half: its socket and the pipes of its command.
const FILES_EACH: u64 = 4;
/// With fewer connections than this there is no use in starting.
const LEAST_TOTAL: u64 = 64;

/// How many connections may be open at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionCaps {
    per_peer: usize,
    total: usize,
}

impl ConnectionCaps {
    /// Open files with which nothing but the protocol's own caps holds.
    pub const FILES_WANTED: u64 = OTHER_FILES + FILES_EACH * limits::CONNECTIONS_TOTAL as u64;

    /// The caps of a process that may have so many files open; none when it can do nothing with so few. A
    /// server half without a descriptor for a connection could only end.
    pub fn for_open_files(files: u64) -> Option<Self> {
        let total = files.saturating_sub(OTHER_FILES) / FILES_EACH;
        let total =
            usize::try_from(total).ok().filter(|_| total >= LEAST_TOTAL)?.min(limits::CONNECTIONS_TOTAL);
        // No peer can take all of them.
        Some(Self { per_peer: limits::CONNECTIONS_PER_PEER.min(total / 2), total })
    }
}

/// The connections, by number.
#[derive(Debug)]
pub(super) struct Connections {
    caps: ConnectionCaps,
    next: ConnectionId,
    open: HashMap<ConnectionId, Connection>,
}

impl Connections {
    /// None yet.
    pub(super) fn new(caps: ConnectionCaps) -> Self {
        Self { caps, next: 1, open: HashMap::new() }
    }

    /// Gives a connection its number.
    ///
    /// # Errors
    /// Busy when the peer, or all together, have as many as they may.
    pub(super) fn admit(&mut self, peer: Peer) -> Result<ConnectionId, ConnectionRefusal> {
        let ConnectionCaps { per_peer, total } = self.caps;
        let of_peer = self.open.values().filter(|c| c.peer.uid == peer.uid).count();
        if of_peer >= per_peer || self.open.len() >= total {
            return Err(ConnectionRefusal::Busy { per_peer: per_peer as u64, total: total as u64 });
        }
        let number = self.next;
        self.next += 1;
        self.open.insert(number, Connection { peer, stage: Stage::Open });
        Ok(number)
    }

    /// A connection by number.
    pub(super) fn get(&self, number: ConnectionId) -> Option<&Connection> {
        self.open.get(&number)
    }

    /// Uses up a connection's one launch; none when there is no such connection or it is used up.
    pub(super) fn take_launch(&mut self, number: ConnectionId) -> Option<Peer> {
        let connection = self.open.get_mut(&number).filter(|c| c.stage == Stage::Open)?;
        connection.stage = Stage::Used;
        Some(connection.peer.clone())
    }

    /// Forgets a connection.
    pub(super) fn close(&mut self, number: ConnectionId) {
        self.open.remove(&number);
    }

    /// Whether none is left.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_open_files_mean_few_connections_and_too_few_none() {
        let caps = |files| ConnectionCaps::for_open_files(files).map(|c| (c.per_peer, c.total));
        assert_eq!(caps(u64::MAX), Some((512, 2048)));
        assert_eq!(caps(ConnectionCaps::FILES_WANTED), Some((512, 2048)));
        assert_eq!(caps(1024), Some((120, 240)));
        assert_eq!(caps(319), None);
        assert_eq!(caps(0), None);
    }

    #[test]
    fn a_peer_has_its_share_and_no_more() {
        let mut connections = Connections::new(ConnectionCaps { per_peer: 2, total: 3 });
        let mut admit = |uid| connections.admit(Peer { uid, groups: Vec::new() });
        assert_eq!((admit(1), admit(1)), (Ok(1), Ok(2)));
        let busy = Err(ConnectionRefusal::Busy { per_peer: 2, total: 3 });
        assert_eq!((admit(1), admit(2), admit(3)), (busy, Ok(3), busy));
    }
}
