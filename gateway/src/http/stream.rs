//! A command's events as server-sent events (WHATWG HTML, 9.2), as they come.
//!
//! Nothing is read from the executor before the client has taken what was read: the command itself waits.

use crate::{error::ApiError, executor::Run};
use axum::{
    body::Bytes,
    http::{HeaderName, HeaderValue},
    response::{
        IntoResponse, Response,
        sse::{Event as SseEvent, KeepAlive, Sse},
    },
};
use cordon_protocol::{Captured, Collected, Encoding, Event, client::ClientError};
use futures_util::{Stream, stream::unfold};
use serde::Serialize;
use std::{collections::VecDeque, convert::Infallible, time::Duration};
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

/// The stream as a response, beginning with an event that has been read.
pub fn respond(run: Run, first: Event) -> Response {
    let events =
        Sse::new(events(run, first)).keep_alive(KeepAlive::new().interval(PING_INTERVAL).text("ping"));
    // Asks nginx not to hold events back.
    let unbuffered = (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    ([unbuffered], events).into_response()
}

fn events(run: Run, first: Event) -> impl Stream<Item = Result<SseEvent, Infallible>> {
    let mut translation = Translation::default();
    translation.push(Ok(first));
    unfold((run, translation), |(mut run, mut translation)| async move {
        loop {
            if let Some(event) = translation.ready.pop_front() {
                return Some((Ok(event), (run, translation)));
            }
            if translation.ended {
                return None;
            }
            translation.push(run.next_event().await);
        }
    })
}

/// Turns the executor's events into those of the stream.
#[derive(Debug, Default)]
struct Translation {
    ready: VecDeque<SseEvent>,
    stdout: Characters,
    stderr: Characters,
    ended: bool,
}

impl Translation {
    fn push(&mut self, event: Result<Event, ClientError>) {
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
                self.send("file", &Collected::from(file));
            }
            Ok(Event::Exited(report)) => {
                self.send_rest();
                self.send("exit", &*report);
                self.ended = true;
            }
            Ok(_) => self.fail(ClientError::Unexpected),
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: ClientError) {
        self.send_rest();
        self.send("error", &ApiError::from(error).into_body());
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
        match SseEvent::default().event(name).json_data(data) {
            Ok(event) => self.ready.push_back(event),
            Err(error) => tracing::error!("an event cannot be written as JSON: {error}"),
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
