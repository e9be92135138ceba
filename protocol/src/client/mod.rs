//! Clients of the executor's socket: one function a request, so that callers never see bytes.

#[cfg(feature = "tokio")]
pub mod asynchronous;
pub mod blocking;

use crate::{Event, Hello, Refusal, Request, codec::FrameError, limits};
use std::{io, path::PathBuf};

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket cannot be reached.
    #[error("cannot connect to the executor at {}: {source}", path.display())]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The executor said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The connection failed or broke the protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The executor ended the connection without the awaited answer.
    #[error("the executor closed the connection without an answer")]
    Closed,
    /// The executor answered something else.
    #[error("the executor answered out of order")]
    Unexpected,
}

/// Hello and the request as the bytes of two frames, so that they leave in one write.
fn opening(client: &str, request: &Request) -> Result<Vec<u8>, FrameError> {
    let hello = Hello { version: limits::PROTOCOL_VERSION, client: client.to_owned() };
    let mut bytes = crate::codec::encode_frame(&Request::Hello(hello), limits::REQUEST_FRAME_MAX)?;
    bytes.extend(crate::codec::encode_frame(request, limits::REQUEST_FRAME_MAX)?);
    Ok(bytes)
}

/// The event, or the refusal as an error.
fn accept(event: Option<Event>) -> Result<Event, ClientError> {
    match event {
        Some(Event::Refused(refusal)) => Err(refusal.into()),
        Some(event) => Ok(event),
        None => Err(ClientError::Closed),
    }
}
