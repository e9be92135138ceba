//! When a sandbox is looked at and what is due then: the times of its life. The clock is passed in.

use super::job::Stage;
use cordon_protocol::limits;
use nix::poll::PollTimeout;
use std::time::{Duration, Instant};

/// Time between two looks at what is sampled, and at what was killed and is still there.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// How many times as long as a look takes the monitor does other things.
const LOOK_REST: u32 = 4;
/// Most time for that: a look that took long because the host was busy must not leave a hog alone.
const LOOK_REST_MOST: Duration = Duration::from_millis(100);
/// Least time between two looks at the processor time.
const CPU_LOOK_FLOOR: Duration = Duration::from_millis(10);
/// How much longer than the server's grace the monitor waits for it to say that the pipes are drained.
const DRAIN_MARGIN: Duration = Duration::from_millis(300);
/// Time between two attempts to remove a leaf: a killed process leaves its cgroup a little after its end
/// was announced.
const REMOVAL_INTERVAL: Duration = Duration::from_millis(1);

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing yet.
    Nothing,
    /// Its processes have not locked themselves down in time.
    LaunchTimeout,
    /// What was killed is still there: it waits for the kernel, or was a fork in flight.
    KillAgain,
    /// It has run as long as it may.
    WallTimeout,
    /// Memory, threads and processor time are to be looked at.
    Look,
    /// The time for its pipes to be drained is over.
    TearDown,
}

/// The times of one sandbox. What concerns one of them never moves another.
#[derive(Debug)]
pub(super) struct Schedule {
    wall: Duration,
    /// Something is looked at while it runs.
    looks: bool,
    launched: Instant,
    started: Option<Instant>,
    next_look: Instant,
    killed: Option<Instant>,
    drained_by: Option<Instant>,
    next_removal: Instant,
}

impl Schedule {
    /// Of a sandbox that is launched now, may run as long as `wall` and, where `looks` says so, is looked at
    /// while it runs.
    pub(super) fn new(now: Instant, wall: Duration, looks: bool) -> Self {
        Self {
            wall,
            looks,
            launched: now,
            started: None,
            next_look: now,
            killed: None,
            drained_by: None,
            next_removal: now,
        }
    }

    /// The command was told to go: its time begins.
    pub(super) fn start(&mut self, now: Instant) {
        self.started = Some(now);
        self.next_look = now;
    }

    /// How long it has been running.
    pub(super) fn running_for(&self, now: Instant) -> Duration {
        self.started.map_or(Duration::ZERO, |started| now.saturating_duration_since(started))
    }

    /// Everything in it was killed.
    pub(super) fn kill(&mut self, now: Instant) {
        self.killed = Some(now);
    }

    /// A look that went on from `begun` to `ended` was taken: at what is sampled, and at the processor time,
    /// of which it cannot use up what is left before `cpu_left` has passed.
    pub(super) fn look(&mut self, begun: Instant, ended: Instant, sampled: bool, cpu_left: Option<Duration>) {
        // Many processes take long to look at: that must stay a small part of the monitor's time.
        let rest = (ended.saturating_duration_since(begun) * LOOK_REST).min(LOOK_REST_MOST);
        let sample = sampled.then_some(SAMPLE_INTERVAL);
        let cpu = cpu_left.map(|left| left.max(CPU_LOOK_FLOOR));
        let interval = sample.into_iter().chain(cpu).min().unwrap_or(self.wall);
        self.next_look = ended + interval.max(rest);
    }

    /// The command's process has ended.
    pub(super) fn end(&mut self, now: Instant) {
        self.drained_by = Some(now + limits::DRAIN_GRACE + DRAIN_MARGIN);
    }

    /// What the command left is being collected, or is about to be.
    pub(super) fn collect(&mut self, now: Instant) {
        self.drained_by = Some(now + limits::COLLECT_TIMEOUT);
    }

    /// Something of it is still there: a process, or only a leaf that is about to be empty.
    pub(super) fn retry_removal(&mut self, now: Instant, process_left: bool) {
        self.next_removal = now + if process_left { SAMPLE_INTERVAL } else { REMOVAL_INTERVAL };
    }

    /// When to look at it again at the latest.
    pub(super) fn next(&self, stage: Stage) -> Option<Instant> {
        let launch = self.launched + limits::LAUNCH_TIMEOUT;
        let look = self.started.filter(|_| self.looks).map(|_| self.next_look);
        let wall = self.started.map(|started| started + self.wall);
        match (stage, self.killed) {
            (Stage::Launching | Stage::Told | Stage::Running, Some(at)) => Some(at + SAMPLE_INTERVAL),
            (Stage::Launching, None) => Some(launch),
            (Stage::Told | Stage::Running, None) => look.into_iter().chain(wall).min(),
            // What it has left behind still runs, within the same limits.
            (Stage::Ended, None) => look.into_iter().chain(self.drained_by).min(),
            (Stage::Ended, Some(_)) | (Stage::Collecting, _) => self.drained_by,
            (Stage::Dying, _) => Some(self.next_removal),
        }
    }

