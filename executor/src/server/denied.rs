//! A launch that is refused before the monitor is asked for it: the monitor hears of it, for the audit trail.

use super::{Server, connection::Peer};
use crate::monitor::link::{ConnectionId, Denial, ToMonitor};
use cordon_protocol::{Refusal, RefusalCode, RunRequest, limits};

/// What the trail will say of a request, should it be refused.
pub(super) struct Denied<'a> {
    server: &'a Server,
    connection: ConnectionId,
    profile: String,
}

impl<'a> Denied<'a> {
    /// A peer's request.
    pub(super) fn new(server: &'a Server, peer: &Peer, request: &RunRequest) -> Self {
        let name = request.profile.as_deref().unwrap_or(limits::DEFAULT_PROFILE);
        // A message has no room for more.
        let profile = name.chars().take(limits::NAME_MAX_BYTES).collect();
        Self { server, connection: peer.connection, profile }
    }

    /// Tells the monitor, before the client hears of it, where this is a refusal.
    pub(super) async fn tell<T>(&self, result: Result<T, Refusal>) -> Result<T, Refusal> {
        if let Err(refusal) = &result {
            let (connection, profile) = (self.connection, self.profile.clone());
            let denial = denial(refusal.code);
            self.server.send(ToMonitor::Refused { connection, profile, denial }).await;
        }
        result
    }
}

fn denial(code: RefusalCode) -> Denial {
    match code {
        RefusalCode::BadRequest => Denial::BadRequest,
        RefusalCode::LimitRefused => Denial::LimitRefused,
        RefusalCode::UnknownProfile => Denial::UnknownProfile,
        RefusalCode::Busy => Denial::Busy,
        RefusalCode::ShuttingDown => Denial::ShuttingDown,
        _ => Denial::Internal,
    }
}
