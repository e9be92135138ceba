//! The memory that large requests of all clients may take together, and the last events that they are slow to take.
//!
//! A request that brings files may be large, and there may be very many connections. What an ordinary one needs is
//! always there; more is taken from what all share, before it is read, and given back when the request has gone
//! on into its memory file or has been refused. A large report has its share until it is on its way.

use std::{cell::RefCell, collections::HashMap, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of a frame for which there is always room: the longest argument there is, and as much beside it.
pub(super) const ALWAYS: usize = 256 << 10;
/// Bytes beyond that, of all frames together.
pub(super) const BUDGET: usize = 64 << 20;
/// As above, of one peer's.
pub(super) const BUDGET_OF_PEER: usize = BUDGET / 2;

/// Bytes beyond that, of the last events of all peers together, which are large where a report is.
const ANSWERS: usize = 256 << 20;
/// As above, of one peer's.
const ANSWERS_OF_PEER: usize = ANSWERS / 4;

/// What is left of it.
#[derive(Debug)]
pub(super) struct Budget {
    all: Arc<Semaphore>,
    of_peer: usize,
    of_peers: RefCell<HashMap<u32, Arc<Semaphore>>>,
}

/// What one peer may take.
#[derive(Debug, Clone)]
pub(super) struct Room {
    all: Arc<Semaphore>,
    most: usize,
    own: Arc<Semaphore>,
}

/// Some of it; given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Budget {
    /// For what clients send.
    pub(super) fn of_requests() -> Self {
        Self::new(BUDGET, BUDGET_OF_PEER)
    }

    /// For what they are sent at the end.
    pub(super) fn of_answers() -> Self {
        Self::new(ANSWERS, ANSWERS_OF_PEER)
    }

    fn new(all: usize, of_peer: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), of_peer, of_peers: RefCell::default() }
    }

    /// The part of this peer.
    pub(super) fn of(&self, uid: u32) -> Room {
        let mut peers = self.of_peers.borrow_mut();
        // One that nobody uses is as good as a new one.
        peers.retain(|_, own| Arc::strong_count(own) > 1);
        let own = peers.entry(uid).or_insert_with(|| Arc::new(Semaphore::new(self.of_peer)));
        Room { all: Arc::clone(&self.all), most: self.of_peer, own: Arc::clone(own) }
    }
}

impl Room {
    /// Takes so many bytes; waits in line until they are there. None for more than there can ever be. Cancel safe.
    pub(super) async fn take(&self, bytes: usize) -> Option<Share> {
        let bytes = u32::try_from(bytes).ok().filter(|_| bytes <= self.most)?;
        // First in the peer's own line: whoever waits there holds nothing of what all share.
        let own = Arc::clone(&self.own).acquire_many_owned(bytes).await.ok()?;
        let all = Arc::clone(&self.all).acquire_many_owned(bytes).await.ok()?;
        Some(Share { _all: all, _own: own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cordon_protocol::limits;
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    /// What the future gives at once.
    fn now<F: Future>(future: F) -> Option<F::Output> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_peer_takes_its_half_and_leaves_the_rest_to_others() {
        let budget = Budget::of_requests();
        let (one, other, third) = (budget.of(1), budget.of(2), budget.of(3));
        let half = now(one.take(BUDGET_OF_PEER)).unwrap().unwrap();
        assert!(now(one.take(1)).is_none(), "its half is taken");
        assert!(now(budget.of(1).take(1)).is_none(), "on another connection too");
        let rest = now(other.take(BUDGET_OF_PEER)).unwrap().unwrap();
        assert!(now(third.take(1)).is_none(), "all is taken");
        drop(half);
        let third = now(third.take(BUDGET_OF_PEER)).unwrap();
        assert!(third.is_some() && now(one.take(1)).is_none());
        drop((rest, third));
        assert!(now(one.take(BUDGET_OF_PEER)).is_some());
        assert!(now(one.take(BUDGET_OF_PEER + 1)).unwrap().is_none(), "can never be");
    }

    #[test]
    fn the_largest_request_fits_and_peers_that_have_gone_are_forgotten() {
        const { assert!(limits::REQUEST_FRAME_MAX <= BUDGET_OF_PEER + ALWAYS) };
        const { assert!(limits::EVENT_FRAME_MAX <= ANSWERS_OF_PEER) };
        let budget = Budget::of_requests();
        (0..100).for_each(|uid| drop(budget.of(uid)));
        assert!(budget.of_peers.borrow().len() <= 1);
    }
}
