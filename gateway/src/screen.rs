//! What hyper itself says to bytes that are no request, held back: it sends a status without a body, and the
//! gateway's own answer, which has the form of every other failure, goes out in its place.
//!
//! hyper has no hook for this, so its answer is told by two facts together: no request is being answered, nor
//! an answer still to be flushed, and what comes is a response with a 4xx status.

use crate::{error::ApiError, watched::Watch};
use axum::{
    body::{Body, Bytes, HttpBody},
    http::StatusCode,
    response::Response,
};
use hyper::body::{Frame, SizeHint};
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    task::{Context, Poll},
};

/// What a connection's two sides, the service and the stream, tell each other.
#[derive(Debug, Clone, Default)]
pub(crate) struct State {
    /// A request has come whose answer is not yet complete.
    answering: Arc<AtomicBool>,
    /// The same, until the answer has been flushed as well.
    busy: Arc<AtomicBool>,
    held: Arc<AtomicU16>,
}

impl State {
    /// A request has come: what is written until its answer is complete is not hyper's own.
    pub(crate) fn answer(&self) -> Answering {
        self.answering.store(true, Ordering::Release);
        self.busy.store(true, Ordering::Release);
        Answering { state: self.clone() }
    }

    /// The status that hyper wanted to send.
    pub(crate) fn held(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.held.load(Ordering::Acquire)).ok()
    }
}

/// A request is being answered for as long as this is there.
#[derive(Debug)]
pub(crate) struct Answering {
    state: State,
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.state.answering.store(false, Ordering::Release);
    }
}

impl Answering {
    /// The response, by which this lasts until its body has been taken.
    pub(crate) fn until_sent(self, response: Response) -> Response<Sent> {
        response.map(|body| Sent { body, _answering: self })
    }
}

/// A body during which a request counts as being answered.
#[derive(Debug)]
pub(crate) struct Sent {
    body: Body,
    _answering: Answering,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl State {
    fn holds_back(&self, data: &[u8]) -> bool {
        if self.held().is_some() {
            return true;
        }
        if self.busy.load(Ordering::Acquire) {
            return false;
        }
        let refusal = refused_status(data);
        if let Some(status) = refusal {
            self.held.store(status.as_u16(), Ordering::Release);
        }
        refusal.is_some()
    }
}

/// The status of a response that says that the client is wrong.
fn refused_status(data: &[u8]) -> Option<StatusCode> {
    let code = data.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    StatusCode::from_bytes(code).ok().filter(StatusCode::is_client_error)
}

impl Watch for State {
    fn write(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
        length: usize,
        write: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.holds_back(data) { Poll::Ready(Ok(length)) } else { write(cx) }
    }

    /// hyper comes here when its buffer is empty, in which an answer that is complete may have lain.
    fn flushed(&mut self) {
        self.busy.store(self.answering.load(Ordering::Acquire), Ordering::Release);
    }

    /// Our own answer is still to come.
    fn keeps_open(&self) -> bool {
        self.held().is_some()
    }
}

/// The whole response in place of hyper's, after which the connection ends.
pub(crate) fn response(status: StatusCode, error: &hyper::Error, head_max: usize) -> Vec<u8> {
    let refusal = match status {
        StatusCode::URI_TOO_LONG => ApiError::new(status, "uri_too_long", "the request's target is too long")
            .hint("send data as the body"),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            let message = format!("the request's head has too many lines, or more than {head_max} bytes");
            ApiError::new(status, "head_too_large", message).hint("send fewer headers, and data as the body")
        }
        _ => ApiError::new(status, "bad_request", format!("this is not an HTTP/1.1 request: {error}")),
    };
    // Serialising three texts cannot fail; if it did, the status would still be right.
    let body = serde_json::to_string(&refusal.into_body()).unwrap_or_default() + "\n";
    let reason = status.canonical_reason().unwrap_or_default();
    format!(
        "HTTP/1.1 {} {reason}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         x-content-type-options: nosniff\r\ncache-control: no-store\r\ncontent-length: {}\r\n\r\n{body}",
        status.as_str(),
        body.len()
    )
    .into_bytes()
}
