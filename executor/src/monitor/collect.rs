//! A second process in a sandbox whose command has ended: it collects what the command left, as confined as that
//! was, through the same lock-down.

use super::{
    cgroup::{Leaf, LeafLimits},
    hear::{Heard, receive},
    launch::{Process, child_end, pair},
    link::JobId,
    resources::Resources,
};
use crate::{
    sandbox::{
        Go, Plan,
        command::{self, CommandContext},
        errand::tree::Size,
        message::Report,
        namespaces::Namespaces,
        plan::Place,
        steps::{About, Fault},
    },
    sys::{
        clone::{CloneOptions, Cloned, clone_process},
        process::{signal, try_wait},
        scm,
    },
};
use nix::{
    errno::Errno,
    fcntl::OFlag,
    sched::{CloneFlags, setns},
    sys::{
        signal::Signal,
        socket::{AddressFamily, SockFlag, SockType, socketpair},
    },
    unistd::pipe2,
};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::abort,
    sync::Arc,
};

/// Limits of the collecting process. What the command has stored stays charged to the command's own leaf.
const LIMITS: LeafLimits =
    LeafLimits { memory: 64 << 20, pids: 4, cpu_percent: Some(100), end_together: true };

/// The collecting process.
#[derive(Debug)]
pub(super) struct Collector {
    pub(super) process: Process,
    control: Option<OwnedFd>,
    /// What it gets when it is ready: the request, standard output and error.
    pending: Option<[OwnedFd; 3]>,
}

/// Where it is to run.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    /// As the command's.
    pub(super) plan: &'a Arc<Plan>,
    /// As the command's.
    pub(super) place: Place,
    /// The command's leaf; none without cgroup v2.
    pub(super) leaf: Option<&'a Leaf>,
    /// The command's number.
    pub(super) job: JobId,
    /// The sandbox's; none on a host without.
    pub(super) namespaces: Option<Namespaces>,
}

impl Collector {
    /// Ends what is left of the command and starts the process that does what the sealed request says, in a leaf of its
    /// own; also gives that and the end from which what it writes can be read.
    ///
    /// # Errors
    /// What could not be made.
    pub(super) fn start(
        resources: &Resources,
        scene: Scene<'_>,
        request: OwnedFd,
    ) -> Result<(Self, Option<Leaf>, OwnedFd), Fault> {
        if let Some(leaf) = scene.leaf {
            leaf.kill().about("cgroup.kill")?;
        }
        // Not the command's: whatever is cloned into a cgroup that was killed once is killed too (seen on 6.18).
        let leaf = resources.cgroups.make_leaf(&format!("{:016x}.collect", scene.job), &LIMITS)?;
        let started = Self::clone_into(resources, scene, request, leaf.as_ref());
        match started {
            Ok((collector, from)) => Ok((collector, leaf, from)),
            Err(fault) => {
                leaf.as_ref().map(Leaf::remove);
                Err(fault)
            }
        }
    }

    fn clone_into(
        resources: &Resources,
        scene: Scene<'_>,
        request: OwnedFd,
        leaf: Option<&Leaf>,
    ) -> Result<(Self, OwnedFd), Fault> {
        let (ours, theirs) = stream()?;
        // Nobody reads what it has to say beside the files.
        let (_, stderr) = pipe2(OFlag::O_CLOEXEC)?;
        let control = pair()?;
        let alive = resources.alive.try_clone()?;
        if let Some(namespaces) = &scene.namespaces {
            setns(&namespaces.pid, CloneFlags::CLONE_NEWPID).about("the sandbox's pid namespace")?;
        }
        // Without a pid namespace everything of this uid is seen: only where one command runs at a time is it all
        // this command's.
        let ends_others = scene.namespaces.is_some() || scene.plan.host.one_at_a_time;
        let entered = scene.namespaces.is_some();
        let cloned = clone_process(CloneOptions { namespaces: 0, cgroup: leaf.map(Leaf::directory) });
        if matches!(cloned, Ok(Cloned::Child)) {
            command::run(CommandContext {
                control: Some(child_end(Some(control))),
                after: scene.namespaces,
                errand_only: true,
                ends_others,
                ..CommandContext::new(Arc::clone(scene.plan), scene.place, alive)
            })
        }
        if entered {
            resources.return_home();
        }
        match cloned.about("clone")? {
            Cloned::Parent { pid, pidfd } => {
                let process = Process { pid, pidfd };
                let pending = Some([request, theirs, stderr]);
                Ok((Self { process, control: Some(control.0), pending }, ours))
            }
            Cloned::Child => abort(),
        }
    }

    /// Descriptors to poll for reading.
    pub(super) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.control.iter().map(AsFd::as_fd).chain([self.process.pidfd.as_fd()])
    }

    /// Takes in what it says, and tells it to go when it is ready.
    pub(super) fn listen(&mut self) {
        let Some(control) = &self.control else { return };
        match receive(control.as_fd()) {
            Heard::Nothing => {}
            Heard::Report(Report::Ready(_), _) => {
                if let Some(pending) = self.pending.take() {
                    let go = Go {
                        stdin: false,
                        files: false,
                        data: u64::MAX,
                        processes: u64::MAX,
                        room: Size::default(),
                    };
                    let descriptors = pending.each_ref().map(AsFd::as_fd);
                    if scm::send(control.as_fd(), &go.encode(), &descriptors).is_err() {
                        self.kill();
                    }
                }
            }
            Heard::Report(failed, _) => {
                let (step, errno, detail) = failed.failure();
                crate::log!("collecting failed at step {step}: {detail}: {}", Errno::from_raw(errno).desc());
                self.kill();
            }
            // It has begun, or ended.
            Heard::End => (self.control, self.pending) = (None, None),
        }
    }

    /// Ends it.
    pub(super) fn kill(&mut self) {
        (self.control, self.pending) = (None, None);
        let _ = signal(self.process.pidfd.as_fd(), Signal::SIGKILL);
    }

    /// Reaps it when it has ended.
    pub(super) fn has_ended(&self) -> bool {
        try_wait(self.process.pidfd.as_fd()).is_some()
    }
}

/// A connection of bytes: the server reads it as it reads its clients.
fn stream() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
}
