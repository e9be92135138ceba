//! A command's output: read as it comes, captured or sent on, counted to the byte.
//!
//! One chunk is in memory at a time. While the client does not read, nothing is read from the pipes, so
//! that they fill and the command waits. The totals are what has been read: with a command that is ended
//! for its output, that is what it produced until its pipes were empty, far beyond what was sent on.

use super::{
    Launched,
    hint::{LastWords, Tail},
    job::Run,
    jobs::id_of,
    output::{Capture, Kept},
    report::Streams,
};
use cordon_protocol::{
    Event,
    codec::encode_frame,
    limits::{CHUNK_MAX, DRAIN_GRACE, EVENT_FRAME_MAX},
};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
};
use std::{io, os::fd::OwnedFd, time::Duration};
use tokio::{
    net::unix::pipe,
    sync::watch,
    task::{coop::consume_budget, yield_now},
    time::{Instant, sleep},
};

/// Longest that something else than the command may go on producing after the command's end, where a
/// client that reads slowly keeps the grace from passing.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(2);

/// How far the command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing of it has run.
    Launching,
    /// Its program runs.
    Executed,
    /// It is over.
    Ended {
        /// Its program had run.
        executed: bool,
    },
}

/// Reads both streams of a command.
#[derive(Debug)]
pub(super) struct Pump<'a> {
    run: &'a Run<'a>,
    id: String,
    stdout: Stream,
    stderr: Stream,
    streamed: bool,
    /// Bytes that may still be produced.
    output_left: u64,
    exceeded: bool,
    /// Nobody is there to send events to.
    silent: bool,
    /// Time that was spent sending since the command's end.
    sending: Duration,
}

/// One of the two.
#[derive(Debug)]
struct Stream {
    /// None at its end.
    pipe: Option<pipe::Receiver>,
    event: fn(Vec<u8>) -> Event,
    capture: Capture,
    tail: Tail,
}

#[derive(Debug, Clone, Copy)]
enum Which {
    Stdout,
    Stderr,
}

impl Stream {
    fn new(event: fn(Vec<u8>) -> Event, capture_bytes: u64) -> Self {
        Self { pipe: None, event, capture: Capture::new(capture_bytes), tail: Tail::default() }
    }

    /// Waits until there is something to read, or the end.
    async fn readable(&self) -> io::Result<()> {
        match &self.pipe {
            Some(pipe) => pipe.readable().await,
            None => std::future::pending().await,
        }
    }

    /// Reads what is there; none when nothing is, or the stream is at its end.
    fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        match self.pipe.as_ref()?.try_read(buffer) {
            Ok(read) if read > 0 => return Some(read),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::Interrupted => {}
            // The end, or a pipe that cannot be read, which comes to the same.
            Ok(_) | Err(_) => self.pipe = None,
        }
        None
    }
}

impl<'a> Pump<'a> {
    /// For a launched command; `streamed`: events, else captured.
    pub(super) fn new(run: &'a Run<'a>, launched: &Launched, streamed: bool) -> Self {
        let capture_bytes = if streamed { 0 } else { launched.capture_bytes };
        Self {
            run,
            id: id_of(launched.job),
            stdout: Stream::new(Event::Stdout, capture_bytes),
            stderr: Stream::new(Event::Stderr, capture_bytes),
            streamed,
            output_left: launched.output_bytes,
            exceeded: false,
            silent: false,
            sending: Duration::ZERO,
        }
    }

    /// Takes the read ends. Without them both streams are at their end.
    ///
    /// # Errors
    /// When one is not a pipe that can be read and watched.
    pub(super) fn open(&mut self, stdout: OwnedFd, stderr: OwnedFd) -> io::Result<()> {
        self.stdout.pipe = Some(pipe::Receiver::from_owned_fd(stdout)?);
        self.stderr.pipe = Some(pipe::Receiver::from_owned_fd(stderr)?);
        Ok(())
    }

    /// Reads to the end of both streams, or until the grace after the command's end is over.
    pub(super) async fn run(mut self, mut stage: watch::Receiver<Stage>) -> Streams {
        // Nothing is sent before `Started`, and that not before the program runs. The sender outlives us.
        let reached = stage.wait_for(|s| *s != Stage::Launching).await.map(|s| *s);
        match reached {
            Ok(Stage::Executed | Stage::Ended { executed: true }) => {
                self.send(&Event::Started { id: self.id.clone() }).await;
            }
            // Whatever is in the pipes, it is not from the client's program.
            _ => self.silent = true,
        }
        let mut buffer = vec![0; CHUNK_MAX];
        let mut ended: Option<Instant> = None;
        while self.stdout.pipe.is_some() || self.stderr.pipe.is_some() {
            if ended.is_none() && matches!(*stage.borrow_and_update(), Stage::Ended { .. }) {
                ended = Some(Instant::now());
                self.sending = Duration::ZERO;
            }
            let grace = ended.map_or(DRAIN_GRACE, |since| grace_left(since.elapsed(), self.sending));
            if grace.is_zero() {
                self.sweep(&mut buffer).await;
                break;
            }
            let readable = tokio::select! {
                _ = self.stdout.readable() => Some(Which::Stdout),
                _ = self.stderr.readable() => Some(Which::Stderr),
                _ = stage.changed(), if ended.is_none() => None,
                () = sleep(grace), if ended.is_some() => None,
            };
            if let Some(which) = readable
                && let Some(read) = self.stream(which).read(&mut buffer)
            {
                self.take(which, &buffer[..read]).await;
                // A flood that is always ready must not keep the end of its own command from being
                // seen, nor other clients waiting.
                yield_now().await;
            }
        }
        self.finish()
    }

