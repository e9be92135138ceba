//! What a launch depends on, and what there is once it has begun.

use crate::{
    monitor::cgroup::Leaf,
    sandbox::{namespaces::Namespaces, plan::Place, storage::Storage},
};
use nix::unistd::Pid;
use std::{os::fd::OwnedFd, path::PathBuf};

/// A process of a sandbox.
#[derive(Debug)]
pub(in crate::monitor) struct Process {
    /// Its number on the host.
    pub(in crate::monitor) pid: Pid,
    /// Names it even after the number is used again.
    pub(in crate::monitor) pidfd: OwnedFd,
}

/// What a launch depends on beside profile and limits.
#[derive(Debug, Clone, Default)]
pub(in crate::monitor) struct Asked {
    /// Standard input is a pipe.
    pub(in crate::monitor) stdin: bool,
    /// Directory of the named workspace; none is a private one.
    pub(in crate::monitor) workspace: Option<PathBuf>,
    /// More is in it than may be: nothing is added.
    pub(in crate::monitor) full: bool,
    /// The sandbox will be entered again after the command's end.
    pub(in crate::monitor) collect: bool,
}

/// The leaves of a sandbox; none without cgroup v2.
#[derive(Debug, Default)]
pub(in crate::monitor) struct Leaves {
    /// init's.
    pub(in crate::monitor) init: Option<Leaf>,
    /// The command's.
    pub(in crate::monitor) command: Option<Leaf>,
    /// That of the process that collects.
    pub(in crate::monitor) collector: Option<Leaf>,
}

/// A sandbox whose processes lock themselves down.
#[derive(Debug)]
pub(in crate::monitor) struct Launched {
    /// The command's process.
    pub(in crate::monitor) command: Process,
    /// Its init; none without namespaces.
    pub(in crate::monitor) init: Option<Process>,
    /// What it takes to enter the sandbox again; none where nobody will, and without namespaces.
    pub(in crate::monitor) namespaces: Option<Namespaces>,
    /// Where it has its files.
    pub(in crate::monitor) place: Place,
    /// The monitor's end of the pair with the command.
    pub(in crate::monitor) control: OwnedFd,
    /// The monitor's end of the pair with init.
    pub(in crate::monitor) init_control: Option<OwnedFd>,
    /// Leaves.
    pub(in crate::monitor) leaves: Leaves,
    /// Its directories on the host; none with namespaces.
    pub(in crate::monitor) storage: Option<Storage>,
    /// What the command gets once it is told to go: stdout, stderr, stdin.
    pub(in crate::monitor) command_ends: Vec<OwnedFd>,
    /// What the server gets: stdout, stderr, stdin.
    pub(in crate::monitor) server_ends: Vec<OwnedFd>,
}
