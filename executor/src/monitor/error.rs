//! Why the root half ends before it is told to.

use crate::sandbox::{seccomp, steps::Fault};
use std::io;

/// Why the monitor ends otherwise than it was told to.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// A call of its own loop failed.
    #[error("{0} failed: {1}")]
    System(&'static str, #[source] io::Error),
    /// Something it prepares before the first launch could not be made.
    #[error("cannot prepare {what}: {fault}")]
    Prepare {
        /// What.
        what: String,
        /// Cause.
        fault: Fault,
    },
    /// The filter could not be compiled.
    #[error(transparent)]
    Filter(#[from] seccomp::FilterError),
    /// The other half is gone.
    #[error("the server half has ended")]
    ServerGone,
    /// The other half is not what was started.
    #[error("the server half sends descriptors that are no requests")]
    ServerBroken,
}
