//! Room in named workspaces that was given to what puts something in. It is held back from others until whoever has it has
//! ended and what is in the workspace was counted after that: what is known before then does not say what it took.

use super::{link::JobId, looks::Looks};
use crate::sandbox::errand::tree::Size;
use std::{collections::BTreeMap, time::Instant};

/// All that was given, by workspace: a peer's uid and a name.
#[derive(Debug, Default)]
pub(super) struct Room {
    given: BTreeMap<(u32, String), Vec<Given>>,
}

/// What one job was given.
#[derive(Debug)]
struct Given {
    job: JobId,
    size: Size,
    /// It puts in no more once its program is executed.
    until_exec: bool,
    /// Since when it does not.
    ended: Option<Instant>,
}

/// What is being done with room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Somebody may still be putting something in.
    Begun,
    /// Nobody does; it has not been counted since.
    Over,
}

impl Room {
    /// Gives a job what is left less what others were given.
    pub(super) fn give(&mut self, key: (u32, String), job: JobId, left: Size, until_exec: bool) -> Size {
        let given = self.given.entry(key).or_default();
        let less = |left: Size, given: &Given| Size {
            bytes: left.bytes.saturating_sub(given.size.bytes),
            files: left.files.saturating_sub(given.size.files),
        };
        let size = given.iter().fold(left, less);
        given.push(Given { job, size, until_exec, ended: None });
        size
    }

    /// A job's program was executed, or it has ended.
    pub(super) fn end(&mut self, job: JobId, executed: bool, now: Instant) {
        let ended = |given: &&mut Given| given.job == job && (given.until_exec || !executed);
        for given in self.given.values_mut().flatten().filter(ended) {
            given.ended.get_or_insert(now);
        }
    }

    /// Whether some of a workspace's is given, and to whom.
    pub(super) fn used(&self, uid: u32, name: &str) -> Option<Use> {
        let given = self.given.get(&(uid, name.to_owned()))?;
        Some(if given.iter().all(|given| given.ended.is_some()) { Use::Over } else { Use::Begun })
    }

    /// Gives back what has been counted.
    pub(super) fn take_in(&mut self, looks: &Looks) {
        self.given.retain(|(uid, name), given| {
            let counted = looks.counted(*uid, name);
            given.retain(|given| match (given.ended, counted) {
                (Some(ended), Some(counted)) => counted < ended,
                _ => true,
            });
            !given.is_empty()
        });
    }

    /// It is no longer there.
    pub(super) fn forget(&mut self, uid: u32, name: &str) {
        self.given.remove(&(uid, name.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::walk::{Count, Free};

    #[test]
    fn what_was_given_is_given_to_nobody_else_until_it_was_counted() {
        let (mut room, mut looks) = (Room::default(), Looks::default());
        let size = |bytes, files| Size { bytes, files };
        let key = || (1, "w".to_owned());
        assert_eq!(room.used(1, "w"), None);
        assert_eq!(room.give(key(), 7, size(100, 10), false), size(100, 10));
        assert_eq!(room.give(key(), 8, size(120, 9), true), size(20, 0));
        assert_eq!(room.give((1, "other".to_owned()), 9, size(5, 5), true), size(5, 5));
        let now = Instant::now();
        let later = |millis| now + std::time::Duration::from_millis(millis);
        // The one puts its files in before it is executed, the other does all of its work after that.
        room.end(7, true, now);
        room.end(8, true, now);
        assert_eq!(room.used(1, "w"), Some(Use::Begun));
        room.end(7, false, later(5));
        assert_eq!(room.used(1, "w"), Some(Use::Over));
        let mut counted = |room: &mut Room, millis| {
            let count = Count { size: Size::default(), free: Free::default(), most: 9, since: later(millis) };
            looks.remember(1, "w", count);
            room.take_in(&looks);
            room.used(1, "w")
        };
        // A count that began before does not tell.
        assert_eq!(counted(&mut room, 4), Some(Use::Over));
        assert_eq!(room.give(key(), 10, size(130, 10), true), size(30, 0));
        room.end(10, true, later(5));
        assert_eq!(counted(&mut room, 5), None);
        assert_eq!(room.give(key(), 11, size(100, 10), true), size(100, 10));
        room.forget(1, "w");
        assert_eq!((room.used(1, "w"), room.used(1, "other")), (None, Some(Use::Begun)));
    }
}
