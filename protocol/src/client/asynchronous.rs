//! A client on tokio's socket, for the gateway.

use super::{ClientError, accept, opening};
use crate::{
    Event, LayerReport, ProfileInfo, Request, RunRequest, WorkspaceInfo,
    codec::{FrameError, encode_frame, read_length_async, read_payload_async},
    limits,
};
use std::path::Path;
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// The receiving half of a command's connection. When both halves are dropped, the command ends.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<OwnedReadHalf>,
    /// Length of the frame that has begun.
    begun: Option<usize>,
}

/// The sending half of a command's connection: standard input.
#[derive(Debug)]
pub struct Stdin {
    writer: OwnedWriteHalf,
}

async fn ask(socket: &Path, client: &str, request: &Request) -> Result<(Connection, Stdin), ClientError> {
    let connect = |source| ClientError::Connect { path: socket.to_owned(), source };
    let (reader, mut writer) = UnixStream::connect(socket).await.map_err(connect)?.into_split();
    let bytes = opening(client, request)?;
    let sent = writer.write_all(&bytes).await;
    let reader = BufReader::with_capacity(limits::CHUNK_MAX + 64, reader);
    let mut connection = Connection { reader, begun: None };
    if let Err(error) = sent {
        return match connection.next_event().await {
            Err(ClientError::Refused(refusal)) => Err(refusal.into()),
            _ => Err(FrameError::Io(error).into()),
        };
    }
    Ok((connection, Stdin { writer }))
}

/// Starts a command; its events come from the connection, its standard input goes to [`Stdin`].
///
/// # Errors
/// As [`ClientError`] says; a refusal of the request itself comes from [`Connection::next_event`].
pub async fn run(
    socket: &Path,
    client: &str,
    request: RunRequest,
) -> Result<(Connection, Stdin), ClientError> {
    ask(socket, client, &Request::Run(Box::new(request))).await
}

/// The profiles that the peer may use.
///
/// # Errors
/// As [`ClientError`] says.
pub async fn profiles(socket: &Path, client: &str) -> Result<Vec<ProfileInfo>, ClientError> {
    match ask(socket, client, &Request::Profiles).await?.0.next_event().await? {
        Event::Profiles(profiles) => Ok(profiles),
        _ => Err(ClientError::Unexpected),
    }
}

/// What the executor's host enforces.
///
/// # Errors
/// As [`ClientError`] says.
pub async fn doctor(socket: &Path, client: &str) -> Result<Vec<LayerReport>, ClientError> {
    match ask(socket, client, &Request::Doctor).await?.0.next_event().await? {
        Event::Doctor(layers) => Ok(layers),
        _ => Err(ClientError::Unexpected),
    }
}

/// The peer's own workspaces.
///
/// # Errors
/// As [`ClientError`] says.
pub async fn workspaces(socket: &Path, client: &str) -> Result<Vec<WorkspaceInfo>, ClientError> {
    match ask(socket, client, &Request::Workspaces).await?.0.next_event().await? {
        Event::Workspaces(workspaces) => Ok(workspaces),
        _ => Err(ClientError::Unexpected),
    }
}

/// Deletes one of the peer's own workspaces.
///
/// # Errors
/// As [`ClientError`] says; `NotFound` when there is none of that name, `Busy` when a command uses it.
pub async fn delete_workspace(socket: &Path, client: &str, name: &str) -> Result<(), ClientError> {
    let request = Request::DeleteWorkspace { name: name.to_owned() };
    match ask(socket, client, &request).await?.0.next_event().await? {
        Event::WorkspaceDeleted { .. } => Ok(()),
        _ => Err(ClientError::Unexpected),
    }
}

impl Connection {
    /// The next event. Not cancel safe: drop the connection when it is not awaited to its end.
    ///
    /// # Errors
    /// As [`ClientError`] says; a `Refused` event is an error, so is an end without a report.
    pub async fn next_event(&mut self) -> Result<Event, ClientError> {
        self.next_length().await?;
        accept(match self.begun.take() {
            Some(length) => Some(read_payload_async(&mut self.reader, length).await?),
            None => None,
        })
    }

    /// Length of the next event as it comes, bytes, before more of it is in memory; 0 where there is none. Not cancel
    /// safe.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub async fn next_length(&mut self) -> Result<usize, ClientError> {
        if self.begun.is_none() {
            self.begun = read_length_async(&mut self.reader, limits::EVENT_FRAME_MAX).await?;
        }
        Ok(self.begun.unwrap_or_default())
    }
}

impl Stdin {
    /// Sends all of standard input and its end; waits while the command does not read.
    ///
    /// # Errors
    /// `Frame` when the connection has ended.
    pub async fn send_all(&mut self, data: &[u8]) -> Result<(), ClientError> {
        for chunk in data.chunks(limits::CHUNK_MAX) {
            self.write(&Request::Stdin(chunk.to_vec())).await?;
        }
        self.write(&Request::StdinEnd).await
    }

    async fn write(&mut self, request: &Request) -> Result<(), ClientError> {
        let frame = encode_frame(request, limits::REQUEST_FRAME_MAX)?;
        self.writer.write_all(&frame).await.map_err(|e| FrameError::Io(e).into())
    }
}
