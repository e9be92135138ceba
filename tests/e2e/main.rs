//! End-to-end tests: they build Cordon's programs, start them and look at them from outside and inside.
//!
//! They need root, since what is tested starts as root, and fail without it. `harness` has what they
//! share; each other module is one subject, and each test's name is the statement it proves.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of tests are small")]

mod harness;

mod audit;
mod bad_input;
mod bare;
mod checked;
mod cli;
mod compat;
mod config;
mod corpora;
mod doctor;
mod documents;
mod ends;
mod escape;
mod fault;
mod files;
mod gateway;
mod hostile;
mod layers;
mod lesser;
mod limits;
mod pressure;
mod processes;
mod queue;
mod reload;
mod report;
mod services;
mod soak;
mod starts;
mod streams;
mod teardown;
mod up;
mod witnesses;
mod workspaces;
