//! Answers in JSON, each a line: what a person asks for with curl leaves the prompt where it belongs.

use crate::{
    error::ApiError,
    memory::{Client, Memory, Room},
};
use axum::{
    body::Bytes,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use cordon_protocol::FullReport;
use serde::Serialize;
use std::{
    io::{self, Write},
    time::Duration,
};
use tokio::time::timeout;

/// Memory for the reports of all commands together, bytes: one with all that its command may collect, in the longest
/// form that JSON has for it, fits in.
const REPORTS_MAX: usize = 256 << 20;
/// Time that a report waits for others to be taken. The executor keeps it for half a minute.
const REPORT_WAIT: Duration = Duration::from_secs(25);

/// What reports may take, from the executor's word until their clients have taken them.
#[derive(Debug, Clone)]
pub struct Reports {
    memory: Memory,
    wait: Duration,
}

impl Default for Reports {
    fn default() -> Self {
        Self::new(REPORTS_MAX, REPORT_WAIT)
    }
}

impl Reports {
    /// So many bytes, for which one waits so long.
    pub fn new(bytes: usize, wait: Duration) -> Self {
        Self { memory: Memory::of(bytes), wait }
    }

    /// For one report to this client, of which nothing is there yet.
    pub fn room(&self, client: Client) -> ReportRoom {
        ReportRoom { room: self.memory.room(client), wait: self.wait }
    }
}

/// What one report takes of it.
#[derive(Debug)]
pub struct ReportRoom {
    room: Room,
    wait: Duration,
}

impl ReportRoom {
    /// Waits until there is room for so many bytes.
    ///
    /// # Errors
    /// 503 `report_lost` when there is none in time.
    pub async fn grown(&mut self, bytes: usize) -> Result<(), ApiError> {
        timeout(self.wait, self.room.grown(bytes)).await.map_err(|_| {
            let message = "the command has run, and its report is lost: other clients do not take theirs, so that \
                           there is no room for it";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "report_lost", message)
                .hint("trying again runs it again; ask for less (capture_bytes, collect), or for an event stream")
        })
    }

    /// Waits until there is room for so many bytes beside those that it has been made for.
    ///
    /// # Errors
    /// As [`Self::grown`].
    pub(super) async fn grow_by(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.grown(self.room.bytes() + bytes).await
    }

    /// Bytes with the room that they need, and with something else, both of which go when they are no longer in memory.
    pub(super) fn around(self, bytes: Vec<u8>, with: impl Send + 'static) -> Bytes {
        let mut room = self.room;
        room.shrink(bytes.len());
        Bytes::from_owner(Roomy { bytes, _room: room, _with: with })
    }

    /// Whether it takes any of what all share.
    pub(super) fn holds(&self) -> bool {
        self.room.holds()
    }
}

/// A value as the answer.
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut line = Vec::new();
        match write_line(&mut line, &self.0) {
            Ok(()) => respond(line.into()),
            Err(error) => {
                tracing::error!("an answer cannot be written as JSON: {error}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

/// A report as the answer, with the room that it has. It is made larger for the answer itself, and is kept until that
/// is no longer in memory, however slowly the client takes it.
///
/// # Errors
/// 503 `report_lost` when there is no room in time.
pub(crate) async fn report(
    report: FullReport,
    held: usize,
    mut room: ReportRoom,
) -> Result<Response, ApiError> {
    let mut length = Length::default();
    write_line(&mut length, &report).map_err(unwritten)?;
    room.grown(held + length.0).await?;
    let mut line = Vec::with_capacity(length.0);
    write_line(&mut line, &report).map_err(unwritten)?;
    drop(report);
    Ok(respond(room.around(line, ())))
}

/// Bytes and their room, which go together.
struct Roomy<T> {
    bytes: Vec<u8>,
    _room: Room,
    _with: T,
}

impl<T> AsRef<[u8]> for Roomy<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Counts what is written.
#[derive(Debug, Default)]
pub(super) struct Length(pub(super) usize);

impl Write for Length {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0 += data.len();
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_line(mut to: impl Write, value: &impl Serialize) -> serde_json::Result<()> {
    serde_json::to_writer(&mut to, value)?;
    to.write_all(b"\n").map_err(serde_json::Error::io)
}

fn unwritten(error: serde_json::Error) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the report cannot be written as JSON")
        .hint("look at the gateway's log")
        .cause(error)
}

fn respond(line: Bytes) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], line).into_response()
}
