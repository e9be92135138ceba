//! Refused launches in the trail: a line each while there are few of a peer, and one for how many more there were.
//!
//! Who was refused is the kernel's word. Why is the monitor's own, or, where the server half did not even ask for the
//! launch, that half's: of what a client wrote nothing but the profile's name is in it.

use super::{
    Monitor,
    link::{ConnectionId, Denial, LaunchRefusal},
    share::{Share, Terms},
};
use cordon_protocol::audit::{Entry, Half};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Lines of one peer.
static TERMS: Terms = Terms { burst: 32, more: 1, every: Duration::from_secs(5) };

/// What of a peer's refusals may be written, and how many were not.
#[derive(Debug)]
struct Refused {
    lines: Share,
    /// When something was written last, or tried to be.
    tried: Instant,
    untold: u64,
}

impl Refused {
    fn new(now: Instant) -> Self {
        Self { lines: Share::new(&TERMS, now), tried: now, untold: 0 }
    }

    /// Whether there is room for a line, which is taken.
    fn take(&mut self, now: Instant) -> bool {
        let taken = self.lines.take(1, now);
        if taken {
            self.tried = now;
        }
        taken
    }

    /// When those that were not written are told.
    fn due(&self) -> Option<Instant> {
        (self.untold > 0).then_some(self.tried + TERMS.every)
    }
}

/// Those of all peers of whom something was refused lately, and of all connections that are none.
#[derive(Debug, Default)]
pub(super) struct Refusals(HashMap<Option<u32>, Refused>);

impl Refusals {
    /// When there is something to be told.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().filter_map(Refused::due).min()
    }

    fn of(&mut self, uid: Option<u32>, now: Instant) -> &mut Refused {
        self.0.retain(|_, refused| refused.untold > 0 || !refused.lines.is_whole(now));
        self.0.entry(uid).or_insert_with(|| Refused::new(now))
    }
}

impl Monitor {
    /// Records that a launch was refused, here.
    pub(super) fn record_refusal(
        &mut self,
        connection: ConnectionId,
        profile: String,
        refusal: LaunchRefusal,
    ) {
        self.record_refused(connection, profile, refusal.to_string(), Half::Monitor);
    }

    /// Records that the server half refused what the connection's peer wanted, which uses up the connection.
    pub(super) fn record_denial(&mut self, connection: ConnectionId, profile: String, denial: Denial) {
        if self.connections.take_launch(connection).is_some() {
            self.record_refused(connection, profile, denial.to_string(), Half::Server);
        }
    }

    fn record_refused(&mut self, connection: ConnectionId, profile: String, reason: String, by: Half) {
        let peer = self.connections.get(connection).map(|found| (found.peer.uid, found.peer.pid));
        let (uid, pid) = peer.unzip();
        let refused = self.refusals.of(uid, Instant::now());
        let untold = refused.untold;
        if !refused.take(Instant::now()) {
            refused.untold += 1;
            return;
        }
        if untold > 0 {
            self.tell_refused(uid, untold);
        }
        if !self.try_to_note(Entry::Refused { uid, pid, profile, reason, by }) {
            self.refusals.of(uid, Instant::now()).untold += 1;
        }
    }

    /// Tells of those that were not written, where there is room again.
    pub(super) fn go_on_refusing(&mut self, now: Instant) {
        let due = |refused: &mut Refused| refused.due().is_some_and(|due| due <= now) && refused.take(now);
        let all = self.refusals.0.iter_mut();
        let due: Vec<_> =
            all.filter_map(|(uid, refused)| due(refused).then_some((*uid, refused.untold))).collect();
        for (uid, untold) in due {
            self.tell_refused(uid, untold);
        }
    }

    /// Tells of all of them, before the end.
    pub(super) fn tell_all_refused(&mut self) {
        let all: Vec<_> = self.refusals.0.iter().map(|(uid, refused)| (*uid, refused.untold)).collect();
        for (uid, untold) in all.into_iter().filter(|(_, untold)| *untold > 0) {
            self.tell_refused(uid, untold);
        }
    }

    fn tell_refused(&mut self, uid: Option<u32>, count: u64) {
        if self.try_to_note(Entry::AlsoRefused { uid, count })
            && let Some(refused) = self.refusals.0.get_mut(&uid)
        {
            refused.untold -= count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_room_for_some_lines_and_then_for_one_now_and_then() {
        let (start, mut refusals) = (Instant::now(), Refusals::default());
        let taken =
            |refusals: &mut Refusals, uid, now| (0..1000).filter(|_| refusals.of(uid, now).take(now)).count();
        assert_eq!(taken(&mut refusals, Some(1), start), 32);
        // Another has its own, and time alone makes room.
        assert_eq!(taken(&mut refusals, Some(2), start), 32);
        let soon = start + TERMS.every - Duration::from_millis(1);
        assert_eq!(taken(&mut refusals, Some(1), soon), 0);
        assert_eq!(taken(&mut refusals, Some(1), start + TERMS.every), 1);
        assert_eq!(taken(&mut refusals, Some(1), start + TERMS.every + (TERMS.every - TERMS.every / 3)), 0);
        assert_eq!(taken(&mut refusals, Some(1), start + TERMS.every * 4), 3);
        // However long nothing came.
        let late = start + Duration::from_secs(1 << 20);
        assert_eq!(taken(&mut refusals, Some(1), late), 32);
        assert_eq!(refusals.0.len(), 1, "the other one is forgotten");
    }

    #[test]
    fn those_that_are_not_written_are_told_when_there_is_room_and_not_before() {
        let (start, mut refusals) = (Instant::now(), Refusals::default());
        while refusals.of(Some(1), start).take(start) {}
        assert_eq!(refusals.due(), None);
        refusals.of(Some(1), start).untold += 1;
        assert_eq!(refusals.due(), Some(start + TERMS.every));
        // Trying takes room, so that a trail that cannot be written is not tried all the time.
        let now = start + TERMS.every;
        assert!(refusals.of(Some(1), now).take(now));
        assert_eq!(refusals.due(), Some(now + TERMS.every));
        // What is untold is not forgotten.
        let late = start + Duration::from_secs(1 << 20);
        refusals.of(Some(2), late);
        assert_eq!(refusals.0.get(&Some(1)).map(|share| share.untold), Some(1));
    }
}
