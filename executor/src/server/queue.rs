//! Who may launch now: so many commands of a peer under a profile at once, so many of all peers together, so
//! many that wait.
//!
//! In its lane (a peer and a profile) it is first come, first served. Between lanes a free place goes to the peer
//! that has fewest commands, then to whoever came first: a peer that floods waits behind itself.

use crate::{config::Config, profile::Profile};
use std::{cell::RefCell, collections::HashMap, rc::Rc};
use tokio::sync::watch;

/// A peer and the name of a profile.
type Lane = (u32, Rc<str>);

/// All that run and wait.
#[derive(Debug)]
pub(super) struct Queue {
    state: Rc<RefCell<State>>,
}

#[derive(Debug)]
struct State {
    /// Commands of all peers together.
    most: u32,
    /// How many there are, of all and of each peer.
    running: u32,
    of_peers: HashMap<u32, u32>,
    /// Places that are taken in each lane: of commands that run, or whose report is not taken yet.
    taken: HashMap<Lane, u32>,
    /// In the order of arrival.
    waiting: Vec<Waiter>,
    next: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    lane: Lane,
    /// Places of its lane.
    concurrency: u32,
    turn: watch::Sender<Turn>,
}

/// How far a command has come that wanted a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It waits; 1 is the next one of its lane.
    Position(u32),
    /// It has a place.
    Place,
}

/// The right to have one command, or the wait for it; given back when dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    state: Rc<RefCell<State>>,
    number: u64,
    lane: Lane,
    turn: watch::Receiver<Turn>,
    over: bool,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full {
    /// What all places of are taken: true of the executor, false of the peer under this profile.
    pub(super) executor: bool,
    /// As many places there are.
    pub(super) places: u32,
    /// So many of the lane wait.
    pub(super) waiting: u32,
}

impl Queue {
    /// So many commands of all peers together.
    pub(super) fn new(most: u32) -> Self {
        let state = State {
            most,
            running: 0,
            of_peers: HashMap::new(),
            taken: HashMap::new(),
            waiting: Vec::new(),
            next: 0,
        };
        Self { state: Rc::new(RefCell::new(state)) }
    }

    /// A place for a command of this peer, or a position among those that wait for one.
    ///
    /// # Errors
    /// `Full` when no more may wait.
    pub(super) fn enter(&self, uid: u32, profile: &Profile) -> Result<Ticket, Full> {
        let lane: Lane = (uid, profile.name.as_str().into());
        let mut state = self.state.borrow_mut();
        let waiting = state.waiting_in(&lane);
        // Nobody overtakes: whoever of the others could have a place has it already.
        let free = waiting == 0 && state.running < state.most && state.taken_in(&lane) < profile.concurrency;
        if !free && waiting >= profile.queue {
            return Err(state.full(&lane, profile));
        }
        let number = state.next;
        state.next += 1;
        let (sender, turn) = watch::channel(Turn::Position(waiting + 1));
        let concurrency = profile.concurrency;
        state.waiting.push(Waiter { number, lane: lane.clone(), concurrency, turn: sender });
        state.hand_out();
        drop(state);
        Ok(Ticket { state: Rc::clone(&self.state), number, lane, turn, over: false })
    }

    /// What of this lane is taken now, for whoever has waited too long.
    pub(super) fn fullness(&self, uid: u32, profile: &Profile) -> Full {
        self.state.borrow().full(&(uid, profile.name.as_str().into()), profile)
    }

    /// Takes over a changed configuration; those that wait keep their order.
    pub(super) fn adopt(&self, config: &Config) {
        let mut state = self.state.borrow_mut();
        state.most = config.max_commands;
        for waiter in &mut state.waiting {
            if let Some(profile) = config.profiles.get(&*waiter.lane.1) {
                waiter.concurrency = profile.concurrency;
            }
        }
        state.hand_out();
    }
}

impl State {
    fn taken_in(&self, lane: &Lane) -> u32 {
        self.taken.get(lane).copied().unwrap_or(0)
    }

