//! Memory that is bounded for all requests together: what clients send, and what they leave unread.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// What each may have beside that, bytes: the number of these is bounded, as connections are.
pub(crate) const SMALL: usize = 64 << 10;
/// In such pieces the memory is counted, bytes.
const PIECE: usize = 1 << 10;

/// Whose memory it is, as far as that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Client {
    /// Anybody.
    Anybody,
    /// Some program of this host, over TCP.
    Loopback,
    /// Another host.
    Host(IpAddr),
    /// A user of this host, over the Unix socket.
    User(u32),
}

impl Client {
    /// Whoever comes from this address.
    pub(crate) fn at(address: IpAddr) -> Self {
        let address = address.to_canonical();
        if address.is_loopback() { Self::Loopback } else { Self::Host(address) }
    }

    /// The part of so many pieces that all requests of one together may have: others always find some.
    fn share(self, pieces: usize) -> usize {
        match self {
            Self::Anybody => pieces,
            // These are many, and nothing tells them apart.
            Self::Loopback => pieces - pieces / 4,
            Self::Host(_) | Self::User(_) => pieces / 4,
        }
    }
}

/// Memory for so many bytes.
#[derive(Debug, Clone)]
pub(crate) struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pieces: usize,
    taken: Mutex<Taken>,
    /// Something has been given back.
    freed: Notify,
}

/// Pieces that are taken: of all, and by whom.
#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: HashMap<Client, usize>,
}

impl Memory {
    /// All of it is free.
    pub(crate) fn of(bytes: usize) -> Self {
        let pieces = bytes.div_ceil(PIECE);
        Self(Arc::new(Shared { pieces, taken: Mutex::default(), freed: Notify::new() }))
    }

    /// None of it yet.
    pub(crate) fn room(&self, client: Client) -> Room {
        Room { memory: self.clone(), client, held: 0 }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Nothing panics while it is locked.
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes more for a client who holds `held` in this room. Within its share; a single room may be larger than that,
    /// as a report may be.
    fn take(&self, client: Client, held: usize, more: usize) -> bool {
        let mut taken = self.taken();
        let own = taken.by.get(&client).copied().unwrap_or_default();
        if taken.all + more > self.0.pieces || (own > held && own + more > client.share(self.0.pieces)) {
            return false;
        }
        taken.all += more;
        *taken.by.entry(client).or_default() += more;
        true
    }

    fn give_back(&self, client: Client, pieces: usize) {
        if pieces == 0 {
            return;
        }
        let mut taken = self.taken();
        taken.all -= pieces;
        if let Some(own) = taken.by.get_mut(&client) {
            *own -= pieces;
            if *own == 0 {
                taken.by.remove(&client);
            }
        }
        drop(taken);
        self.0.freed.notify_waiters();
    }
}

/// A share of it, given back when dropped.
#[derive(Debug)]
pub struct Room {
    memory: Memory,
    client: Client,
    held: usize,
}

impl Room {
    /// Makes it large enough for so many bytes; false when others have too much.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let more = pieces(bytes).saturating_sub(self.held);
        let grown = more == 0 || self.memory.take(self.client, self.held, more);
        self.held += if grown { more } else { 0 };
        grown
    }

    /// The same, but waits until it fits. Whoever wants more than there is gets all there is. There is no line: what
    /// is small passes a large one that finds no room yet.
    pub(crate) async fn grown(&mut self, bytes: usize) {
        let bytes = bytes.min(SMALL + self.memory.0.pieces * PIECE);
        let shared = Arc::clone(&self.memory.0);
        loop {
            // Made before the look, so that nothing given back in between is missed.
            let freed = shared.freed.notified();
            if self.grow(bytes) {
                return;
            }
            freed.await;
        }
    }

    /// Gives back what is more than enough for so many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let surplus = self.held.saturating_sub(pieces(bytes));
        self.held -= surplus;
        self.memory.give_back(self.client, surplus);
    }

    /// Bytes of what all share that are in it.
    pub(crate) fn bytes(&self) -> usize {
        self.held * PIECE
    }

    /// Whether any of what all share is in it.
    pub(crate) fn holds(&self) -> bool {
        self.held > 0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.memory.give_back(self.client, self.held);
    }
}

fn pieces(bytes: usize) -> usize {
    bytes.saturating_sub(SMALL).div_ceil(PIECE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::Future, pin::pin, task::Context};

    #[tokio::test]
    async fn what_is_held_is_counted_and_what_is_given_back_is_there_for_the_next() {
        let memory = Memory::of(1 << 20);
        let room = || memory.room(Client::Anybody);
        let (mut first, mut second) = (room(), room());
        assert!(first.grow(SMALL + (1 << 20)) && second.grow(SMALL) && !second.grow(SMALL + 1));
        first.shrink(SMALL + (1 << 19));
        assert!(second.grow(SMALL + (1 << 19)) && !second.grow(SMALL + (1 << 19) + 1));
        let mut third = room();
        {
            let mut waits = pin!(third.grown(1 << 30));
            assert!(waits.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
            drop((first, second));
            waits.await;
        }
        // All there is, though it wanted more.
        assert_eq!(memory.taken().all, 1 << 10);
        drop(third);
        let taken = memory.taken();
        assert!(taken.all == 0 && taken.by.is_empty());
    }

    #[test]
    fn no_client_takes_the_share_of_others() {
        let host = |last| Client::at([192, 0, 2, last].into());
        assert_eq!(Client::at("::ffff:127.0.0.2".parse().unwrap()), Client::Loopback);
        for (client, share) in [(Client::User(1), 1), (host(1), 1), (Client::Loopback, 3)] {
            let memory = Memory::of(4 << 20);
            let quarter = SMALL + (1 << 20);
            let mut rooms: Vec<_> = (0..5).map(|_| memory.room(client)).collect();
            let grown = rooms.iter_mut().filter_map(|room| room.grow(quarter).then_some(())).count();
            assert_eq!(grown, share, "{client:?}");
            assert!(memory.room(Client::User(2)).grow(quarter) && memory.room(host(2)).grow(quarter));
        }
    }

    #[test]
    fn a_single_room_may_be_larger_than_the_share() {
        let memory = Memory::of(4 << 20);
        let (mut large, mut next) = (memory.room(Client::User(1)), memory.room(Client::User(1)));
        assert!(large.grow(SMALL + (2 << 20)) && large.grow(SMALL + (3 << 20)));
        assert!(!next.grow(SMALL + 1), "beside it there is none");
        assert!(memory.room(Client::User(2)).grow(SMALL + (1 << 20)), "for this client");
    }

    #[tokio::test]
    async fn what_is_small_passes_a_large_one_that_waits() {
        let memory = Memory::of(4 << 20);
        let room = || memory.room(Client::Anybody);
        let (mut holder, mut large, mut small) = (room(), room(), room());
        assert!(holder.grow(SMALL + (2 << 20)));
        let mut waits = pin!(large.grown(SMALL + (3 << 20)));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        assert!(pin!(small.grown(SMALL + (1 << 20))).poll(&mut cx).is_ready());
        drop((holder, small));
        waits.await;
    }
}
