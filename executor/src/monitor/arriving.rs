//! Launches on their way to be looked at: what the trail has the hash of is hashed first.
//!
//! That takes the longer the more there is: of the most that one may bring 45 ms, and 250 where the processor has no
//! instructions for it. So of what is large a piece is hashed in each turn of the monitor's loop, of peers in turn, while
//! deadlines are met and other launches go on.

use super::{
    Monitor,
    admit::Wanted,
    last_look::LOOK_WAIT,
    link::{ConnectionId, ToMonitor},
    policy::{check_sealed, launch_sizes},
};
use crate::sandbox::steps::{About, Fault};
use cordon_protocol::audit::hexadecimal;
use nix::errno::Errno;
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    os::{fd::OwnedFd, unix::fs::FileExt},
    time::Instant,
};

/// What of a launch is hashed when it comes, bytes: nearly all have less.
const AT_ONCE: u64 = 64 << 10;
/// What is hashed in a turn of those that have more, bytes.
const PIECE: u64 = 512 << 10;

/// SHA-256 of what a launch brings, hexadecimal. Its bytes are not looked at otherwise.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fingerprints {
    /// Of the sealed request.
    pub(super) request: String,
    /// Of the sealed files; none where there are none.
    pub(super) files: Option<String>,
}

/// A launch that can be looked at.
#[derive(Debug)]
pub(super) struct Arrived {
    message: ToMonitor,
    /// The request, its text and, where there are some, the files; none where something else came.
    sealed: Option<Vec<OwnedFd>>,
    fingerprints: Result<Fingerprints, Fault>,
    /// When it could first be looked at.
    pub(super) since: Instant,
    /// Nobody wants it any more.
    cancelled: bool,
}

impl Arrived {
    /// What asks for it.
    pub(super) fn message(&self) -> &ToMonitor {
        &self.message
    }

    /// The connection that it is for.
    pub(super) fn connection(&self) -> Option<ConnectionId> {
        self.message.connection()
    }
}

/// Launches whose hashes are being made: each peer's in the order of their arrival, and first those of whoever has waited
/// longest for a piece.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    waiting: Vec<Hashing>,
}

#[derive(Debug)]
struct Hashing {
    message: ToMonitor,
    uid: u32,
    sealed: Option<Vec<OwnedFd>>,
    made: Vec<String>,
    next: Fingerprint,
    cancelled: bool,
}

/// SHA-256 of one file, as far as it is made.
#[derive(Debug, Default)]
struct Fingerprint {
    digest: Sha256,
    at: u64,
}

impl Fingerprint {
    /// Goes on for about so many bytes, which are taken off; gives the hash when it has come to the file's end.
    fn go_on(&mut self, file: &OwnedFd, most: &mut u64) -> Result<Option<String>, Fault> {
        let file = File::from(file.try_clone()?);
        let mut buffer = [0; 16 << 10];
        while *most > 0 {
            let length = file.read_at(&mut buffer, self.at).about("sealed request")?;
            if length == 0 {
                return Ok(Some(hexadecimal(&std::mem::take(self).digest.finalize())));
            }
            self.digest.update(&buffer[..length]);
            self.at += length as u64;
            *most = most.saturating_sub(length as u64);
        }
        Ok(None)
    }
}

/// SHA-256 of a small sealed file, hexadecimal.
///
/// # Errors
/// errno of read(2).
pub(super) fn fingerprint(file: &OwnedFd) -> Result<String, Fault> {
    let mut most = u64::MAX;
    Fingerprint::default().go_on(file, &mut most)?.ok_or_else(|| Errno::EFBIG.into())
}

impl Hashing {
    /// Goes on for about so many bytes; gives the hashes when they are made.
    fn go_on(&mut self, mut most: u64) -> Option<Result<Fingerprints, Fault>> {
        // Between request and files lies the text, whose hash is made with what the monitor adds to it.
        for file in self.sealed.iter().flatten().step_by(2).skip(self.made.len()) {
            match self.next.go_on(file, &mut most) {
                Ok(Some(hash)) => self.made.push(hash),
                Ok(None) => return None,
                Err(fault) => return Some(Err(fault)),
            }
        }
        let mut made = std::mem::take(&mut self.made).into_iter();
        let request = made.next().ok_or_else(|| Errno::EINVAL.into());
        Some(request.map(|request| Fingerprints { request, files: made.next() }))
    }

    fn arrived(self, fingerprints: Result<Fingerprints, Fault>) -> Arrived {
        let Self { message, sealed, cancelled, .. } = self;
        Arrived { message, sealed, fingerprints, since: Instant::now(), cancelled }
    }
}

impl Arriving {
    /// Whether there is more to be hashed.
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Hashes a piece of the first one; then it is the others' turn.
    fn go_on(&mut self) -> Option<Arrived> {
        let first = self.waiting.first_mut()?;
        let (uid, made) = (first.uid, first.go_on(PIECE));
        let arrived = made.map(|fingerprints| self.waiting.remove(0).arrived(fingerprints));
        let own: Vec<_> = self.waiting.extract_if(.., |other| other.uid == uid).collect();
        self.waiting.extend(own);
        arrived
    }
}

