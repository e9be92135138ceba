//! The root half: one thread, one loop over descriptors, no runtime, no byte of a client.
//!
//! It owns what needs root: the listening socket, peers, policy, cgroups, namespaces, the clones, deadlines,
//! ending, reaping and the audit. A pool of waiting sandboxes has its place here and comes later.

mod accept;
mod admit;
mod allowed;
mod appended;
mod arriving;
mod audit;
pub mod cgroup;
mod collect;
mod disk;
mod end;
mod ending;
mod error;
mod hear;
mod job;
mod last_look;
pub mod launch;
pub mod link;
mod looks;
mod netns;
mod outbox;
mod peers;
mod plans;
mod policy;
mod refusals;
mod reload;
mod requests;
mod resources;
mod room;
mod sample;
mod schedule;
mod services;
mod share;
mod stock;
mod supervisor;
mod unrouted;
mod verdict;
mod walk;
mod watchdog;
mod workspaces;

pub(crate) use admit::reservable;
pub use error::MonitorError;
pub use peers::ConnectionCaps;

use crate::sys::process::{ended_child, has_ended, reap};
use accept::Door;
use arriving::{Arrived, Arriving};
pub use audit::{Audit, Rotation};
use cgroup::Cgroups;
use cordon_protocol::{counted, limits};
use job::{Job, Progress, Stage};
use link::{JobId, ToServer};
use netns::Networks;
use nix::{
    errno::Errno,
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl::set_child_subreaper,
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::{Pid, pipe2},
};
use outbox::Outbox;
use peers::Connections;
pub use plans::Plans;
use refusals::Refusals;
pub use reload::Reload;
use resources::Resources;
use schedule::round_up;
use services::Relayed;
use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::Path,
    time::Instant,
};
use watchdog::Watchdog;
pub use workspaces::Workspaces;

/// What a monitor is made of.
#[derive(Debug)]
pub struct Parts {
    /// The profiles, with their prepared roots.
    pub plans: Plans,
    /// The audit trail.
    pub audit: Audit,
    /// The configuration that runs, and its file.
    pub reload: Reload,
    /// The subtree for the leaves.
    pub cgroups: Cgroups,
    /// The named workspaces.
    pub workspaces: Workspaces,
    /// Where peers connect.
    pub listener: UnixListener,
    /// To the server half.
    pub link: OwnedFd,
    /// Names the server half's process; none when a test plays it.
    pub server: Option<OwnedFd>,
    /// How many connections there is room for.
    pub caps: ConnectionCaps,
}

/// The running root half.
#[derive(Debug)]
pub struct Monitor {
    plans: Plans,
    audit: Audit,
    reload: Reload,
    resources: Resources,
    door: Option<Door>,
    link: OwnedFd,
    outbox: Outbox,
    signals: SignalFd,
    server: Option<OwnedFd>,
    connections: Connections,
    jobs: BTreeMap<JobId, Job>,
    relayed: Relayed,
    refusals: Refusals,
    next_job: JobId,
    watchdog: Watchdog,
    stopping: Option<Instant>,
    complaints: u32,
    /// What commands leave behind becomes this process's own: there are no pid namespaces.
    adopts: bool,
    /// Launches whose hashes are being made.
    arriving: Arriving,
    /// Launches that wait until what a command has left is gone.
    postponed: Vec<Arrived>,
    /// What came with messages and must not be closed: that could take for ever.
    kept: Vec<OwnedFd>,
    /// Kept open so that the sandboxes' read ends do not see its end.
    _alive: OwnedFd,
}

/// Below the state directory: commands' files on a host without namespaces.
const STORAGE: &str = "work";
/// Descriptors that an honest server never sends and that are kept before it is given up.
const KEPT: usize = 64;
/// Processes that commands have left behind and that are reaped in one round.
const ADOPTED: usize = 64;

