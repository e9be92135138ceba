//! Why the monitor refuses a launch, or a connection.

use super::{
    LimitField, Malformed,
    wire::{Reader, Writer},
};

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
    /// There are as many commands as there are open files for.
    Full {
        /// Commands of all peers at once.
        commands: u64,
    },
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
