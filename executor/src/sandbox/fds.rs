//! Descriptors: a cloned process has all of the monitor's; a command has 0, 1 and 2.

use super::steps::{About, Fault};
use crate::sys::process;
use nix::{
    errno::Errno,
    fcntl::{OFlag, open},
    sys::stat::Mode,
    unistd::{dup2_stderr, dup2_stdin, dup2_stdout},
};
use std::os::fd::{AsFd, IntoRawFd, OwnedFd, RawFd};

/// Closes everything but the named descriptors; 0, 1 and 2 become `/dev/null`, so that no descriptor that
/// is received later lands there.
///
/// # Errors
/// errno of close_range(2) or open(2); a number below 3 in `keep`.
pub fn close_all_but(keep: &[RawFd]) -> Result<(), Fault> {
    if keep.iter().any(|fd| *fd <= 2) {
        return Err(Fault::new(Errno::EBADF, "a standard stream is to be kept"));
    }
    process::close_all_but(keep)?;
    for number in 0..=2 {
        let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()).about("/dev/null")?;
        // The lowest free number is given; it stays open for the life of the process.
        let opened = null.into_raw_fd();
        if opened != number {
            return Err(Fault::mismatch("lowest descriptor", opened, number));
        }
    }
    Ok(())
}

/// Closes everything but the named descriptors and the standard streams, for a process that keeps its log.
///
/// # Errors
/// errno of close_range(2).
pub fn close_all_but_standard(keep: &[RawFd]) -> Result<(), Fault> {
    let all: Vec<RawFd> = keep.iter().copied().chain(0..=2).collect();
    Ok(process::close_all_but(&all)?)
}

/// Standard streams of a command.
#[derive(Debug)]
pub struct Stdio {
    /// None is `/dev/null`.
    pub stdin: Option<OwnedFd>,
    /// Write end of a pipe.
    pub stdout: OwnedFd,
    /// Write end of a pipe.
    pub stderr: OwnedFd,
}

/// Puts the streams at 0, 1 and 2; everything else that is open closes on exec.
///
/// # Errors
/// errno of open(2) or dup2(2).
pub fn install(stdio: Stdio) -> Result<(), Fault> {
    let stdin = match stdio.stdin {
        Some(stdin) => stdin,
        None => open("/dev/null", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?,
    };
    // All three are above 2, see `close_all_but`; the originals close when they go out of scope.
    dup2_stdin(stdin.as_fd())?;
    dup2_stdout(stdio.stdout.as_fd())?;
    dup2_stderr(stdio.stderr.as_fd())?;
    Ok(())
}
