//! Messages between monitor and server: fixed-size, over a SEQPACKET pair, descriptors beside them.
//!
//! Fixed-size so that the root half parses nothing: a field stands at its offset or the message is
//! refused whole. Nothing that a client wrote is in them but a profile's name; what is to be run travels
//! in a sealed memfd that the monitor forwards unread. `docs/architecture.md` has the table of which
//! message is allowed when.

mod limit;
mod outcome;
mod refusal;
mod services;
mod wire;

pub use limit::{AskedLimits, LimitField};
pub use outcome::{Outcome, OutcomeEnforced};
pub use refusal::{ConnectionRefusal, LaunchRefusal};
pub use services::ServiceCounts;

use cordon_protocol::limits;
use wire::{Reader, Writer};

/// Bytes of every message in both directions.
pub const MESSAGE_LEN: usize = 512;
/// A message as it travels.
pub type Message = [u8; MESSAGE_LEN];

/// Number of a connection, given by the monitor when it accepts; never reused.
pub type ConnectionId = u64;
/// Number of a command, unique over restarts; `id` in the report is its sixteen hexadecimal digits.
pub type JobId = u64;

/// A message that is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed link message")]
pub struct Malformed;

/// Server to monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToMonitor {
    /// Launch a command for this connection's peer. Descriptors: the sealed request, and the sealed files where
    /// there are some.
    Launch {
        /// Whose.
        connection: ConnectionId,
        /// Name of the profile.
        profile: String,
        /// Name of the workspace; empty is a private one.
        workspace: String,
        /// True: standard input is a pipe; false: `/dev/null`.
        stdin: bool,
        /// True: a second descriptor has files for the workspace.
        files: bool,
        /// True: `Collect` may follow the command's end.
        collect: bool,
        /// What the request asks for.
        limits: AskedLimits,
    },
    /// End this connection's own command: the client went away, or asked.
    Cancel(ConnectionId),
    /// End this connection's own command: it produced more than it may.
    OutputExceeded(ConnectionId),
    /// End the command of that number, if it is the connection's peer's own.
    KillJob {
        /// Who asks.
        connection: ConnectionId,
        /// Which.
        job: JobId,
    },
    /// The output of an ended command has been read to its end, or the grace is over.
    Drained(ConnectionId),
    /// The connection is closed; its number is free of duties.
    Closed(ConnectionId),
    /// Answer to `Ping`.
    Pong,
    /// In place of `Drained`: end what is left, then run what one descriptor, a sealed request, asks for in the same
    /// sandbox.
    Collect(ConnectionId),
    /// List the workspaces of this connection's peer.
    ListWorkspaces(ConnectionId),
    /// Delete one of them.
    DeleteWorkspace {
        /// Who asks.
        connection: ConnectionId,
        /// Its name.
        name: String,
    },
    /// How an ended command used its services, in the order of its profile; only where it did.
    Services {
        /// Whose.
        connection: ConnectionId,
        /// Of each.
        counts: Vec<ServiceCounts>,
    },
}

/// Monitor to server.
#[derive(Debug, Clone, PartialEq)]
pub enum ToServer {
    /// A peer has connected. One descriptor: its socket.
    Connection {
        /// Its number.
        connection: ConnectionId,
        /// The peer's uid, from the kernel.
        uid: u32,
        /// Profiles that the peer may use: bit N is the Nth of the configuration in the order of names.
        /// Only for what is shown to the peer; one past the 64th works all the same.
        profiles: u64,
    },
    /// The launch was accepted. Descriptors: standard output, standard error, and standard input when it
    /// was asked for: the server's ends of the pipes.
    Launched {
        /// Whose.
        connection: ConnectionId,
        /// Its number.
        job: JobId,
        /// What the profile and the request come to, for the server to count by.
        output_bytes: u64,
        /// As above.
        capture_bytes: u64,
    },
    /// The command's program has been executed.
    Executed(ConnectionId),
    /// The command's process has ended (or never started); what is left in the pipes is all there is.
    Ended {
        /// Whose.
        connection: ConnectionId,
        /// How.
        outcome: Outcome,
    },
    /// The launch was refused; nothing was started.
    LaunchRefused {
        /// Whose.
        connection: ConnectionId,
        /// Why.
        refusal: LaunchRefusal,
    },
    /// Answer to `KillJob`.
    KillAnswer {
        /// Who asked.
        connection: ConnectionId,
        /// There was such a command and it has been told to end.
        found: bool,
    },
    /// Take no more requests; the executor is ending.
    Drain,
    /// Are you there?
    Ping,
    /// A peer has connected that is not served. One descriptor: its socket, to be told and closed.
    TurnedAway(ConnectionRefusal),
    /// Answer to `Collect`. One descriptor: what is collected comes from it, up to its end; none when it could not
    /// be started.
    Collecting(ConnectionId),
    /// Answer to `ListWorkspaces`. One descriptor: a file with a line `NAME SECONDS` for each; none when they could
    /// not be read.
    Workspaces(ConnectionId),
    /// The configuration has changed. One descriptor: a file with its policy, which holds for every message after
    /// this one.
    Policy,
    /// Answer to `DeleteWorkspace`.
    WorkspaceDeleted {
        /// Who asked.
        connection: ConnectionId,
        /// What came of it.
        deletion: Deletion,
    },
    /// The services of a launched command, before `Executed`. Descriptors: a listening socket for each port.
    Services {
        /// Whose.
        connection: ConnectionId,
        /// Port of the host to which what comes by each is relayed.
        ports: Vec<u16>,
    },
}

