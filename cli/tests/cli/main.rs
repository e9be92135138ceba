//! Drives the `cordon` binary against an executor of the tests' own making.

mod ends;
mod fake;
mod questions;
mod streams;
mod usage;
