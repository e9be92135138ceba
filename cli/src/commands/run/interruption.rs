//! Ctrl-C, SIGTERM and SIGHUP while a command runs: the command is ended first, then we are.

use crate::{exit_status, failure::Failure};
use cordon_protocol::client::blocking::Canceller;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use std::{
    fs,
    os::fd::AsFd,
    process,
    sync::{Arc, OnceLock},
    thread,
};

const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// How long the report is waited for after the first signal, milliseconds.
const REPORT_WAIT_MS: u16 = 2000;

/// Whether a signal told us to end.
#[derive(Debug, Clone)]
pub(super) struct Interruption {
    status: Arc<OnceLock<u8>>,
}

impl Interruption {
    /// Takes the signals from here on, to be called before any other thread is started. The first closes
    /// the connection, which ends the command; the next one, or a report that does not come, ends the
    /// process at once.
    pub(super) fn watch(canceller: Arc<Canceller>) -> Result<Self, Failure> {
        let next = "end other programs, or raise the limits on processes and files (ulimit -u, -n)";
        let failed = |error: std::io::Error| Failure::new("waiting for signals", error, next);
        let all: SigSet = SIGNALS.into_iter().collect();
        all.thread_block().map_err(|e| failed(e.into()))?;
        let status = Arc::new(OnceLock::new());
        let signals = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC).map_err(|e| failed(e.into()))?;
        let watched = Self { status: Arc::clone(&status) };
        let body = move || {
            // A blocked signal is queued even where its disposition says to ignore it (nohup, background
            // jobs of a shell), so what is ignored must be left out. Read here: it is off the start-up path.
            let taken = SIGNALS.into_iter().filter(|s| !ignored(*s)).collect();
            let Ok(()) = signals.set_mask(&taken) else { return };
            let Some(first) = next_signal(&signals) else { return };
            let _ = status.set(exit_status::of_signal(first));
            canceller.cancel();
            let mut waited = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut waited, PollTimeout::from(REPORT_WAIT_MS));
            process::exit(i32::from(exit_status::of_signal(first)));
        };
        let started = thread::Builder::new().name("signals".into()).spawn(body);
        started.map(|_| watched).map_err(failed)
    }

    /// The exit status that the signal asks for, once there was one.
    pub(super) fn status(&self) -> Option<u8> {
        self.status.get().copied()
    }
}

fn next_signal(signals: &SignalFd) -> Option<Signal> {
    loop {
        let info = signals.read_signal().ok()??;
        let number = i32::try_from(info.ssi_signo).ok()?;
        if let Ok(signal) = Signal::try_from(number) {
            return Some(signal);
        }
    }
}

/// Whether the disposition of the signal is to ignore it (proc_pid_status(5), `SigIgn`). Asking sigaction(2)
/// would need an unsafe call.
fn ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal as i32 - 1) & 1 == 1
}
