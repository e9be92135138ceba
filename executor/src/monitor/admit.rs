//! A launch, checked from the ground up and started, whatever the server says of it.

use super::{
    Monitor,
    arriving::Fingerprints,
    job::{Job, Order, Stage, enforced},
    launch::{Asked, launch},
    link::{AskedLimits, ConnectionId, JobId, LaunchRefusal, Outcome, ToServer},
    peers::Peer,
    policy::{Limits, authorize, resolve},
    requests::{AUDIT_STEP, WORKSPACE_STEP, name_of},
    resources::caps_of,
    walk::Caps,
    workspaces::Unusable,
};
use crate::sandbox::{
    Go, Plan,
    errand::tree::Size,
    landlock::effective_abi,
    message::{Held, Report},
    steps::{FailedStep, Fault, injected},
};
use cordon_protocol::{
    CgroupMode, EndedBy, LimitName,
    audit::{About, Entry},
};
use nix::{errno::Errno, fcntl::OFlag, unistd::pipe2};
use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

/// Room above the memory limit for RLIMIT_DATA, which counts what is reserved, not what is used: the
/// sampled watchdog comes first, this only bounds how far a process gets between two samples.
const DATA_FACTOR: u64 = 4;
/// As above, for small limits, bytes.
const DATA_ROOM: u64 = 1 << 30;
/// RLIMIT_NPROC counts the uid's threads on the whole host: room for those of commands that are ending.
const PROCESSES_ROOM: u64 = 64;

/// Bytes that a process may reserve (RLIMIT_DATA) where memory is sampled and has this limit.
pub(crate) fn reservable(memory: u64) -> u64 {
    memory.saturating_mul(DATA_FACTOR).max(memory.saturating_add(DATA_ROOM))
}

/// What a launch asks for, as the server says it.
pub(super) struct Wanted<'a> {
    pub(super) profile: &'a str,
    pub(super) workspace: String,
    pub(super) stdin: bool,
    pub(super) files: bool,
    pub(super) adds: bool,
    pub(super) collect: bool,
    pub(super) limits: AskedLimits,
    /// How long it has waited for something, of the time that it has.
    pub(super) waited: Duration,
    /// It was cancelled while it waited.
    pub(super) cancelled: bool,
}

