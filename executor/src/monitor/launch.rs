//! The monitor's half of a launch: everything outside the two cloned processes, in order.

mod launched;

pub(super) use launched::{Asked, Launched, Leaves, Process};

use super::{
    cgroup::{Leaf, LeafLimits},
    hear::{Heard, receive},
    link::JobId,
    policy::Limits,
    requests::{AUDIT_STEP, WORKSPACE_STEP},
    resources::Resources,
};
use crate::{
    host,
    sandbox::{
        Plan,
        command::{self, CommandContext},
        init::{self, InitContext},
        message::Report,
        namespaces::Namespaces,
        plan::Place,
        steps::{About, FailedStep, Fault, Step, walk},
        storage::Storage,
    },
    sys::clone::{CloneOptions, Cloned, clone_process},
};
use nix::{
    errno::Errno,
    fcntl::OFlag,
    sched::{CloneFlags, setns},
    sys::socket::{AddressFamily, SockFlag, SockType, socketpair},
    unistd::{Gid, Uid, fchown, pipe2},
};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    process::abort,
    sync::Arc,
};

/// One end of a pipe for the command, the other for the server.
#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// A launch under way: what is asked, and what has been made so far.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    resources: &'a mut Resources,
    plan: Arc<Plan>,
    limits: Limits,
    job: JobId,
    asked: Asked,
    stdin: Option<Pipe>,
    stdout: Option<Pipe>,
    stderr: Option<Pipe>,
    leaves: Leaves,
    storage: Option<Storage>,
    network: Option<OwnedFd>,
    control: Option<(OwnedFd, OwnedFd)>,
    init_control: Option<(OwnedFd, OwnedFd)>,
    sync: Option<(OwnedFd, OwnedFd)>,
    init: Option<Process>,
    namespaces: Option<Namespaces>,
    command: Option<Process>,
}

/// Memory of init, bytes: page tables and the pages it writes of its copy of the monitor.
const INIT_MEMORY: u64 = 16 << 20;

fn steps<'a>() -> Vec<Step<Launch<'a>>> {
    vec![
        Step {
            name: "pipes",
            why: "made by the monitor, never taken from the server, whose descriptors could be anything; given \
                  to the command's user, or it could not open /dev/stderr again",
            run: |l| {
                l.stdout = Some(l.pipe()?);
                l.stderr = Some(l.pipe()?);
                l.stdin = if l.asked.stdin { Some(l.pipe()?) } else { None };
                l.give_to_command()
            },
        },
        Step {
            name: "cgroup",
            why: "limits hold before the first process is in the leaf",
            run: Launch::make_leaves,
        },
        Step {
            name: "network",
            why: "leased before init is cloned, which joins it first of all",
            run: |l| {
                if l.plan.isolates_network() {
                    l.network = Some(l.resources.networks.lease().about("network namespace")?);
                }
                Ok(())
            },
        },
        Step {
            name: "storage",
            why: "without namespaces the command's files lie on the host: its directories are there before it is",
            run: |l| {
                if !l.plan.host.namespaces {
                    l.storage = Some(l.make_storage()?);
                }
                Ok(())
            },
        },
        Step {
            name: "pairs",
            why: "every way of talking is there before anybody who could use it",
            run: |l| {
                l.control = Some(pair()?);
                if l.plan.host.namespaces {
                    l.init_control = Some(pair()?);
                    l.sync = Some(pair()?);
                }
                Ok(())
            },
        },
        Step {
            name: "clone_init",
            why: "process 1 of the namespaces that the command will join",
            run: Launch::clone_init,
        },
        Step {
            name: "clone_command",
            why: "by the monitor, not by init, so that the monitor reaps it; while init, still root, waits to be joined",
            run: Launch::clone_command,
        },
    ]
}

