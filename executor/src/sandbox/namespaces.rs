//! A sandbox's namespaces as descriptors, to be entered again after init has given up its rights.

use super::steps::{About, Fault};
use nix::{
    sched::{CloneFlags, setns},
    unistd::Pid,
};
use std::{fs::File, os::fd::OwnedFd};

/// Namespaces that can be joined again, after init has given up the rights that joining through it takes.
#[derive(Debug)]
pub struct Namespaces {
    /// For the caller of clone(2), not for the process itself.
    pub pid: OwnedFd,
    /// mount, ipc, uts, and net where it is the sandbox's own.
    pub others: Vec<OwnedFd>,
}

impl Namespaces {
    /// Those of a sandbox's init, which is still root.
    ///
    /// # Errors
    /// errno of open(2).
    pub fn of(init: Pid, network: bool) -> Result<Self, Fault> {
        let open = |name: &str| {
            let path = format!("/proc/{init}/ns/{name}");
            File::open(&path).map(OwnedFd::from).about(path)
        };
        let names = ["mnt", "ipc", "uts", "net"];
        let count = if network { names.len() } else { names.len() - 1 };
        Ok(Self {
            pid: open("pid")?,
            others: names[..count].iter().map(|n| open(n)).collect::<Result<_, _>>()?,
        })
    }

    /// Every descriptor.
    pub(super) fn all(&self) -> impl Iterator<Item = &OwnedFd> {
        self.others.iter().chain([&self.pid])
    }

    /// Makes them those of the calling process, but for the pid namespace.
    ///
    /// # Errors
    /// errno of setns(2).
    pub(super) fn join(self) -> Result<(), Fault> {
        self.others
            .iter()
            .try_for_each(|fd| setns(fd, CloneFlags::empty()).about("namespaces of the sandbox"))
    }
}
