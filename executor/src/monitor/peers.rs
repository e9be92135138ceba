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
    /// Number of the process that connected (SO_PEERCRED); it may have ended since.
    pub(super) pid: i32,
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
        let uid = somebody(credentials.uid())?;
        let mut groups = peer_groups(socket.as_fd())?;
        groups.push(credentials.gid());
        Ok(Self { uid, pid: credentials.pid(), groups })
    }
}

/// The uid, unless it stands for everybody who has none here (a user namespace's unmapped ones), or for
/// nobody at all.
fn somebody(uid: u32) -> Result<u32, Errno> {
    if uid == OVERFLOW_UID || uid == u32::MAX { Err(Errno::EACCES) } else { Ok(uid) }
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
/// Open files of a command in the monitor half, from its launch to its last trace: processes, pairs, pipes,
/// leaves, storage, files, what it takes to collect, a walk through the workspace. Without one a limit could not
/// be looked at, nor a leaf be killed.
const FILES_OF_COMMAND: u64 = 24;
/// Listening sockets of a service in a sandbox.
const FILES_OF_SERVICE: u64 = 2;
/// Open files of a relayed connection in the server half.
const FILES_OF_RELAYED: u64 = 2;
/// With fewer connections than this there is no use in starting.
const LEAST_TOTAL: u64 = 64;

/// How many connections may be open at once, and how many commands be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionCaps {
    per_peer: usize,
    total: usize,
    commands: usize,
    relayed: usize,
}

impl ConnectionCaps {
    /// How many commands there is room for.
    pub fn commands(&self) -> usize {
        self.commands
    }

    /// Open files with which nothing but the protocol's own caps holds; `services` is how many a profile has at
    /// most.
    pub fn files_wanted(services: usize) -> u64 {
        let connections = FILES_EACH * limits::CONNECTIONS_TOTAL as u64;
        OTHER_FILES + if services > 0 { 2 * connections } else { connections }
    }

    /// The caps of a process that may have so many files open; none when it can do nothing with so few. A
    /// server half without a descriptor for a connection could only end, and so could one without those for what
    /// listens in a sandbox: where there are services, half of its files are for them.
    pub fn for_open_files(files: u64, services: usize) -> Option<Self> {
        let left = files.saturating_sub(OTHER_FILES);
        let listening = FILES_OF_SERVICE * services as u64;
        let (for_connections, for_listening) = if services > 0 { (left / 2, left / 4) } else { (left, 0) };
        let total = for_connections / FILES_EACH;
        let total =
            usize::try_from(total).ok().filter(|_| total >= LEAST_TOTAL)?.min(limits::CONNECTIONS_TOTAL);
        // No peer can take all of them.
        let per_peer = limits::CONNECTIONS_PER_PEER.min(total / 2);
        let listened = for_listening.checked_div(listening).unwrap_or(u64::MAX);
        let commands = (left / (FILES_OF_COMMAND + listening)).min(listened);
        let commands = usize::try_from(commands).unwrap_or(usize::MAX).min(total);
        let relayed = usize::try_from(for_listening / FILES_OF_RELAYED).unwrap_or(usize::MAX);
        Some(Self { per_peer, total, commands, relayed })
    }

