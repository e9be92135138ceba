//! One sandbox from its launch to its last trace: what it is doing, why it ends, what is reported.

use super::{
    collect::Collector,
    disk::DiskWatch,
    hear::{Heard, receive},
    last_look::HeldReport,
    launch::{Launched, Leaves, Process},
    link::{ConnectionId, JobId, OutcomeEnforced},
    policy::Limits,
    sample::Account,
    schedule::Schedule,
    verdict::Verdict,
};
use crate::{
    sandbox::{
        Go, Plan,
        message::{Held, Report},
        namespaces::Namespaces,
        plan::Place,
        storage::Storage,
    },
    sys::{process::Status, scm},
};
use cordon_protocol::{CgroupMode, NamespaceName, NetworkMode};
use nix::unistd::Pid;
use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

/// How far a sandbox has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its processes lock themselves down.
    Launching,
    /// Told to go; not yet executed.
    Told,
    /// The program runs.
    Running,
    /// The command's process has ended and was reported; others may hold its pipes.
    Ended,
    /// What the command left in its workspace is being collected.
    Collecting,
    /// Everything has been killed; processes and leaves go away.
    Dying,
}

impl Stage {
    /// Whether the command's process is still there.
    pub(super) fn is_live(self) -> bool {
        !matches!(self, Self::Ended | Self::Collecting | Self::Dying)
    }
}

/// A sandbox.
#[derive(Debug)]
pub(super) struct Job {
    /// Its number.
    pub(super) id: JobId,
    /// The connection it belongs to.
    pub(super) connection: ConnectionId,
    /// Uid of the peer it runs for.
    pub(super) peer_uid: u32,
    /// How far it has come.
    pub(super) stage: Stage,
    /// Limits in force.
    pub(super) limits: Limits,
    pub(super) plan: Arc<Plan>,
    pub(super) command: Process,
    pub(super) init: Option<Process>,
    pub(super) control: Option<OwnedFd>,
    pub(super) init_control: Option<OwnedFd>,
    pub(super) leaves: Leaves,
    pub(super) pending: Option<(Go, Vec<OwnedFd>)>,
    /// Watches the named workspace; none for a private one.
    pub(super) disk: Option<DiskWatch>,
    /// Name of the workspace that the command uses.
    pub(super) workspace: Option<String>,
    pub(super) place: Place,
    /// The sandbox may be entered once more, and how.
    pub(super) reentry: Option<Option<Namespaces>>,
    pub(super) collector: Option<Collector>,
    /// The time of the pipes was over before the server asked to collect, which is waited for.
    pub(super) collect_awaited: bool,
    pub(super) storage: Vec<OwnedFd>,
    /// Listening sockets of the services, until the server has them.
    pub(super) listening: Vec<OwnedFd>,
    pub(super) init_ready: bool,
    pub(super) command_ready: bool,
    pub(super) held: Held,
    pub(super) verdict: Verdict,
    pub(super) status: Option<Status>,
    /// How it ended, not told yet.
    pub(super) held_report: Option<HeldReport>,
    pub(super) init_reaped: bool,
    pub(super) schedule: Schedule,
    pub(super) cpu_before: u64,
    pub(super) account: Account,
    pub(super) peak: Option<u64>,
    pub(super) threads_seen: u64,
    pub(super) recount: Option<(Process, Instant)>,
    pub(super) directories: Option<Storage>,
    pub(super) cleaner: Option<OwnedFd>,
    pub(super) cleanings_left: u32,
}

/// What a job is made of beside the launch itself.
#[derive(Debug)]
pub(super) struct Order {
    /// Its number.
    pub(super) id: JobId,
    /// The connection it belongs to.
    pub(super) connection: ConnectionId,
    /// Uid of the peer it runs for.
    pub(super) peer_uid: u32,
    /// Its profile's plan.
    pub(super) plan: Arc<Plan>,
    /// Limits in force.
    pub(super) limits: Limits,
    /// The word to start.
    pub(super) go: Go,
    /// What comes with it first: the sealed request, and the sealed content of its files where there are some.
    pub(super) sealed: Vec<OwnedFd>,
    /// Name of the workspace; none is a private one.
    pub(super) workspace: Option<String>,
    /// Watches it.
    pub(super) disk: Option<DiskWatch>,
    /// What the command leaves may be collected.
    pub(super) collect: bool,
    /// How much of its time it has waited.
    pub(super) waited: Duration,
}

/// What happened to a job that the monitor must tell the server.
#[derive(Debug)]
pub(super) enum Progress {
    /// Nothing to tell.
    Nothing,
    /// The program has been executed.
    Executed,
}

/// How often the deletion of a command's files is tried again; a process of its own uid may have ended it.
const CLEANINGS: u32 = 10;

/// Messages that are taken from a process at a time: more than an honest one ever sends.
const MESSAGES: usize = 8;

