//! Runs done by several threads at once, and how many of each kind ended as they were meant to.

use super::{doors::Doors, mix::Kind};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Of so many runs of a kind one may end otherwise: what is killed at the very moment of its own end, and what
/// others on the host keep from forking, where no cgroup counts processes.
const ONE_IN: usize = 10;

#[derive(Default)]
struct Count {
    runs: usize,
    /// How those ended that did not end as meant, and how often.
    otherwise: BTreeMap<String, usize>,
}

/// The counts.
#[derive(Default)]
pub(super) struct Tally {
    kinds: Mutex<BTreeMap<&'static str, Count>>,
    next: AtomicUsize,
}

impl Tally {
    /// Runs these, so many at once. Every run has another number, of all that this tally has run.
    pub(super) fn run(&self, doors: &Doors, runs: &[&Kind], at_once: usize) {
        let first = self.next.load(Ordering::Relaxed);
        thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    loop {
                        let number = self.next.fetch_add(1, Ordering::Relaxed);
                        let Some(kind) = runs.get(number - first) else { return };
                        let ended = (kind.run)(doors, number);
                        self.count(kind.name, ended.err().map(|error| error.to_string()));
                    }
                });
            }
        });
    }

    fn count(&self, kind: &'static str, otherwise: Option<String>) {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let count = kinds.entry(kind).or_default();
        count.runs += 1;
        if let Some(text) = otherwise {
            *count.otherwise.entry(text).or_default() += 1;
        }
    }

    /// How many have run.
    pub(super) fn total(&self) -> usize {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner).values().map(|count| count.runs).sum()
    }

    /// Kinds of which too many ended otherwise: what they are to try has not been tried.
    pub(super) fn faults(&self) -> Vec<String> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let too_many = |count: &Count| count.otherwise.values().sum::<usize>() > 1 + count.runs / ONE_IN;
        let fault =
            |(name, count): (&&str, &Count)| format!("{name}: {:?} of {}", count.otherwise, count.runs);
        kinds.iter().filter(|(_, count)| too_many(count)).map(fault).collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in &*self.kinds.lock().unwrap_or_else(PoisonError::into_inner) {
            writeln!(f, "{name:<40}{:>12}", count.runs)?;
            for (text, times) in count.otherwise.iter().take(5) {
                writeln!(f, "    {times} ended otherwise: {}", text.trim_end())?;
            }
        }
        Ok(())
    }
}
