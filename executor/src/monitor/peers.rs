//! Who is connected: credentials from the kernel, a number for each connection, a cap for each peer.

use crate::{config::OVERFLOW_UID, monitor::link::ConnectionId, sys::socket::peer_groups};
use cordon_protocol::{Event, Refusal, RefusalCode, codec::encode_frame, limits};
use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, getsockopt, send, sockopt::PeerCredentials},
};
use std::{
    collections::HashMap,
    os::fd::{AsFd, AsRawFd, OwnedFd},
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

/// The connections, by number.
#[derive(Debug)]
pub(super) struct Connections {
    next: ConnectionId,
    open: HashMap<ConnectionId, Connection>,
    busy: Vec<u8>,
}

impl Connections {
    /// None yet.
    pub(super) fn new() -> Self {
        let refusal = Refusal {
            code: RefusalCode::Busy,
            message: format!(
                "this peer has {} connections open, or all peers {}",
                limits::CONNECTIONS_PER_PEER,
                limits::CONNECTIONS_TOTAL
            ),
            hint: Some("close some and try again".to_owned()),
        };
        // Encoded once: the root half writes this constant and nothing else to a client.
        let busy = encode_frame(&Event::Refused(refusal), limits::EVENT_FRAME_MAX).unwrap_or_default();
        Self { next: 1, open: HashMap::new(), busy }
    }

    /// Gives a connection its number; none, with a refusal sent, when the peer has too many.
    pub(super) fn admit(&mut self, socket: &OwnedFd, peer: Peer) -> Option<ConnectionId> {
        let of_peer = self.open.values().filter(|c| c.peer.uid == peer.uid).count();
        if of_peer >= limits::CONNECTIONS_PER_PEER || self.open.len() >= limits::CONNECTIONS_TOTAL {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = send(socket.as_raw_fd(), &self.busy, flags);
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.open.insert(number, Connection { peer, stage: Stage::Open });
        Some(number)
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

impl Default for Connections {
    fn default() -> Self {
        Self::new()
    }
}
