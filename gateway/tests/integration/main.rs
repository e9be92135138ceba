//! The gateway through real sockets, with an executor that speaks the protocol as a test tells it to.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod binary;
mod body;
mod client;
mod contract;
mod doors;
mod exec;
mod executor;
mod files;
mod reports;
mod server;
mod stream;
mod workspaces;