/// Names and reasons of the monitor's steps, in order.
pub fn list() -> Vec<(&'static str, &'static str)> {
    let own = steps();
    [AUDIT_STEP, WORKSPACE_STEP].into_iter().chain(own.iter().map(|step| (step.name, step.why))).collect()
}

/// A pair with a cloned process.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// Starts both processes of a sandbox. What was made before a failed step is undone, but for leaves whose
/// processes have still to end: they are swept at the next start at the latest.
///
/// # Errors
/// The step that failed, here or in a process that has ended meanwhile.
pub(super) fn launch(
    resources: &mut Resources,
    plan: Arc<Plan>,
    limits: Limits,
    job: JobId,
    asked: Asked,
) -> Result<Launched, Report> {
    let mut launch = Launch {
        resources,
        plan,
        limits,
        job,
        asked,
        stdin: None,
        stdout: None,
        stderr: None,
        leaves: Leaves::default(),
        storage: None,
        network: None,
        control: None,
        init_control: None,
        sync: None,
        init: None,
        namespaces: None,
        command: None,
    };
    let walked = walk(&steps(), &mut launch);
    match walked {
        Ok(()) => launch.finish().map_err(Report::from),
        Err(failed) => Err(launch.undo().unwrap_or_else(|| failed.into())),
    }
}

