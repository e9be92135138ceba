//! The watch over a named workspace: how much is in it, and how much room the disk has.
//!
//! No kernel counts a directory. A process with the command's rights walks through it now and then; between two
//! walks the disk's own figures, which cost one call, tell when it is worth while to walk again. A floor of free
//! space holds whatever a walk cannot see, such as a file that has no name any more.

use super::walk::{Caps, Count, Free, Walk, Walked};
use crate::{config::Account, sandbox::errand::tree::Size};
use std::{
    os::fd::BorrowedFd,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Time between two looks at the disk's figures.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Least time between two walks.
const WALK_INTERVAL: Duration = Duration::from_secs(1);
/// How many times as long as a walk took there is none.
const WALK_REST: u32 = 10;
/// Time for a command to make room in a workspace that is too large when it starts.
const CLEARING_TIME: Duration = Duration::from_secs(10);
/// Part of the cap by which files may grow that nobody writes to any more: the disk counts them anew as it takes them.
const SETTLING: u64 = 16;
/// Walks in a row that come to no result before the workspace counts as too large.
const FAILURES_MAX: u32 = 3;

/// Watches one workspace while a command runs in it.
#[derive(Debug)]
pub(super) struct DiskWatch {
    path: PathBuf,
    owner: Account,
    caps: Caps,
    /// Files after which a walk stops.
    enough: u64,
    /// Bytes that must stay free.
    floor: u64,
    walk: Option<Walk>,
    /// What the last walk found, this command's or one before it.
    found: Size,
    /// What was free when it began.
    free: Free,
    /// All of what this command's last walk has found, which nobody has asked for yet.
    fresh: Option<Count>,
    failures: u32,
    since: Instant,
    /// What was in it at the start, where that is too much.
    inherited: Option<Size>,
    /// When the next look is due, and the earliest next walk.
    next_look: Instant,
    next_walk: Instant,
}

impl DiskWatch {
    /// Over this directory, in which so much is, from now on. Walks stop after so many files, which is where the caps do
    /// or later.
    pub(super) fn new(
        path: PathBuf,
        owner: &Account,
        (caps, enough): (Caps, u64),
        floor: u64,
        found: Size,
        now: Instant,
    ) -> Self {
        Self {
            // Where the disk says nothing, nothing can be told from what it says later.
            free: Free::at(&path).unwrap_or_default(),
            path,
            owner: owner.clone(),
            caps,
            enough,
            floor,
            walk: None,
            found,
            fresh: None,
            failures: 0,
            since: now,
            inherited: caps.are_exceeded_by(found).then_some(found),
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
        self.walk.as_ref().map(Walk::watched)
    }

    /// Whether the workspace holds more than it may, or the disk has less room than it must.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        self.take_answer(now);
        if now >= self.next_look {
            self.next_look = now + LOOK_INTERVAL;
            // A disk that cannot be asked has no room.
            let free = Free::at(&self.path).unwrap_or_default();
            if free.bytes < self.floor {
                return true;
            }
            self.look(now, free);
        }
        self.failures >= FAILURES_MAX || self.exceeds() && !self.is_clearing(now)
    }

    /// Whether more than may be was there at the last walk.
    pub(super) fn exceeds(&self) -> bool {
        self.caps.are_exceeded_by(self.found)
    }

    /// Whether more than may be was there at the start, so that the command was let add nothing.
    pub(super) fn began_full(&self) -> bool {
        self.inherited.is_some()
    }

    /// Has a last walk made for the report of a command that has ended, where the disk has lost so much since the last
    /// one that it may have left too much; whether there is one to wait for. Others pay nothing for it.
    pub(super) fn look_back(&mut self, now: Instant) -> bool {
        let free = Free::at(&self.path).unwrap_or_default();
        if !self.free.may_have_filled(self.found, self.caps, free) {
            return false;
        }
        self.walk = None;
        self.start(now, free);
        self.walk.is_some()
    }

    /// Whether the last walk is still under way.
    pub(super) fn is_looking_back(&mut self, now: Instant) -> bool {
        self.take_answer(now);
        self.walk.is_some()
    }

    /// What this command's last walk has found, once.
    pub(super) fn take_found(&mut self) -> Option<Count> {
        self.fresh.take()
    }

    /// Whether it was too large from the start, has not grown, and there is still time to make room.
    fn is_clearing(&self, now: Instant) -> bool {
        // What was written just before its start can take a little more once it is on the disk.
        let settling = self.caps.bytes / SETTLING;
        self.inherited.is_some_and(|was| {
            let most = Caps { bytes: was.bytes.saturating_add(settling), files: was.files };
            !most.are_exceeded_by(self.found)
        }) && now < self.since + CLEARING_TIME
    }

    /// After a while, and at once when so much has gone from the disk that half of what was left to the workspace
    /// may be used up.
    fn is_walk_due(&self, now: Instant, free: Free) -> bool {
        let left = self.caps.bytes.saturating_sub(self.found.bytes);
        now >= self.next_walk || self.free.bytes.saturating_sub(free.bytes) > left / 2
    }

    /// Starts a walk where one is due.
    fn look(&mut self, now: Instant, free: Free) {
        if self.walk.is_none() && self.is_walk_due(now, free) {
            self.start(now, free);
        }
    }

    fn start(&mut self, now: Instant, free: Free) {
        match Walk::start(&self.path, &self.owner, self.enough, free, now) {
            Ok(walk) => self.walk = Some(walk),
            Err(_) => self.failed(now),
        }
    }

    fn failed(&mut self, now: Instant) {
        self.failures += 1;
        self.next_walk = now + LOOK_INTERVAL;
    }

    fn take_answer(&mut self, now: Instant) {
        let Some(walk) = &mut self.walk else { return };
        match walk.ask(now) {
            Walked::NotYet => return,
            Walked::Failed => self.failed(now),
            Walked::Found(count) => {
                (self.found, self.free, self.fresh, self.failures) = (count.size, count.free, Some(count), 0);
                self.next_walk = now + WALK_INTERVAL.max((now - count.since) * WALK_REST);
            }
        }
        self.walk = None;
    }
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
        let (owner, caps) = (Account::of("execuser", uid, gid), (caps, caps.enough()));
        DiskWatch::new(path, &owner, caps, floor, Size::default(), Instant::now())
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
        let free = |bytes| Free { bytes, files: 0 };
        (watch.free, watch.found.bytes, watch.next_walk) = (free(10_000), 600, now + Duration::from_secs(9));
        // Of 400 bytes that are left, 200 may have gone unseen; and then one more.
        assert!(!watch.is_walk_due(now, free(9800)) && watch.is_walk_due(now, free(9799)));
        assert!(watch.is_walk_due(now + Duration::from_secs(9), free(10_000)));
        fs::remove_dir_all(&watch.path).unwrap();
    }
}
