//! Process 1 of a sandbox: makes the namespaces' content, locks itself down, then only reaps.
//!
//! It runs under a uid of its own, so that the command can neither signal nor limit it.

use super::{
    Plan, caps, fds, ids,
    message::Report,
    plan, rlimits, root, seccomp, services,
    steps::{About, Fault, Step, walk},
};
use crate::sys::{process::exit_now, scm};
use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sched::{CloneFlags, setns},
    sys::{
        prctl,
        signal::{SigSet, Signal},
    },
    unistd::{pause, sethostname, setsid},
};
use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::Arc,
};

/// What init is given by the monitor.
#[derive(Debug)]
pub struct InitContext {
    /// The profile's plan.
    pub plan: Arc<Plan>,
    /// Init's end of its pair with the monitor.
    pub control: OwnedFd,
    /// Init's end of the pair with the command.
    pub sync: OwnedFd,
    /// The leased network namespace.
    pub network: Option<OwnedFd>,
    /// Directory of the named workspace; none is a private one.
    pub workspace: Option<PathBuf>,
    /// Closed by the kernel when the monitor has ended.
    pub alive: OwnedFd,
    /// The sandbox's own file systems, for the monitor to count what is in them.
    pub storage: Vec<OwnedFd>,
}

/// The launch of init, in order.
pub const STEPS: &[Step<InitContext>] = &[
    Step {
        name: "init_descriptors",
        why: "first of all: the copy has every descriptor of the monitor, listening socket and link included",
        run: |c| {
            let mut keep = vec![c.control.as_raw_fd(), c.sync.as_raw_fd(), c.alive.as_raw_fd()];
            keep.extend(c.network.as_ref().map(AsRawFd::as_raw_fd));
            fds::close_all_but(&keep)
        },
    },
    Step {
        name: "init_network",
        why: "before the mounts, while the capability is there; the command joins the same one through init",
        run: |c| match c.network.take() {
            Some(network) => setns(&network, CloneFlags::CLONE_NEWNET).about("network namespace"),
            None => Ok(()),
        },
    },
    Step {
        name: "init_services",
        why: "in the network just joined, while low ports can be listened on, and before the uid, which counts \
              descriptors that are on their way",
        run: |c| {
            if c.plan.profile.services.is_empty() || !c.plan.isolates_network() {
                return Ok(());
            }
            let listening = services::listen_inside(&c.plan.profile.services)?;
            let sockets: Vec<_> = listening.iter().map(AsFd::as_fd).collect();
            scm::send(c.control.as_fd(), &Report::Services.encode(), &sockets).about("the monitor")
        },
    },
    Step {
        name: "init_propagation",
        why: "before the first mount: nothing that is mounted here may appear in the monitor's namespace",
        run: |_| {
            let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).about("/")
        },
    },
    Step {
        name: "init_proc",
        why: "as process 1, whose pid namespace the mount shows; before the pivot hides the template's path",
        run: |c| root::mount_proc(template(c)?),
    },
    Step {
        name: "init_private",
        why: "the sandbox's own storage, complete with limits and owner before anything can write to it",
        run: |c| {
            let plan = &c.plan;
            let home = match &c.workspace {
                Some(directory) => root::Home::Named(directory),
                None => root::Home::Private(&plan.users.command),
            };
            c.storage = root::mount_private(template(c)?, &plan.profile, &plan.home, home)?;
            Ok(())
        },
    },
    Step {
        name: "init_pivot",
        why: "after the last mount: from here on no path leads to anything of the host's",
        run: |c| {
            let template = template(c)?;
            root::pivot(template)?;
            root::verify(template, &c.plan.home)
        },
    },
    Step {
        name: "init_hostname",
        why: "needs the capability that goes next",
        run: |_| Ok(sethostname("cordon")?),
    },
    Step {
        name: "init_join",
        why: "the command may join only a finished root, and only while init is still root: afterwards it \
              would need the right to trace another user's process",
        run: |c| {
            plan::nudge(c.sync.as_fd())?;
            plan::await_nudge(c.sync.as_fd()).about("the command")
        },
    },
    Step {
        name: "init_session",
        why: "kill(0) crosses pid namespaces through a shared process group",
        run: |_| Ok(setsid().map(drop)?),
    },
    Step {
        name: "init_rlimits",
        why: "while hard limits can be set",
        run: |_| rlimits::apply(&rlimits::init_limits()),
    },
    Step {
        name: "init_bounding_set",
        why: "needs CAP_SETPCAP, so before the uid",
        run: |_| caps::drop_bounding_set(),
    },
    Step {
        name: "init_securebits",
        why: "needs CAP_SETPCAP, so before the uid",
        run: |_| caps::lock_securebits(),
    },
    Step { name: "init_groups", why: "needs CAP_SETGID, so before the uid", run: |_| ids::drop_groups() },
    Step {
        name: "init_ids",
        why: "a uid that is neither root's nor the command's",
        run: |c| ids::become_account(&c.plan.users.init),
    },
    Step {
        name: "init_capabilities",
        why: "after the uid, whose change they allow; the securebits keep them through it",
        run: |_| caps::clear_all_sets().map(drop),
    },
    Step { name: "init_dumpable", why: "after the uid, which resets it", run: |_| not_dumpable() },
    Step {
        name: "init_parent",
        why: "after the uid, which clears the signal; then the check, as the monitor may have died before it",
        run: |c| die_with_monitor(c.alive.as_fd()),
    },
    Step {
        name: "init_signals",
        why: "children that nobody waits for are reaped by the kernel",
        run: |_| signals(),
    },
    Step { name: "init_no_new_privs", why: "the filter needs it", run: |_| no_new_privs() },
    Step {
        name: "init_seccomp",
        why: "last: from here on only waiting and ending are possible",
        run: |c| seccomp::apply(&c.plan.init_filter).map_err(|e| Fault::new(Errno::EINVAL, e.to_string())),
    },
];

