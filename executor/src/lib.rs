//! Cordon's executor: a root monitor, an unprivileged server, and the sandboxes between them.
//!
//! `monitor` is the root half, `server` the unprivileged one, `sandbox` what a cloned process does to
//! itself before it becomes the command. `sys` holds every unsafe call behind a typed function.

#[cfg(all(feature = "fault-injection", not(debug_assertions)))]
compile_error!("fault-injection is for tests: a release build must not have it");

pub mod config;
pub mod halves;
pub mod host;
pub mod listen;
mod log;
pub mod monitor;
pub mod profile;
pub mod recording;
pub mod sandbox;
pub mod sealed;
pub mod server;
pub mod steps;
pub mod sys;
