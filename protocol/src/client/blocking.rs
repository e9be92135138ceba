//! A client on std's blocking socket, for programs without a runtime.

use super::{ClientError, accept, opening};
use crate::{
    Event, JobInfo, LayerReport, ProfileInfo, Request, RunRequest, WorkspaceInfo,
    codec::{encode_frame, read_frame},
    limits,
};
use std::{
    io::{BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
};

/// A connection on which one request has been sent.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<UnixStream>,
}

/// The sending half of a command's connection: standard input.
#[derive(Debug)]
pub struct Stdin {
    stream: UnixStream,
}

/// Ends a command from another thread than the one that reads its events.
#[derive(Debug)]
pub struct Canceller {
    stream: UnixStream,
}

fn ask(socket: &Path, client: &str, request: &Request) -> Result<Connection, ClientError> {
    let connect = |source| ClientError::Connect { path: socket.to_owned(), source };
    let mut stream = UnixStream::connect(socket).map_err(connect)?;
    let bytes = opening(client, request)?;
    // A refusal may have been sent, and the connection closed, before everything was taken: read on.
    let sent = stream.write_all(&bytes);
    let mut connection = Connection { reader: BufReader::with_capacity(limits::CHUNK_MAX + 64, stream) };
    if let Err(error) = sent {
        return match connection.next_event() {
            Err(ClientError::Refused(refusal)) => Err(refusal.into()),
            _ => Err(crate::codec::FrameError::Io(error).into()),
        };
    }
    Ok(connection)
}

/// Starts a command; its events come from the connection, its standard input goes to [`Stdin`].
///
/// # Errors
/// As [`ClientError`] says; a refusal of the request itself comes from [`Connection::next_event`].
pub fn run(socket: &Path, client: &str, request: RunRequest) -> Result<(Connection, Stdin), ClientError> {
    let connection = ask(socket, client, &Request::Run(Box::new(request)))?;
    let stream = connection.reader.get_ref().try_clone().map_err(crate::codec::FrameError::Io)?;
    Ok((connection, Stdin { stream }))
}

/// The peer's own commands.
///
/// # Errors
/// As [`ClientError`] says.
pub fn ps(socket: &Path, client: &str) -> Result<Vec<JobInfo>, ClientError> {
    match ask(socket, client, &Request::Ps)?.next_event()? {
        Event::Jobs(jobs) => Ok(jobs),
        _ => Err(ClientError::Unexpected),
    }
}

/// Ends one of the peer's own commands.
///
/// # Errors
/// As [`ClientError`] says; `NotFound` when there is none of that id.
pub fn kill(socket: &Path, client: &str, id: &str) -> Result<(), ClientError> {
    match ask(socket, client, &Request::Kill { id: id.to_owned() })?.next_event()? {
        Event::Killed { .. } => Ok(()),
        _ => Err(ClientError::Unexpected),
    }
}

/// The profiles that the peer may use.
///
/// # Errors
/// As [`ClientError`] says.
pub fn profiles(socket: &Path, client: &str) -> Result<Vec<ProfileInfo>, ClientError> {
    match ask(socket, client, &Request::Profiles)?.next_event()? {
        Event::Profiles(profiles) => Ok(profiles),
        _ => Err(ClientError::Unexpected),
    }
}

/// What the executor's host enforces.
///
/// # Errors
/// As [`ClientError`] says.
pub fn doctor(socket: &Path, client: &str) -> Result<Vec<LayerReport>, ClientError> {
    match ask(socket, client, &Request::Doctor)?.next_event()? {
        Event::Doctor(layers) => Ok(layers),
        _ => Err(ClientError::Unexpected),
    }
}

/// The peer's own workspaces.
///
/// # Errors
/// As [`ClientError`] says.
pub fn workspaces(socket: &Path, client: &str) -> Result<Vec<WorkspaceInfo>, ClientError> {
    match ask(socket, client, &Request::Workspaces)?.next_event()? {
        Event::Workspaces(workspaces) => Ok(workspaces),
        _ => Err(ClientError::Unexpected),
    }
}

/// Deletes one of the peer's own workspaces.
///
/// # Errors
/// As [`ClientError`] says; `NotFound` when there is none of that name, `Busy` when a command uses it.
pub fn delete_workspace(socket: &Path, client: &str, name: &str) -> Result<(), ClientError> {
    match ask(socket, client, &Request::DeleteWorkspace { name: name.to_owned() })?.next_event()? {
        Event::WorkspaceDeleted { .. } => Ok(()),
        _ => Err(ClientError::Unexpected),
    }
}

impl Connection {
    /// The next event; waits for it.
    ///
    /// # Errors
    /// As [`ClientError`] says; a `Refused` event is an error, so is an end without a report.
    pub fn next_event(&mut self) -> Result<Event, ClientError> {
        accept(read_frame(&mut self.reader, limits::EVENT_FRAME_MAX)?)
    }

    /// Closes the connection, which ends the command.
    pub fn close(self) {
        let _ = self.reader.get_ref().shutdown(Shutdown::Both);
    }

    /// A handle that ends the command.
    ///
    /// # Errors
    /// `Frame` when no descriptor is left for it.
    pub fn canceller(&self) -> Result<Canceller, ClientError> {
        let stream = self.reader.get_ref().try_clone().map_err(crate::codec::FrameError::Io)?;
        Ok(Canceller { stream })
    }
}

impl Canceller {
    /// Closes our direction of the connection, which ends the command; its report can still be read.
    pub fn cancel(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

impl Stdin {
    /// Sends a piece of standard input; waits while the command does not read.
    ///
    /// # Errors
    /// `Frame` when the connection has ended.
    pub fn send(&mut self, data: &[u8]) -> Result<(), ClientError> {
        for chunk in data.chunks(limits::CHUNK_MAX) {
            self.write(&Request::Stdin(chunk.to_vec()))?;
        }
        Ok(())
    }

    /// Ends standard input.
    ///
    /// # Errors
    /// `Frame` when the connection has ended.
    pub fn end(mut self) -> Result<(), ClientError> {
        self.write(&Request::StdinEnd)
    }

    fn write(&mut self, request: &Request) -> Result<(), ClientError> {
        let frame = encode_frame(request, limits::REQUEST_FRAME_MAX)?;
        self.stream.write_all(&frame).map_err(|e| crate::codec::FrameError::Io(e).into())
    }
}