/// System calls that init makes after its lock-down.
pub const SYSCALLS: &[(libc::c_long, &str)] = &[
    (libc::SYS_pause, "waits for ever"),
    (libc::SYS_prctl, "reads back that the filter is in force"),
    (libc::SYS_sendmsg, "says ready"),
    (libc::SYS_close, "lets go of its pairs"),
    (libc::SYS_rt_sigreturn, "returns from a signal the kernel delivers"),
    (libc::SYS_restart_syscall, "goes on waiting after a stop"),
    (libc::SYS_exit_group, "ends"),
];

fn template(context: &InitContext) -> Result<&root::Template, Fault> {
    context.plan.template.as_ref().ok_or_else(|| Fault::new(Errno::ENOENT, "template of the root"))
}

/// No core, no ptrace, `/proc/PID` owned by root.
///
/// # Errors
/// errno of prctl(2), or the flag is still set.
pub fn not_dumpable() -> Result<(), Fault> {
    prctl::set_dumpable(false)?;
    if prctl::get_dumpable()? { Err(Fault::mismatch("dumpable", true, false)) } else { Ok(()) }
}

/// No program that is executed from here on can gain anything.
///
/// # Errors
/// errno of prctl(2), or the flag is not set.
pub fn no_new_privs() -> Result<(), Fault> {
    prctl::set_no_new_privs()?;
    if prctl::get_no_new_privs()? { Ok(()) } else { Err(Fault::mismatch("no_new_privs", false, true)) }
}

/// Ends with the monitor, also when it has ended already.
///
/// # Errors
/// The monitor has ended; or the signal reads back otherwise.
pub fn die_with_monitor(alive: BorrowedFd<'_>) -> Result<(), Fault> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let found = prctl::get_pdeathsig()?;
    if found != Some(Signal::SIGKILL) {
        return Err(Fault::mismatch(
            "parent death signal",
            found.map_or("none", Signal::as_str),
            Signal::SIGKILL,
        ));
    }
    let mut fds = [PollFd::new(alive, PollFlags::POLLIN)];
    if poll(&mut fds, PollTimeout::ZERO)? == 0 {
        Ok(())
    } else {
        Err(Fault::new(Errno::ESRCH, "the monitor"))
    }
}

/// Ignored SIGCHLD makes the kernel reap (sigaction(2)); process 1 has no other signal to fear.
fn signals() -> Result<(), Fault> {
    SigSet::all().thread_block()?;
    Ok(crate::sys::process::ignore(Signal::SIGCHLD)?)
}

/// The whole life of init. Never returns.
pub fn run(mut context: InitContext) -> ! {
    let outcome = walk(STEPS, &mut context);
    let failed = outcome.is_err();
    let report = match outcome {
        Ok(()) => Report::Ready(super::message::Held::default()),
        Err(failed) => failed.into(),
    };
    let storage: Vec<_> = context.storage.iter().map(AsFd::as_fd).collect();
    let _ = scm::send(context.control.as_fd(), &report.encode(), &storage);
    if failed {
        exit_now(1);
    }
    drop((context.control, context.sync, context.storage));
    loop {
        pause();
    }
}
