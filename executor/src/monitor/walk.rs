//! One walk through a named workspace, by a process that can read there and do nothing else, and what the disk itself says meanwhile.

use crate::{
    config::Account,
    sandbox::{
        errand::tree::{Measured, Size, measure},
        steps::Fault,
        storage::start_counting,
    },
    sys::process::{signal, try_wait, wait},
};
use nix::{
    fcntl::OFlag,
    sys::{
        resource::{Resource, setrlimit},
        signal::Signal,
        statvfs::statvfs,
    },
    unistd::pipe2,
};
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

/// Processor time that a walk may take, seconds: on a host that others keep busy it waits for its turn.
const WALK_CPU: u64 = 20;
/// Longest that it may take with all that it waits for.
const WALK_TIME: Duration = Duration::from_secs(300);

/// What a workspace may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caps {
    /// Bytes on the disk.
    pub(super) bytes: u64,
    /// Files and directories.
    pub(super) files: u64,
}

impl Caps {
    /// Whether so much is more.
    pub(super) fn are_exceeded_by(self, size: Size) -> bool {
        size.bytes > self.bytes || size.files > self.files
    }

    /// What is left where so much is there.
    pub(super) fn less(self, size: Size) -> Size {
        Size { bytes: self.bytes.saturating_sub(size.bytes), files: self.files.saturating_sub(size.files) }
    }

    /// Files after which a walk need not go on.
    pub(super) fn enough(self) -> u64 {
        self.files.saturating_add(1)
    }
}

/// What is free on a disk for others than root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Free {
    /// Bytes.
    pub(super) bytes: u64,
    /// Files; always none on a file system that does not count them.
    pub(super) files: u64,
}

impl Free {
    /// Where a path lies.
    ///
    /// # Errors
    /// errno of statvfs(3).
    pub(super) fn at(path: &Path) -> nix::Result<Self> {
        let bytes = |stat: nix::sys::statvfs::Statvfs| Self {
            bytes: stat.blocks_available().saturating_mul(stat.fragment_size()),
            files: stat.files_available(),
        };
        statvfs(path).map(bytes)
    }

    /// Whether what has gone from the disk since this, all of it put into a workspace of that size, would be more than
    /// it may hold.
    pub(super) fn may_have_filled(self, size: Size, caps: Caps, now: Self) -> bool {
        caps.are_exceeded_by(Size {
            bytes: size.bytes.saturating_add(self.bytes.saturating_sub(now.bytes)),
            files: size.files.saturating_add(self.files.saturating_sub(now.files)),
        })
    }
}

/// What a walk has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    /// So much is there; at least, where it has stopped early.
    pub(super) size: Size,
    /// What was free on the disk when it began.
    pub(super) free: Free,
    /// Files after which it would have stopped.
    pub(super) most: u64,
    /// When it began.
    pub(super) since: Instant,
}

impl Count {
    /// Whether it went through all there was.
    fn is_whole(self) -> bool {
        self.size.files < self.most
    }

    /// Whether it tells if more is there than may be.
    pub(super) fn tells(self, caps: Caps) -> bool {
        self.is_whole() || caps.are_exceeded_by(self.size)
    }

    /// What is known from two of them: the later one, but where that has stopped before the other would have, there is at
    /// least as much as either found.
    pub(super) fn with(self, other: Self) -> Self {
        let (earlier, later) = if self.since <= other.since { (self, other) } else { (other, self) };
        if later.is_whole() || later.most >= earlier.most {
            return later;
        }
        let size = Size {
            bytes: earlier.size.bytes.max(later.size.bytes),
            files: earlier.size.files.max(later.size.files),
        };
        Self { size, ..earlier }
    }
}

/// A walk under way.
#[derive(Debug)]
pub(super) struct Walk {
    process: OwnedFd,
    answer: File,
    /// When it began.
    since: Instant,
    /// What was free then.
    free: Free,
    /// Files after which it stops.
    pub(super) most: u64,
}

/// How far a walk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walked {
    /// It goes on.
    NotYet,
    /// It has ended and said nothing.
    Failed,
    /// What there is.
    Found(Count),
}

impl Walk {
    /// Starts a process that walks through the directory, up to `most` files, and says what it found.
    ///
    /// # Errors
    /// errno of pipe(2) or clone(2).
    pub(super) fn start(
        path: &Path,
        owner: &Account,
        most: u64,
        free: Free,
        now: Instant,
    ) -> Result<Self, Fault> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        let raw = write.as_raw_fd();
        let process = start_counting(owner, &[raw], move || {
            if setrlimit(Resource::RLIMIT_CPU, WALK_CPU, WALK_CPU).is_err() {
                return;
            }
            // What is closed even to it is not known.
            if let Ok(Measured { size, closed: 0 }) = measure(path, most) {
                let mut answer = [0; 16];
                answer[..8].copy_from_slice(&size.bytes.to_le_bytes());
                answer[8..].copy_from_slice(&size.files.to_le_bytes());
                let _ = File::from(write).write_all(&answer);
            }
        })?;
        Ok(Self { process, answer: read.into(), since: now, free, most })
    }

    /// What becomes readable at its end.
    pub(super) fn watched(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// When it has taken too long.
    pub(super) fn deadline(&self) -> Instant {
        self.since + WALK_TIME
    }

    /// How far it is; ends one that takes too long.
    pub(super) fn ask(&mut self, now: Instant) -> Walked {
        if try_wait(self.process.as_fd()).is_none() {
            if now >= self.deadline() {
                let _ = signal(self.process.as_fd(), Signal::SIGKILL);
            }
            return Walked::NotYet;
        }
        let mut bytes = [0; 16];
        // Its answer alone counts: where there are no pid namespaces it may have been reaped with others.
        if self.answer.read_exact(&mut bytes).is_err() {
            return Walked::Failed;
        }
        let number =
            |at: usize| bytes[at..at + 8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let size = Size { bytes: number(0), files: number(8) };
        Walked::Found(Count { size, free: self.free, most: self.most, since: self.since })
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        let _ = signal(self.process.as_fd(), Signal::SIGKILL);
        // It ends at once, or has; nobody else will reap it.
        let _ = wait(self.process.as_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_disk_has_lost_may_all_be_in_the_workspace() {
        let (caps, before) = (Caps { bytes: 1000, files: 10 }, Free { bytes: 5000, files: 50 });
        let size = Size { bytes: 600, files: 4 };
        let filled = |bytes, files| before.may_have_filled(size, caps, Free { bytes, files });
        assert!(!filled(4600, 44) && filled(4599, 44) && filled(4600, 43));
        // Others may have made room meanwhile; what is too much already stays so.
        assert!(!filled(9000, 90));
        assert!(before.may_have_filled(
            Size { bytes: 1001, files: 0 },
            caps,
            Free { bytes: 9000, files: 90 }
        ));
    }
}
