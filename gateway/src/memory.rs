//! Memory that is bounded for all requests together: what clients send, and what they leave unread.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What each may have beside that, bytes: the number of these is bounded, as connections are.
pub(crate) const SMALL: usize = 64 << 10;
/// In such pieces the memory is counted, bytes.
const PIECE: usize = 1 << 10;

/// Memory for so many bytes.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    free: Arc<Semaphore>,
    pieces: usize,
}

impl Memory {
    /// All of it is free.
    pub(crate) fn of(bytes: usize) -> Self {
        let pieces = bytes.div_ceil(PIECE).min(Semaphore::MAX_PERMITS).min(u32::MAX as usize);
        Self { free: Arc::new(Semaphore::new(pieces)), pieces }
    }

    /// None of it yet.
    pub(crate) fn room(&self) -> Room {
        Room { memory: self.clone(), held: None }
    }
}

/// A share of it, given back when dropped.
#[derive(Debug)]
pub struct Room {
    memory: Memory,
    held: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Makes it large enough for so many bytes; false when others have too much.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let Some(wanted) = self.missing(bytes) else { return true };
        let permit = Arc::clone(&self.memory.free).try_acquire_many_owned(wanted);
        permit.map(|permit| self.add(permit)).is_ok()
    }

    /// The same, but waits for its turn. Whoever wants more than there is gets all there is.
    pub(crate) async fn grown(&mut self, bytes: usize) {
        let Some(wanted) = self.missing(bytes.min(SMALL + self.memory.pieces * PIECE)) else { return };
        // It is never closed.
        if let Ok(permit) = Arc::clone(&self.memory.free).acquire_many_owned(wanted).await {
            self.add(permit);
        }
    }

    /// Gives back what is more than enough for so many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let Some(held) = &mut self.held else { return };
        let surplus = held.num_permits().saturating_sub(pieces(bytes));
        drop(held.split(surplus));
    }

    fn missing(&self, bytes: usize) -> Option<u32> {
        let before = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = pieces(bytes).saturating_sub(before);
        (missing > 0).then(|| u32::try_from(missing).unwrap_or(u32::MAX))
    }

    fn add(&mut self, permit: OwnedSemaphorePermit) {
        match &mut self.held {
            Some(held) => held.merge(permit),
            None => self.held = Some(permit),
        }
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
        let (mut first, mut second) = (memory.room(), memory.room());
        assert!(first.grow(SMALL + (1 << 20)) && second.grow(SMALL) && !second.grow(SMALL + 1));
        first.shrink(SMALL + (1 << 19));
        assert!(second.grow(SMALL + (1 << 19)) && !second.grow(SMALL + (1 << 19) + 1));
        let mut third = memory.room();
        {
            let mut waits = pin!(third.grown(1 << 30));
            assert!(waits.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
            drop((first, second));
            waits.await;
        }
        // All there is, though it wanted more.
        assert_eq!(memory.free.available_permits(), 0);
        drop(third);
        assert_eq!(memory.free.available_permits(), 1 << 10);
    }
}
