//! What the tests share: building and starting the programs, talking to them, looking at the host.

pub(crate) mod build;
pub(crate) mod client;
pub(crate) mod crowd;
pub(crate) mod daemon;
pub(crate) mod host;
pub(crate) mod http;
pub(crate) mod lab;
pub(crate) mod lesser_host;
pub(crate) mod process;
pub(crate) mod table;
pub(crate) mod wire;

pub(crate) use client::Client;
pub(crate) use daemon::{Executor, Up, shared};
pub(crate) use lab::lab;

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Longest time for something that is not itself about time, seconds are enough on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// This much time on a development machine, and `CORDON_TEST_SLOW` times as much on a slow one.
///
/// What waits for a condition or for the end of a program stretches its time by itself.
pub(crate) fn stretched(time: Duration) -> Duration {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    let factor = FACTOR.get_or_init(|| match std::env::var("CORDON_TEST_SLOW") {
        Ok(text) => text.parse().expect("CORDON_TEST_SLOW is a whole number"),
        Err(_) => 1,
    });
    time * *factor
}

/// Waits until the condition holds; fails with `what` when it never does.
pub(crate) fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    let within = stretched(within);
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < within, "not within {within:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A number of seconds for `sleep` that no other command has, so that it can be found from outside.
pub(crate) fn marker() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}.{:04}", 100_000 + std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
