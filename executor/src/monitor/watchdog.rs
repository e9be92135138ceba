//! systemd's watchdog (WatchdogSec= in systemd.service(5)): fed when the server half has answered, so that it tells of
//! either half that hangs.

use super::{Monitor, link::ToServer, supervisor};
use std::time::{Duration, Instant};

/// When the server half is asked next, and whether an answer is due.
#[derive(Debug)]
pub(super) struct Watchdog {
    /// Between an answer and the next question; none where nobody watches.
    pause: Option<Duration>,
    due: Instant,
    asked: bool,
}

impl Watchdog {
    /// The watchdog that systemd has set for this process, if it has.
    pub(super) fn of_this_process(now: Instant) -> Self {
        Self::within(sd_notify::watchdog_enabled(), now)
    }

    /// To be fed within this time: the other half of it is for the answer.
    fn within(time: Option<Duration>, now: Instant) -> Self {
        Self { pause: time.map(|time| time / 2), due: now, asked: false }
    }

    /// When the next question is due. While an answer is, nothing but the answer is waited for.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pause.filter(|_| !self.asked).map(|_| self.due)
    }

    /// Whether to ask now; that counts as asked.
    fn asks(&mut self, now: Instant) -> bool {
        let asks = self.deadline().is_some_and(|due| due <= now);
        self.asked |= asks;
        asks
    }

    /// Whether the answer is to be passed on: one that nobody asked for says nothing.
    fn takes_answer(&mut self, now: Instant) -> bool {
        let (true, Some(pause)) = (self.asked, self.pause) else { return false };
        self.asked = false;
        self.due = now + pause;
        true
    }
}

impl Monitor {
    /// Asks the server half whether it is there, when it is time.
    pub(super) fn ask_server(&mut self) {
        if self.watchdog.asks(Instant::now()) {
            self.outbox.push(&ToServer::Ping, Vec::new());
        }
    }

    /// It is there.
    pub(super) fn server_answered(&mut self) {
        if self.watchdog.takes_answer(Instant::now()) {
            supervisor::alive();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fed_once_for_each_question_that_was_answered() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut watchdog = Watchdog::within(Some(2 * second), start);
        assert!(!watchdog.takes_answer(start), "to the question before the first launch");
        assert_eq!(watchdog.deadline(), Some(start));
        assert!(watchdog.asks(start));
        // No second question, however long the first takes, and no feeding without an answer.
        assert_eq!(watchdog.deadline(), None);
        assert!(!watchdog.asks(start + 100 * second));
        assert!(watchdog.takes_answer(start + second));
        assert!(!watchdog.takes_answer(start + second), "only asked for once");
        assert_eq!(watchdog.deadline(), Some(start + 2 * second));
        assert!(!watchdog.asks(start + second));
        assert!(watchdog.asks(start + 2 * second));
    }

    #[test]
    fn where_nobody_watches_nothing_is_asked() {
        let start = Instant::now();
        let mut watchdog = Watchdog::within(None, start);
        assert!(!watchdog.asks(start) && !watchdog.takes_answer(start));
        assert_eq!(watchdog.deadline(), None);
    }
}
