//! Who may launch now: so many commands of a peer under a profile at once, so many waiting, first come
//! first served. A peer waits only behind itself.

use crate::profile::Profile;
use std::{cell::Cell, cell::RefCell, collections::HashMap, rc::Rc, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The lanes of all peers. There are never more than peers times profiles, so none is taken away.
#[derive(Debug, Default)]
pub(super) struct Queue {
    lanes: RefCell<HashMap<(u32, String), Rc<Lane>>>,
}

#[derive(Debug)]
struct Lane {
    places: Arc<Semaphore>,
    waiting: Cell<u32>,
}

/// The right to have one command; given back when dropped.
#[derive(Debug)]
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
}

/// As many wait as may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full {
    /// Commands at once.
    pub(super) concurrency: u32,
    /// Commands that may wait.
    pub(super) queue: u32,
}

/// One that waits, for as long as it does.
struct Waiting(Rc<Lane>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get().saturating_sub(1));
    }
}

impl Queue {
    /// A place for a command of this peer; waits for one. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// `Full` at once when no more may wait.
    pub(super) async fn place(&self, uid: u32, profile: &Profile) -> Result<Place, Full> {
        let full = Full { concurrency: profile.concurrency, queue: profile.queue };
        let lane = self.lane(uid, profile);
        // Nobody overtakes: a place that comes free is given to the first that waits, not left lying.
        if let Ok(permit) = Arc::clone(&lane.places).try_acquire_owned() {
            return Ok(Place { _permit: permit });
        }
        if lane.waiting.get() >= profile.queue {
            return Err(full);
        }
        lane.waiting.set(lane.waiting.get() + 1);
        let waiting = Waiting(lane);
        let permit = Arc::clone(&waiting.0.places).acquire_owned().await.map_err(|_| full)?;
        Ok(Place { _permit: permit })
    }

    fn lane(&self, uid: u32, profile: &Profile) -> Rc<Lane> {
        let places = usize::try_from(profile.concurrency).unwrap_or(Semaphore::MAX_PERMITS);
        let lane = || Lane {
            places: Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS))),
            waiting: Cell::new(0),
        };
        let mut lanes = self.lanes.borrow_mut();
        Rc::clone(lanes.entry((uid, profile.name.clone())).or_insert_with(|| Rc::new(lane())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::RawProfile;
    use std::{future::Future, pin::pin, task::Poll};

    fn profile(name: &str, concurrency: u32, queue: u32) -> Profile {
        let mut profile = Profile::from_raw(name, RawProfile::default(), 1).unwrap();
        (profile.concurrency, profile.queue) = (concurrency, queue);
        profile
    }

    /// Polls once.
    async fn now<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        let mut future = Some(future);
        std::future::poll_fn(move |cx| {
            let polled = future.take().map(|f| f.poll(cx));
            Poll::Ready(match polled {
                Some(Poll::Ready(value)) => Some(value),
                _ => None,
            })
        })
        .await
    }

    #[tokio::test]
    async fn first_come_first_served_and_only_so_many_wait() {
        let (queue, profile) = (Queue::default(), profile("a", 1, 2));
        let place = queue.place(1, &profile).await.unwrap();
        let mut second = pin!(queue.place(1, &profile));
        let mut third = pin!(queue.place(1, &profile));
        assert!(now(second.as_mut()).await.is_none() && now(third.as_mut()).await.is_none());
        assert_eq!(queue.place(1, &profile).await.unwrap_err(), Full { concurrency: 1, queue: 2 });
        drop(place);
        assert!(now(third.as_mut()).await.is_none(), "the second is before it");
        let place = now(second.as_mut()).await.unwrap().unwrap();
        drop(place);
        assert!(now(third.as_mut()).await.unwrap().is_ok());
    }

    #[tokio::test]
    async fn one_that_leaves_makes_room_and_peers_and_profiles_are_apart() {
        let (queue, one, other) = (Queue::default(), profile("a", 1, 1), profile("b", 1, 0));
        let _place = queue.place(1, &one).await.unwrap();
        {
            let mut leaving = pin!(queue.place(1, &one));
            assert!(now(leaving.as_mut()).await.is_none());
            assert!(queue.place(1, &one).await.is_err());
        }
        let mut next = pin!(queue.place(1, &one));
        assert!(now(next.as_mut()).await.is_none(), "waits, is not refused");
        assert!(queue.place(2, &one).await.is_ok());
        assert!(queue.place(1, &other).await.is_ok());
    }
}
