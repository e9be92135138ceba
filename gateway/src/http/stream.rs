//! A command's events as server-sent events (WHATWG HTML, 9.2), as they come.
//!
//! Nothing is read from the executor before the client has taken what was read: the command itself waits. What is
//! larger than a piece of output, as a file, has room among all reports before it is read, until it has gone.

use super::answer::{Length, ReportRoom, Reports};
use crate::{error::ApiError, executor::Run, memory::Client, stall::Leisure};
use axum::{
    body::{Body, Bytes},
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse, Response},
};
use cordon_protocol::{Captured, Collected, Encoding, Event, client::ClientError};
use futures_util::{Stream, stream::unfold};
use serde::Serialize;
use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep};
use utoipa::ToSchema;

/// Silence after which a comment is sent, so that proxies keep the connection.
const PING_INTERVAL: Duration = Duration::from_secs(14);

/// Data of a `queued` event: the command waits for its turn.
#[derive(Debug, Serialize, ToSchema)]
pub struct QueuedEvent {
    /// 1 is the next.
    position: u32,
}

/// Data of a `started` event: the program has been executed.
#[derive(Debug, Serialize, ToSchema)]
pub struct StartedEvent {
    /// Unique name of the run.
    id: String,
}

/// Data of a `stdout` or `stderr` event: a piece of output as it came, no character split.
#[derive(Debug, Serialize, ToSchema)]
pub struct OutputEvent {
    /// Text, or base64.
    data: String,
    /// Which of the two.
    encoding: Encoding,
}

/// Who takes the stream, and what of it may lie there.
#[derive(Debug)]
pub(super) struct Taker {
    /// What all have together.
    pub(super) reports: Reports,
    /// Whose it is.
    pub(super) client: Client,
    /// Whether it may take its time.
    pub(super) leisure: Leisure,
}

/// The stream as a response, beginning with an event that has been read.
pub(super) fn respond(run: Run, first: Event, taker: Taker) -> Response {
    let events =
        Pinged { events: Box::pin(events(run, first, taker)), silence: Box::pin(sleep(PING_INTERVAL)) };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        // Asks nginx not to hold events back.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(events)).into_response()
}

fn events(run: Run, first: Event, taker: Taker) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let mut translation = Translation::new(taker);
    translation.ready.push_back(Next::Event(first));
    unfold((run, translation), |(mut run, mut translation)| async move {
        loop {
            match translation.ready.pop_front() {
                Some(Next::Bytes(bytes)) => return Some((Ok(bytes), (run, translation))),
                Some(Next::Event(event)) => translation.push(Ok(event), translation.room()).await,
                None if translation.ended => return None,
                None => {
                    let mut room = translation.room();
                    let event = run.next_within(&mut room).await;
                    translation.push(event, room).await;
                }
            }
        }
    })
}

/// Events, and a comment after each silence.
struct Pinged<S> {
    events: Pin<Box<S>>,
    silence: Pin<Box<Sleep>>,
}

impl<S: Stream<Item = Result<Bytes, Infallible>>> Stream for Pinged<S> {
    type Item = S::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let Self { events, silence } = self.get_mut();
        let next = match events.as_mut().poll_next(cx) {
            Poll::Ready(next) => next,
            Poll::Pending => {
                ready!(silence.as_mut().poll(cx));
                Some(Ok(Bytes::from_static(b": ping\n\n")))
            }
        };
        silence.as_mut().reset(Instant::now() + PING_INTERVAL);
        Poll::Ready(next)
    }
}

/// What is to be sent next.
#[derive(Debug)]
enum Next {
    /// It has been read.
    Event(Event),
    /// As it is sent.
    Bytes(Bytes),
}

/// Turns the executor's events into those of the stream.
#[derive(Debug)]
struct Translation {
    taker: Taker,
    ready: VecDeque<Next>,
    stdout: Characters,
    stderr: Characters,
    ended: bool,
}

impl Translation {
    fn new(taker: Taker) -> Self {
        let (stdout, stderr) = Default::default();
        Self { taker, ready: VecDeque::new(), stdout, stderr, ended: false }
    }

    /// For one event.
    fn room(&self) -> ReportRoom {
        self.taker.reports.room(self.taker.client)
    }

