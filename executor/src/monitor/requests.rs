//! What the server may ask, in which state, and what the monitor does: anything else is refused.
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
    Monitor,
    job::{Job, enforced},
    launch::launch,
    link::{AskedLimits, ConnectionId, JobId, LaunchRefusal, Outcome, ToMonitor, ToServer},
    peers::Peer,
    policy::{Limits, authorize, check_request, resolve},
};
use crate::sandbox::{
    Go, Plan,
    message::{Held, Report},
};
use cordon_protocol::{CgroupMode, EndedBy};
use nix::{errno::Errno, fcntl::OFlag, unistd::pipe2};
use std::{os::fd::OwnedFd, sync::Arc};

/// Room above the memory limit for RLIMIT_DATA, which counts what is reserved, not what is used: the
/// sampled watchdog comes first, this only bounds how far a process gets between two samples.
const DATA_FACTOR: u64 = 4;
/// As above, for small limits, bytes.
const DATA_ROOM: u64 = 1 << 30;
/// RLIMIT_NPROC counts the uid's threads on the whole host: room for those of commands that are ending.
const PROCESSES_ROOM: u64 = 64;

impl Monitor {
    /// Does what one message asks, or refuses it.
    pub(super) fn handle(&mut self, bytes: &[u8], descriptors: Vec<OwnedFd>) {
        let Ok(message) = ToMonitor::decode(bytes) else {
            crate::log!("server: malformed message of {} bytes refused", bytes.len());
            return;
        };
        match message {
            ToMonitor::Launch { connection, profile, stdin, limits } => {
                if let Err(refusal) = self.launch(connection, &profile, stdin, &limits, descriptors) {
                    self.outbox.push(&ToServer::LaunchRefused { connection, refusal }, Vec::new());
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
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), LaunchRefusal> {
        let peer = self.connections.take_launch(connection).ok_or(LaunchRefusal::OutOfOrder)?;
        if self.stopping.is_some() {
            return Err(LaunchRefusal::ShuttingDown);
        }
        let plan = Arc::clone(authorize(&self.plans, profile, &peer)?);
        let limits = resolve(&plan.profile, asked)?;
        let request = check_request(descriptors)?;
        self.check_concurrency(&plan, &peer)?;
        let id = self.next_job;
        self.next_job += 1;
        let go = self.go(&plan, &limits, stdin);
        let accepted = ToServer::Launched {
            connection,
            job: id,
            output_bytes: limits.output,
            capture_bytes: limits.capture,
        };
        match launch(&mut self.resources, Arc::clone(&plan), limits, id, stdin) {
            Ok(launched) => {
                let owner = (connection, peer.uid);
                let (job, server_ends) = Job::new(owner, plan, limits, launched, request, go);
                self.outbox.push(&accepted, server_ends);
                self.jobs.insert(id, job);
            }
            Err(failed) => {
                let concurrency = plan.profile.concurrency;
                let pipes = ended_pipes().map_err(|_| LaunchRefusal::Busy { concurrency })?;
                self.outbox.push(&accepted, pipes);
                let outcome = failed_outcome(&plan, &failed);
                self.outbox.push(&ToServer::Ended { connection, outcome }, Vec::new());
            }
        }
        Ok(())
    }

    fn check_concurrency(&self, plan: &Plan, peer: &Peer) -> Result<(), LaunchRefusal> {
        let live = self.jobs.values().filter(|job| job.is_live());
        let alone = plan.host.one_at_a_time;
        let same = |job: &&Job| job.peer_uid == peer.uid && job.plan.profile.name == plan.profile.name;
        let count = live.filter(|job| alone || same(job)).count();
        let concurrency = if alone { 1 } else { plan.profile.concurrency };
        if count >= concurrency as usize { Err(LaunchRefusal::Busy { concurrency }) } else { Ok(()) }
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
