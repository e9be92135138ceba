//! What a cloned process does to itself before it becomes the command.
//!
//! [`steps`] has the two ordered lists, for init and for the command; every other file is one layer and
//! returns what it enforced. Nothing here knows the server, a runtime or a logger.

pub mod caps;
pub mod command;
pub mod environment;
pub mod errand;
pub mod exec;
pub mod fds;
pub mod ids;
pub mod init;
pub mod landlock;
pub mod message;
pub mod namespaces;
pub mod plan;
pub mod rlimits;
pub mod root;
pub mod seccomp;
pub mod services;
pub mod steps;
pub mod storage;

#[cfg(test)]
mod alone;

pub use plan::{Go, Plan};
pub use steps::{Fault, Step};
