//! How a sandbox ends: what is due, samples, kills, reaping, the outcome, the last traces.

use super::{
    cgroup::Leaf,
    collect::{Collector, Scene},
    job::{Job, Progress, Stage, enforced},
    link::Outcome,
    resources::Resources,
    sample,
    schedule::Due,
};
use crate::{
    sandbox::{
        message::Report,
        namespaces::Namespaces,
        steps::{Fault, omitted},
        storage::Storage,
    },
    sys::process::{Status, has_ended, signal, try_wait},
};
use cordon_protocol::{CgroupMode, EndedBy, LimitName};
use nix::{errno::Errno, sys::signal::Signal};
use std::{
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

/// Processes that are looked at beyond those that a sandbox may have: what has ended meanwhile, and what got
/// past the limit.
const PROCESSES_ROOM: usize = 8192;
/// Time for a recount of shared memory.
const RECOUNT_TIME: Duration = Duration::from_millis(500);

impl Job {
    pub(super) fn sampled(&self) -> bool {
        self.plan.host.cgroup != CgroupMode::V2 && !omitted("sampling")
    }

    /// Pids of everything in the sandbox but init.
    fn processes(&self) -> Vec<i32> {
        let most = usize::try_from(self.limits.pids).unwrap_or(usize::MAX);
        let most = most.saturating_add(PROCESSES_ROOM);
        match &self.leaves.command {
            Some(leaf) => leaf.processes(),
            None => match &self.init {
                Some(init) => {
                    let roots = [self.command.pid.as_raw(), init.pid.as_raw()];
                    let tree = sample::tree(&roots, most);
                    tree.into_iter().filter(|pid| *pid != init.pid.as_raw()).collect()
                }
                None => {
                    // The command itself is among them; nothing else runs at the same time.
                    sample::tree(&sample::adopted(self.plan.users.command.uid()), most)
                }
            },
        }
    }

    pub(super) fn cpu_now(&mut self) -> u64 {
        match &self.leaves.command {
            Some(leaf) => leaf.cpu_us(),
            None => {
                let processes = self.processes();
                self.account.take_in(&processes)
            }
        }
    }

    fn cpu_used(&mut self) -> u64 {
        self.cpu_now().saturating_sub(self.cpu_before)
    }

    /// When [`Self::check`] wants to be called next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let told = self.held_report.as_ref().map(|held| held.until);
        self.schedule.next(self.stage).into_iter().chain(told).min()
    }

    /// Does what is due.
    pub(super) fn check(&mut self, now: Instant) {
        match self.schedule.due(self.stage, now) {
            Due::Nothing => {}
            Due::LaunchTimeout => {
                let errno = Errno::ETIMEDOUT as i32;
                let step = "lock_down".to_owned();
                self.verdict.fail(Report::Failed { step, errno, detail: String::new() });
                self.kill_processes();
            }
            Due::KillAgain => self.kill_processes(),
            Due::WallTimeout => self.end(EndedBy::WallTimeout),
            Due::Look => self.look(now),
            Due::TearDown if self.is_to_be_collected_from() => {
                self.collect_awaited = true;
                if let Some(leaf) = &self.leaves.command {
                    let _ = leaf.kill();
                }
                self.schedule.collect(now);
            }
            Due::TearDown => self.tear_down(),
        }
    }

    /// Ends what is over its memory or processor time: the command, or what it has left behind.
    fn look(&mut self, now: Instant) {
        let sampled = self.sampled();
        if self.disk.as_mut().is_some_and(|disk| disk.is_over(now)) {
            self.end(EndedBy::DiskLimit);
        }
        if sampled {
            self.sample(now);
        }
        let cpu_left = self.limits.cpu_time_ms.map(|limit| {
            let (used, limit) = (Duration::from_micros(self.cpu_used()), Duration::from_millis(limit));
            if used >= limit {
                self.end_all(EndedBy::CpuTimeout);
            }
            let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            limit.saturating_sub(used) / u32::try_from(processors).unwrap_or(u32::MAX)
        });
        let ended = Instant::now();
        let disk_left = self.disk.as_ref().map(|disk| disk.due().saturating_duration_since(ended));
        // Whatever comes first; that the disk is looked at costs next to nothing.
        let next = cpu_left.into_iter().chain(disk_left).min();
        self.schedule.look(now, ended, sampled, next);
    }

    /// Looks at memory and threads where no controller does.
    fn sample(&mut self, now: Instant) {
        let processes = self.processes();
        let threads = match &self.leaves.command {
            Some(leaf) => leaf.threads(),
            None => {
                // For the report too: afterwards nobody knows what those had used that are gone.
                self.account.take_in(&processes);
                sample::threads(&processes)
            }
        };
        self.threads_seen = self.threads_seen.max(threads);
        let memory = sample::memory(&processes, &self.storage);
        if memory <= self.limits.memory {
            // Before its exec a process has the monitor's own pages, which are none of the command's.
            // One that has just ended has none, which says nothing of what it had.
            if self.stage != Stage::Told && memory > 0 {
                self.peak = self.peak.max(Some(memory));
            }
        } else if processes.len() < 2 || self.is_recounted(now, &processes) {
            self.peak = self.peak.max(Some(memory));
            self.end_all(EndedBy::OutOfMemory);
        }
    }

    /// Whether a recount has found that the processes hold too much also when what they share is counted
    /// once. One that does not answer in time is held up by them, and counts as too much.
    fn is_recounted(&mut self, now: Instant, processes: &[i32]) -> bool {
        let Some((recount, started)) = &self.recount else {
            let started = sample::start_recount(processes, &self.storage, self.limits.memory);
            self.recount = started.ok().map(|recount| (recount, now));
            return self.recount.is_none();
        };
        match try_wait(recount.pidfd.as_fd()) {
            None => now >= *started + RECOUNT_TIME,
            Some(status) => {
                self.recount = None;
                status != Status::Exited(0)
            }
        }
    }

    /// Ends the command for this reason, unless another was recorded first.
    pub(super) fn end(&mut self, cause: EndedBy) {
        if self.is_live() {
            self.verdict.end(cause);
            self.kill_processes();
        }
    }

    /// Ends the command for this reason; where it has ended before and others of its sandbox go on, these.
    fn end_all(&mut self, cause: EndedBy) {
        self.end(cause);
        self.tear_down();
    }

    /// SIGKILL to everything but a running init, whose end would hide the command's status.
    pub(super) fn kill_processes(&mut self) {
        self.schedule.kill(Instant::now());
        let _ = signal(self.command.pidfd.as_fd(), Signal::SIGKILL);
        match &self.leaves.command {
            Some(leaf) => drop(leaf.kill()),
            // Without cgroups the end of init ends its pid namespace; without that, only the uid is left.
            None if self.init.is_some() => self.kill_init(),
            None => self.start_cleaner(),
        }
    }

    /// Starts the process that deletes what the command left on the host and, where nothing else can, ends
    /// what runs under its uid.
    fn start_cleaner(&mut self) {
        let Some(directories) = self.directories.as_ref().filter(|_| self.cleaner.is_none()) else { return };
        if self.cleanings_left > 0 {
            self.cleanings_left -= 1;
            let alone = self.leaves.command.is_none();
            self.cleaner = directories.start_cleaner(&self.plan.users.command, alone).ok();
        }
    }

    /// Whether nothing of the command's is left on the host.
    fn is_clean(&mut self) -> bool {
        if let Some((recount, _)) = &self.recount {
            let _ = signal(recount.pidfd.as_fd(), Signal::SIGKILL);
            if try_wait(recount.pidfd.as_fd()).is_none() {
                return false;
            }
            self.recount = None;
        }
        if let Some(cleaner) = &self.cleaner {
            if try_wait(cleaner.as_fd()).is_none() {
                return false;
            }
            self.cleaner = None;
        }
        match self.directories.as_ref().map(Storage::remove) {
            None | Some(Ok(())) => true,
            Some(Err(error)) if self.cleanings_left == 0 => {
                crate::log!("files of an ended command are left until the next start: {error}");
                true
            }
            Some(Err(_)) => {
                self.start_cleaner();
                false
            }
        }
    }

    fn kill_init(&mut self) {
        // Before the namespaces end: what a command has stored is given back in init's time, not here.
        self.storage.clear();
        if let Some(init) = self.init.as_ref().filter(|_| !self.init_reaped) {
            let _ = signal(init.pidfd.as_fd(), Signal::SIGKILL);
        }
    }

    /// Reaps the command's process when it has ended; what it said last and its outcome, once.
    pub(super) fn reap(&mut self) -> Option<(Progress, Outcome)> {
        if !self.init_reaped {
            self.init_reaped = self.init.as_ref().and_then(|init| try_wait(init.pidfd.as_fd())).is_some();
        }
        if self.status.is_some() || !has_ended(self.command.pidfd.as_fd()) {
            return None;
        }
        // Without cgroups the last figures are those of the process that has not been reaped yet.
        let cpu_us = if self.leaves.command.is_none() { self.cpu_used() } else { 0 };
        let status = try_wait(self.command.pidfd.as_fd())?;
        self.status = Some(status);
        // What it said between the last look and its end, and what init did, whose end takes it along.
        self.hear_init();
        let progress = self.hear_command();
        let outcome = self.outcome(status, cpu_us);
        self.stage = Stage::Ended;
        self.control = None;
        self.pending = None;
        self.listening.clear();
        self.schedule.end(Instant::now());
        Some((progress, outcome))
    }

    fn outcome(&self, status: Status, cpu_us: u64) -> Outcome {
        let usage = self.leaves.command.as_ref().map(Leaf::usage).unwrap_or_default();
        let (exit_code, signal) = match status {
            Status::Exited(code) => (Some(code), None),
            Status::Killed(signal) => (None, Some(signal)),
        };
        let ended_by = self.verdict.ended_by(status, usage.oom_kills);
        let mut limits_hit = Vec::new();
        let mut hit = |name, reached| {
            if reached {
                limits_hit.push(name);
            }
        };
        hit(LimitName::Memory, usage.oom_kills > 0 || ended_by == EndedBy::OutOfMemory);
        hit(LimitName::Pids, usage.pids_refused > 0 || self.threads_seen >= self.limits.pids);
        hit(LimitName::CpuTime, ended_by == EndedBy::CpuTimeout);
        hit(LimitName::Wall, ended_by == EndedBy::WallTimeout);
        hit(LimitName::Output, ended_by == EndedBy::OutputLimit);
        hit(LimitName::Disk, ended_by == EndedBy::DiskLimit || self.storage.iter().any(sample::is_full));
        hit(LimitName::FileSize, signal == Some(Signal::SIGXFSZ as i32));
        let failure = self.verdict.failure().map(Report::failure);
        let (step, errno, detail) =
            failure.map_or((None, 0, String::new()), |(step, errno, detail)| (Some(step), errno, detail));
        let (exit_code, signal) = match &step {
            Some(step) => (exec_status(step, errno), None),
            None => (exit_code, signal),
        };
        Outcome {
            ended_by,
            exit_code,
            signal,
            step,
            errno,
            detail,
            wall_us: u64::try_from(self.schedule.running_for(Instant::now()).as_micros()).unwrap_or(u64::MAX),
            cpu_us: if self.leaves.command.is_none() {
                cpu_us
            } else {
                usage.cpu_us.saturating_sub(self.cpu_before)
            },
            peak_memory_bytes: usage.peak_memory.or(self.peak),
            limits_hit,
            threads_seen: self.threads_seen,
            unrouted: status != Status::Exited(0) && self.wanted_out(),
            enforced: enforced(&self.plan, &self.held),
        }
    }

    /// Whether the time of its pipes is over, and the server has still to ask for the files: where a client takes
    /// the output slowly, it asks late. Nothing but init is kept for it.
    fn is_to_be_collected_from(&self) -> bool {
        self.stage == Stage::Ended && self.reentry.is_some() && !self.collect_awaited
    }

    /// Ends what the command left and has a process collect what it left in its workspace; gives the end from which
    /// that can be read. Its sandbox is entered through `namespaces`.
    ///
    /// # Errors
    /// The process could not be started.
    pub(super) fn collect(
        &mut self,
        resources: &Resources,
        namespaces: Option<Namespaces>,
        request: OwnedFd,
    ) -> Result<OwnedFd, Fault> {
        let scene = Scene {
            plan: &self.plan,
            place: self.place.clone(),
            leaf: self.leaves.command.as_ref(),
            job: self.id,
            namespaces,
        };
        let (collector, leaf, from) = Collector::start(resources, scene, request)?;
        self.leaves.collector = leaf;
        self.collector = Some(collector);
        self.stage = Stage::Collecting;
        self.schedule.collect(Instant::now());
        Ok(from)
    }

    /// Goes on with collecting.
    pub(super) fn tend_collector(&mut self) {
        let Some(collector) = &mut self.collector else { return };
        collector.listen();
        if collector.has_ended() {
            self.collector = None;
        }
    }

    /// Kills what is left, init included.
    pub(super) fn tear_down(&mut self) {
        if !matches!(self.stage, Stage::Ended | Stage::Collecting) {
            return;
        }
        if let Some(collector) = &mut self.collector {
            collector.kill();
        }
        self.disk = None;
        self.reentry = None;
        if let Some(leaf) = &self.leaves.command {
            let _ = leaf.kill();
        }
        self.kill_init();
        self.start_cleaner();
        self.stage = Stage::Dying;
    }

    /// Whether everything is gone; tries to remove the leaves when nothing is left to reap.
    pub(super) fn is_gone(&mut self, now: Instant) -> bool {
        if self.stage != Stage::Dying {
            return false;
        }
        if !self.init_reaped || self.collector.is_some() || !self.is_clean() {
            self.schedule.retry_removal(now, true);
            return false;
        }
        let leaves = [&self.leaves.init, &self.leaves.command, &self.leaves.collector];
        let left = leaves.into_iter().flatten().filter(|leaf| !leaf.remove()).count();
        self.schedule.retry_removal(now, false);
        left == 0
    }
}

/// Exit status of a command that could not be executed (POSIX, "Exit Status for Commands").
fn exec_status(step: &str, errno: i32) -> Option<i32> {
    match step {
        "exec" if errno == Errno::ENOENT as i32 => Some(127),
        "exec" => Some(126),
        _ => None,
    }
}