impl Launch<'_> {
    fn pipe(&self) -> Result<Pipe, Fault> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        Ok(Pipe { read, write })
    }

    fn give_to_command(&self) -> Result<(), Fault> {
        let account = &self.plan.users.command;
        let (uid, gid) = (Uid::from_raw(account.uid()), Gid::from_raw(account.gid()));
        for pipe in [&self.stdin, &self.stdout, &self.stderr].into_iter().flatten() {
            // Both ends are one inode.
            fchown(&pipe.read, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    fn make_leaves(&mut self) -> Result<(), Fault> {
        let cgroups = &self.resources.cgroups;
        let limits = LeafLimits {
            memory: self.limits.memory,
            pids: self.limits.pids,
            cpu_percent: self.limits.cpu_percent,
            end_together: true,
        };
        self.leaves.command = cgroups.make_leaf(&format!("{:016x}.cmd", self.job), &limits)?;
        if self.plan.host.namespaces {
            // One leaf for both would let the command's memory be taken from init.
            let limits = LeafLimits { memory: INIT_MEMORY, pids: 1, cpu_percent: None, end_together: false };
            self.leaves.init = cgroups.make_leaf(&format!("{:016x}.init", self.job), &limits)?;
        }
        Ok(())
    }

    fn make_storage(&self) -> Result<Storage, Fault> {
        let workspace = self.asked.workspace.as_deref();
        Storage::make(&self.resources.storage, self.job, &self.plan.users.command, workspace)
    }

    fn alive(&self) -> Result<OwnedFd, Fault> {
        Ok(self.resources.alive.try_clone()?)
    }

    fn clone_init(&mut self) -> Result<(), Fault> {
        if !self.plan.host.namespaces {
            return Ok(());
        }
        let alive = self.alive()?;
        let cgroup = self.leaves.init.as_ref().map(Leaf::directory);
        match clone_process(CloneOptions { namespaces: host::cloned_namespaces(), cgroup }).about("clone")? {
            Cloned::Parent { pid, pidfd } => self.init = Some(Process { pid, pidfd }),
            Cloned::Child => init::run(InitContext {
                plan: Arc::clone(&self.plan),
                control: child_end(self.init_control.take()),
                sync: child_end(self.sync.take()),
                network: self.network.take(),
                workspace: self.asked.workspace.take(),
                alive,
                storage: Vec::new(),
            }),
        }
        // init has its copy; the namespace must not outlive the sandbox.
        self.network = None;
        if let Some(init) = self.init.as_ref().filter(|_| self.asked.collect) {
            // Later init is another user's process, whose namespaces only a tracer may open.
            self.namespaces = Some(Namespaces::of(init.pid, self.plan.isolates_network())?);
        }
        Ok(())
    }

    fn place(&self) -> Place {
        self.storage.as_ref().map_or_else(|| self.plan.place(), Storage::place)
    }

    fn clone_command(&mut self) -> Result<(), Fault> {
        let alive = self.alive()?;
        let init = self.init.as_ref().map(|init| init.pidfd.try_clone()).transpose()?;
        if let Some(init) = &init {
            setns(init, CloneFlags::CLONE_NEWPID).about("init's pid namespace")?;
        }
        let place = self.place();
        let cgroup = self.leaves.command.as_ref().map(Leaf::directory);
        let cloned = clone_process(CloneOptions { namespaces: 0, cgroup });
        if matches!(cloned, Ok(Cloned::Child)) {
            // The first end of the pair with init is the command's; init took the second.
            let sync = self.sync.take().map(|(command, _init)| command);
            command::run(CommandContext {
                control: Some(child_end(self.control.take())),
                sync,
                init,
                full: self.asked.full,
                ..CommandContext::new(Arc::clone(&self.plan), place, alive)
            })
        }
        if init.is_some() {
            self.resources.return_home();
        }
        match cloned.about("clone")? {
            Cloned::Parent { pid, pidfd } => self.command = Some(Process { pid, pidfd }),
            Cloned::Child => abort(),
        }
        Ok(())
    }

    /// The finished sandbox. A step that left something out is a mistake of this file, told as one.
    fn finish(mut self) -> Result<Launched, FailedStep> {
        let incomplete = || FailedStep { name: "clone_command", fault: Errno::EPROTO.into() };
        let (Some(command), Some((control, _)), Some(stdout), Some(stderr)) =
            (self.command.take(), self.control.take(), self.stdout.take(), self.stderr.take())
        else {
            return Err(incomplete());
        };
        let mut command_ends = vec![stdout.write, stderr.write];
        let mut server_ends = vec![stdout.read, stderr.read];
        if let Some(stdin) = self.stdin.take() {
            command_ends.push(stdin.read);
            server_ends.push(stdin.write);
        }
        Ok(Launched {
            command,
            namespaces: self.namespaces.take(),
            place: self.place(),
            init: self.init.take(),
            control,
            init_control: self.init_control.take().map(|(monitor, _)| monitor),
            leaves: std::mem::take(&mut self.leaves),
            storage: self.storage.take(),
            command_ends,
            server_ends,
        })
    }

    /// Ends what was started and removes what was made. What init says of its own failure is the cause of
    /// a step that missed it.
    fn undo(&mut self) -> Option<Report> {
        // The command first: process 1 of a pid namespace ends only when all others in it are reaped.
        for process in [&self.command, &self.init].into_iter().flatten() {
            kill_and_reap(process.pidfd.as_fd());
        }
        if let Some(storage) = &self.storage {
            // Nothing has been in it.
            let _ = storage.remove();
        }
        for leaf in [&self.leaves.init, &self.leaves.command].into_iter().flatten() {
            let _ = leaf.remove();
        }
        let control = self.init_control.as_ref()?.0.as_fd();
        loop {
            match receive(control) {
                Heard::Report(failed @ Report::Failed { .. }, _) => return Some(failed),
                // What went well before.
                Heard::Report(..) => {}
                Heard::Nothing | Heard::End => return None,
            }
        }
    }
}

/// SIGKILL, then the wait for it: a process in its own lock-down ends at once.
fn kill_and_reap(pidfd: BorrowedFd<'_>) {
    let _ = crate::sys::process::signal(pidfd, nix::sys::signal::Signal::SIGKILL);
    let _ = crate::sys::process::wait(pidfd);
}

/// The cloned process's end of a pair.
pub(super) fn child_end(pair: Option<(OwnedFd, OwnedFd)>) -> OwnedFd {
    match pair {
        Some((_monitor, child)) => child,
        None => abort(),
    }
}
