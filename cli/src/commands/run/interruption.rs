//! Ctrl-C, SIGTERM and SIGHUP while a command runs: the command is ended first, then we are.

use crate::{exit_status, failure::Failure, signals::Signals};
use cordon_protocol::client::blocking::Canceller;
use nix::sys::signal::Signal;
use std::{
    process,
    sync::{Arc, OnceLock},
    thread,
};

/// How long the report is waited for after the first signal, milliseconds.
const REPORT_WAIT_MS: u16 = 10_000;

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
        let failed = |error| Failure::new("waiting for signals", error, next);
        let signals = Signals::take(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]).map_err(failed)?;
        let status = Arc::new(OnceLock::new());
        let watched = Self { status: Arc::clone(&status) };
        let body = move || {
            let Ok(_) = signals.leave_out_ignored() else { return };
            let Some(first) = signals.next() else { return };
            let _ = status.set(exit_status::of_signal(first));
            canceller.cancel();
            signals.wait(REPORT_WAIT_MS);
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