impl Monitor {
    /// A monitor of these parts, which keeps what it must in `state_dir`.
    ///
    /// # Errors
    /// A call that failed.
    pub fn new(parts: Parts, state_dir: &Path) -> Result<Self, MonitorError> {
        let Parts { plans, audit, reload, cgroups, workspaces, listener, link, server, caps } = parts;
        let system = |what: &'static str| move |e: io::Error| MonitorError::System(what, e);
        let errno = |what: &'static str| move |e: Errno| MonitorError::System(what, e.into());
        let (alive, held) = pipe2(OFlag::O_CLOEXEC).map_err(errno("pipe"))?;
        let mut mask: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
        let adopts = plans.all().any(|plan| !plan.host.namespaces);
        if adopts {
            set_child_subreaper(true).map_err(errno("subreaper"))?;
            mask.add(Signal::SIGCHLD);
        }
        mask.thread_block().map_err(errno("sigprocmask"))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        listener.set_nonblocking(true).map_err(system("listening socket"))?;
        Ok(Self {
            plans,
            audit,
            reload,
            resources: Resources {
                cgroups,
                networks: Networks::new().map_err(system("network namespace"))?,
                alive,
                storage: state_dir.join(STORAGE),
                workspaces,
                pid_namespace: File::open("/proc/self/ns/pid").map_err(system("pid namespace"))?,
            },
            door: Some(Door::new(listener)),
            link,
            outbox: Outbox::default(),
            signals: SignalFd::with_flags(&mask, flags).map_err(errno("signalfd"))?,
            server,
            connections: Connections::new(caps),
            jobs: BTreeMap::new(),
            relayed: Relayed::new(),
            refusals: Refusals::default(),
            next_job: job::first_number().map_err(system("/dev/urandom"))?,
            watchdog: Watchdog::of_this_process(Instant::now()),
            stopping: None,
            complaints: 0,
            adopts,
            arriving: Arriving::default(),
            postponed: Vec::new(),
            kept: Vec::new(),
            _alive: held,
        })
    }