impl Monitor {
    /// Checks a launch from the ground up and starts it.
    pub(super) fn launch(
        &mut self,
        connection: ConnectionId,
        wanted: Wanted<'_>,
        sealed: Option<Vec<OwnedFd>>,
        fingerprints: Result<Fingerprints, Fault>,
    ) -> Result<(), LaunchRefusal> {
        let peer = self.connections.take_launch(connection).ok_or(LaunchRefusal::OutOfOrder)?;
        if self.stopping.is_some() {
            return Err(LaunchRefusal::ShuttingDown);
        }
        let plan = Arc::clone(authorize(&self.plans, wanted.profile, &peer)?);
        let limits = resolve(&plan.profile, &wanted.limits)?;
        // The request, its text, and the files where there are some.
        let mut sealed = sealed.filter(|all| all.len() >= 2).ok_or(LaunchRefusal::BadRequestFile)?;
        let late = wanted.waited >= Duration::from_millis(limits.wall_ms);
        let over = late || wanted.cancelled;
        if !over {
            self.check_concurrency(&plan, &peer)?;
        }
        let workspace = Some(wanted.workspace.clone()).filter(|name| !name.is_empty());
        let caps = caps_of(&plan.profile);
        let opened = workspace.as_ref().filter(|_| !over);
        let opened = opened.map(|name| self.resources.workspaces.open(peer.uid, name, caps)).transpose();
        let directory = match opened {
            _ if injected(WORKSPACE_STEP.0) => {
                Err(FailedStep { name: WORKSPACE_STEP.0, fault: Errno::EIO.into() })
            }
            Ok(Some((_, size))) if caps.are_exceeded_by(size) && !may_clear(&wanted) => {
                let (Size { bytes, files }, Caps { bytes: bytes_max, files: files_max }) = (size, caps);
                return Err(LaunchRefusal::WorkspaceFull { bytes, files, bytes_max, files_max });
            }
            Ok(directory) => Ok(directory),
            Err(Unusable::Refused(refusal)) => return Err(refusal),
            Err(Unusable::Failed(fault)) => Err(FailedStep { name: WORKSPACE_STEP.0, fault }),
        };
        let id = self.next_job;
        self.next_job += 1;
        // The command does not get the text.
        let text = sealed.remove(1);
        let recorded = fingerprints.and_then(|Fingerprints { request, files }| {
            let about = About { job: name_of(id), uid: peer.uid, request, begun: false };
            self.record_launch(about, files, &plan, &limits, workspace.as_ref(), &text)
        });
        // What cannot be recorded does not run.
        let recorded = recorded.map_err(|fault| FailedStep { name: AUDIT_STEP.0, fault });
        let directory = match recorded.and(directory) {
            Ok(directory) => directory,
            Err(failed) => return self.refuse_to_run(connection, id, &plan, &limits, &failed.into()),
        };
        if over {
            let outcome = match wanted.cancelled {
                true => cancelled_outcome(&plan, wanted.waited),
                false => late_outcome(&plan, wanted.waited, workspace.is_some()),
            };
            return self.tell_end(connection, id, &limits, plan.profile.concurrency, outcome);
        }
        let mut go = self.go(&plan, &limits, wanted.stdin, wanted.files);
        let found = directory.as_ref().map(|(_, size)| *size);
        let full = found.is_some_and(|size| caps.are_exceeded_by(size));
        let named = workspace.as_deref().map(|name| (peer.uid, name));
        let disk =
            directory.clone().zip(named).map(|(at, named)| self.resources.watch_over(named, at, &plan));
        let workspace_at = directory.map(|(path, _)| path);
        let asked = Asked { stdin: wanted.stdin, workspace: workspace_at, full, collect: wanted.collect };
        match launch(&mut self.resources, Arc::clone(&plan), limits, id, asked) {
            Ok(launched) => {
                if let Some((size, name)) = found.zip(workspace.as_deref()) {
                    go.room = Size::default();
                    if wanted.adds || wanted.files {
                        let left = caps.less(size);
                        let workspaces = &mut self.resources.workspaces;
                        go.room = workspaces.give_room((peer.uid, name), id, left, !wanted.adds);
                    }
                }
                let order = Order {
                    id,
                    connection,
                    peer_uid: peer.uid,
                    plan,
                    limits,
                    go,
                    sealed,
                    workspace,
                    disk,
                    collect: wanted.collect,
                    waited: wanted.waited,
                };
                let (job, server_ends) = Job::new(order, launched);
                self.outbox.push(&accepted(connection, id, &limits), server_ends);
                self.jobs.insert(id, job);
                Ok(())
            }
            Err(failed) => self.refuse_to_run(connection, id, &plan, &limits, &failed),
        }
    }

    /// Reports a launch that failed before there was a process to wait for.
    fn refuse_to_run(
        &mut self,
        connection: ConnectionId,
        id: JobId,
        plan: &Plan,
        limits: &Limits,
        failed: &Report,
    ) -> Result<(), LaunchRefusal> {
        self.tell_end(connection, id, limits, plan.profile.concurrency, failed_outcome(plan, failed))
    }

    /// Reports the end of what never had a process.
    fn tell_end(
        &mut self,
        connection: ConnectionId,
        id: JobId,
        limits: &Limits,
        concurrency: u32,
        outcome: Outcome,
    ) -> Result<(), LaunchRefusal> {
        let pipes = ended_pipes().map_err(|_| LaunchRefusal::Busy { concurrency })?;
        self.outbox.push(&accepted(connection, id, limits), pipes);
        self.record_end(id, &outcome);
        self.outbox.push(&ToServer::Ended { connection, outcome }, Vec::new());
        Ok(())
    }

    fn record_launch(
        &mut self,
        about: About,
        files: Option<String>,
        plan: &Plan,
        limits: &Limits,
        workspace: Option<&String>,
        text: &OwnedFd,
    ) -> Result<(), Fault> {
        if injected(AUDIT_STEP.0) {
            return Err(Errno::EIO.into());
        }
        let launch = |text| Entry::Launch {
            job: about.job.clone(),
            uid: about.uid,
            profile: plan.profile.name.clone(),
            request: about.request.clone(),
            files,
            workspace: workspace.cloned(),
            text: Some(text),
            wall_ms: limits.wall_ms,
            memory_bytes: limits.memory,
            pids: limits.pids,
        };
        self.audit.record_launch(&about, text, launch)
    }

