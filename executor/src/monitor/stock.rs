//! A few things of which each sandbox needs one of its own, made before they are asked for.

use nix::errno::Errno;
use std::time::{Duration, Instant};

/// Things that wait.
const SIZE: usize = 4;
/// Time after a failed attempt to add one.
const PAUSE: Duration = Duration::from_secs(1);

/// The stock.
#[derive(Debug)]
pub(super) struct Stock<T> {
    waiting: Vec<T>,
    /// After a failure: no attempt before this.
    paused_until: Option<Instant>,
}

impl<T> Stock<T> {
    /// An empty one.
    pub(super) fn new() -> Self {
        Self { waiting: Vec::with_capacity(SIZE), paused_until: None }
    }

    /// Gives one away for good; made at once when none waits.
    ///
    /// # Errors
    /// What `make` says.
    pub(super) fn take(&mut self, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        self.waiting.pop().map_or_else(make, Ok)
    }

    /// Whether one is missing and could be made.
    pub(super) fn wants_more(&self, now: Instant) -> bool {
        self.waiting.len() < SIZE && self.paused_until.is_none_or(|until| now >= until)
    }

    /// Adds one if it [wants more](Self::wants_more).
    pub(super) fn refill(&mut self, now: Instant, make: impl FnOnce() -> Result<T, Errno>) {
        if !self.wants_more(now) {
            return;
        }
        match make() {
            Ok(made) => {
                self.waiting.push(made);
                self.paused_until = None;
            }
            Err(_) => self.paused_until = Some(now + PAUSE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, collections::BTreeSet};

    /// Makes numbers, each once.
    fn counting(made: &Cell<u32>) -> impl FnOnce() -> Result<u32, Errno> {
        || {
            made.set(made.get() + 1);
            Ok(made.get())
        }
    }

    fn failing<T>() -> Result<T, Errno> {
        Err(Errno::ENOSPC)
    }

    fn untouched<T>() -> Result<T, Errno> {
        panic!("it was not asked for")
    }

    #[test]
    fn it_fills_up_and_no_further_however_often_it_is_refilled() {
        let (mut stock, now, made) = (Stock::new(), Instant::now(), Cell::new(0));
        for _ in 0..SIZE {
            assert!(stock.wants_more(now));
            stock.refill(now, counting(&made));
        }
        assert!(!stock.wants_more(now));
        stock.refill(now, untouched);
        stock.take(untouched).unwrap();
        stock.refill(now, counting(&made));
        stock.refill(now, untouched);
        assert_eq!(stock.waiting.len(), SIZE);
    }

    #[test]
    fn each_is_given_once_also_when_the_stock_is_empty() {
        let (mut stock, now, made) = (Stock::new(), Instant::now(), Cell::new(0));
        let mut given = BTreeSet::new();
        for round in 0..100 {
            if round % 3 > 0 {
                stock.refill(now, counting(&made));
            }
            assert!(given.insert(stock.take(counting(&made)).unwrap()), "round {round}");
            if round % 5 == 0 {
                assert!(given.insert(stock.take(counting(&made)).unwrap()), "round {round}");
            }
        }
    }

    #[test]
    fn after_a_failure_it_waits_before_it_tries_again_and_gives_what_it_has() {
        let (mut stock, now, made) = (Stock::new(), Instant::now(), Cell::new(0));
        stock.refill(now, counting(&made));
        stock.refill(now, failing);
        let (early, late) = (now + PAUSE - Duration::from_millis(1), now + PAUSE);
        assert!(!stock.wants_more(now) && !stock.wants_more(early) && stock.wants_more(late));
        stock.refill(early, untouched);
        assert_eq!(stock.take(untouched), Ok(1));
        // An empty stock: whoever needs one is told that there is none, and others are tried at once.
        assert_eq!(stock.take(failing), Err(Errno::ENOSPC));
        assert_eq!(stock.take(counting(&made)), Ok(2));
        stock.refill(late, failing);
        assert!(!stock.wants_more(late));
        stock.refill(late + PAUSE, counting(&made));
        assert!(stock.wants_more(late + PAUSE));
    }
}