    fn waiting_in(&self, lane: &Lane) -> u32 {
        let count = self.waiting.iter().filter(|waiter| waiter.lane == *lane).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn full(&self, lane: &Lane, profile: &Profile) -> Full {
        let executor = self.taken_in(lane) < profile.concurrency;
        let places = if executor { self.most } else { profile.concurrency };
        Full { executor, places, waiting: self.waiting_in(lane) }
    }

    /// Gives free places to those that wait, and tells the others where they stand.
    fn hand_out(&mut self) {
        while self.running < self.most {
            let may = |waiter: &Waiter| self.taken_in(&waiter.lane) < waiter.concurrency;
            let has = |waiter: &Waiter| self.of_peers.get(&waiter.lane.0).copied().unwrap_or(0);
            // Of equals the first is found, which came first.
            let next = self.waiting.iter().enumerate().filter(|(_, w)| may(w)).min_by_key(|(_, w)| has(w));
            let Some(at) = next.map(|(at, _)| at) else { break };
            let waiter = self.waiting.remove(at);
            self.running += 1;
            *self.of_peers.entry(waiter.lane.0).or_default() += 1;
            *self.taken.entry(waiter.lane).or_default() += 1;
            waiter.turn.send_replace(Turn::Place);
        }
        let mut lanes: HashMap<&Lane, u32> = HashMap::new();
        for waiter in &self.waiting {
            let position = lanes.entry(&waiter.lane).or_default();
            *position += 1;
            let now = Turn::Position(*position);
            waiter.turn.send_if_modified(|turn| std::mem::replace(turn, now) != now);
        }
    }

    fn give_back_command(&mut self, uid: u32) {
        self.running = self.running.saturating_sub(1);
        one_less(&mut self.of_peers, &uid);
    }
}

/// Counts down; what has come to nothing is forgotten.
fn one_less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: &K) {
    match counts.get_mut(key) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(key)),
    }
}

impl Ticket {
    /// How far it has come.
    pub(super) fn turn(&mut self) -> Turn {
        *self.turn.borrow_and_update()
    }

    /// Waits until that is something else. Cancel safe.
    pub(super) async fn changed(&mut self) {
        if self.turn.changed().await.is_err() {
            // It has its place, and nobody is left to say more.
            std::future::pending().await
        }
    }