/// What came of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// It is gone.
    Done,
    /// There is none of that name.
    NotFound,
    /// A command uses it.
    InUse,
    /// It could not be moved away.
    Failed,
}

impl Deletion {
    const ALL: [Self; 4] = [Self::Done, Self::NotFound, Self::InUse, Self::Failed];
}

impl ToMonitor {
    /// The connection that it is about.
    pub fn connection(&self) -> Option<ConnectionId> {
        match self {
            Self::Launch { connection, .. }
            | Self::KillJob { connection, .. }
            | Self::DeleteWorkspace { connection, .. }
            | Self::Services { connection, .. }
            | Self::Collect(connection)
            | Self::ListWorkspaces(connection)
            | Self::Cancel(connection)
            | Self::OutputExceeded(connection)
            | Self::Drained(connection)
            | Self::Closed(connection) => Some(*connection),
            Self::Pong => None,
        }
    }

    /// The message's bytes.
    pub fn encode(&self) -> Message {
        let simple = |kind, connection: ConnectionId| {
            let mut writer = Writer::new(kind);
            writer.number(connection);
            writer.message
        };
        match self {
            Self::Launch { connection, profile, workspace, stdin, files, collect, limits } => {
                let mut writer = Writer::new(1);
                writer.number(*connection);
                writer.text(profile, limits::NAME_MAX_BYTES);
                writer.text(workspace, limits::WORKSPACE_NAME_MAX);
                for flag in [stdin, files, collect] {
                    writer.number(u64::from(*flag));
                }
                limits.write(&mut writer);
                writer.message
            }
            Self::Cancel(connection) => simple(2, *connection),
            Self::OutputExceeded(connection) => simple(3, *connection),
            Self::KillJob { connection, job } => {
                let mut writer = Writer::new(4);
                writer.number(*connection);
                writer.number(*job);
                writer.message
            }
            Self::Drained(connection) => simple(5, *connection),
            Self::Closed(connection) => simple(6, *connection),
            Self::Pong => Writer::new(7).message,
            Self::Collect(connection) => simple(8, *connection),
            Self::ListWorkspaces(connection) => simple(9, *connection),
            Self::DeleteWorkspace { connection, name } => {
                let mut writer = Writer::new(10);
                writer.number(*connection);
                writer.text(name, limits::WORKSPACE_NAME_MAX);
                writer.message
            }
            Self::Services { connection, counts } => {
                let mut writer = Writer::new(11);
                writer.number(*connection);
                writer.list(counts, ServiceCounts::write);
                writer.message
            }
        }
    }

    /// The message in these bytes.
    ///
    /// # Errors
    /// When they are not exactly one.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let message: &Message = bytes.try_into().map_err(|_| Malformed)?;
        let mut reader = Reader { rest: message };
        let decoded = match reader.number()? {
            1 => Self::Launch {
                connection: reader.number()?,
                profile: reader.text(limits::NAME_MAX_BYTES)?,
                workspace: reader.text(limits::WORKSPACE_NAME_MAX)?,
                stdin: reader.flag()?,
                files: reader.flag()?,
                collect: reader.flag()?,
                limits: AskedLimits::read(&mut reader)?,
            },
            2 => Self::Cancel(reader.number()?),
            3 => Self::OutputExceeded(reader.number()?),
            4 => Self::KillJob { connection: reader.number()?, job: reader.number()? },
            5 => Self::Drained(reader.number()?),
            6 => Self::Closed(reader.number()?),
            7 => Self::Pong,
            8 => Self::Collect(reader.number()?),
            9 => Self::ListWorkspaces(reader.number()?),
            10 => Self::DeleteWorkspace {
                connection: reader.number()?,
                name: reader.text(limits::WORKSPACE_NAME_MAX)?,
            },
            11 => Self::Services {
                connection: reader.number()?,
                counts: reader.list(limits::SERVICES_MAX, ServiceCounts::read)?,
            },
            _ => return Err(Malformed),
        };
        reader.end()?;
        Ok(decoded)
    }
}

