//! The Debian package and its units, on a host of their own: installed, used, upgraded, hurt, removed.
//!
//! `tests/vm/package` runs this in a guest, as root, one test after another; it changes the host that it runs on. Each
//! test brings about what it starts from, so that any of them can be run alone. A test's name is the statement that it
//! proves.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod boot;
mod guest;
mod hardening;
mod harm;
mod hogs;
mod install;
mod lacking;
mod lifecycle;
mod reach;
mod remote;
mod service;
mod without;
