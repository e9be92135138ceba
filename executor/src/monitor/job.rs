//! One sandbox from its launch to its last trace: what it is doing, why it ends, what is reported.

use super::{
    launch::{Launched, Leaves, Process},
    link::{ConnectionId, JobId, Outcome, OutcomeEnforced},
    policy::Limits,
    sample,
};
use crate::{
    sandbox::{
        Go, Plan,
        message::{Held, Report},
    },
    sys::{
        process::{Status, signal, try_wait},
        scm,
    },
};
use cordon_protocol::{CgroupMode, EndedBy, LimitName, NamespaceName, NetworkMode, limits};
use nix::{
    errno::Errno,
    sys::signal::Signal,
};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

/// How far a sandbox has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its processes lock themselves down.
    Launching,
    /// Told to go; not yet executed.
    Told,
    /// The program runs.
    Running,
    /// The command's process has ended and was reported; others may hold its pipes.
    Ended,
    /// Everything has been killed; processes and leaves go away.
    Dying,
}

/// A sandbox.
#[derive(Debug)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// The connection it belongs to.
    pub connection: ConnectionId,
    /// Uid of the peer it runs for.
    pub peer_uid: u32,
    /// How far it has come.
    pub stage: Stage,
    /// Limits in force.
    pub limits: Limits,
    plan: Arc<Plan>,
    command: Process,
    init: Option<Process>,
    control: Option<OwnedFd>,
    init_control: Option<OwnedFd>,
    leaves: Leaves,
    pending: Option<(Go, OwnedFd, Vec<OwnedFd>)>,
    storage: Vec<OwnedFd>,
    init_ready: bool,
    command_ready: bool,
    held: Held,
    failure: Option<Report>,
    cause: Option<EndedBy>,
    status: Option<Status>,
    init_reaped: bool,
    launched: Instant,
    started: Option<Instant>,
    cpu_before: u64,
    peak: Option<u64>,
    pids_reached: bool,
    next_check: Instant,
    drain_until: Option<Instant>,
}

/// What happened to a job that the monitor must tell the server.
#[derive(Debug)]
pub enum Progress {
    /// Nothing to tell.
    Nothing,
    /// The program has been executed.
    Executed,
}

/// Time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Least time between two looks at the processor time.
const CPU_CHECK_FLOOR: Duration = Duration::from_millis(10);
/// How much longer than the server's grace the monitor waits for it to say that the pipes are drained.
const DRAIN_MARGIN: Duration = Duration::from_millis(300);

impl Job {
    /// A job from a finished launch; `data` and `processes` are for its rlimits.
    pub fn new(
        ids: (JobId, ConnectionId, u32),
        plan: Arc<Plan>,
        limits: Limits,
        launched: Launched,
        request: OwnedFd,
        go: Go,
    ) -> (Self, Vec<OwnedFd>) {
        let now = Instant::now();
        let (id, connection, peer_uid) = ids;
        let job = Self {
            id,
            connection,
            peer_uid,
            stage: Stage::Launching,
            limits,
            init_ready: launched.init.is_none(),
            init_reaped: launched.init.is_none(),
            plan,
            command: launched.command,
            init: launched.init,
            control: Some(launched.control),
            init_control: launched.init_control,
            leaves: launched.leaves,
            pending: Some((go, request, launched.command_ends)),
            storage: Vec::new(),
            command_ready: false,
            held: Held::default(),
            failure: None,
            cause: None,
            status: None,
            launched: now,
            started: None,
            cpu_before: 0,
            peak: None,
            pids_reached: false,
            next_check: now,
            drain_until: None,
        };
        (job, launched.server_ends)
    }

