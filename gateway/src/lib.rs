//! The HTTP gateway: unprivileged, in front of the executor's socket.
//!
//! A request comes in over TCP (with a token) or the Unix socket (guarded by its group), passes the
//! checks of `http`, and becomes one connection to the executor. Nothing is kept between requests.

pub mod app;
pub mod config;
pub mod error;
pub mod executor;
mod framing;
pub mod http;
pub mod listeners;
pub mod lockdown;
mod memory;
mod screen;
pub mod server;
mod stall;
pub mod token;
pub mod user;
mod watched;
