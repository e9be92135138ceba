//! What the server half gives up beside its uid and its capabilities: files, network, system calls.
//!
//! Applied by the executor's start, before `run` and so before there is a runtime.

/// Placeholder
pub const SYSCALLS: &[(libc::c_long, &str)] = &[];