    async fn push(&mut self, event: Result<Event, ApiError>, room: ReportRoom) {
        match event {
            Ok(Event::Queued { position }) => self.send("queued", &QueuedEvent { position }),
            Ok(Event::Started { id }) => self.send("started", &StartedEvent { id }),
            Ok(Event::Stdout(bytes)) => {
                let chunk = self.stdout.push(bytes);
                self.send_chunk("stdout", chunk);
            }
            Ok(Event::Stderr(bytes)) => {
                let chunk = self.stderr.push(bytes);
                self.send_chunk("stderr", chunk);
            }
            // Files come after the end of the output.
            Ok(Event::File(file)) => {
                self.send_rest();
                if let Err(error) = self.send_large("file", &Collected::from(file), room).await {
                    self.fail(error);
                }
            }
            Ok(Event::Exited(report)) => {
                self.send_rest();
                if let Err(error) = self.send_large("exit", &*report, room).await {
                    self.fail(error);
                }
                self.ended = true;
            }
            Ok(_) => self.fail(ClientError::Unexpected.into()),
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: ApiError) {
        self.send_rest();
        self.send("error", &error.into_body());
        self.ended = true;
    }

    fn send_rest(&mut self) {
        let (stdout, stderr) = (self.stdout.finish(), self.stderr.finish());
        self.send_chunk("stdout", stdout);
        self.send_chunk("stderr", stderr);
    }

    fn send_chunk(&mut self, name: &str, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            let Captured { text, encoding } = Captured::from_bytes(bytes);
            self.send(name, &OutputEvent { data: text, encoding });
        }
    }

    fn send(&mut self, name: &str, data: &impl Serialize) {
        let length = length_of(data);
        self.ready.extend(frame(name, data, length).map(|frame| Next::Bytes(frame.into())));
    }

    /// Sends what may be large, with the room that it has; that is made larger for what is sent.
    async fn send_large(
        &mut self,
        name: &str,
        data: &impl Serialize,
        mut room: ReportRoom,
    ) -> Result<(), ApiError> {
        let length = length_of(data);
        room.grow_by(length).await?;
        let Some(frame) = frame(name, data, length) else { return Ok(()) };
        let bytes = if room.holds() { room.around(frame, self.taker.leisure.hold()) } else { frame.into() };
        self.ready.push_back(Next::Bytes(bytes));
        Ok(())
    }
}

/// Bytes of it as JSON.
fn length_of(data: &impl Serialize) -> usize {
    let mut length = Length::default();
    // What cannot be written is told when it is.
    let _ = serde_json::to_writer(&mut length, data);
    length.0
}

/// The event in the form of the standard; JSON of `length` bytes has no line breaks.
fn frame(name: &str, data: &impl Serialize, length: usize) -> Option<Vec<u8>> {
    let mut frame = Vec::with_capacity(name.len() + length + "event: \ndata: \n\n".len());
    frame.extend(format!("event: {name}\ndata: ").as_bytes());
    match serde_json::to_writer(&mut frame, data) {
        Ok(()) => {
            frame.extend(b"\n\n");
            Some(frame)
        }
        Err(error) => {
            tracing::error!("an event cannot be written as JSON: {error}");
            None
        }
    }
}

/// Keeps a character that is split over two chunks together.
#[derive(Debug, Default)]
struct Characters {
    held: Bytes,
}

impl Characters {
    /// What can be sent now: what was held, and all of the chunk but the beginning of a character at its end.
    fn push(&mut self, chunk: Vec<u8>) -> Vec<u8> {
        let mut bytes = chunk;
        if !self.held.is_empty() {
            bytes.splice(..0, self.held.iter().copied());
        }
        let whole = bytes.len() - begun_character(&bytes);
        self.held = Bytes::copy_from_slice(&bytes[whole..]);
        bytes.truncate(whole);
        bytes
    }

    /// What is still held, now that nothing follows.
    fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held).to_vec()
    }
}

/// Bytes at the end that begin a character of which more is to come (0 to 3).
fn begun_character(bytes: &[u8]) -> usize {
    let longest = bytes.len().min(3);
    let begins = |&length: &usize| {
        let end = &bytes[bytes.len() - length..];
        std::str::from_utf8(end).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=longest).find(begins).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the text in pieces of `size` bytes and checks that every piece that comes out is whole.
    fn through(text: &[u8], size: usize) -> Vec<u8> {
        let mut characters = Characters::default();
        let mut all = Vec::new();
        for chunk in text.chunks(size) {
            let piece = characters.push(chunk.to_vec());
            assert!(std::str::from_utf8(text).is_err() || std::str::from_utf8(&piece).is_ok());
            all.extend(piece);
        }
        all.extend(characters.finish());
        all
    }

    #[test]
    fn no_character_is_split_and_no_byte_lost() {
        let text = "aä€🦀é\u{0}\u{10ffff}z".as_bytes();
        let mut broken = text.to_vec();
        broken.extend([0xff, b'x', 0xe2, 0x82]);
        for size in 1..=text.len() {
            assert_eq!(through(text, size), text, "{size}");
            assert_eq!(through(&broken, size), broken, "{size}");
        }
    }

    #[test]
    fn only_a_character_that_can_still_be_completed_is_held() {
        for (bytes, held) in [
            (&b""[..], 0),
            (b"abc", 0),
            (&[0xc3], 1),
            (&[b'a', 0xe2, 0x82], 2),
            (&[0xf0, 0x9f, 0xa6], 3),
            (&[0xff], 0),
            (&[0x82], 0),
            (&[0xc0], 0),
            (&[0xe2, 0x82, 0xac], 0),
            (&[0xff, 0xff, 0xe2], 1),
        ] {
            assert_eq!(begun_character(bytes), held, "{bytes:x?}");
        }
    }
}
