//! Every unsafe call of the executor, each behind a typed function that is safe to call.
#![allow(unsafe_code, reason = "this module is where it is allowed; each block says why it is sound")]

pub mod clone;
pub mod host;
pub mod memfd;
pub mod mount;
pub mod prctl;
pub mod privilege;
pub mod process;
#[cfg(test)]
pub(crate) mod raw;
pub mod scm;
pub mod socket;
pub mod watched;
