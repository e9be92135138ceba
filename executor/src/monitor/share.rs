//! A share that refills: so much at once, and a little more as time goes.

use std::time::{Duration, Instant};

/// What everybody has a share of.
#[derive(Debug)]
pub(super) struct Terms {
    /// So much at once.
    pub(super) burst: usize,
    /// So much comes back,
    pub(super) more: usize,
    /// whenever so much time has gone by.
    pub(super) every: Duration,
}

/// What is left to one.
#[derive(Debug)]
pub(super) struct Share {
    terms: &'static Terms,
    room: usize,
    /// Room is counted from here.
    since: Instant,
}

impl Share {
    /// A whole one.
    pub(super) fn new(terms: &'static Terms, now: Instant) -> Self {
        Self { terms, room: terms.burst, since: now }
    }

    fn refill(&mut self, now: Instant) {
        let Terms { burst, more, every } = *self.terms;
        while self.room < burst && now.saturating_duration_since(self.since) >= every {
            self.room = burst.min(self.room + more);
            self.since += every;
        }
        if self.room == burst {
            self.since = now;
        }
    }

    /// Whether there is room for so much, which is taken.
    pub(super) fn take(&mut self, amount: usize, now: Instant) -> bool {
        self.refill(now);
        let left = self.room.checked_sub(amount);
        self.room = left.unwrap_or(self.room);
        left.is_some()
    }

    /// Gives back what was taken and not used.
    pub(super) fn give_back(&mut self, amount: usize) {
        self.room = self.terms.burst.min(self.room + amount);
    }

    /// Whether nothing of it is used: whoever has a whole one is like one that never came.
    pub(super) fn is_whole(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.room == self.terms.burst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TERMS: Terms = Terms { burst: 10, more: 4, every: Duration::from_secs(5) };

    #[test]
    fn so_much_is_there_at_once_and_a_little_more_as_time_goes() {
        let start = Instant::now();
        let mut share = Share::new(&TERMS, start);
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        assert!(share.is_whole(start));
        // Nothing of what there is no room for is taken.
        for (amount, now, taken) in [
            (11, 0, false),
            (7, 0, true),
            (4, 0, false),
            (3, 0, true),
            (1, 4_999, false),
            (5, 5_000, false),
            (4, 5_000, true),
            // Time that has begun is not lost: the next four come at ten seconds, not later.
            (1, 9_999, false),
            (4, 10_000, true),
            (8, 20_000, true),
        ] {
            assert_eq!(share.take(amount, at(now)), taken, "{amount} at {now} ms");
        }
        assert!(!share.is_whole(at(30_000)) && share.is_whole(at(35_000)));
        // However long nothing came, there is no more than at once; and time counts from when something is taken.
        let late = 1_000_000_001;
        assert!(!share.take(11, at(late)) && share.take(10, at(late)));
        assert!(!share.take(1, at(late + 4_999)) && share.take(4, at(late + 5_000)));
    }

    #[test]
    fn what_is_given_back_is_there_again_and_never_more_than_at_once() {
        let start = Instant::now();
        let mut share = Share::new(&TERMS, start);
        assert!(share.take(10, start));
        share.give_back(3);
        assert!(!share.take(4, start) && share.take(3, start));
        share.give_back(100);
        assert!(!share.take(11, start) && share.take(10, start));
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let start = Instant::now();
        let mut share = Share::new(&TERMS, start + Duration::from_secs(60));
        assert!(share.take(10, start + Duration::from_secs(60)) && !share.take(1, start));
    }
}