    /// Connections of all commands to services that the server half may relay at once.
    pub fn relayed(&self) -> usize {
        self.relayed
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

    /// How many commands there is room for.
    pub(super) fn commands(&self) -> usize {
        self.caps.commands()
    }

    /// Gives a connection its number.
    ///
    /// # Errors
    /// Busy when the peer, or all together, have as many as they may.
    pub(super) fn admit(&mut self, peer: Peer) -> Result<ConnectionId, ConnectionRefusal> {
        let ConnectionCaps { per_peer, total, .. } = self.caps;
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
    use crate::{
        profile::{Profile, RawProfile},
        sys::raw::become_other,
    };
    use std::{
        collections::HashSet,
        os::{
            linux::net::SocketAddrExt,
            unix::net::{SocketAddr, UnixListener, UnixStream},
        },
        thread,
    };

    fn peer(uid: u32) -> Peer {
        Peer { uid, pid: 1, groups: Vec::new() }
    }

    #[test]
    fn few_open_files_mean_few_connections_and_too_few_none() {
        let caps =
            |files| ConnectionCaps::for_open_files(files, 0).map(|c| (c.per_peer, c.total, c.commands));
        assert_eq!(caps(u64::MAX), Some((512, 2048, 2048)));
        assert_eq!(caps(ConnectionCaps::files_wanted(0)), Some((512, 2048, 341)));
        assert_eq!(caps(1024), Some((120, 240, 40)));
        assert_eq!(caps(320), Some((32, 64, 10)));
        assert_eq!(caps(319), None);
        assert_eq!(caps(0), None);
    }

    #[test]
    fn what_services_take_is_never_what_connections_need() {
        for files in [576, 1024, 4096, ConnectionCaps::files_wanted(1), 1 << 20] {
            for services in [1, 2, 16] {
                let caps = ConnectionCaps::for_open_files(files, services).unwrap();
                let number = |count: usize| count as u64;
                let listening = number(caps.commands * 2 * services);
                let server = 4 * number(caps.total) + listening + 2 * number(caps.relayed);
                assert!(server + OTHER_FILES <= files, "{files} {services}: {caps:?} take {server}");
                let monitor = FILES_OF_COMMAND * number(caps.commands) + listening;
                assert!(monitor + OTHER_FILES <= files, "{files} {services}: {caps:?} take {monitor}");
                assert!(caps.commands > 0 && caps.relayed >= 64, "{files} {services}: {caps:?}");
            }
        }
        assert_eq!(ConnectionCaps::for_open_files(575, 1), None);
        let wanted = ConnectionCaps::for_open_files(ConnectionCaps::files_wanted(16), 16).unwrap();
        assert_eq!((wanted.total, wanted.commands, wanted.relayed), (2048, 128, 2048));
        assert_eq!(ConnectionCaps::for_open_files(1 << 20, 0).unwrap().relayed, 0);
    }

    #[test]
    fn a_peer_has_its_share_and_no_more() {
        let mut connections =
            Connections::new(ConnectionCaps { per_peer: 2, total: 3, commands: 3, relayed: 0 });
        let mut admit = |uid| connections.admit(peer(uid));
        assert_eq!((admit(1), admit(1)), (Ok(1), Ok(2)));
        let busy = Err(ConnectionRefusal::Busy { per_peer: 2, total: 3 });
        assert_eq!((admit(1), admit(2), admit(3)), (busy, Ok(3), busy));
        // Whoever leaves makes room for its own kind, and for others where all together are too many.
        connections.close(1);
        assert_eq!(connections.admit(peer(1)), Ok(4));
        connections.close(3);
        assert_eq!((connections.admit(peer(1)), connections.admit(peer(3))), (busy, Ok(5)));
    }

    #[test]
    fn a_number_is_given_once_and_a_launch_too() {
        let mut connections =
            Connections::new(ConnectionCaps { per_peer: 1, total: 2, commands: 2, relayed: 0 });
        let mut last = 0;
        for _ in 0..100 {
            let number = connections.admit(peer(7)).unwrap();
            assert!(number > last);
            // One that is turned away takes no number and leaves none.
            assert!(connections.admit(peer(7)).is_err());
            assert_eq!(connections.take_launch(number), Some(peer(7)));
            assert_eq!(connections.take_launch(number), None);
            assert_eq!(connections.get(number).map(|c| c.stage), Some(Stage::Used));
            connections.close(number);
            assert!(connections.get(number).is_none() && connections.take_launch(number).is_none());
            // Nor is another's freed by closing what is closed, or never was.
            connections.close(number);
            connections.close(number + 1);
            last = number;
        }
        assert!(connections.is_empty());
    }

    #[test]
    fn the_uid_of_nobody_is_no_peer() {
        for uid in [0, 1, 65_533, OVERFLOW_UID + 1, u32::MAX - 1] {
            assert_eq!(somebody(uid), Ok(uid));
        }
        assert_eq!((somebody(65_534), somebody(u32::MAX)), (Err(Errno::EACCES), Err(Errno::EACCES)));
    }

    /// A socket whose other end was connected by a thread of this uid, gid and supplementary groups; the
    /// kernel keeps them for each thread.
    fn connected_as(uid: u32, gid: u32, groups: &'static [u32]) -> OwnedFd {
        assert!(nix::unistd::geteuid().is_root(), "needs root, to connect as somebody else");
        let name = format!("cordon-peers-{}-{uid}-{gid}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let stream = thread::spawn(move || {
            become_other(uid, gid, groups).unwrap();
            UnixStream::connect_addr(&address).unwrap()
        });
        let (accepted, _) = listener.accept().unwrap();
        drop(stream.join().unwrap());
        accepted.into()
    }

    #[test]
    fn uid_and_groups_are_those_that_the_kernel_has_of_whoever_connected() {
        let peer = Peer::of(&connected_as(4001, 4002, &[4003, 4004])).unwrap();
        let groups: HashSet<_> = peer.groups.iter().copied().collect();
        assert_eq!((peer.uid, groups), (4001, HashSet::from([4002, 4003, 4004])));
        let pid = nix::unistd::getpid().as_raw();
        assert_eq!(peer.pid, pid);
        // None of its own beside the one of the process, and none of this process.
        assert_eq!(Peer::of(&connected_as(4001, 4005, &[])), Ok(Peer { uid: 4001, pid, groups: vec![4005] }));
        // More than a first look has room for.
        static MANY: [u32; 300] = [4100; 300];
        assert_eq!(Peer::of(&connected_as(4001, 4006, &MANY)).unwrap().groups.len(), 301);
        assert_eq!(Peer::of(&connected_as(OVERFLOW_UID, 4007, &[4003])), Err(Errno::EACCES));
    }

    #[test]
    fn a_profile_for_a_group_is_for_its_members_alone() {
        // The group that may connect, where a profile names none.
        let profile = Profile::from_raw("p", RawProfile::default(), 4020).unwrap();
        let allows = |uid, gid, groups| {
            let peer = Peer::of(&connected_as(uid, gid, groups)).unwrap();
            profile.allows(peer.uid, &peer.groups)
        };
        assert!(allows(4011, 4012, &[4013, 4020]) && allows(4014, 4020, &[]));
        assert!(!allows(4020, 4012, &[4013]) && !allows(4015, 4012, &[]));
    }
}
