//! Every unsafe call of the executor, each behind a typed function that is safe to call.
#![allow(unsafe_code, reason = "this module is where it is allowed; each block says why it is sound")]

pub mod memfd;
pub mod scm;
pub mod watched;