    /// Waits until the server half has locked itself down and answers.
    ///
    /// # Errors
    /// It ended instead, or did not answer in time.
    pub fn await_server(&mut self) -> Result<(), MonitorError> {
        let late = || MonitorError::System("starting the server half", io::ErrorKind::TimedOut.into());
        self.outbox.push(&ToServer::Ping, Vec::new());
        self.outbox.flush(self.link.as_fd()).map_err(|_| MonitorError::ServerGone)?;
        let timeout = PollTimeout::try_from(limits::LAUNCH_TIMEOUT).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.link.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) | Err(_) => Err(late()),
            Ok(_) => self.take_messages(),
        }
    }

    /// Serves until told to end and everything has ended.
    ///
    /// # Errors
    /// The server half has gone, or a call of the loop failed; every sandbox is ended first.
    pub fn run(&mut self) -> Result<(), MonitorError> {
        let served = self.serve();
        self.end_everything();
        served
    }

    fn serve(&mut self) -> Result<(), MonitorError> {
        loop {
            if self.is_finished() {
                return Ok(());
            }
            self.wait()?;
            // The link does not tell of it while somebody has a copy of its other end.
            if self.server.as_ref().is_some_and(|server| has_ended(server.as_fd())) {
                return Err(MonitorError::ServerGone);
            }
            self.take_signals();
            self.take_messages()?;
            if self.kept.len() > KEPT {
                return Err(MonitorError::ServerBroken);
            }
            // Before /etc, which may change again and again while roots are made; those of a reload hold its changes too.
            self.go_on_reloading();
            self.plans.keep_fresh(Instant::now());
            self.go_on_making_roots();
            self.go_on_refusing(Instant::now());
            self.audit.go_on(Instant::now());
            self.accept();
            self.ask_server();
            self.resources.workspaces.go_on();
            self.reap_adopted();
            let ids: Vec<_> = self.jobs.keys().copied().collect();
            for id in ids {
                self.attend(id);
            }
            self.launch_postponed();
            self.go_on_hashing();
            self.outbox.flush(self.link.as_fd()).map_err(|_| MonitorError::ServerGone)?;
        }
    }

    /// Waits for a descriptor or the next deadline.
    fn wait(&mut self) -> Result<(), MonitorError> {
        let now = Instant::now();
        // With so much to be sent nobody is taken in, and room for it is waited for.
        let door = self.door.as_ref().filter(|_| !self.outbox.is_long());
        let deadlines = self.jobs.values().filter_map(Job::deadline).chain(self.stopping);
        let deadlines = deadlines.chain(door.and_then(Door::opens)).chain(self.plans.refresh_due());
        let deadlines =
            deadlines.chain(self.reload.deadline()).chain(self.refusals.due()).chain(self.audit.due());
        let deadlines = deadlines.chain(self.watchdog.deadline()).chain(self.resources.workspaces.deadline());
        let deadlines = deadlines.chain(self.postponed_until());
        let isolates = || self.plans.all().any(|plan| plan.isolates_network());
        let refill = self.resources.networks.wants_more(now) && isolates();
        let busy = refill || self.plans.is_busy() || self.arriving.is_busy();
        let timeout = match deadlines.min() {
            _ if busy => PollTimeout::ZERO,
            Some(at) => round_up(at.saturating_duration_since(now)),
            None => PollTimeout::NONE,
        };
        let link_events =
            if self.outbox.is_empty() { PollFlags::POLLIN } else { PollFlags::POLLIN | PollFlags::POLLOUT };
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.link.as_fd(), link_events),
        ];
        let own = [door.and_then(Door::watched), self.server.as_ref().map(AsFd::as_fd), self.plans.watched()];
        let watched = own.into_iter().flatten().chain(self.jobs.values().flat_map(Job::watched));
        let watched = watched.chain(self.resources.workspaces.watched()).chain(self.reload.watched());
        fds.extend(watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        match poll(&mut fds, timeout) {
            // Not when the time was up for something else.
            Ok(0) if refill => self.resources.networks.refill(now),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(MonitorError::System("poll", errno.into())),
        }
        Ok(())
    }

    fn take_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            let number = i32::try_from(info.ssi_signo).unwrap_or(0);
            if number == Signal::SIGCHLD as i32 {
                continue;
            }
            if number == Signal::SIGHUP as i32 {
                self.reload();
                continue;
            }
            if self.stopping.is_none() {
                // What has ended may still be on its way out.
                let running = self.jobs.values().filter(|job| job.is_live()).count();
                crate::log!("ending, nothing more is taken; running: {}", counted(running, "command"));
                self.stopping = Some(Instant::now() + limits::SHUTDOWN_GRACE);
                self.door = None;
                self.outbox.push(&ToServer::Drain, Vec::new());
            }
        }
    }

    /// Reaps what commands have left behind on a host without pid namespaces. A job's own processes are
    /// reaped by it.
    fn reap_adopted(&mut self) {
        if !self.adopts {
            return;
        }
        let adopted = |pid: &Pid| !self.jobs.values().any(|job| job.owns(*pid)) && !self.reload.owns(*pid);
        // Commands can leave more of them all the time; those that are over are still there in the next round.
        for pid in (0..ADOPTED).map_while(|_| ended_child().filter(adopted)) {
            reap(pid);
        }
    }

    /// Looks after one sandbox: what it says, its deadlines, its end.
    fn attend(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let now = Instant::now();
        if job.is_live() {
            let progress = job.listen();
            let connection = job.connection;
            self.hand_over_listening(id);
            if matches!(progress, Progress::Executed) {
                self.resources.workspaces.takes_no_more(id, true);
                self.outbox.push(&ToServer::Executed(connection), Vec::new());
            }
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if let Some((progress, outcome)) = job.reap() {
            let connection = job.connection;
            if matches!(progress, Progress::Executed) {
                self.outbox.push(&ToServer::Executed(connection), Vec::new());
            }
            self.resources.workspaces.takes_no_more(id, false);
            self.hold_report(id, outcome, now);
        }
        self.report_held(id, now);
        self.remember_found(id);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.tend_collector();
        // After its end has been seen: one that came first is not put down to a limit found reached with it.
        if job.is_live() || matches!(job.stage, Stage::Ended | Stage::Collecting) {
            job.check(now);
        }
        if job.held_report.is_none() && job.is_gone(now) {
            self.look_after(id);
        }
    }
}