    /// The command has ended: its place among all is free, that of its peer when this is dropped. Whoever does
    /// not take its reports holds up itself, and no other peer.
    pub(super) fn end(&mut self) {
        if self.turn() == Turn::Place && !self.over {
            self.over = true;
            let mut state = self.state.borrow_mut();
            state.give_back_command(self.lane.0);
            state.hand_out();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let placed = self.turn() == Turn::Place;
        let mut state = self.state.borrow_mut();
        if placed {
            if !self.over {
                state.give_back_command(self.lane.0);
            }
            one_less(&mut state.taken, &self.lane);
        } else {
            state.waiting.retain(|waiter| waiter.number != self.number);
        }
        state.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{profile::RawProfile, server::fixture};

    fn profile(name: &str, concurrency: u32, queue: u32) -> Profile {
        let profile = Profile::from_raw(name, RawProfile::default(), 1).unwrap();
        Profile { concurrency, queue, ..profile }
    }

    fn turns(tickets: &mut [Ticket]) -> Vec<Turn> {
        tickets.iter_mut().map(Ticket::turn).collect()
    }

    use Turn::{Place, Position};

    #[test]
    fn first_come_first_served_and_only_so_many_wait() {
        let (queue, profile) = (Queue::new(9), profile("a", 1, 2));
        let mut all: Vec<_> = (0..3).map(|_| queue.enter(1, &profile).unwrap()).collect();
        assert_eq!(turns(&mut all), [Place, Position(1), Position(2)]);
        let full = Full { executor: false, places: 1, waiting: 2 };
        assert_eq!(queue.enter(1, &profile).unwrap_err(), full);
        all.remove(0);
        assert_eq!(turns(&mut all), [Place, Position(1)]);
        // A report that is not taken holds up its own peer.
        all[0].end();
        assert_eq!(turns(&mut all), [Place, Position(1)]);
        all.remove(0);
        assert_eq!(turns(&mut all), [Place]);
    }

    #[test]
    fn one_that_leaves_makes_room_and_peers_and_profiles_are_apart() {
        let (queue, one, other) = (Queue::new(9), profile("a", 1, 2), profile("b", 1, 0));
        let mut all: Vec<_> = (0..3).map(|_| queue.enter(1, &one).unwrap()).collect();
        all.remove(1);
        assert_eq!(turns(&mut all), [Place, Position(1)]);
        all.push(queue.enter(1, &one).unwrap());
        all.push(queue.enter(2, &one).unwrap());
        all.push(queue.enter(1, &other).unwrap());
        assert_eq!(turns(&mut all), [Place, Position(1), Position(2), Place, Place]);
        assert!(queue.enter(1, &other).is_err(), "none of `b` may wait");
    }

    #[test]
    fn a_free_place_goes_to_the_peer_that_has_fewest() {
        let (queue, wide) = (Queue::new(4), profile("a", 100, 100));
        let mut flood: Vec<_> = (0..10).map(|_| queue.enter(1, &wide).unwrap()).collect();
        assert_eq!(turns(&mut flood)[2..6], [Place, Place, Position(1), Position(2)]);
        // They come last of all, and are the next all the same until each peer has as many.
        let mut calm: Vec<_> = (0..3).map(|_| queue.enter(2, &wide).unwrap()).collect();
        assert_eq!(turns(&mut calm), [Position(1), Position(2), Position(3)]);
        flood[0].end();
        assert_eq!(turns(&mut calm), [Place, Position(1), Position(2)]);
        flood[1].end();
        assert_eq!(turns(&mut calm), [Place, Place, Position(1)]);
        assert_eq!(turns(&mut flood)[4], Position(1));
        // Whoever gives a place back has fewest then.
        flood[2].end();
        assert_eq!((turns(&mut calm)[2], turns(&mut flood)[4]), (Position(1), Place));
        calm[0].end();
        assert_eq!((turns(&mut calm)[2], turns(&mut flood)[5]), (Place, Position(1)));
        // Of peers that have as many, whoever came first: a third one has fewer than either.
        let mut third = [queue.enter(3, &wide).unwrap()];
        calm[1].end();
        assert_eq!((turns(&mut third)[0], turns(&mut flood)[5]), (Place, Position(1)));
    }

    #[test]
    fn of_a_peer_that_holds_every_place_through_several_profiles_the_first_to_end_makes_room_for_another() {
        let (one, other) = (profile("a", 2, 9), profile("b", 2, 9));
        for ends in 0..4 {
            let queue = Queue::new(4);
            let enter = |profile| [queue.enter(1, profile).unwrap(), queue.enter(1, profile).unwrap()];
            let mut holding: Vec<_> = [enter(&one), enter(&other)].into_iter().flatten().collect();
            assert_eq!(turns(&mut holding), [Place; 4]);
            let mut more: Vec<_> = [enter(&one), enter(&other)].into_iter().flatten().collect();
            let mut calm = [queue.enter(2, &other).unwrap()];
            assert_eq!(turns(&mut calm), [Position(1)]);
            // Whichever it is, whatever waits before.
            drop(holding.remove(ends));
            assert_eq!(turns(&mut calm), [Place]);
            assert!(turns(&mut more).iter().all(|turn| *turn != Place));
        }
    }

    #[test]
    fn what_no_peer_holds_is_forgotten() {
        let (queue, wide) = (Queue::new(2), profile("a", 2, 5));
        let mut all: Vec<_> = (0..5).map(|uid| queue.enter(uid, &wide).unwrap()).collect();
        all[0].end();
        all[0].end();
        assert_eq!(queue.state.borrow().running, 2, "ended once");
        drop(all);
        let state = queue.state.borrow();
        assert!(state.running == 0 && state.of_peers.is_empty() && state.taken.is_empty());
        assert!(state.waiting.is_empty());
    }

    #[test]
    fn a_changed_configuration_holds_for_those_that_wait() {
        let mut config = fixture::config();
        config.max_commands = 10;
        let (queue, small) = (Queue::new(10), &fixture::config().profiles["small"]);
        let small = Profile { queue: 9, ..small.clone() };
        let mut all: Vec<_> = (0..5).map(|_| queue.enter(1, &small).unwrap()).collect();
        assert_eq!(turns(&mut all)[..3], [Place, Position(1), Position(2)]);
        if let Some(profile) = config.profiles.get_mut("small") {
            profile.concurrency = 3;
        }
        queue.adopt(&config);
        assert_eq!(turns(&mut all), [Place, Place, Place, Position(1), Position(2)]);
        // Fewer than there are: nobody is turned out, and nobody comes in before there is room.
        config.max_commands = 1;
        queue.adopt(&config);
        all.remove(0);
        all.remove(0);
        assert_eq!(turns(&mut all), [Place, Position(1), Position(2)]);
        all.remove(0);
        assert_eq!(turns(&mut all), [Place, Position(1)]);
    }
}