impl Job {
    /// A job from a finished launch, and the server's ends of its pipes.
    pub(super) fn new(order: Order, launched: Launched) -> (Self, Vec<OwnedFd>) {
        let Order { id, connection, peer_uid, plan, limits, go, sealed, workspace, disk, collect, waited } =
            order;
        let looks = plan.host.cgroup != CgroupMode::V2 || limits.cpu_time_ms.is_some() || disk.is_some();
        let time = Duration::from_millis(limits.wall_ms).saturating_sub(waited);
        let schedule = Schedule::new(Instant::now(), time, looks);
        let mut for_command = sealed;
        for_command.extend(launched.command_ends);
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
            pending: Some((go, for_command)),
            disk,
            workspace,
            place: launched.place,
            reentry: collect.then_some(launched.namespaces),
            collector: None,
            collect_awaited: false,
            storage: Vec::new(),
            listening: Vec::new(),
            command_ready: false,
            held: Held::default(),
            verdict: Verdict::default(),
            status: None,
            held_report: None,
            schedule,
            cpu_before: 0,
            account: Account::default(),
            peak: None,
            threads_seen: 0,
            recount: None,
            directories: launched.storage,
            cleaner: None,
            cleanings_left: CLEANINGS,
        };
        (job, launched.server_ends)
    }

    /// Descriptors to poll for reading.
    pub(super) fn watched(&self) -> Vec<BorrowedFd<'_>> {
        let mut watched = Vec::with_capacity(4);
        watched.extend(self.control.as_ref().map(AsFd::as_fd));
        watched.extend(self.init_control.as_ref().map(AsFd::as_fd));
        if self.status.is_none() {
            watched.push(self.command.pidfd.as_fd());
        }
        watched.extend(self.collector.iter().flat_map(Collector::watched));
        watched.extend(self.disk.as_ref().and_then(DiskWatch::watched));
        watched.extend(self.init.as_ref().filter(|_| !self.init_reaped).map(|init| init.pidfd.as_fd()));
        // Looked after only then: till then one that has ended would keep the loop turning.
        if self.stage == Stage::Dying {
            watched.extend(self.cleaner.as_ref().map(AsFd::as_fd));
            watched.extend(self.recount.as_ref().map(|(recount, _)| recount.pidfd.as_fd()));
        }
        watched
    }

    /// Whether the process is one that the job itself reaps.
    pub(super) fn owns(&self, pid: Pid) -> bool {
        let recount = self.recount.as_ref().map(|(recount, _)| recount);
        let collector = self.collector.as_ref().map(|collector| &collector.process);
        self.init.iter().chain([&self.command]).chain(recount).chain(collector).any(|own| own.pid == pid)
    }

    /// Whether the command's process is still there.
    pub(super) fn is_live(&self) -> bool {
        self.stage.is_live()
    }

    /// Takes in whatever its processes have said, and tells the command to go when both are ready.
    pub(super) fn listen(&mut self) -> Progress {
        self.hear_init();
        let progress = self.hear_command();
        if self.stage == Stage::Launching
            && self.init_ready
            && self.command_ready
            && self.verdict.failure().is_none()
        {
            self.tell_to_go();
        }
        if self.verdict.failure().is_some() && self.is_live() {
            self.kill_processes();
        }
        progress
    }

    /// Takes in the messages of init.
    pub(super) fn hear_init(&mut self) {
        (0..MESSAGES).all(|_| self.listen_to_init());
    }

    /// Takes in the messages of the command's process.
    pub(super) fn hear_command(&mut self) -> Progress {
        let mut progress = Progress::Nothing;
        for heard in (0..MESSAGES).map_while(|_| self.listen_to_command()) {
            if matches!(heard, Progress::Executed) {
                progress = heard;
            }
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
            Heard::Report(Report::Services, listening) => self.take_listening(listening),
            Heard::Report(failed, _) => self.verdict.fail(failed),
            Heard::End => {
                self.init_control = None;
                // It says what failed before it ends; that it ended adds nothing.
                if !self.init_ready && self.verdict.failure().is_none() {
                    self.verdict.fail(Report::died("init"));
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
            Heard::Report(Report::Ready(_), _) => self.verdict.fail(Report::died("ready")),
            Heard::Report(failed, _) => self.verdict.fail(failed),
            Heard::End => {
                self.control = None;
                // The pair closes on a successful exec, or with a process that said before what failed.
                if self.stage == Stage::Told && self.verdict.failure().is_none() {
                    self.stage = Stage::Running;
                    return Some(Progress::Executed);
                }
                if self.verdict.failure().is_none() {
                    self.verdict.fail(Report::died("lock_down"));
                }
            }
        }
        Some(Progress::Nothing)
    }

    fn tell_to_go(&mut self) {
        let Some((go, for_command)) = self.pending.take() else { return };
        self.cpu_before = self.cpu_now();
        let Some(control) = &self.control else { return };
        let descriptors: Vec<_> = for_command.iter().map(AsFd::as_fd).collect();
        match scm::send(control.as_fd(), &go.encode(), &descriptors) {
            Ok(()) => {
                self.stage = Stage::Told;
                self.schedule.start(Instant::now());
            }
            Err(errno) => self.verdict.fail(Report::Failed {
                step: "go".to_owned(),
                errno: errno as i32,
                detail: String::new(),
            }),
        }
    }
}

/// The first number of this monitor's jobs: random above, counting below, so that numbers do not repeat
/// over restarts.
pub(super) fn first_number() -> io::Result<JobId> {
    let mut random = [0; 4];
    io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut random)?;
    Ok(JobId::from(u32::from_le_bytes(random)) << 32 | 1)
}

/// What holds around a command of this plan, from what its process read back.
pub(super) fn enforced(plan: &Plan, held: &Held) -> OutcomeEnforced {
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
