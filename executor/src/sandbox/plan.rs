//! What is decided before a launch: one plan for each profile, made at start and never changed.

use super::{errand::tree::Size, root::Template};
use crate::{config::Users, host::Host, profile::Profile};
use cordon_protocol::NetworkMode;
use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, recv, send},
};
use seccompiler::BpfProgram;
use std::{
    os::fd::{AsRawFd, BorrowedFd},
    path::PathBuf,
    sync::Arc,
};

/// Everything that every launch of one profile shares.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The profile.
    pub profile: Profile,
    /// The users.
    pub users: Users,
    /// Home directory inside, where the workspace is.
    pub home: PathBuf,
    /// What this host has.
    pub host: Arc<Host>,
    /// Least Landlock ABI that a launch accepts; 0 under `available`.
    pub landlock_floor: u32,
    /// The prepared root; none on a host without namespaces.
    pub template: Option<Template>,
    /// Filter of the command.
    pub filter: Arc<BpfProgram>,
    /// Filter of its init.
    pub init_filter: Arc<BpfProgram>,
}

impl Plan {
    /// Where commands have their files in a root of their own.
    pub fn place(&self) -> Place {
        Place { home: self.home.clone(), tmp: PathBuf::from("/tmp") }
    }

    /// Whether the command gets a network namespace of its own.
    pub fn isolates_network(&self) -> bool {
        self.host.namespaces && self.profile.network != NetworkMode::Host
    }
}

/// Where a command has its workspace and its temporary files, as paths it sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The workspace, which is the home directory.
    pub home: PathBuf,
    /// Temporary files.
    pub tmp: PathBuf,
}

/// The word to start, from the monitor to a waiting command; the sealed request and the ends of the pipes
/// come with it as descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Go {
    /// Standard input is a descriptor; otherwise `/dev/null`.
    pub stdin: bool,
    /// Files for the workspace come after the request.
    pub files: bool,
    /// RLIMIT_DATA, bytes; `u64::MAX` is none.
    pub data: u64,
    /// RLIMIT_NPROC; `u64::MAX` is none.
    pub processes: u64,
    /// What may be put into the workspace before a program runs, or in its place.
    pub room: Size,
}

/// Bytes of an encoded [`Go`].
pub const GO_LEN: usize = 40;

impl Go {
    /// The bytes that travel.
    pub fn encode(self) -> [u8; GO_LEN] {
        let mut bytes = [0; GO_LEN];
        bytes[0] = u8::from(self.stdin);
        bytes[1] = u8::from(self.files);
        bytes[8..16].copy_from_slice(&self.data.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.processes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.room.bytes.to_le_bytes());
        bytes[32..].copy_from_slice(&self.room.files.to_le_bytes());
        bytes
    }

    /// The word in these bytes.
    pub fn decode(bytes: [u8; GO_LEN]) -> Self {
        let number = |at: usize| {
            let mut field = [0; 8];
            field.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(field)
        };
        let (data, processes) = (number(8), number(16));
        let room = Size { bytes: number(24), files: number(32) };
        Self { stdin: bytes[0] == 1, files: bytes[1] == 1, data, processes, room }
    }
}

/// Tells the process at the other end of a pair that it may go on.
///
/// # Errors
/// errno of send(2).
pub fn nudge(end: BorrowedFd<'_>) -> nix::Result<()> {
    send(end.as_raw_fd(), b".", MsgFlags::MSG_NOSIGNAL).map(drop).map_err(gone)
}

/// Waits for the other end's nudge.
///
/// # Errors
/// `EPIPE` when the other end has closed instead.
pub fn await_nudge(end: BorrowedFd<'_>) -> nix::Result<()> {
    loop {
        match recv(end.as_raw_fd(), &mut [0], MsgFlags::empty()) {
            Ok(1) => return Ok(()),
            Ok(_) => return Err(Errno::EPIPE),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(gone(errno)),
        }
    }
}

/// A peer that ended with something unread is told as another errno than one that did not; both have gone.
fn gone(errno: Errno) -> Errno {
    if errno == Errno::ECONNRESET { Errno::EPIPE } else { errno }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_to_start_round_trips() {
        let go = Go {
            stdin: true,
            files: true,
            data: 1 << 40,
            processes: u64::MAX,
            room: Size { bytes: 7, files: 8 },
        };
        assert_eq!(Go::decode(go.encode()), go);
    }
}
