//! Why the monitor refuses a launch, or a connection.

use super::{
    LimitField, Malformed,
    wire::{Reader, Writer},
};
use cordon_protocol::{Bytes, limits};
use std::fmt;

/// Why the monitor refuses a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchRefusal {
    /// The connection is not one that may launch now.
    OutOfOrder,
    /// No such profile, or not for this peer.
    UnknownProfile,
    /// Above the ceiling.
    AboveCeiling {
        /// Which limit.
        limit: LimitField,
        /// Asked for.
        value: u64,
        /// Most.
        ceiling: u64,
    },
    /// Zero, or below what a command needs to start.
    BelowFloor {
        /// Which limit.
        limit: LimitField,
        /// Asked for.
        value: u64,
        /// Least.
        floor: u64,
    },
    /// The request is not a sealed memfd of allowed size.
    BadRequestFile,
    /// The peer has as many commands as it may.
    Busy {
        /// Commands of one peer at once.
        concurrency: u32,
    },
    /// A command runs already, on a host that cannot keep two apart.
    OneAtATime,
    /// The executor is ending.
    ShuttingDown,
    /// Not a workspace's name.
    BadWorkspace,
    /// The peer has as many workspaces as it may.
    TooManyWorkspaces,
    /// Workspaces could fill the disk.
    DiskFull {
        /// Bytes that are free.
        free: u64,
        /// Bytes that must be.
        floor: u64,
    },
    /// More is in the workspace than may be.
    WorkspaceFull {
        /// Bytes that are in it.
        bytes: u64,
        /// Files and directories.
        files: u64,
        /// Bytes that may be.
        bytes_max: u64,
        /// Files and directories.
        files_max: u64,
    },
    /// There are as many commands as there are open files for.
    Full {
        /// Commands of all peers at once.
        commands: u64,
    },
}

/// For the audit trail: field, value and limit, then the remedy. What a client is told has the words of its door.
impl fmt::Display for LaunchRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfOrder => f.write_str(
                "connection: it is not open, or has launched a command already; one connection carries one",
            ),
            Self::UnknownProfile => f.write_str(
                "profile: there is none of this name for this user; name another, or add the user to its peers",
            ),
            Self::AboveCeiling { limit, value, ceiling } => {
                let (name, value, ceiling) = (limit.name(), limit.show(*value), limit.show(*ceiling));
                write!(
                    f,
                    "{name}: {value} is above the ceiling, {ceiling}; ask for less, or raise the profile's \
                     limits.{name}.ceiling"
                )
            }
            Self::BelowFloor { limit, value, floor } => {
                let (name, value, floor) = (limit.name(), limit.show(*value), limit.show(*floor));
                write!(f, "{name}: {value} is below the least, {floor}; ask for more, or leave it out")
            }
            Self::BadRequestFile => f.write_str(
                "request: it came in no sealed memory files of the allowed sizes, as the server half sends them; \
                 see the executor's log",
            ),
            Self::Busy { concurrency } => write!(
                f,
                "concurrency: as many commands of this user run already as may at once ({concurrency}); try again, \
                 or raise the profile's concurrency"
            ),
            Self::OneAtATime => f.write_str(
                "a command runs already, and this host cannot keep two apart; `cordon doctor` says what it lacks",
            ),
            Self::ShuttingDown => {
                f.write_str("the executor is ending and takes no more; try again when it is back")
            }
            Self::BadWorkspace => write!(
                f,
                "workspace: not a name; use at most {} lower-case letters, digits, `.`, `_` and `-`",
                limits::WORKSPACE_NAME_MAX
            ),
            Self::TooManyWorkspaces => write!(
                f,
                "workspace: this user has {}, which is all that may be; delete those that are not needed",
                limits::WORKSPACES_PER_PEER
            ),
            Self::DiskFull { free, floor } => write!(
                f,
                "free_space_min: {} are free where workspaces lie, less than {}; delete workspaces or free the disk",
                Bytes(*free),
                Bytes(*floor)
            ),
            Self::WorkspaceFull { bytes, files, bytes_max, files_max } => write!(
                f,
                "workspace: {} and {files} files are in it, and no more than {} (named_workspace) and {files_max} files \
                 (named_workspace_files) may be; remove some of them with a command in it, or raise the profile's limits",
                Bytes(*bytes),
                Bytes(*bytes_max)
            ),
            Self::Full { commands } => write!(
                f,
                "max_commands: as many commands are there already as it and open files allow ({commands}); try again, \
                 or raise both"
            ),
        }
    }
}

