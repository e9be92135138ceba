//! The watch over a named workspace: how much is in it, and how much room the disk has.
//!
//! No kernel counts a directory. A process with the command's rights walks through it now and then; between two
//! walks the disk's own figures, which cost one call, tell when it is worth while to walk again. A floor of free
//! space holds whatever a walk cannot see, such as a file that has no name any more.

use super::workspaces::free_bytes;
use crate::{
    config::Account,
    sandbox::{
        errand::tree::{Size, measure},
        steps::Fault,
        storage::start_with,
    },
    sys::process::{signal, try_wait},
};
use nix::{fcntl::OFlag, sys::signal::Signal, unistd::pipe2};
use std::{
    fs::File,
    io::{Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    time::{Duration, Instant},
};

/// Time between two looks at the disk's figures.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Least time between two walks.
const WALK_INTERVAL: Duration = Duration::from_secs(1);
/// How many times as long as a walk took there is none.
const WALK_REST: u32 = 10;
/// Longest that a walk may take.
const WALK_TIME: Duration = Duration::from_secs(20);
/// Time for a command to make room in a workspace that is too large when it starts.
const CLEARING_TIME: Duration = Duration::from_secs(10);
/// Walks in a row that come to no result before the workspace counts as too large.
const FAILURES_MAX: u32 = 3;

/// What a workspace may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caps {
    /// Bytes on the disk.
    pub(super) bytes: u64,
    /// Files and directories.
    pub(super) files: u64,
}

/// Watches one workspace while a command runs in it.
#[derive(Debug)]
pub(super) struct DiskWatch {
    path: PathBuf,
    owner: Account,
    caps: Caps,
    /// Bytes that must stay free.
    floor: u64,
    walk: Option<Walk>,
    /// What the last walk found.
    found: Size,
    /// Free bytes when it began.
    free: u64,
    failures: u32,
    walked: bool,
    since: Instant,
    /// What was in it at the start, where that is too much.
    inherited: Option<Size>,
    /// When the next look is due, and the earliest next walk.
    next_look: Instant,
    next_walk: Instant,
}

/// A walk under way.
#[derive(Debug)]
struct Walk {
    process: OwnedFd,
    answer: File,
    since: Instant,
    free: u64,
}

impl DiskWatch {
    /// Over this directory, from now on.
    pub(super) fn new(path: PathBuf, owner: &Account, caps: Caps, floor: u64, now: Instant) -> Self {
        Self {
            path,
            owner: owner.clone(),
            caps,
            floor,
            walk: None,
            found: Size::default(),
            free: 0,
            failures: 0,
            walked: false,
            since: now,
            inherited: None,
            next_look: now,
            next_walk: now,
        }
    }

    /// When [`Self::is_over`] is to be asked next.
    pub(super) fn due(&self) -> Instant {
        self.next_look
    }

