//! Why the server half did not even ask for a launch that a client wanted.

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
