//! What every launch uses of the monitor: cgroups, networks, where files lie, the way home from a pid namespace.

use super::{cgroup::Cgroups, disk::DiskWatch, netns::Networks, walk::Caps, workspaces::Workspaces};
use crate::{
    profile::Profile,
    sandbox::{Plan, errand::tree::Size},
};
use nix::sched::{CloneFlags, setns};
use std::{fs::File, os::fd::OwnedFd, path::PathBuf, process::abort, time::Instant};

/// What every launch uses of the monitor.
#[derive(Debug)]
pub(super) struct Resources {
    /// Leaves.
    pub(super) cgroups: Cgroups,
    /// Network namespaces.
    pub(super) networks: Networks,
    /// Where commands have their files on a host without namespaces.
    pub(super) storage: PathBuf,
    /// The named workspaces.
    pub(super) workspaces: Workspaces,
    /// Read end of a pipe whose write end only the monitor has.
    pub(super) alive: OwnedFd,
    /// The monitor's own pid namespace, to return to.
    pub(super) pid_namespace: File,
}

impl Resources {
    /// The watch over a peer's workspace of this name, under this plan's profile, where it is and in which so much is.
    pub(super) fn watch_over(
        &self,
        (uid, name): (u32, &str),
        (at, found): (PathBuf, Size),
        plan: &Plan,
    ) -> DiskWatch {
        let (owner, floor, caps) = (&plan.users.command, self.workspaces.floor(), caps_of(&plan.profile));
        let enough = self.workspaces.enough(uid, name, caps);
        DiskWatch::new(at, owner, (caps, enough), floor, found, Instant::now())
    }

    /// Leaves a sandbox's pid namespace, in which a child was to land.
    pub(super) fn return_home(&self) {
        if let Err(errno) = setns(&self.pid_namespace, CloneFlags::CLONE_NEWPID) {
            // A monitor whose children would land in a sandbox must not go on. That it can return was tried at the
            // start.
            crate::log!(
                "ending at once, and every command with it: setns, which leaves a sandbox's pid namespace again, \
                 failed: {}; start the executor behind no filter that refuses setns",
                errno.desc()
            );
            abort();
        }
    }
}

/// What a named workspace may hold under this profile.
pub(super) fn caps_of(profile: &Profile) -> Caps {
    Caps { bytes: profile.named_workspace, files: profile.named_workspace_files }
}
