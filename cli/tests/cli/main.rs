//! Drives the `cordon` binary against an executor of the tests' own making.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ends;
mod fake;
mod files;
mod questions;
mod streams;
mod usage;
mod workspace;
