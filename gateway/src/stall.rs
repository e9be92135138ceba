//! A client that takes nothing of its answer is let go: without a token, which it need not even show, its
//! connection would take one of the places for as long as it likes, and with one its report the memory for reports.
//!
//! Later while its answer is a stream of events: there the command itself waits for whoever reads, as behind a pager
//! that has stopped, and has its own limit of time; but what waits for ever outlives the command.

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
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Sleep, sleep};

/// So many times as long the client of a stream may take nothing.
pub(crate) const LEISURE: u32 = 10;

/// Whether the answer of a connection is one whose client may take its time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leisure(Arc<AtomicBool>);

impl Leisure {
    /// This answer comes next.
    pub(crate) fn answer<B: HttpBody>(&self, response: &Response<B>) {
        self.0.store(is_event_stream(response.headers()), Ordering::Release);
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes());
    value.is_some_and(|value| value.starts_with(b"text/event-stream"))
}

/// Fails a connection when nothing of what is written goes away for so long.
#[derive(Debug)]
pub(crate) struct Patience {
    most: Duration,
    leisure: Leisure,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    /// With a connection on which nothing has been written.
    pub(crate) fn new(most: Duration, leisure: Leisure) -> Self {
        Self { most, leisure, stalled: None }
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
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let times = if self.leisure.0.load(Ordering::Acquire) { LEISURE } else { 1 };
        let most = self.most.saturating_mul(times);
        ready!(self.stalled.get_or_insert_with(|| Box::pin(sleep(most))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}
