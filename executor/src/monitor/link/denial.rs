//! Why the server half did not even ask for a launch that a client wanted.

use std::fmt;

/// The code of a refusal, for the trail. Of what the client wrote there is nothing in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// A field cannot be what it is.
    BadRequest,
    /// A limit lies outside what the profile grants.
    LimitRefused,
    /// There is no such profile.
    UnknownProfile,
    /// No place came free, or no more may wait for one.
    Busy,
    /// The executor is ending.
    ShuttingDown,
    /// The server half's own failure.
    Internal,
}

impl Denial {
    pub(super) const ALL: [Self; 6] = [
        Self::BadRequest,
        Self::LimitRefused,
        Self::UnknownProfile,
        Self::Busy,
        Self::ShuttingDown,
        Self::Internal,
    ];
}

/// For the audit trail: what a client is told has field and value, which are the client's own words.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadRequest => "request: a field cannot be what it is",
            Self::LimitRefused => "limits: one lies outside what the profile grants",
            Self::UnknownProfile => "profile: there is none of this name",
            Self::Busy => "queue: no place came free, or no more may wait for one",
            Self::ShuttingDown => "the executor is ending and takes no more",
            Self::Internal => "the server half's own failure; see the executor's log",
        })
    }
}
