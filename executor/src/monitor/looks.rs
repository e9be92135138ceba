//! What is known of the named workspaces: how much was in each when it was last walked through, and the walks that are
//! made when nothing runs in it any more, or before something does.
//!
//! What is known bounds what starts: it outlives the command, so that many short ones cannot pile up what each alone was
//! too short to be ended for. It is bounded itself; what is forgotten is measured anew before the next command starts.

use super::walk::{Caps, Count, Free, Walk, Walked};
use crate::{config::Account, sandbox::errand::tree::Size};
use std::{
    collections::BTreeMap,
    os::fd::BorrowedFd,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Workspaces that something is known of at once.
const KNOWN_MAX: usize = 4096;
/// Walks at once of one peer's, and of all; the others wait.
const WALKS_PER_PEER: usize = 4;
const WALKS_MAX: usize = 32;
/// Walks in a row that come to no result before one is given up.
const FAILURES_MAX: u32 = 3;
/// Time before one is tried again that could not be started.
const RETRY: Duration = Duration::from_millis(50);

/// A peer's uid and the workspace's name.
type Key = (u32, String);

/// What is known of one.
#[derive(Debug, Default)]
struct Known {
    /// What was in it; none where nothing is known, though something starts only when it is.
    count: Option<Count>,
    /// Files after which walks stop: as many as the largest caps ask for under which it is used. A count that stops earlier
    /// would tell those nothing.
    enough: u64,
    /// Something has started already before the walk that is due has ended.
    ahead: bool,
}

/// A walk that is due or under way.
#[derive(Debug)]
struct Look {
    path: PathBuf,
    most: u64,
    walk: Option<Walk>,
    /// Something has ended since that began, so another follows.
    again: bool,
    failures: u32,
    /// Not before.
    due: Instant,
    /// A launch waits for it.
    awaited: bool,
}

/// What is known of all of them.
#[derive(Debug, Default)]
pub(super) struct Looks {
    known: BTreeMap<Key, Known>,
    looks: BTreeMap<Key, Look>,
}

/// Whether a launch may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// So much is in it.
    Holds(Size),
    /// It has still to be found out.
    Wait,
    /// It could not be.
    Failed,
    /// Nothing is known.
    Unknown,
}

impl Looks {
    /// How much is in one, as far as these caps ask.
    pub(super) fn ask(&mut self, uid: u32, name: &str, caps: Caps) -> Answer {
        let key = (uid, name.to_owned());
        let known = self.known.get(&key);
        match known.and_then(|known| known.count.filter(|count| count.tells(caps))) {
            Some(count) => Answer::Holds(count.size),
            None if let Some(look) = self.looks.get_mut(&key) => {
                look.is_to_do_for(caps.enough());
                Answer::Wait
            }
            // Told once; then it is tried again.
            None if known.is_some_and(|known| known.count.is_none()) => {
                self.known.remove(&key);
                Answer::Failed
            }
            None => Answer::Unknown,
        }
    }

    /// When the count began that is known.
    pub(super) fn counted(&self, uid: u32, name: &str) -> Option<Instant> {
        Some(self.known.get(&(uid, name.to_owned()))?.count?.since)
    }

    /// Files after which a walk need not go on, whatever caps it is used under.
    pub(super) fn enough(&self, uid: u32, name: &str, caps: Caps) -> u64 {
        let known = self.known.get(&(uid, name.to_owned()));
        known.map_or(0, |known| known.enough).max(caps.enough())
    }

    /// Whether what the disk has lost since the last walk could have made it too large.
    pub(super) fn may_be_over(&self, uid: u32, name: &str, caps: Caps, free: Free) -> bool {
        let known = self.known.get(&(uid, name.to_owned()));
        let count = known.and_then(|known| known.count);
        count.is_some_and(|count| count.free.may_have_filled(count.size, caps, free))
    }

    /// Whether one may start before the walk that is due has ended: a single one, whatever the disk says, to which
    /// others than this workspace's commands can have given back what these took.
    pub(super) fn may_go_ahead(&mut self, uid: u32, name: &str) -> bool {
        let known = self.known.get_mut(&(uid, name.to_owned()));
        known.is_none_or(|known| !std::mem::replace(&mut known.ahead, true))
    }

    /// Whether a walk through it is due or under way.
    pub(super) fn is_looking(&self, uid: u32, name: &str) -> bool {
        self.looks.contains_key(&(uid, name.to_owned()))
    }

    /// So much is in it.
    pub(super) fn remember(&mut self, uid: u32, name: &str, found: Count) {
        self.learn((uid, name.to_owned()), found, false);
    }