    /// The last read: what is in the pipes now still counts, what a survivor adds does not. The pipe is
    /// asked itself, since the runtime may not have heard of the newest data yet.
    async fn sweep(&mut self, buffer: &mut [u8]) {
        for which in [Which::Stdout, Which::Stderr] {
            let Some(pipe) = self.stream(which).pipe.take() else { continue };
            let capacity = fcntl(&pipe, FcntlArg::F_GETPIPE_SZ).ok().and_then(|c| usize::try_from(c).ok());
            let mut left = capacity.unwrap_or(CHUNK_MAX);
            while left > 0 {
                consume_budget().await;
                let room = left.min(buffer.len());
                match nix::unistd::read(&pipe, &mut buffer[..room]) {
                    Err(Errno::EINTR) => {}
                    Ok(0) | Err(_) => break,
                    Ok(read) => {
                        left -= read;
                        self.take(which, &buffer[..read]).await;
                    }
                }
            }
        }
    }

    fn stream(&mut self, which: Which) -> &mut Stream {
        match which {
            Which::Stdout => &mut self.stdout,
            Which::Stderr => &mut self.stderr,
        }
    }

    /// Counts a piece of output and passes on what is within the limit.
    async fn take(&mut self, which: Which, data: &[u8]) {
        let allowed = usize::try_from(self.output_left).unwrap_or(usize::MAX).min(data.len());
        let (within, beyond) = data.split_at(allowed);
        self.output_left -= within.len() as u64;
        if !beyond.is_empty() && !self.exceeded {
            self.exceeded = true;
            self.run.report_exceeded().await;
        }
        let streamed = self.streamed;
        let stream = self.stream(which);
        stream.capture.push(within);
        stream.tail.push(within);
        stream.capture.discard(beyond.len());
        if streamed && !within.is_empty() {
            let event = (stream.event)(within.to_vec());
            self.send(&event).await;
        }
    }

    /// Sends an event; a client that cannot be reached ends the command.
    async fn send(&mut self, event: &Event) {
        if self.silent || self.run.is_violated() {
            return;
        }
        let since = Instant::now();
        let sent = match encode_frame(event, EVENT_FRAME_MAX) {
            Ok(frame) => self.run.socket.write_all(&frame).await.is_ok(),
            Err(_) => false,
        };
        self.sending += since.elapsed();
        if !sent {
            self.silent = true;
            self.run.cancel().await;
        }
    }

    fn finish(self) -> Streams {
        let kept = |capture: Capture| {
            let beyond_limit = capture.discarded() > 0;
            let kept = capture.finish();
            // Streamed output is only cut where it was not sent on.
            if self.streamed { Kept { truncated: beyond_limit, ..kept } } else { kept }
        };
        Streams {
            stdout: kept(self.stdout.capture),
            stderr: kept(self.stderr.capture),
            streamed: self.streamed,
            exceeded: self.exceeded,
            words: LastWords { stdout: self.stdout.tail, stderr: self.stderr.tail },
        }
    }
}

/// What is left of the grace. Only time counts in which the pipes were waited for or read: a client that
/// reads slowly costs no output.
fn grace_left(since_end: Duration, sending: Duration) -> Duration {
    let reading = since_end.saturating_sub(sending);
    DRAIN_GRACE.saturating_sub(reading).min(DRAIN_MAX.saturating_sub(since_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_does_not_count_a_slow_client_but_ends_all_the_same() {
        let second = Duration::from_secs(1);
        assert_eq!(grace_left(Duration::ZERO, Duration::ZERO), DRAIN_GRACE);
        assert_eq!(grace_left(second, second), DRAIN_GRACE);
        assert_eq!(grace_left(second, second - DRAIN_GRACE / 2), DRAIN_GRACE / 2);
        assert_eq!(grace_left(second, second / 2), Duration::ZERO);
        assert_eq!(grace_left(DRAIN_MAX, DRAIN_MAX), Duration::ZERO);
    }
}
