//! Whether namespaces can be made, joined, left and filled as a launch does it, tried in copies of this process: what
//! refuses one of these calls (a missing capability, a filter) need not refuse the others, and a monitor that cannot
//! leave a namespace again would have to end.

use super::{cloned_namespaces, run_copy};
use crate::{
    sandbox::steps::Fault,
    sys::{
        clone::{CloneOptions, Cloned, clone_process},
        mount::{Attributes, attach, clone_tree, new_filesystem, set_attributes},
        process::{Status, exit_now, wait},
        socket::bring_up_loopback,
    },
};
use nix::{
    errno::Errno,
    fcntl::OFlag,
    mount::MsFlags,
    sched::{CloneFlags, setns, unshare},
    unistd::{pipe2, read},
};
use std::{fs::File, os::fd::AsFd, path::Path};

/// What may be refused of it, in the order in which it is tried, in words.
const REFUSED: [&str; 6] = [
    "no network namespace could be made (unshare)",
    "the loopback interface of a network namespace could not be brought up (CAP_NET_ADMIN)",
    "a network namespace could not be left again (setns)",
    "no process could be started in namespaces of its own (clone)",
    "the namespaces of a process could not be joined and left again (setns)",
    "nothing could be mounted in them",
];
const MAKE: usize = 0;
const LOOPBACK: usize = 1;
const LEAVE: usize = 2;
const CLONE: usize = 3;
const JOIN: usize = 4;
const MOUNT: usize = 5;

/// What is refused of it, in words; none where everything was done.
pub(super) fn refused() -> Option<&'static str> {
    // The status is 0, or tells which by its place, from 1.
    let trial = || attempt().map_or_else(|which| i32::try_from(which + 1).unwrap_or(i32::MAX), |()| 0);
    match run_copy(trial).and_then(|status| usize::try_from(status).ok()) {
        Some(0) => None,
        which => {
            Some(which.and_then(|which| REFUSED.get(which - 1).copied()).unwrap_or("they could not be tried"))
        }
    }
}

/// Does what the monitor does for a launch; of what is refused, its place in [`REFUSED`].
fn attempt() -> Result<(), usize> {
    let own = |name: &str| File::open(Path::new("/proc/self/ns").join(name));
    let (network, pids) = (own("net").map_err(|_| LEAVE)?, own("pid").map_err(|_| JOIN)?);
    unshare(CloneFlags::CLONE_NEWNET).map_err(|_| MAKE)?;
    bring_up_loopback().map_err(|_| LOOPBACK)?;
    setns(network, CloneFlags::CLONE_NEWNET).map_err(|_| LEAVE)?;

    let (waits, held) = pipe2(OFlag::O_CLOEXEC).map_err(|_| CLONE)?;
    match clone_process(CloneOptions { namespaces: cloned_namespaces(), cgroup: None }).map_err(|_| CLONE)? {
        Cloned::Child => {
            drop(held);
            while read(&waits, &mut [0]) == Err(Errno::EINTR) {}
            exit_now(i32::from(mount_something().is_err()))
        }
        Cloned::Parent { pidfd, .. } => {
            let others = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
            let joined = setns(&pidfd, CloneFlags::CLONE_NEWPID)
                .and_then(|()| setns(&pids, CloneFlags::CLONE_NEWPID))
                .and_then(|()| setns(&pidfd, others));
            drop(held);
            let ended = wait(pidfd.as_fd());
            joined.map_err(|_| JOIN)?;
            if ended == Ok(Status::Exited(0)) { Ok(()) } else { Err(MOUNT) }
        }
    }
}

/// What a sandbox's root takes.
fn mount_something() -> Result<(), Fault> {
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
    let tree = new_filesystem(c"tmpfs", &[], Attributes::NO_SUID)?;
    attach(tree.as_fd(), Path::new("/tmp"))?;
    let tree = clone_tree(Path::new("/usr"))?;
    Ok(set_attributes(tree.as_fd(), Attributes::READ_ONLY)?)
}