    /// What becomes readable when a walk has ended.
    pub(super) fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.walk.as_ref().map(|walk| walk.process.as_fd())
    }

    /// Whether the workspace holds more than it may, or the disk has less room than it must.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        self.take_answer(now);
        if now >= self.next_look {
            self.next_look = now + LOOK_INTERVAL;
            // A disk that cannot be asked has no room.
            let free = free_bytes(&self.path).unwrap_or(0);
            if free < self.floor {
                return true;
            }
            self.look(now, free);
        }
        self.failures >= FAILURES_MAX || self.exceeds(self.caps) && !self.is_clearing(now)
    }

    fn exceeds(&self, caps: Caps) -> bool {
        self.found.bytes > caps.bytes || self.found.files > caps.files
    }

    /// Whether it was too large from the start, has not grown, and there is still time to make room.
    fn is_clearing(&self, now: Instant) -> bool {
        self.inherited.is_some_and(|was| !self.exceeds(Caps { bytes: was.bytes, files: was.files }))
            && now < self.since + CLEARING_TIME
    }

    /// After a while, and at once when so much has gone from the disk that half of what was left to the workspace
    /// may be used up.
    fn is_walk_due(&self, now: Instant, free: u64) -> bool {
        let left = self.caps.bytes.saturating_sub(self.found.bytes);
        now >= self.next_walk || self.free.saturating_sub(free) > left / 2
    }

    /// Starts a walk where one is due.
    fn look(&mut self, now: Instant, free: u64) {
        if self.walk.is_some() || !self.is_walk_due(now, free) {
            return;
        }
        match start_walk(&self.path, &self.owner, self.caps.files) {
            Ok((process, answer)) => self.walk = Some(Walk { process, answer, since: now, free }),
            Err(_) => self.failed(now),
        }
    }

    fn failed(&mut self, now: Instant) {
        self.failures += 1;
        self.next_walk = now + LOOK_INTERVAL;
    }

    fn take_answer(&mut self, now: Instant) {
        let Some(walk) = &mut self.walk else { return };
        let ended = try_wait(walk.process.as_fd());
        if ended.is_none() {
            if now >= walk.since + WALK_TIME {
                let _ = signal(walk.process.as_fd(), Signal::SIGKILL);
            }
            return;
        }
        let mut bytes = [0; 16];
        // Its answer alone counts: where there are no pid namespaces it may have been reaped with others.
        let answered = walk.answer.read_exact(&mut bytes).is_ok();
        let (since, free) = (walk.since, walk.free);
        self.walk = None;
        if !answered {
            return self.failed(now);
        }
        let number =
            |at: usize| bytes[at..at + 8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        self.found = Size { bytes: number(0), files: number(8) };
        if !std::mem::replace(&mut self.walked, true) && self.exceeds(self.caps) {
            self.inherited = Some(self.found);
        }
        self.free = free;
        self.failures = 0;
        self.next_walk = now + WALK_INTERVAL.max((now - since) * WALK_REST);
    }
}

impl Drop for DiskWatch {
    fn drop(&mut self) {
        if let Some(walk) = &self.walk {
            let _ = signal(walk.process.as_fd(), Signal::SIGKILL);
            // It ends at once; nobody else will reap it.
            let _ = crate::sys::process::wait(walk.process.as_fd());
        }
    }
}

/// Starts a process that walks through the directory and says what it found.
fn start_walk(path: &std::path::Path, owner: &Account, most: u64) -> Result<(OwnedFd, File), Fault> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    let raw = write.as_raw_fd();
    let process = start_with(owner, false, &[raw], move || {
        if let Ok(size) = measure(path, most.saturating_add(1)) {
            let mut answer = [0; 16];
            answer[..8].copy_from_slice(&size.bytes.to_le_bytes());
            answer[8..].copy_from_slice(&size.files.to_le_bytes());
            let _ = File::from(write).write_all(&answer);
        }
    })?;
    Ok((process, read.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const NO_FLOOR: u64 = 0;

    fn watch(name: &str, caps: Caps, floor: u64) -> DiskWatch {
        let path = std::env::temp_dir().join(format!("cordon-disk-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
        DiskWatch::new(path, &Account::of("execuser", uid, gid), caps, floor, Instant::now())
    }

    #[test]
    fn less_room_than_must_be_is_over_at_once() {
        let caps = Caps { bytes: u64::MAX, files: u64::MAX };
        let mut watch = watch("floor", caps, u64::MAX);
        assert!(watch.is_over(Instant::now()));
        fs::remove_dir_all(&watch.path).unwrap();
    }

    #[test]
    fn a_walk_is_due_after_a_while_and_when_the_disk_says_so() {
        let mut watch = watch("due", Caps { bytes: 1000, files: 10 }, NO_FLOOR);
        let now = Instant::now();
        (watch.free, watch.found.bytes, watch.next_walk) = (10_000, 600, now + Duration::from_secs(9));
        // Of 400 bytes that are left, 200 may have gone unseen; and then one more.
        assert!(!watch.is_walk_due(now, 9800) && watch.is_walk_due(now, 9799));
        assert!(watch.is_walk_due(now + Duration::from_secs(9), 10_000));
        fs::remove_dir_all(&watch.path).unwrap();
    }
}