    /// Takes in a count, of a walk that was due or of a command's watch.
    fn learn(&mut self, key: Key, found: Count, was_due: bool) {
        let known = self.entry(key);
        known.count = Some(known.count.map_or(found, |before| before.with(found)));
        known.enough = known.enough.max(found.most);
        known.ahead &= !was_due;
    }

    fn entry(&mut self, key: Key) -> &mut Known {
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&key) {
            // Whichever: it is measured anew when it is used again.
            self.known.pop_first();
        }
        self.known.entry(key).or_default()
    }

    /// It is no longer there.
    pub(super) fn forget(&mut self, uid: u32, name: &str) {
        let key = (uid, name.to_owned());
        self.known.remove(&key);
        self.looks.remove(&key);
    }

    /// Walks through it as soon as there is room, and after one that is under way. A launch may wait for it.
    pub(super) fn look(&mut self, key: (u32, &str), path: PathBuf, caps: Caps, awaited: bool, due: Instant) {
        let most = self.enough(key.0, key.1, caps);
        let look = self.looks.entry((key.0, key.1.to_owned())).or_insert_with(|| Look {
            path,
            most,
            walk: None,
            again: false,
            failures: 0,
            due,
            awaited,
        });
        look.awaited |= awaited;
        look.most = look.most.max(most);
        look.again = look.walk.is_some();
    }

    /// What becomes readable when a walk has ended.
    pub(super) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.looks.values().filter_map(|look| look.walk.as_ref()).map(Walk::watched)
    }

    /// Whether another walk of this peer's may begin.
    fn has_room(&self, uid: u32) -> bool {
        let walks = |of: &dyn Fn(&Key) -> bool| {
            self.looks.iter().filter(|(key, look)| look.walk.is_some() && of(key)).count()
        };
        walks(&|key| key.0 == uid) < WALKS_PER_PEER && walks(&|_| true) < WALKS_MAX
    }

    /// When [`Self::go_on`] is to be called at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let due = self.looks.iter().filter_map(|(key, look)| match &look.walk {
            Some(walk) => Some(walk.deadline()),
            None => Some(look.due).filter(|_| self.has_room(key.0)),
        });
        due.min()
    }

    /// Takes in what walks have found, and starts those for which there is room.
    pub(super) fn go_on(&mut self, owner: &Account, now: Instant) {
        let keys: Vec<_> = self.looks.keys().cloned().collect();
        for key in keys {
            let room = self.has_room(key.0);
            if let Some(mut look) = self.looks.remove(&key) {
                if let Some(found) = look.go_on(owner, room, now) {
                    self.learn(key.clone(), found, true);
                }
                if look.failures >= FAILURES_MAX {
                    // Whoever waits is told; else the next command has it measured anew.
                    self.known.remove(&key);
                    if look.awaited {
                        self.entry(key);
                    }
                } else if look.walk.is_some() || look.again {
                    self.looks.insert(key, look);
                }
            }
        }
    }
}

impl Look {
    /// Another one follows where this one stops too early for somebody who waits.
    fn is_to_do_for(&mut self, most: u64) {
        self.most = self.most.max(most);
        self.again |= self.walk.as_ref().is_some_and(|walk| walk.most < most);
    }

