//! How a command used one service, as the server half counted.

use super::{
    Malformed,
    wire::{Reader, Writer},
};
use cordon_protocol::ServiceUse;

/// How a command used one service, as the server half counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    /// Connections that were relayed.
    pub connections: u64,
    /// Connections that were too many at the same time.
    pub over_cap: u64,
    /// Connections that nothing on the host took.
    pub unreachable: u64,
}

impl ServiceCounts {
    /// All that were refused.
    pub fn refused(&self) -> u64 {
        self.over_cap.saturating_add(self.unreachable)
    }

    /// As the report and the trail write them, for the service at this port.
    pub fn of(&self, port: u16) -> ServiceUse {
        ServiceUse { port: port.into(), connections: self.connections, refused: self.refused() }
    }

    pub(super) fn write(writer: &mut Writer, counts: &Self) {
        [counts.connections, counts.over_cap, counts.unreachable].iter().for_each(|n| writer.number(*n));
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (connections, over_cap) = (reader.number()?, reader.number()?);
        Ok(Self { connections, over_cap, unreachable: reader.number()? })
    }
}
