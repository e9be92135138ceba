//! Messages between monitor and server: fixed-size, over a SEQPACKET pair, descriptors beside them.
//!
//! Fixed-size so that the root half parses nothing: a field stands at its offset or the message is
//! refused whole. Nothing that a client wrote is in them but a profile's name; what is to be run travels
//! in a sealed memfd that the monitor forwards unread. `docs/architecture.md` has the table of which
//! message is allowed when.

mod denial;
mod limit;
mod outcome;
mod refusal;
mod services;
mod to_monitor;
mod to_server;
mod wire;

pub use denial::Denial;
pub use limit::{AskedLimits, LimitField};
pub use outcome::{Outcome, OutcomeEnforced};
pub use refusal::{ConnectionRefusal, LaunchRefusal};
pub use services::ServiceCounts;
pub use to_monitor::ToMonitor;
pub use to_server::{Deletion, ToServer};

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

#[cfg(test)]
mod tests;
