//! A client that takes nothing of its answer is let go: without a token, which it need not even show, its
//! connection would take one of the places for as long as it likes.
//!
//! Not while its answer is a stream of events: there the command itself waits for whoever reads, and has its own
//! limit of time.

use axum::{
    body::HttpBody,
    http::{HeaderMap, Response, header},
};
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

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

/// A connection that fails when nothing of what is written goes away for so long.
#[derive(Debug)]
pub(crate) struct Impatient<S> {
    stream: S,
    patience: Duration,
    leisure: Leisure,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    /// A connection on which nothing has been written.
    pub(crate) fn new(stream: S, patience: Duration, leisure: Leisure) -> Self {
        Self { stream, patience, leisure, stalled: None }
    }

    /// What came of a write, or the end of the patience.
    fn judge(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() || self.leisure.0.load(Ordering::Acquire) {
            self.stalled = None;
            return written;
        }
        let patience = self.patience;
        ready!(self.stalled.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, data);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
