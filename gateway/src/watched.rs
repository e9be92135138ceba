//! A connection at whose reads and writes somebody looks.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Who looks at the reads and writes of a connection.
pub(crate) trait Watch: Unpin {
    /// This has been read.
    fn read(&mut self, _data: &[u8]) {}

    /// What comes of a write of so many bytes, which begins with this data; `write` does it.
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        _data: &[u8],
        _length: usize,
        write: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        write(cx)
    }

    /// All that was written has been passed on.
    fn flushed(&mut self) {}

    /// Whether the connection stays open though its end was asked for.
    fn keeps_open(&self) -> bool {
        false
    }
}

/// The connection.
#[derive(Debug)]
pub(crate) struct Watched<S, W> {
    stream: S,
    watch: W,
}

impl<S, W> Watched<S, W> {
    /// A connection on which nothing has been read or written.
    pub(crate) fn new(stream: S, watch: W) -> Self {
        Self { stream, watch }
    }
}

impl<S: AsyncRead + Unpin, W: Watch> AsyncRead for Watched<S, W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.watch.read(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, W: Watch> AsyncWrite for Watched<S, W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, watch } = self.get_mut();
        watch.write(cx, data, data.len(), |cx| Pin::new(stream).poll_write(cx, data))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, watch } = self.get_mut();
        let first: &[u8] = slices.iter().find(|slice| !slice.is_empty()).map_or(&[], |slice| slice);
        let length = slices.iter().map(|slice| slice.len()).sum();
        watch.write(cx, first, length, |cx| Pin::new(stream).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.watch.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.watch.keeps_open() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
