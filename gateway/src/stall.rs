//! A client that takes its answer too slowly is let go: without a token, which it need not even show, its
//! connection would take one of the places for as long as it likes, and with one its report the memory for reports.
//! Whoever takes a byte now and then is no better than who takes none: what counts is all the time that an answer has
//! lain, less what its bytes may take at the lowest rate.
//!
//! Later while its answer is a stream of events: there the command itself waits for whoever reads, as behind a pager
//! that has stopped, and has its own limit of time; but what waits for ever outlives the command. Not so while an
//! event lies there that takes of the memory for reports.

use crate::watched::Watch;
use axum::{
    body::HttpBody,
    http::{HeaderMap, Response, header},
};
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep};

/// So many times as long the client of a stream may take nothing.
pub(crate) const LEISURE: u32 = 10;

/// Lowest rate at which an answer may be taken for long, bytes a second.
const RATE: u32 = 64 << 10;

/// Whether the answer of a connection is one whose client may take its time.
#[derive(Debug, Clone, Default)]
pub struct Leisure(Arc<State>);

#[derive(Debug, Default)]
struct State {
    stream: AtomicBool,
    /// Events of it that take of what all share.
    held: AtomicUsize,
}

/// Such an event: as long as it is there, the client may not take its time.
#[derive(Debug)]
pub(crate) struct Held(Leisure);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.held.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Leisure {
    /// This answer comes next.
    pub(crate) fn answer<B: HttpBody>(&self, response: &Response<B>) {
        self.0.stream.store(is_event_stream(response.headers()), Ordering::Release);
    }

    /// From now on an event is there that takes of what all share.
    pub(crate) fn hold(&self) -> Held {
        self.0.held.fetch_add(1, Ordering::AcqRel);
        Held(self.clone())
    }

    fn is_given(&self) -> bool {
        self.0.stream.load(Ordering::Acquire) && self.0.held.load(Ordering::Acquire) == 0
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes());
    value.is_some_and(|value| value.starts_with(b"text/event-stream"))
}

/// Fails a connection when what is written does not go away in time.
#[derive(Debug)]
pub(crate) struct Patience {
    most: Duration,
    leisure: Leisure,
    /// For how long this answer has lain, less what was taken of it at the lowest rate.
    lain: Duration,
    stalled: Option<Stalled>,
}

/// Nothing goes away.
#[derive(Debug)]
struct Stalled {
    since: Instant,
    leisurely: bool,
    end: Pin<Box<Sleep>>,
}

impl Patience {
    /// With a connection on which nothing has been written.
    pub(crate) fn new(most: Duration, leisure: Leisure) -> Self {
        Self { most, leisure, lain: Duration::ZERO, stalled: None }
    }
}

impl Watch for Patience {
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        _data: &[u8],
        _length: usize,
        write: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let written = write(cx);
        let leisurely = self.leisure.is_given();
        if let Poll::Ready(result) = &written {
            if let Some(stalled) = self.stalled.take().filter(|stalled| !stalled.leisurely) {
                self.lain += stalled.since.elapsed();
            }
            let bytes = result.as_ref().map_or(0, |bytes| u32::try_from(*bytes).unwrap_or(u32::MAX));
            self.lain = self.lain.saturating_sub(Duration::from_secs(1) * bytes / RATE);
            return written;
        }
        // One that began at leisure is timed anew once that has ended.
        let stalled = self.stalled.take().filter(|stalled| stalled.leisurely == leisurely);
        let left =
            if leisurely { self.most.saturating_mul(LEISURE) } else { self.most.saturating_sub(self.lain) };
        let new = || Stalled { since: Instant::now(), leisurely, end: Box::pin(sleep(left)) };
        ready!(self.stalled.insert(stalled.unwrap_or_else(new)).end.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// An answer has gone; the next one has all its time.
    fn flushed(&mut self) {
        self.lain = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tokio::time::advance;

    /// A client that takes so much each time, and what becomes of the answer to it within an hour.
    async fn fails(leisure: Leisure, taken: usize, pause: Duration) -> bool {
        let mut patience = Patience::new(Duration::from_secs(30), leisure);
        let mut cx = Context::from_waker(Waker::noop());
        let mut write = |written| patience.write(&mut cx, b"", usize::MAX, |_| written);
        for _ in 0..3600 / pause.as_secs() {
            assert!(write(Poll::Ready(Ok(taken))).is_ready());
            assert!(write(Poll::Pending).is_pending());
            advance(pause).await;
            if write(Poll::Pending).is_ready() {
                return true;
            }
        }
        false
    }

    /// How long one that takes nothing is left alone, in seconds; after so many an event is there that takes of what all
    /// share, if it comes to that.
    async fn lasts(leisure: &Leisure, held_after: Option<u64>) -> u64 {
        let mut patience = Patience::new(Duration::from_secs(30), leisure.clone());
        let mut cx = Context::from_waker(Waker::noop());
        let mut held = None;
        let mut seconds = 0;
        loop {
            if held_after == Some(seconds) {
                held = Some(leisure.hold());
            }
            if patience.write(&mut cx, b"", 0, |_| Poll::Pending).is_ready() {
                drop(held);
                return seconds;
            }
            advance(Duration::from_secs(1)).await;
            seconds += 1;
        }
    }

    fn of_stream() -> Leisure {
        let leisure = Leisure::default();
        leisure.0.stream.store(true, Ordering::Release);
        leisure
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_a_little_now_and_then_is_let_go_and_who_takes_enough_is_not() {
        let pause = Duration::from_secs(15);
        assert!(fails(Leisure::default(), 190 << 10, pause).await);
        assert!(fails(Leisure::default(), 1, Duration::from_secs(1)).await);
        assert!(!fails(Leisure::default(), 1 << 20, pause).await);
        assert!(!fails(Leisure::default(), 64 << 10, Duration::from_secs(1)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_client_of_a_stream_may_take_little_but_not_while_it_holds_what_all_share() {
        let pause = Duration::from_secs(15);
        assert!(!fails(of_stream(), 1, pause).await);
        let leisure = of_stream();
        let held = leisure.hold();
        assert!(fails(leisure.clone(), 1, pause).await);
        drop(held);
        assert!(!fails(leisure, 1, pause).await);
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_let_go_after_its_time_and_in_a_large_event_after_that_of_any_answer() {
        assert_eq!(lasts(&Leisure::default(), None).await, 30);
        assert_eq!(lasts(&of_stream(), None).await, 300);
        assert_eq!(lasts(&of_stream(), Some(0)).await, 30);
        // What it was given before does not count against it.
        assert_eq!(lasts(&of_stream(), Some(200)).await, 230);
    }
}
