//! Signals as something to read instead of something that happens: blocked, then taken from a descriptor.

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use std::{fs, io, os::fd::AsFd, sync::Arc};

/// The source of a set of signals.
#[derive(Debug)]
pub(crate) struct Signals {
    fd: SignalFd,
    set: SigSet,
}

impl Signals {
    /// Takes these signals, to be called before any thread is started: threads inherit what is blocked.
    /// So do child processes, which have to undo it.
    pub(crate) fn take(signals: &[Signal]) -> io::Result<Self> {
        let set: SigSet = signals.iter().copied().collect();
        set.thread_block()?;
        Ok(Self { fd: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)?, set })
    }

    /// Leaves out what is to be ignored. A blocked signal is queued even where its disposition says to
    /// ignore it (nohup, background jobs of a shell). What is left. Reads a file, so it is apart from [`Self::take`].
    pub(crate) fn leave_out_ignored(&self) -> io::Result<SigSet> {
        let ignored = ignored();
        let kept: SigSet = self.set.iter().filter(|s| ignored >> (*s as i32 - 1) & 1 == 0).collect();
        self.fd.set_mask(&kept)?;
        Ok(kept)
    }

    /// The next signal; none when the descriptor cannot be read.
    pub(crate) fn next(&self) -> Option<Signal> {
        loop {
            let info = self.fd.read_signal().ok()??;
            if let Some(signal) = i32::try_from(info.ssi_signo).ok().and_then(|n| n.try_into().ok()) {
                return Some(signal);
            }
        }
    }

    /// Waits for a further signal, at most so many milliseconds.
    pub(crate) fn wait(&self, most_ms: u16) {
        // Whether one came or not, the caller goes on.
        let _ = poll(&mut [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)], PollTimeout::from(most_ms));
    }
}

/// Lets us hear of our children's ends, to be called before there is one. Ignored, as whoever started us may have
/// left it, SIGCHLD does not come and the kernel keeps no exit status (wait(2)). The handler that is set here does
/// nothing; exec forgets it, so that our children begin with the default.
pub(crate) fn keep_children() -> io::Result<()> {
    signal_hook::flag::register(Signal::SIGCHLD as i32, Arc::default()).map(drop)
}

/// The signals whose disposition is to ignore them, as bits (proc_pid_status(5), `SigIgn`); asking
/// sigaction(2) would need an unsafe call.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0)
}
