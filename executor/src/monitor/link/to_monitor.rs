//! What the server half says to the monitor.

use super::{
    AskedLimits, ConnectionId, Denial, JobId, Malformed, Message, ServiceCounts,
    wire::{Reader, Writer},
};
use cordon_protocol::limits;

/// Server to monitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToMonitor {
    /// Launch a command for this connection's peer. Descriptors: the sealed request, its text, and the sealed content of
    /// its files where there are some.
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
        /// True: it is done to put something into the workspace.
        adds: bool,
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
    /// In place of `Launch`: the server itself has refused what the client asked for.
    Refused {
        /// Whose.
        connection: ConnectionId,
        /// Name of the profile, as far as there is room.
        profile: String,
        /// Why.
        denial: Denial,
    },
    /// Whether launches can be recorded now.
    CheckTrail(ConnectionId),
}

impl ToMonitor {
    /// The connection that it is about.
    pub fn connection(&self) -> Option<ConnectionId> {
        match self {
            Self::Launch { connection, .. }
            | Self::KillJob { connection, .. }
            | Self::DeleteWorkspace { connection, .. }
            | Self::Services { connection, .. }
            | Self::Refused { connection, .. }
            | Self::Collect(connection)
            | Self::ListWorkspaces(connection)
            | Self::CheckTrail(connection)
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
            Self::Launch { connection, profile, workspace, stdin, files, adds, collect, limits } => {
                let mut writer = Writer::new(1);
                writer.number(*connection);
                writer.text(profile, limits::NAME_MAX_BYTES);
                writer.text(workspace, limits::WORKSPACE_NAME_MAX);
                for flag in [stdin, files, adds, collect] {
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
            Self::Refused { connection, profile, denial } => {
                let mut writer = Writer::new(12);
                writer.number(*connection);
                writer.text(profile, limits::NAME_MAX_BYTES);
                writer.index(&Denial::ALL, denial);
                writer.message
            }
            Self::CheckTrail(connection) => simple(13, *connection),
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
                adds: reader.flag()?,
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
            12 => Self::Refused {
                connection: reader.number()?,
                profile: reader.text(limits::NAME_MAX_BYTES)?,
                denial: reader.index(&Denial::ALL)?,
            },
            13 => Self::CheckTrail(reader.number()?),
            _ => return Err(Malformed),
        };
        reader.end()?;
        Ok(decoded)
    }
}