impl ToServer {
    /// The message's bytes.
    pub fn encode(&self) -> Message {
        let mut writer;
        match self {
            Self::Connection { connection, uid, profiles } => {
                writer = Writer::new(1);
                writer.number(*connection);
                writer.number(u64::from(*uid));
                writer.number(*profiles);
            }
            Self::Launched { connection, job, output_bytes, capture_bytes } => {
                writer = Writer::new(2);
                for number in [*connection, *job, *output_bytes, *capture_bytes] {
                    writer.number(number);
                }
            }
            Self::Executed(connection) => {
                writer = Writer::new(3);
                writer.number(*connection);
            }
            Self::Ended { connection, outcome } => {
                writer = Writer::new(4);
                writer.number(*connection);
                outcome.write(&mut writer);
            }
            Self::LaunchRefused { connection, refusal } => {
                writer = Writer::new(5);
                writer.number(*connection);
                refusal.write(&mut writer);
            }
            Self::KillAnswer { connection, found } => {
                writer = Writer::new(6);
                writer.number(*connection);
                writer.number(u64::from(*found));
            }
            Self::Drain => writer = Writer::new(7),
            Self::Ping => writer = Writer::new(8),
            Self::TurnedAway(refusal) => {
                writer = Writer::new(9);
                refusal.write(&mut writer);
            }
            Self::Collecting(connection) => {
                writer = Writer::new(10);
                writer.number(*connection);
            }
            Self::Workspaces(connection) => {
                writer = Writer::new(11);
                writer.number(*connection);
            }
            Self::WorkspaceDeleted { connection, deletion } => {
                writer = Writer::new(12);
                writer.number(*connection);
                writer.index(&Deletion::ALL, deletion);
            }
            Self::Services { connection, ports } => {
                writer = Writer::new(13);
                writer.number(*connection);
                writer.list(ports, |writer, port| writer.number(u64::from(*port)));
            }
            Self::Policy => writer = Writer::new(14),
        }
        writer.message
    }

    /// The message in these bytes.
    ///
    /// # Errors
    /// When they are not exactly one.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let message: &Message = bytes.try_into().map_err(|_| Malformed)?;
        let mut reader = Reader { rest: message };
        let decoded = match reader.number()? {
            1 => Self::Connection {
                connection: reader.number()?,
                uid: reader.number_u32()?,
                profiles: reader.number()?,
            },
            2 => Self::Launched {
                connection: reader.number()?,
                job: reader.number()?,
                output_bytes: reader.number()?,
                capture_bytes: reader.number()?,
            },
            3 => Self::Executed(reader.number()?),
            4 => Self::Ended { connection: reader.number()?, outcome: Outcome::read(&mut reader)? },
            5 => {
                let connection = reader.number()?;
                Self::LaunchRefused { connection, refusal: LaunchRefusal::read(&mut reader)? }
            }
            6 => Self::KillAnswer { connection: reader.number()?, found: reader.flag()? },
            7 => Self::Drain,
            8 => Self::Ping,
            9 => Self::TurnedAway(ConnectionRefusal::read(&mut reader)?),
            10 => Self::Collecting(reader.number()?),
            11 => Self::Workspaces(reader.number()?),
            12 => Self::WorkspaceDeleted {
                connection: reader.number()?,
                deletion: reader.index(&Deletion::ALL)?,
            },
            13 => Self::Services {
                connection: reader.number()?,
                ports: reader.list(2 * limits::SERVICES_MAX, |reader| {
                    reader.number()?.try_into().map_err(|_| Malformed)
                })?,
            },
            14 => Self::Policy,
            _ => return Err(Malformed),
        };
        reader.end()?;
        Ok(decoded)
    }
}

#[cfg(test)]
mod tests;
