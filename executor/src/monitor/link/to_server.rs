//! What the monitor says to the server half.

use super::{
    ConnectionId, ConnectionRefusal, JobId, LaunchRefusal, Malformed, Message, Outcome,
    outcome::DETAIL_LEN,
    wire::{Reader, Writer},
};
use cordon_protocol::limits;

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
    /// Answer to `CheckTrail`.
    Trail {
        /// Who asked.
        connection: ConnectionId,
        /// errno of what stands in the way; none when nothing does.
        errno: Option<i32>,
        /// What that is, in words, cut to fit.
        detail: String,
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
            Self::Trail { connection, errno, detail } => {
                writer = Writer::new(15);
                writer.number(*connection);
                writer.optional_i32(*errno);
                writer.text(detail, DETAIL_LEN);
            }
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
            15 => Self::Trail {
                connection: reader.number()?,
                errno: reader.optional_i32()?,
                detail: reader.text(DETAIL_LEN)?,
            },
            _ => return Err(Malformed),
        };
        reader.end()?;
        Ok(decoded)
    }
}
