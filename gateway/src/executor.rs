//! The executor as the gateway sees it: one connection a command, made anew each time, so that an executor
//! that was away is found again without further ado.

use crate::{error::ApiError, http::answer::ReportRoom};
use axum::body::Bytes;
use cordon_protocol::{
    CollectedFile, Event, ExitReport, RunRequest, WorkspaceInfo,
    client::{
        ClientError,
        asynchronous::{self, Connection, Stdin},
    },
    limits,
};
use std::{path::Path, sync::Arc};
use tokio::task::JoinHandle;

/// How the gateway names itself to the executor, for its log.
const CLIENT: &str = concat!("cordon-gateway/", env!("CARGO_PKG_VERSION"));

/// Largest event that is a piece of output, bytes: its text and what frames it.
const PIECE_MAX: usize = limits::CHUNK_MAX + 64;

/// The executor behind a socket.
#[derive(Debug, Clone)]
pub struct Executor {
    socket: Arc<Path>,
}

/// A command under way. Dropping it closes the connection, which ends the command.
#[derive(Debug)]
pub struct Run {
    connection: Connection,
    _stdin: StdinFeed,
}

/// What a command has left.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub report: ExitReport,
    /// What was collected.
    pub files: Vec<CollectedFile>,
    /// Bytes of both, about.
    pub held: usize,
}

/// The sending half, kept until the end: closing it would end the command.
#[derive(Debug)]
enum StdinFeed {
    /// Standard input is `/dev/null`.
    None { _half: Stdin },
    /// Being sent while output is read, since a command may well write before it has read everything.
    Sending(JoinHandle<Stdin>),
}

impl Drop for StdinFeed {
    fn drop(&mut self) {
        if let Self::Sending(task) = self {
            task.abort();
        }
    }
}

impl Executor {
    /// The executor that listens at `socket`.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.into() }
    }

    /// Starts a command, and sends `stdin` beside what follows. `room` is dropped when neither request nor
    /// input is in memory any more.
    ///
    /// # Errors
    /// As [`ClientError`] says; a refusal of the request itself comes from [`Run::next_event`].
    pub async fn run(
        &self,
        mut request: RunRequest,
        stdin: Option<Bytes>,
        room: impl Send + 'static,
    ) -> Result<Run, ClientError> {
        request.stdin = stdin.is_some();
        let (connection, mut half) = asynchronous::run(&self.socket, CLIENT, request).await?;
        let feed = match stdin {
            None => StdinFeed::None { _half: half },
            Some(data) => StdinFeed::Sending(tokio::spawn(async move {
                // A command may end without having read everything; the report says how it ended.
                let _ = half.send_all(&data).await;
                drop((data, room));
                half
            })),
        };
        Ok(Run { connection, _stdin: feed })
    }

    /// The gateway's own workspaces: all HTTP clients are one peer.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub async fn workspaces(&self) -> Result<Vec<WorkspaceInfo>, ClientError> {
        asynchronous::workspaces(&self.socket, CLIENT).await
    }

    /// Deletes one of them.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub async fn delete_workspace(&self, name: &str) -> Result<(), ClientError> {
        asynchronous::delete_workspace(&self.socket, CLIENT, name).await
    }

    /// Whether the executor answers a question.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub async fn check(&self) -> Result<(), ClientError> {
        asynchronous::profiles(&self.socket, CLIENT).await.map(drop)
    }
}

impl Run {
    /// The report of a command whose output is not streamed, with the files that it was to collect, beginning with
    /// an event that has been read. Nothing of it is read before it has room.
    ///
    /// # Errors
    /// As [`ClientError`] says; 503 `report_lost` when there is no room in time.
    pub async fn finish(mut self, first: Event, room: &mut ReportRoom) -> Result<Finished, ApiError> {
        let (mut files, mut held) = (Vec::new(), 0);
        let mut event = first;
        loop {
            match event {
                Event::Exited(report) => return Ok(Finished { report: *report, files, held }),
                Event::File(file) => files.push(file),
                Event::Queued { .. } | Event::Started { .. } => {}
                _ => return Err(ClientError::Unexpected.into()),
            }
            let length = self.connection.next_length().await?;
            // As it comes, and what is made of it.
            room.grown(held + 2 * length).await?;
            event = self.next_event().await?;
            held += length;
        }
    }

    /// As [`Self::next_event`], for whoever passes each on before the next: one that is larger than a piece of output is
    /// not read before it has room, for itself and for what is made of it.
    ///
    /// # Errors
    /// As [`ClientError`] says; 503 `report_lost` when there is no room in time.
    pub async fn next_within(&mut self, room: &mut ReportRoom) -> Result<Event, ApiError> {
        let length = self.connection.next_length().await?;
        if length > PIECE_MAX {
            room.grown(2 * length).await?;
        }
        Ok(self.next_event().await?)
    }

    /// The next event; the last is `Exited`. Not cancel safe: drop the run when it is not awaited to its end.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub async fn next_event(&mut self) -> Result<Event, ClientError> {
        self.connection.next_event().await
    }
}