impl Monitor {
    /// Takes in a launch that is allowed: one a connection, and no more than there may be commands.
    pub(super) fn take_in(&mut self, message: ToMonitor, descriptors: Vec<OwnedFd>) {
        let named = message.connection();
        let peer = named.and_then(|number| self.connections.get(number)).map(|found| found.peer.uid);
        let waiting = self.arriving.waiting.iter().map(|hashing| hashing.message.connection());
        let mut waiting = waiting.chain(self.postponed.iter().map(Arrived::connection));
        let full = self.arriving.waiting.len() >= self.connections.commands();
        let (Some(uid), ToMonitor::Launch { files, .. }, false) =
            (peer, &message, full || waiting.any(|other| other == named))
        else {
            self.refuse(message);
            return self.keep(descriptors);
        };
        let sealed = check_sealed(descriptors, launch_sizes(*files));
        let sealed = sealed.map_err(|others| self.keep(others)).ok();
        let (made, next, cancelled) = Default::default();
        let mut hashing = Hashing { message, uid, sealed, made, next, cancelled };
        match hashing.go_on(AT_ONCE) {
            Some(fingerprints) => self.launch_or_postpone(hashing.arrived(fingerprints)),
            None => self.arriving.waiting.push(hashing),
        }
    }

    /// Hashes a piece of those that have come.
    pub(super) fn go_on_hashing(&mut self) {
        if let Some(arrived) = self.arriving.go_on() {
            self.launch_or_postpone(arrived);
        }
    }

    /// Cancels the connection's launch where it still waits: it is taken up in this turn, to be told its end. Whether there
    /// was one.
    pub(super) fn cancel_waiting(&mut self, connection: ConnectionId) -> bool {
        let hashing = self.arriving.waiting.iter_mut();
        let hashing = hashing.map(|hashing| (hashing.message.connection(), &mut hashing.cancelled));
        let postponed = self.postponed.iter_mut();
        let postponed = postponed.map(|arrived| (arrived.message.connection(), &mut arrived.cancelled));
        let found = hashing.chain(postponed).find(|(other, _)| *other == Some(connection));
        found.map(|(_, cancelled)| *cancelled = true).is_some()
    }

    /// When [`Self::launch_postponed`] is to be called at the latest.
    pub(super) fn postponed_until(&self) -> Option<Instant> {
        let now = Instant::now();
        let due = |arrived: &Arrived| [Some(arrived.since + LOOK_WAIT), self.time_is_over_at(arrived)];
        self.postponed.iter().flat_map(due).flatten().filter(|until| *until > now).min()
    }

    /// Takes up the launches that had to wait, once they need no longer.
    pub(super) fn launch_postponed(&mut self) {
        for arrived in std::mem::take(&mut self.postponed) {
            self.launch_or_postpone(arrived);
        }
    }

    fn launch_or_postpone(&mut self, arrived: Arrived) {
        // What is refused is told so at once, and what has no more time that it is over.
        let in_time = self.time_is_over_at(&arrived).is_some_and(|at| at > Instant::now());
        let may_wait = in_time && !arrived.cancelled && self.stopping.is_none();
        if may_wait && (self.is_clearing_up() || self.awaits_look(&arrived)) {
            return self.postponed.push(arrived);
        }
        let waited = arrived.since.elapsed();
        let Arrived { message, sealed, fingerprints, cancelled, .. } = arrived;
        if let ToMonitor::Launch { connection, profile, workspace, stdin, files, adds, collect, limits } =
            message
        {
            let wanted = Wanted {
                profile: &profile,
                workspace,
                stdin,
                files,
                adds,
                collect,
                limits,
                waited,
                cancelled,
            };
            if let Err(refusal) = self.launch(connection, wanted, sealed, fingerprints) {
                self.refuse_launch(connection, profile, refusal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{monitor::link::AskedLimits, sys::memfd};
    use cordon_protocol::audit::sha256;

    fn hashing(uid: u32, parts: &[&[u8]]) -> Hashing {
        let sealed = parts.iter().map(|part| memfd::sealed(part).unwrap()).collect();
        let message = ToMonitor::Launch {
            connection: uid.into(),
            profile: String::new(),
            workspace: String::new(),
            stdin: false,
            files: parts.len() > 2,
            adds: false,
            collect: false,
            limits: AskedLimits::default(),
        };
        let next = Fingerprint::default();
        Hashing { message, uid, sealed: Some(sealed), made: Vec::new(), next, cancelled: false }
    }

    #[test]
    fn a_hash_is_of_all_bytes_in_however_many_pieces_it_is_made() {
        let (request, files) = (vec![7; 100_000], vec![8; 300_000]);
        let expected =
            |files: Option<&[u8]>| Fingerprints { request: sha256(&request), files: files.map(sha256) };
        for most in [1, 16 << 10, 100_000, 1 << 20] {
            for (parts, expected) in [
                (vec![&request[..], b"text", &files], expected(Some(&files))),
                (vec![&request[..], b"text"], expected(None)),
            ] {
                let mut hashing = hashing(1, &parts);
                let made = std::iter::repeat_with(|| hashing.go_on(most)).find_map(|made| made);
                assert_eq!(made.unwrap().unwrap(), expected, "{most}");
            }
        }
        assert_eq!(fingerprint(&memfd::sealed(&request).unwrap()).unwrap(), sha256(&request));
    }

    #[test]
    fn peers_are_served_in_turn_and_each_in_the_order_of_arrival() {
        let large = vec![0; usize::try_from(PIECE).unwrap()];
        let mut arriving = Arriving::default();
        for uid in [1, 1, 1, 2, 3, 2] {
            arriving.waiting.push(hashing(uid, &[&large, b""]));
        }
        let mut order = Vec::new();
        let mut pieces = 0;
        while arriving.is_busy() {
            pieces += 1;
            order.extend(arriving.go_on().and_then(|arrived| arrived.connection()));
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 1]);
        assert_eq!(pieces, 12, "each in two pieces, of which the second has come to the end");
    }
}