    /// Descriptors to poll for reading.
    pub fn watched(&self) -> Vec<BorrowedFd<'_>> {
        let mut watched = Vec::with_capacity(4);
        watched.extend(self.control.as_ref().map(AsFd::as_fd));
        watched.extend(self.init_control.as_ref().map(AsFd::as_fd));
        if self.status.is_none() {
            watched.push(self.command.pidfd.as_fd());
        }
        watched.extend(self.init.as_ref().filter(|_| !self.init_reaped).map(|init| init.pidfd.as_fd()));
        watched
    }

    /// Whether the command's process is still there.
    pub fn is_live(&self) -> bool {
        !matches!(self.stage, Stage::Ended | Stage::Dying)
    }

    /// Takes in whatever its processes have said, and tells the command to go when both are ready.
    pub fn listen(&mut self) -> Progress {
        while self.listen_to_init() {}
        let mut progress = Progress::Nothing;
        while let Some(heard) = self.listen_to_command() {
            if matches!(heard, Progress::Executed) {
                progress = heard;
            }
        }
        if self.stage == Stage::Launching && self.init_ready && self.command_ready && self.failure.is_none() {
            self.tell_to_go();
        }
        if self.failure.is_some() && self.is_live() {
            self.kill_processes();
        }
        progress
    }

    /// Takes in one message of init; false when there is none.
    fn listen_to_init(&mut self) -> bool {
        let Some(control) = &self.init_control else { return false };
        match receive(control.as_fd()) {
            Heard::Nothing => return false,
            Heard::Report(Report::Ready(_), storage) => {
                self.init_ready = true;
                self.storage = storage;
                self.init_control = None;
            }
            Heard::Report(failed, _) => self.fail(failed),
            Heard::End => {
                self.init_control = None;
                if !self.init_ready {
                    self.fail(Report::died("init"));
                }
            }
        }
        true
    }

    /// Takes in one message of the command's process; none when there is none.
    fn listen_to_command(&mut self) -> Option<Progress> {
        let control = self.control.as_ref()?;
        match receive(control.as_fd()) {
            Heard::Nothing => return None,
            Heard::Report(Report::Ready(held), _) if self.stage == Stage::Launching => {
                self.held = held;
                self.command_ready = true;
            }
            Heard::Report(Report::Ready(_), _) => self.fail(Report::died("ready")),
            Heard::Report(failed, _) => self.fail(failed),
            Heard::End => {
                self.control = None;
                // The pair closes on a successful exec, or with a process that said before what failed.
                if self.stage == Stage::Told && self.failure.is_none() {
                    self.stage = Stage::Running;
                    return Some(Progress::Executed);
                }
                if self.failure.is_none() {
                    self.fail(Report::died("lock_down"));
                }
            }
        }
        Some(Progress::Nothing)
    }

    fn fail(&mut self, report: Report) {
        self.failure.get_or_insert(report);
    }

    fn tell_to_go(&mut self) {
        let (Some((go, request, ends)), Some(control)) = (self.pending.take(), &self.control) else { return };
        self.cpu_before = self.cpu_now();
        let mut descriptors = vec![request.as_fd()];
        descriptors.extend(ends.iter().map(AsFd::as_fd));
        match scm::send(control.as_fd(), &go.encode(), &descriptors) {
            Ok(()) => {
                let now = Instant::now();
                self.stage = Stage::Told;
                self.started = Some(now);
                self.next_check = now;
            }
            Err(errno) => self.fail(Report::Failed {
                step: "go".to_owned(),
                errno: errno as i32,
                detail: String::new(),
            }),
        }
    }
}

/// What holds around a command of this plan, from what its process read back.
pub fn enforced(plan: &Plan, held: &Held) -> OutcomeEnforced {
    let mut namespaces = Vec::new();
    if plan.host.namespaces {
        namespaces = vec![NamespaceName::Pid, NamespaceName::Mount, NamespaceName::Ipc, NamespaceName::Uts];
    }
    let isolated = plan.isolates_network();
    if isolated {
        namespaces.push(NamespaceName::Net);
    }
    OutcomeEnforced {
        uid: plan.users.command.uid(),
        cgroup: plan.host.cgroup,
        landlock_abi: held.landlock_abi.into(),
        seccomp: held.seccomp,
        namespaces,
        network: if isolated { plan.profile.network } else { NetworkMode::Host },
        capabilities: held.capabilities,
    }
}

enum Heard {
    Nothing,
    Report(Report, Vec<OwnedFd>),
    End,
}

fn receive(control: BorrowedFd<'_>) -> Heard {
    let mut bytes = [0; crate::sandbox::message::REPORT_LEN];
    match scm::receive_now(control, &mut bytes) {
        Err(Errno::EAGAIN | Errno::EINTR) => Heard::Nothing,
        Ok(received) if received.length > 0 => match Report::decode(&bytes[..received.length]) {
            Some(report) => Heard::Report(report, received.descriptors),
            None => Heard::Report(Report::died("report"), Vec::new()),
        },
        _ => Heard::End,
    }
}

