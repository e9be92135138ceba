//! The limits that a request can name, and what it asks of them.

use super::{
    Malformed,
    wire::{Reader, Writer},
};

/// Limits as a request asks for them; none is the profile's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AskedLimits {
    /// Milliseconds.
    pub wall_ms: Option<u64>,
    /// Milliseconds.
    pub cpu_time_ms: Option<u64>,
    /// Bytes.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Percent of one processor.
    pub cpu_percent: Option<u64>,
    /// Bytes; the server counts, the monitor only checks the ceiling.
    pub output_bytes: Option<u64>,
    /// Bytes; as `output_bytes`.
    pub capture_bytes: Option<u64>,
}

/// The limits a request can name, in the order of the manual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitField {
    /// `wall`, milliseconds.
    Wall,
    /// `cpu_time`, milliseconds.
    CpuTime,
    /// `memory`, bytes.
    Memory,
    /// `pids`.
    Pids,
    /// `cpu`, percent.
    Cpu,
    /// `capture`, bytes.
    Capture,
    /// `output`, bytes.
    Output,
}

impl LimitField {
    /// Every limit, in the order of the manual; the index is its number on the link.
    pub const ALL: [Self; 7] =
        [Self::Wall, Self::CpuTime, Self::Memory, Self::Pids, Self::Cpu, Self::Capture, Self::Output];

    /// The name in configuration and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::CpuTime => "cpu_time",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Capture => "capture",
            Self::Output => "output",
        }
    }

    /// A value of this limit as people write it.
    pub fn show(self, value: u64) -> String {
        match self {
            Self::Wall | Self::CpuTime => cordon_protocol::Millis(value).to_string(),
            Self::Memory | Self::Capture | Self::Output => cordon_protocol::Bytes(value).to_string(),
            Self::Pids => value.to_string(),
            Self::Cpu => format!("{value}%"),
        }
    }
}

impl AskedLimits {
    /// The value asked for a limit.
    pub fn get(&self, field: LimitField) -> Option<u64> {
        match field {
            LimitField::Wall => self.wall_ms,
            LimitField::CpuTime => self.cpu_time_ms,
            LimitField::Memory => self.memory_bytes,
            LimitField::Pids => self.pids,
            LimitField::Cpu => self.cpu_percent,
            LimitField::Capture => self.capture_bytes,
            LimitField::Output => self.output_bytes,
        }
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        for field in LimitField::ALL {
            // The largest number stands for none on the link: a request for it asks for one less, which is
            // above every ceiling all the same.
            writer.optional(self.get(field).map(|value| value.min(u64::MAX - 1)));
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            wall_ms: reader.optional()?,
            cpu_time_ms: reader.optional()?,
            memory_bytes: reader.optional()?,
            pids: reader.optional()?,
            cpu_percent: reader.optional()?,
            capture_bytes: reader.optional()?,
            output_bytes: reader.optional()?,
        })
    }
}
