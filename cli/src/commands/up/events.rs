//! What `cordon up` waits for, from every thread, in one queue.

use crate::{failure::Failure, signals::Signals};
use cordon_protocol::ExitReport;
use nix::sys::signal::Signal;
use std::{
    fs::File,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Instant,
};

/// Something happened.
#[derive(Debug)]
pub(super) enum Event {
    /// We were told to stop.
    Signal(Signal),
    /// We were told that DIR/profiles.toml has changed.
    Reload,
    /// A child of ours has ended; which one is to be looked up.
    ChildEnded,
    /// The daemon of that name says that it is ready.
    Ready(&'static str),
    /// The first command's report, or why there is none.
    Answer(Result<Box<ExitReport>, Failure>),
}

/// The queue.
#[derive(Debug)]
pub(super) struct Events {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
    /// Ctrl-C reaches us.
    interruptible: bool,
}

impl Events {
    /// Opens the queue and puts signals into it from here on, to be called before any thread is started.
    pub(super) fn watch() -> Result<Self, Failure> {
        let told = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGQUIT, Signal::SIGHUP, Signal::SIGCHLD];
        let signals = Signals::take(&told).and_then(|s| s.leave_out_ignored().map(|kept| (s, kept)));
        let (signals, kept) = signals.map_err(|e| no_thread("waiting for signals", e))?;
        let (sender, receiver) = channel();
        let events = Self { sender, receiver, interruptible: kept.contains(Signal::SIGINT) };
        events.feed("signals", move |sender| {
            let terminal = has_terminal();
            while let Some(signal) = signals.next() {
                let event = match signal {
                    Signal::SIGCHLD => Event::ChildEnded,
                    // Its other meaning is that the terminal is gone, and with it whoever looked on.
                    Signal::SIGHUP if terminal == has_terminal() => Event::Reload,
                    signal => Event::Signal(signal),
                };
                if sender.send(event).is_err() {
                    break;
                }
            }
        })?;
        Ok(events)
    }

    /// What a person does to end us.
    pub(super) fn how_to_stop(&self) -> String {
        match self.interruptible {
            true => "Ctrl-C".to_owned(),
            false => format!("SIGTERM (kill {}); SIGINT was ignored when it started", std::process::id()),
        }
    }

    /// Starts a thread that puts events into the queue. It is never waited for.
    pub(super) fn feed(
        &self,
        name: &str,
        body: impl FnOnce(Sender<Event>) + Send + 'static,
    ) -> Result<(), Failure> {
        let sender = self.sender.clone();
        let started = thread::Builder::new().name(name.into()).spawn(move || body(sender));
        started.map(drop).map_err(|e| no_thread("starting a thread", e))
    }

    /// The next event; none when it does not come before the deadline.
    pub(super) fn next(&self, deadline: Option<Instant>) -> Option<Event> {
        match deadline {
            None => self.receiver.recv().ok(),
            Some(at) => self.receiver.recv_timeout(at.saturating_duration_since(Instant::now())).ok(),
        }
    }
}

/// Whether this process has a terminal that could hang up (tty(4): else it cannot be opened).
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

fn no_thread(what: &str, error: std::io::Error) -> Failure {
    Failure::new(
        what,
        error,
        "end other programs, or raise the limits on processes and files (ulimit -u, -n)",
    )
}