impl LaunchRefusal {
    pub(super) fn write(&self, writer: &mut Writer) {
        let limit = |writer: &mut Writer, kind, limit: &LimitField, value, bound| {
            writer.number(kind);
            writer.index(&LimitField::ALL, limit);
            writer.number(value);
            writer.number(bound);
        };
        match self {
            Self::OutOfOrder => writer.number(1),
            Self::UnknownProfile => writer.number(2),
            Self::AboveCeiling { limit: field, value, ceiling } => limit(writer, 3, field, *value, *ceiling),
            Self::BelowFloor { limit: field, value, floor } => limit(writer, 4, field, *value, *floor),
            Self::BadRequestFile => writer.number(5),
            Self::Busy { concurrency } => {
                writer.number(6);
                writer.number(u64::from(*concurrency));
            }
            Self::ShuttingDown => writer.number(7),
            Self::OneAtATime => writer.number(8),
            Self::BadWorkspace => writer.number(9),
            Self::TooManyWorkspaces => writer.number(10),
            Self::DiskFull { free, floor } => {
                for number in [11, *free, *floor] {
                    writer.number(number);
                }
            }
            Self::WorkspaceFull { bytes, files, bytes_max, files_max } => {
                for number in [13, *bytes, *files, *bytes_max, *files_max] {
                    writer.number(number);
                }
            }
            Self::Full { commands } => {
                writer.number(12);
                writer.number(*commands);
            }
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match reader.number()? {
            1 => Self::OutOfOrder,
            2 => Self::UnknownProfile,
            3 => Self::AboveCeiling {
                limit: reader.index(&LimitField::ALL)?,
                value: reader.number()?,
                ceiling: reader.number()?,
            },
            4 => Self::BelowFloor {
                limit: reader.index(&LimitField::ALL)?,
                value: reader.number()?,
                floor: reader.number()?,
            },
            5 => Self::BadRequestFile,
            6 => Self::Busy { concurrency: reader.number_u32()? },
            7 => Self::ShuttingDown,
            8 => Self::OneAtATime,
            9 => Self::BadWorkspace,
            10 => Self::TooManyWorkspaces,
            11 => Self::DiskFull { free: reader.number()?, floor: reader.number()? },
            13 => Self::WorkspaceFull {
                bytes: reader.number()?,
                files: reader.number()?,
                bytes_max: reader.number()?,
                files_max: reader.number()?,
            },
            12 => Self::Full { commands: reader.number()? },
            _ => return Err(Malformed),
        })
    }
}

/// Why the monitor turns a connection away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionRefusal {
    /// The kernel does not say who it is.
    Nobody,
    /// The peer, or all peers together, have as many open as they may.
    Busy {
        /// Connections of one peer.
        per_peer: u64,
        /// Connections of all.
        total: u64,
    },
}

impl ConnectionRefusal {
    pub(super) fn write(&self, writer: &mut Writer) {
        match self {
            Self::Nobody => writer.number(1),
            Self::Busy { per_peer, total } => {
                writer.number(2);
                writer.number(*per_peer);
                writer.number(*total);
            }
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match reader.number()? {
            1 => Self::Nobody,
            2 => Self::Busy { per_peer: reader.number()?, total: reader.number()? },
            _ => return Err(Malformed),
        })
    }
}