    /// Takes in what the walk has found, and begins it where there is room. With neither a walk nor another one to come
    /// it is done.
    fn go_on(&mut self, owner: &Account, room: bool, now: Instant) -> Option<Count> {
        let mut found = None;
        if let Some(walk) = &mut self.walk {
            match walk.ask(now) {
                Walked::NotYet => return None,
                Walked::Failed => (self.failures, self.again) = (self.failures + 1, true),
                Walked::Found(count) => found = Some(count),
            }
            self.walk = None;
            if !self.again {
                return found;
            }
        }
        self.again = true;
        if room && now >= self.due && self.failures < FAILURES_MAX {
            let free = Free::at(&self.path).unwrap_or_default();
            match Walk::start(&self.path, owner, self.most, free, now) {
                Ok(walk) => (self.walk, self.again) = (Some(walk), false),
                Err(_) => (self.failures, self.due) = (self.failures + 1, now + RETRY),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: Caps = Caps { bytes: 1 << 20, files: 3 };

    fn own() -> Account {
        Account::of("execuser", nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw())
    }

    /// Goes on until no walk is left.
    fn settle(looks: &mut Looks) {
        while looks.deadline().is_some() {
            looks.go_on(&own(), Instant::now());
            std::thread::yield_now();
        }
    }

    /// What a walk up to so many files has found that began so many milliseconds after the first one.
    fn count(start: Instant, millis: u64, most: u64, size: Size) -> Count {
        Count { size, free: Free::default(), most, since: start + Duration::from_millis(millis) }
    }

    #[test]
    fn what_a_walk_that_stopped_early_has_found_does_not_do_for_larger_caps() {
        let (start, larger) = (Instant::now(), Caps { files: 100, ..CAPS });
        let (whole, cut) = (Size { bytes: 1, files: 3 }, Size { bytes: 1, files: 4 });
        let large = Size { bytes: CAPS.bytes + 1, files: 4 };
        for (found, answer) in
            [(whole, Answer::Holds(whole)), (cut, Answer::Unknown), (large, Answer::Holds(large))]
        {
            let mut looks = Looks::default();
            assert_eq!(looks.ask(1, "w", CAPS), Answer::Unknown);
            looks.remember(1, "w", count(start, 0, CAPS.enough(), found));
            assert_eq!(looks.ask(1, "w", CAPS), Answer::Holds(found));
            assert_eq!(looks.ask(1, "w", larger), answer);
            assert_eq!(looks.ask(2, "w", CAPS), Answer::Unknown, "another peer's");
            looks.forget(1, "w");
            assert_eq!(looks.ask(1, "w", CAPS), Answer::Unknown);
        }
    }

    #[test]
    fn what_larger_caps_had_counted_is_not_forgotten_for_what_smaller_ones_find() {
        let (start, larger) = (Instant::now(), Caps { bytes: 8 << 20, files: 100 });
        let size = |bytes, files| Size { bytes, files };
        let mut looks = Looks::default();
        looks.remember(1, "w", count(start, 1, larger.enough(), size(70, 50)));
        // It has stopped at the fourth, and says only that there are as many.
        for (millis, found, known) in [(2, size(40, 4), size(70, 50)), (3, size(90, 60), size(90, 60))] {
            looks.remember(1, "w", count(start, millis, CAPS.enough(), found));
            assert_eq!(looks.ask(1, "w", larger), Answer::Holds(known));
            assert_eq!(looks.ask(1, "w", CAPS), Answer::Holds(known));
        }
        // Walks go as far as the larger ones need, for whomever they are.
        assert_eq!(looks.enough(1, "w", CAPS), larger.enough());
        looks.look((1, "w"), "/nonexistent".into(), CAPS, false, Instant::now());
        assert_eq!(looks.looks.values().next().unwrap().most, larger.enough());
        // One that began earlier and is done later is not news, one that went through all is.
        looks.remember(1, "w", count(start, 0, larger.enough(), size(1, 1)));
        assert_eq!(looks.ask(1, "w", larger), Answer::Holds(size(90, 60)));
        looks.remember(1, "w", count(start, 4, CAPS.enough(), size(7, 2)));
        assert_eq!(looks.ask(1, "w", larger), Answer::Holds(size(7, 2)));
    }

    #[test]
    fn a_walk_that_is_due_goes_as_far_as_whoever_waits_for_it_needs() {
        let larger = Caps { files: 100, ..CAPS };
        let mut looks = Looks::default();
        looks.look((1, "w"), "/nonexistent".into(), CAPS, true, Instant::now());
        for (caps, most) in [(CAPS, CAPS.enough()), (larger, larger.enough()), (CAPS, larger.enough())] {
            assert_eq!(looks.ask(1, "w", caps), Answer::Wait);
            assert_eq!(looks.looks.values().next().unwrap().most, most);
        }
    }

    #[test]
    fn one_that_cannot_be_measured_is_told_once_to_whoever_waits_and_then_tried_again() {
        let mut looks = Looks::default();
        for (awaited, answer) in [(true, Answer::Failed), (false, Answer::Unknown)] {
            looks.look((1, "w"), "/nonexistent".into(), CAPS, awaited, Instant::now());
            settle(&mut looks);
            assert_eq!((looks.ask(1, "w", CAPS), looks.ask(1, "w", CAPS)), (answer, Answer::Unknown));
        }
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut looks = Looks::default();
        for number in 0..2 * KNOWN_MAX {
            looks.remember(1, &number.to_string(), count(Instant::now(), 0, 4, Size::default()));
        }
        assert_eq!(looks.known.len(), KNOWN_MAX);
        let last = (2 * KNOWN_MAX - 1).to_string();
        assert!(matches!(looks.ask(1, &last, CAPS), Answer::Holds(_)));
    }
}
