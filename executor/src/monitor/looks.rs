//! What is known of the named workspaces: how much was in each when it was last walked through, and the walks that are
//! made when nothing runs in it any more, or before something does.
//!
//! What is known bounds what starts: it outlives the command, so that many short ones cannot pile up what each alone was
//! too short to be ended for. It is bounded itself; what is forgotten is measured anew before the next command starts.

use super::walk::{Caps, Free, Walk, Walked};
use crate::{config::Account, sandbox::errand::tree::Size};
use std::{
    collections::BTreeMap,
    os::fd::BorrowedFd,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Workspaces that something is known of at once.
const KNOWN_MAX: usize = 4096;
/// Walks at once; the others wait.
const WALKS_MAX: usize = 8;
/// Walks in a row that come to no result before one is given up.
const FAILURES_MAX: u32 = 3;
/// Time before one is tried again that could not be started.
const RETRY: Duration = Duration::from_millis(50);

/// A peer's uid and the workspace's name.
type Key = (u32, String);

/// What is known of one.
#[derive(Debug, Default)]
struct Known {
    /// What was in it; none before the first walk.
    size: Option<Size>,
    /// Files after which that walk had stopped.
    most: u64,
    /// What was free when it began.
    free: Free,
    look: Option<Look>,
    /// Nothing starts before it is known, and it could not be.
    failed: bool,
}

/// A walk that is due or under way.
#[derive(Debug)]
struct Look {
    path: PathBuf,
    most: u64,
    walk: Option<Walk>,
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
        let Some(known) = self.known.get_mut(&(uid, name.to_owned())) else { return Answer::Unknown };
        let whole = |size: &Size| size.files < known.most || size.files > caps.files;
        match known.size.filter(whole) {
            Some(size) => Answer::Holds(size),
            None if known.look.is_some() => Answer::Wait,
            None if std::mem::take(&mut known.failed) => Answer::Failed,
            None => Answer::Unknown,
        }
    }

    /// Whether what the disk has lost since the last walk could have made it too large, and a walk is due that tells.
    pub(super) fn may_be_over(&self, uid: u32, name: &str, caps: Caps, free: Free) -> bool {
        let known = self.known.get(&(uid, name.to_owned()));
        let size = known.and_then(|known| Some((known.size?, known.free)));
        size.is_some_and(|(size, before)| before.may_have_filled(size, caps, free))
    }

    /// Whether a walk through it is due or under way.
    pub(super) fn is_looking(&self, uid: u32, name: &str) -> bool {
        self.known.get(&(uid, name.to_owned())).is_some_and(|known| known.look.is_some())
    }

    /// So much is in it.
    pub(super) fn remember(&mut self, uid: u32, name: &str, found: (Size, Free), caps: Caps) {
        let known = self.entry((uid, name.to_owned()));
        (known.size, known.free, known.most) = (Some(found.0), found.1, caps.enough());
    }

    /// It is no longer there.
    pub(super) fn forget(&mut self, uid: u32, name: &str) {
        self.known.remove(&(uid, name.to_owned()));
    }

    /// Walks through it as soon as there is room; one that is under way was too early. A launch may wait for it.
    pub(super) fn look(
        &mut self,
        uid: u32,
        name: &str,
        path: PathBuf,
        caps: Caps,
        awaited: bool,
        now: Instant,
    ) {
        let known = self.entry((uid, name.to_owned()));
        let awaited = awaited || known.look.as_ref().is_some_and(|look| look.awaited);
        known.look = Some(Look { path, most: caps.enough(), walk: None, failures: 0, due: now, awaited });
    }

    fn entry(&mut self, key: Key) -> &mut Known {
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&key) {
            let idle = self.known.iter().find(|(_, known)| known.look.is_none());
            // Should all be looked at: the launch or the look whose place it takes comes again.
            let other = idle.or_else(|| self.known.iter().next()).map(|(key, _)| key.clone());
            other.map(|key| self.known.remove(&key));
        }
        self.known.entry(key).or_default()
    }

    /// What becomes readable when a walk has ended.
    pub(super) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.walks().map(Walk::watched)
    }

    fn walks(&self) -> impl Iterator<Item = &Walk> {
        self.known.values().filter_map(|known| known.look.as_ref()?.walk.as_ref())
    }

    /// When [`Self::go_on`] is to be called at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let full = self.walks().count() >= WALKS_MAX;
        let due =
            self.known.values().filter_map(|known| known.look.as_ref()).filter_map(|look| match &look.walk {
                Some(walk) => Some(walk.deadline()),
                None => Some(look.due).filter(|_| !full),
            });
        due.min()
    }

    /// Takes in what walks have found, and starts those for which there is room.
    pub(super) fn go_on(&mut self, owner: &Account, now: Instant) {
        let mut walks = self.walks().count();
        self.known.retain(|_, known| {
            let Some(look) = &mut known.look else { return true };
            if let Some(walk) = &mut look.walk {
                let (walked, free) = (walk.ask(now), walk.free);
                if walked == Walked::NotYet {
                    return true;
                }
                (look.walk, walks) = (None, walks - 1);
                if let Walked::Found(size) = walked {
                    (known.size, known.free, known.most) = (Some(size), free, look.most);
                    known.look = None;
                    return true;
                }
                (look.failures, look.due) = (look.failures + 1, now);
            }
            if walks < WALKS_MAX && now >= look.due && look.failures < FAILURES_MAX {
                let free = Free::at(&look.path).unwrap_or_default();
                match Walk::start(&look.path, owner, look.most, free, now) {
                    Ok(walk) => (look.walk, walks) = (Some(walk), walks + 1),
                    Err(_) => (look.failures, look.due) = (look.failures + 1, now + RETRY),
                }
            }
            if look.failures < FAILURES_MAX {
                return true;
            }
            // Whoever waits is told; else the next command has it measured anew.
            *known = Known { failed: look.awaited, ..Known::default() };
            known.failed
        });
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

    #[test]
    fn what_a_walk_that_stopped_early_has_found_does_not_do_for_larger_caps() {
        let mut looks = Looks::default();
        assert_eq!(looks.ask(1, "w", CAPS), Answer::Unknown);
        let (whole, cut) = (Size { bytes: 1, files: 3 }, Size { bytes: 1, files: 4 });
        let larger = Caps { files: 100, ..CAPS };
        for (found, answer) in [(whole, Answer::Holds(whole)), (cut, Answer::Unknown)] {
            looks.remember(1, "w", (found, Free::default()), CAPS);
            assert_eq!(looks.ask(1, "w", CAPS), Answer::Holds(found));
            assert_eq!(looks.ask(1, "w", larger), answer);
            assert_eq!(looks.ask(2, "w", CAPS), Answer::Unknown, "another peer's");
        }
        looks.forget(1, "w");
        assert_eq!(looks.ask(1, "w", CAPS), Answer::Unknown);
    }

    #[test]
    fn one_that_cannot_be_measured_is_told_once_to_whoever_waits_and_then_tried_again() {
        let mut looks = Looks::default();
        for (awaited, answer) in [(true, Answer::Failed), (false, Answer::Unknown)] {
            looks.look(1, "w", "/nonexistent".into(), CAPS, awaited, Instant::now());
            settle(&mut looks);
            assert_eq!((looks.ask(1, "w", CAPS), looks.ask(1, "w", CAPS)), (answer, Answer::Unknown));
        }
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let mut looks = Looks::default();
        for number in 0..2 * KNOWN_MAX {
            looks.remember(1, &number.to_string(), Default::default(), CAPS);
        }
        assert_eq!(looks.known.len(), KNOWN_MAX);
        let last = (2 * KNOWN_MAX - 1).to_string();
        assert!(matches!(looks.ask(1, &last, CAPS), Answer::Holds(_)));
    }
}
