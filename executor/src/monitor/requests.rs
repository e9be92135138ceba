//! What the server may ask, in which state, and what the monitor does: anything else is refused.
//!
//! `allowed.rs` says when, message by message; what is not allowed then is answered as if there were nothing
//! of that number, or not at all: an end can cross a message on its way.
//!
//! | message | allowed when | does |
//! |---|---|---|
//! | Launch | the connection is open and has launched nothing | checks everything again, launches |
//! | Cancel, OutputExceeded | the connection's command lives | ends it |
//! | KillJob | the connection is open; the command is of the same uid | ends it |
//! | Drained | the connection's command has ended | kills what is left |
//! | Closed | the connection is open | ends its command, forgets the number |
//! | Pong | always | nothing |

use super::{
    Monitor, MonitorError,
    allowed::is_allowed,
    audit::fingerprint,
    job::{Job, Stage, enforced},
    launch::launch,
    link::{AskedLimits, ConnectionId, JobId, LaunchRefusal, MESSAGE_LEN, Outcome, ToMonitor, ToServer},
    peers::Peer,
    policy::{Limits, authorize, check_request, resolve},
};
use crate::sandbox::{
    Go, Plan,
    message::{Held, Report},
    steps::{FailedStep, Fault, injected},
};
use crate::sys::{memfd, scm};
use cordon_protocol::{CgroupMode, EndedBy, audit::Entry};
use nix::{errno::Errno, fcntl::OFlag, unistd::pipe2};
use std::{
    fmt,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

/// Room above the memory limit for RLIMIT_DATA, which counts what is reserved, not what is used: the
/// sampled watchdog comes first, this only bounds how far a process gets between two samples.
const DATA_FACTOR: u64 = 4;
/// As above, for small limits, bytes.
const DATA_ROOM: u64 = 1 << 30;
/// RLIMIT_NPROC counts the uid's threads on the whole host: room for those of commands that are ending.
const PROCESSES_ROOM: u64 = 64;

/// The step before all others; it has no process and no resource of its own to undo.
pub(super) const AUDIT_STEP: (&str, &str) = ("audit", "first of all: what cannot be recorded does not run");
/// Messages of the server that are taken in one round; each may be a launch.
const MESSAGES: usize = 16;
/// Lines of log and trail about messages of the server that are none, or come out of order.
const COMPLAINTS_MAX: u32 = 100;

impl Monitor {
    /// Takes in what the server says: not all at once, so that one that never stops does not keep the
    /// monitor from its deadlines.
    pub(super) fn take_messages(&mut self) -> Result<(), MonitorError> {
        let mut buffer = [0; MESSAGE_LEN + 1];
        for _ in 0..MESSAGES {
            match scm::receive_now(self.link.as_fd(), &mut buffer) {
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
                Err(errno) => return Err(MonitorError::System("link", errno.into())),
                Ok(received) if received.length == 0 => return Err(MonitorError::ServerGone),
                Ok(received) if received.truncated => {
                    self.complain(format_args!("oversize message refused"));
                    self.keep(received.descriptors);
                }
                Ok(received) => self.handle(&buffer[..received.length], received.descriptors),
            }
        }
        Ok(())
    }

    /// Does what one message asks, or refuses it.
    pub(super) fn handle(&mut self, bytes: &[u8], descriptors: Vec<OwnedFd>) {
        let Ok(message) = ToMonitor::decode(bytes) else {
            self.keep(descriptors);
            return self.complain(format_args!("malformed message of {} bytes refused", bytes.len()));
        };
        self.take_up(message, descriptors);
    }

    fn take_up(&mut self, message: ToMonitor, descriptors: Vec<OwnedFd>) {
        let named = message.connection();
        let connection = named.and_then(|number| self.connections.get(number)).map(|found| found.stage);
        let command = self.jobs.values().find(|job| Some(job.connection) == named).map(|job| job.stage);
        if is_allowed(&message, connection, command) {
            if matches!(message, ToMonitor::Launch { .. }) && self.is_clearing_up() {
                // One a connection: what waits is bounded as they are.
                if self.postponed.iter().all(|(other, _)| other.connection() != named) {
                    return self.postponed.push((message, descriptors));
                }
                self.refuse(message);
                return self.keep(descriptors);
            }
            self.obey(message, descriptors);
        } else {
            self.refuse(message);
            self.keep(descriptors);
        }
    }

    /// Takes over descriptors that are not needed. Sealed memory is closed; whatever else a server has got hold
    /// of can make whoever closes it last wait as long as its other end likes.
    pub(super) fn keep(&mut self, descriptors: Vec<OwnedFd>) {
        let waits = |fd: &OwnedFd| memfd::sealed_length(fd.as_fd()).is_none();
        self.kept.extend(descriptors.into_iter().filter(waits));
    }

    /// Whether something of a command that has ended is still there which only its uid tells from another's: what
    /// ends it would end the next command too.
    fn is_clearing_up(&self) -> bool {
        self.jobs.values().any(|job| !job.is_live() && job.plan.host.one_at_a_time)
    }

    /// Takes up the launches that had to wait, once they need no longer.
    pub(super) fn launch_postponed(&mut self) {
        if !self.postponed.is_empty() && !self.is_clearing_up() {
            for (message, descriptors) in std::mem::take(&mut self.postponed) {
                self.take_up(message, descriptors);
            }
        }
    }

    /// Answers what is not allowed now, where an answer is waited for.
    fn refuse(&mut self, message: ToMonitor) {
        match message {
            ToMonitor::Launch { connection, profile, .. } => {
                let refusal = LaunchRefusal::OutOfOrder;
                // The one refusal that a connection can be given again and again.
                if self.may_complain() {
                    self.record_refusal(connection, profile, refusal);
                }
                self.outbox.push(&ToServer::LaunchRefused { connection, refusal }, Vec::new());
            }
            ToMonitor::KillJob { connection, .. } => {
                self.outbox.push(&ToServer::KillAnswer { connection, found: false }, Vec::new());
            }
            _ => {}
        }
    }

    fn refuse_launch(&mut self, connection: ConnectionId, profile: String, refusal: LaunchRefusal) {
        self.record_refusal(connection, profile, refusal);
        self.outbox.push(&ToServer::LaunchRefused { connection, refusal }, Vec::new());
    }

    fn obey(&mut self, message: ToMonitor, descriptors: Vec<OwnedFd>) {
        let (request, others) = match check_request(descriptors) {
            Ok(request) => (Some(request), Vec::new()),
            Err(others) => (None, others),
        };
        self.keep(others);
        match message {
            ToMonitor::Launch { connection, profile, stdin, limits } => {
                if let Err(refusal) = self.launch(connection, &profile, stdin, &limits, request) {
                    self.refuse_launch(connection, profile, refusal);
                }
            }
            ToMonitor::Cancel(connection) => self.end_of(connection, EndedBy::Cancelled),
            ToMonitor::OutputExceeded(connection) => self.end_of(connection, EndedBy::OutputLimit),
            ToMonitor::KillJob { connection, job } => {
                let found = self.kill_job(connection, job);
                self.outbox.push(&ToServer::KillAnswer { connection, found }, Vec::new());
            }
            ToMonitor::Drained(connection) => {
                self.jobs.values_mut().filter(|job| job.connection == connection).for_each(Job::tear_down);
            }
            ToMonitor::Closed(connection) => {
                self.end_of(connection, EndedBy::Cancelled);
                self.connections.close(connection);
            }
            ToMonitor::Pong => {}
        }
    }

    /// Logs what an honest server never does.
    pub(super) fn complain(&mut self, of: fmt::Arguments<'_>) {
        if self.may_complain() {
            crate::log!("server: {of}");
        }
    }

    /// Whether what an honest server never does is written down once more: one that is not could fill log and
    /// trail with it.
    fn may_complain(&mut self) -> bool {
        let may = self.complaints < COMPLAINTS_MAX;
        self.complaints += u32::from(may);
        may
    }

    fn end_of(&mut self, connection: ConnectionId, cause: EndedBy) {
        self.jobs.values_mut().filter(|job| job.connection == connection).for_each(|job| job.end(cause));
    }

    fn kill_job(&mut self, connection: ConnectionId, id: JobId) -> bool {
        let Some(asking) = self.connections.get(connection) else { return false };
        match self.jobs.get_mut(&id) {
            Some(job) if job.peer_uid == asking.peer.uid && job.is_live() => {
                job.end(EndedBy::Cancelled);
                true
            }
            _ => false,
        }
    }

    /// Checks a launch from the ground up and starts it.
    fn launch(
        &mut self,
        connection: ConnectionId,
        profile: &str,
        stdin: bool,
        asked: &AskedLimits,
        request: Option<OwnedFd>,
    ) -> Result<(), LaunchRefusal> {
        let peer = self.connections.take_launch(connection).ok_or(LaunchRefusal::OutOfOrder)?;
        if self.stopping.is_some() {
            return Err(LaunchRefusal::ShuttingDown);
        }
        let plan = Arc::clone(authorize(&self.plans, profile, &peer)?);
        let limits = resolve(&plan.profile, asked)?;
        let request = request.ok_or(LaunchRefusal::BadRequestFile)?;
        self.check_concurrency(&plan, &peer)?;
        let id = self.next_job;
        self.next_job += 1;
        if let Err(fault) = self.record_launch(id, &peer, &plan, &limits, &request) {
            // What cannot be recorded does not run.
            let failed = FailedStep { name: AUDIT_STEP.0, fault };
            return self.refuse_to_run(connection, id, &plan, &limits, &failed.into());
        }
        let go = self.go(&plan, &limits, stdin);
        match launch(&mut self.resources, Arc::clone(&plan), limits, id, stdin) {
            Ok(launched) => {
                let owner = (id, connection, peer.uid);
                let (job, server_ends) = Job::new(owner, plan, limits, launched, request, go);
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
        let concurrency = plan.profile.concurrency;
        let pipes = ended_pipes().map_err(|_| LaunchRefusal::Busy { concurrency })?;
        self.outbox.push(&accepted(connection, id, limits), pipes);
        let outcome = failed_outcome(plan, failed);
        self.record_end(id, &outcome);
        self.outbox.push(&ToServer::Ended { connection, outcome }, Vec::new());
        Ok(())
    }

    fn record_launch(
        &mut self,
        id: JobId,
        peer: &Peer,
        plan: &Plan,
        limits: &Limits,
        request: &OwnedFd,
    ) -> Result<(), Fault> {
        if injected(AUDIT_STEP.0) {
            return Err(Errno::EIO.into());
        }
        self.audit.record(Entry::Launch {
            job: name_of(id),
            uid: peer.uid,
            profile: plan.profile.name.clone(),
            request: fingerprint(request)?,
            wall_ms: limits.wall_ms,
            memory_bytes: limits.memory,
            pids: limits.pids,
        })
    }

    fn record_refusal(&mut self, connection: ConnectionId, profile: String, refusal: LaunchRefusal) {
        let uid = self.connections.get(connection).map(|connection| connection.peer.uid);
        let reason = format!("{refusal:?}");
        self.note(Entry::Refused { uid, profile, reason });
    }

    /// Records how a command ended.
    pub(super) fn record_end(&mut self, id: JobId, outcome: &Outcome) {
        self.note(Entry::Ended {
            job: name_of(id),
            ended_by: outcome.ended_by,
            exit_code: outcome.exit_code,
            signal: outcome.signal,
            step: outcome.step.clone(),
            wall_ms: milliseconds(outcome.wall_us),
            cpu_ms: milliseconds(outcome.cpu_us),
            limits_hit: outcome.limits_hit.clone(),
        });
    }

    /// Records what has happened already: a failure is told, and the next launch will fail by it.
    pub(super) fn note(&mut self, entry: Entry) {
        if let Err(fault) = self.audit.record(entry) {
            crate::log!("{}: {}", fault.detail, fault.errno.desc());
        }
    }

    /// How many there may be: of a peer under a profile until what they left is torn down, of all until the last
    /// trace is gone.
    fn check_concurrency(&self, plan: &Plan, peer: &Peer) -> Result<(), LaunchRefusal> {
        let commands = self.connections.commands();
        if self.jobs.len() >= commands {
            return Err(LaunchRefusal::Full { commands: commands as u64 });
        }
        let there = || self.jobs.values().filter(|job| job.stage != Stage::Dying);
        if plan.host.one_at_a_time && there().next().is_some() {
            return Err(LaunchRefusal::OneAtATime);
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
    fn go(&self, plan: &Plan, limits: &Limits, stdin: bool) -> Go {
        if plan.host.cgroup == CgroupMode::V2 {
            return Go { stdin, data: u64::MAX, processes: u64::MAX };
        }
        let others: u64 = self.jobs.values().map(|job| job.limits.pids).sum();
        Go {
            stdin,
            data: (limits.memory * DATA_FACTOR).max(limits.memory + DATA_ROOM),
            processes: limits.pids + others + PROCESSES_ROOM,
        }
    }
}

fn accepted(connection: ConnectionId, job: JobId, limits: &Limits) -> ToServer {
    ToServer::Launched { connection, job, output_bytes: limits.output, capture_bytes: limits.capture }
}

/// A command's number as reports and the trail write it.
fn name_of(id: JobId) -> String {
    format!("{id:016x}")
}

fn milliseconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1000.0
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
        enforced: enforced(plan, &Held::default()),
    }
}