    /// What is due, the first of what ends it first.
    pub(super) fn due(&self, stage: Stage, now: Instant) -> Due {
        if self.next(stage).is_none_or(|next| now < next) {
            return Due::Nothing;
        }
        match (stage, self.killed) {
            (Stage::Launching | Stage::Told | Stage::Running, Some(_)) => Due::KillAgain,
            (Stage::Launching, None) => Due::LaunchTimeout,
            (Stage::Told | Stage::Running, None) if self.running_for(now) >= self.wall => Due::WallTimeout,
            (Stage::Told | Stage::Running, None) => Due::Look,
            (Stage::Ended, _) if self.drained_by.is_some_and(|by| now < by) => Due::Look,
            (Stage::Ended | Stage::Collecting, _) => Due::TearDown,
            // Tried at each opportunity, not only then.
            (Stage::Dying, _) => Due::Nothing,
        }
    }
}

/// At least this long, in poll's milliseconds.
pub(super) fn round_up(duration: Duration) -> PollTimeout {
    let millis = duration.as_micros().div_ceil(1000);
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WALL: Duration = Duration::from_secs(60);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// One that runs since the instant.
    fn running(looks: bool) -> (Schedule, Instant) {
        let now = Instant::now();
        let mut schedule = Schedule::new(now, WALL, looks);
        schedule.start(now);
        (schedule, now)
    }

    /// What the loop does with every sandbox when any descriptor wakes it.
    fn attended(schedule: &mut Schedule, stage: Stage, now: Instant) -> Due {
        let due = schedule.due(stage, now);
        match due {
            Due::Look => schedule.look(now, now + ms(1), true, None),
            Due::LaunchTimeout | Due::WallTimeout | Due::KillAgain => schedule.kill(now),
            Due::TearDown | Due::Nothing => {}
        }
        due
    }

    proptest! {
        #[test]
        fn however_often_others_wake_the_loop_a_sample_is_never_late(gaps in prop::collection::vec(0_u64..15_000, 1..400)) {
            let (mut schedule, mut now) = running(true);
            let mut last = now;
            for gap in gaps {
                let (before, next) = (now, schedule.next(Stage::Running).unwrap());
                // The loop wakes for another's event, or at the deadline when that comes before.
                now = next.min(now + Duration::from_micros(gap)).max(before);
                let due = attended(&mut schedule, Stage::Running, now);
                // As if it were one that is going away: what is tried then concerns no sample.
                schedule.retry_removal(now, true);
                prop_assert_eq!(due == Due::Look, now >= next);
                if due == Due::Look {
                    last = now;
                }
                // 1 ms is how long this test's looks take.
                prop_assert!(now - last <= SAMPLE_INTERVAL + ms(1), "{:?}", now - last);
            }
        }

        #[test]
        fn what_has_come_has_something_due_and_nothing_is_due_before(
            stage in prop::sample::select(vec![Stage::Launching, Stage::Told, Stage::Running, Stage::Ended]),
            looks: bool, started: bool, killed: bool, early in 1_u64..1000, late in 0_u64..100_000,
        ) {
            let begun = Instant::now();
            let mut schedule = Schedule::new(begun, WALL, looks);
            if started {
                schedule.start(begun + ms(3));
            }
            if killed {
                schedule.kill(begun + ms(5));
            }
            if stage == Stage::Ended {
                schedule.end(begun + ms(7));
            }
            // Else the loop would turn without a pause, or leave a sandbox alone for ever.
            if let Some(next) = schedule.next(stage) {
                prop_assert_ne!(schedule.due(stage, next + ms(late)), Due::Nothing);
                prop_assert_eq!(schedule.due(stage, next - Duration::from_micros(early)), Due::Nothing);
            } else {
                prop_assert!(!started && !killed && matches!(stage, Stage::Told | Stage::Running));
            }
        }
    }

    #[test]
    fn a_launch_has_its_time_and_no_other_limit() {
        let now = Instant::now();
        let schedule = Schedule::new(now, ms(1), true);
        let late = now + limits::LAUNCH_TIMEOUT;
        assert_eq!(schedule.next(Stage::Launching), Some(late));
        assert_eq!(schedule.due(Stage::Launching, late - ms(1)), Due::Nothing);
        assert_eq!(schedule.due(Stage::Launching, late), Due::LaunchTimeout);
    }

    #[test]
    fn the_end_of_its_time_comes_before_a_look_and_looks_never_move_it() {
        let (mut schedule, start) = running(true);
        let end = start + WALL;
        assert_eq!(schedule.due(Stage::Running, end), Due::WallTimeout);
        for stage in [Stage::Told, Stage::Running] {
            schedule.look(end - ms(2), end - ms(1), true, Some(WALL));
            assert_eq!(schedule.next(stage), Some(end));
            assert_eq!(schedule.due(stage, end - ms(1)), Due::Nothing);
            assert_eq!(schedule.due(stage, end), Due::WallTimeout);
        }
        let (unwatched, start) = running(false);
        assert_eq!(unwatched.next(Stage::Running), Some(start + WALL));
    }

    #[test]
    fn processor_time_is_looked_at_before_it_can_be_used_up() {
        let (mut schedule, now) = running(true);
        let next = |schedule: &Schedule| schedule.next(Stage::Running).unwrap() - now;
        schedule.look(now, now, false, Some(ms(700)));
        assert_eq!(next(&schedule), ms(700));
        schedule.look(now, now, true, Some(ms(700)));
        assert_eq!(next(&schedule), SAMPLE_INTERVAL);
        schedule.look(now, now, true, Some(ms(15)));
        assert_eq!(next(&schedule), ms(15));
        schedule.look(now, now, true, Some(Duration::ZERO));
        assert_eq!(next(&schedule), CPU_LOOK_FLOOR);
        // No limit on processor time, nothing sampled.
        schedule.look(now, now, false, None);
        assert_eq!(next(&schedule), WALL);
    }

    #[test]
    fn a_look_that_takes_long_leaves_the_monitor_time_whatever_asked_for_it() {
        for cpu_left in [None, Some(Duration::ZERO)] {
            let (mut schedule, now) = running(true);
            schedule.look(now, now + ms(15), true, cpu_left);
            assert_eq!(schedule.next(Stage::Running), Some(now + ms(15) + ms(60)));
            schedule.look(now, now + ms(1000), true, cpu_left);
            assert_eq!(schedule.next(Stage::Running), Some(now + ms(1000) + LOOK_REST_MOST));
        }
    }

    #[test]
    fn what_outlives_a_kill_is_killed_again_and_nothing_else_is_due() {
        let (mut schedule, start) = running(true);
        let at = start + WALL;
        schedule.kill(at);
        for stage in [Stage::Launching, Stage::Told, Stage::Running] {
            assert_eq!(schedule.due(stage, at + SAMPLE_INTERVAL - ms(1)), Due::Nothing);
            assert_eq!(schedule.due(stage, at + SAMPLE_INTERVAL), Due::KillAgain);
        }
    }

    #[test]
    fn pipes_have_the_servers_grace_and_a_little_more() {
        let (mut schedule, start) = running(true);
        schedule.kill(start);
        schedule.end(start);
        let over = start + limits::DRAIN_GRACE + DRAIN_MARGIN;
        assert!(over > start + limits::DRAIN_GRACE);
        assert_eq!(schedule.next(Stage::Ended), Some(over));
        assert_eq!(schedule.due(Stage::Ended, over - ms(1)), Due::Nothing);
        assert_eq!(schedule.due(Stage::Ended, over), Due::TearDown);
    }

    #[test]
    fn collecting_has_its_time_and_no_more() {
        let (mut schedule, start) = running(true);
        schedule.end(start);
        schedule.collect(start);
        let over = start + limits::COLLECT_TIMEOUT;
        assert_eq!(schedule.next(Stage::Collecting), Some(over));
        assert_eq!(schedule.due(Stage::Collecting, over - ms(1)), Due::Nothing);
        assert_eq!(schedule.due(Stage::Collecting, over), Due::TearDown);
    }

    #[test]
    fn what_is_left_behind_is_looked_at_until_the_pipes_had_their_time() {
        let (mut schedule, start) = running(true);
        schedule.end(start);
        let over = start + limits::DRAIN_GRACE + DRAIN_MARGIN;
        let mut looks = 0;
        loop {
            let next = schedule.next(Stage::Ended).unwrap();
            if attended(&mut schedule, Stage::Ended, next) != Due::Look {
                assert_eq!(next, over);
                break;
            }
            looks += 1;
        }
        assert_eq!(schedule.due(Stage::Ended, over), Due::TearDown);
        assert!(looks >= 10, "{looks}");
        // Where the kernel looks, nobody else does.
        let (mut schedule, start) = running(false);
        schedule.end(start);
        assert_eq!(schedule.next(Stage::Ended), Some(start + limits::DRAIN_GRACE + DRAIN_MARGIN));
    }

    #[test]
    fn attempts_to_remove_it_are_soon_and_move_no_look() {
        let (mut schedule, now) = running(true);
        for (process_left, interval) in [(true, SAMPLE_INTERVAL), (false, REMOVAL_INTERVAL)] {
            schedule.retry_removal(now, process_left);
            assert_eq!(schedule.next(Stage::Dying), Some(now + interval));
            assert_eq!(schedule.due(Stage::Running, now), Due::Look);
        }
    }
}