    /// How many there may be, of a peer under a profile and of all, until what they left is torn down; and where
    /// files must be open for them, until the last trace is gone.
    fn check_concurrency(&self, plan: &Plan, peer: &Peer) -> Result<(), LaunchRefusal> {
        let there = || self.jobs.values().filter(|job| job.stage != Stage::Dying);
        if plan.host.one_at_a_time && there().next().is_some() {
            return Err(LaunchRefusal::OneAtATime);
        }
        let commands = self.plans.max_commands().min(self.connections.commands());
        if there().count() >= commands || self.jobs.len() >= self.connections.commands() {
            return Err(LaunchRefusal::Full { commands: commands as u64 });
        }
        let same = |job: &&Job| job.peer_uid == peer.uid && job.plan.profile.name == plan.profile.name;
        let concurrency = plan.profile.concurrency;
        if there().filter(same).count() >= concurrency as usize {
            Err(LaunchRefusal::Busy { concurrency })
        } else {
            Ok(())
        }
    }

    /// The word to start, with the backstops of a host whose cgroups do not limit.
    fn go(&self, plan: &Plan, limits: &Limits, stdin: bool, files: bool) -> Go {
        if plan.host.cgroup == CgroupMode::V2 {
            return Go { stdin, files, data: u64::MAX, processes: u64::MAX, room: Size::ENDLESS };
        }
        let others: u64 = self.jobs.values().map(|job| job.limits.pids).sum();
        Go {
            stdin,
            files,
            data: reservable(limits.memory),
            processes: limits.pids + others + PROCESSES_ROOM,
            room: Size::ENDLESS,
        }
    }
}

/// Whether this may start in a workspace that holds too much: it reads and removes what is there, and Landlock lets it
/// add nothing.
fn may_clear(wanted: &Wanted<'_>) -> bool {
    !wanted.adds && !wanted.files && effective_abi() > 0
}

fn accepted(connection: ConnectionId, job: JobId, limits: &Limits) -> ToServer {
    ToServer::Launched { connection, job, output_bytes: limits.output, capture_bytes: limits.capture }
}

/// Output and error of a command that never was: both at their end.
fn ended_pipes() -> Result<Vec<OwnedFd>, Errno> {
    let ended = || pipe2(OFlag::O_CLOEXEC).map(|(read, _write)| read);
    Ok(vec![ended()?, ended()?])
}

/// The report of a launch that failed before there was a process.
fn failed_outcome(plan: &Plan, failed: &Report) -> Outcome {
    let (step, errno, detail) = failed.failure();
    Outcome {
        ended_by: EndedBy::LaunchFailed,
        exit_code: None,
        signal: None,
        step: Some(step),
        errno,
        detail,
        wall_us: 0,
        cpu_us: 0,
        peak_memory_bytes: None,
        limits_hit: Vec::new(),
        threads_seen: 0,
        unrouted: false,
        enforced: enforced(plan, &Held::default()),
    }
}

/// The report of one whose time was over before it could be launched.
fn late_outcome(plan: &Plan, waited: Duration, named: bool) -> Outcome {
    let detail = match named {
        true => "what is in its workspace was still being counted, or others were putting something in",
        false => "what another command has left was still being ended",
    };
    let nothing = Report::Failed { step: String::new(), errno: 0, detail: detail.to_owned() };
    Outcome {
        ended_by: EndedBy::WallTimeout,
        step: None,
        wall_us: u64::try_from(waited.as_micros()).unwrap_or(u64::MAX),
        limits_hit: vec![LimitName::Wall],
        ..failed_outcome(plan, &nothing)
    }
}

/// The report of one that was cancelled before it was launched.
fn cancelled_outcome(plan: &Plan, waited: Duration) -> Outcome {
    Outcome { ended_by: EndedBy::Cancelled, limits_hit: Vec::new(), ..late_outcome(plan, waited, false) }
}
