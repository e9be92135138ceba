//! The end of the monitor: of everything that runs, of itself, and of the server half.

use super::Monitor;
use cordon_protocol::{EndedBy, audit::Entry, limits};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{Shutdown, shutdown},
};
use std::{
    os::fd::{AsFd, AsRawFd},
    time::{Duration, Instant},
};

/// How long the connections are given to take their last reports when the executor ends.
const FAREWELL: Duration = Duration::from_secs(1);

impl Monitor {
    /// Whether it was told to end and nothing is left to do.
    pub(super) fn is_finished(&mut self) -> bool {
        let Some(until) = self.stopping else { return false };
        let now = Instant::now();
        if !self.jobs.is_empty() {
            if now >= until {
                self.jobs.values_mut().for_each(|job| job.end(EndedBy::Cancelled));
                self.stopping = Some(now + limits::SHUTDOWN_GRACE);
            }
            return false;
        }
        if self.connections.is_empty() {
            return true;
        }
        // The last reports are on their way; nobody may hold up the end by not reading them.
        let farewell = now + FAREWELL;
        if until > farewell {
            self.stopping = Some(farewell);
        }
        now >= until
    }

    /// Kills and reaps every sandbox, and lets the server half go.
    pub(super) fn end_everything(&mut self) {
        let deadline = Instant::now() + limits::SHUTDOWN_GRACE;
        while !self.jobs.is_empty() && Instant::now() < deadline {
            let mut ended = Vec::new();
            self.jobs.retain(|id, job| {
                job.end(EndedBy::Cancelled);
                let reaped = job.reap().map(|(_, outcome)| outcome);
                ended.extend(
                    reaped.or_else(|| job.held_report.take().map(|held| held.outcome)).map(|o| (*id, o)),
                );
                job.tear_down();
                job.tend_collector();
                !job.is_gone(Instant::now())
            });
            for (id, outcome) in ended {
                self.record_end(id, &outcome);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // The kernel closes them, when everything else is done.
        std::mem::forget(std::mem::take(&mut self.kept));
        self.resources.cgroups.close();
        self.tell_all_refused();
        self.note(Entry::Stopped);
        self.audit.close();
        self.dismiss_server();
    }

    /// Shows the server half the end of the link, at which it ends by itself. One that does not is killed with the
    /// monitor (PR_SET_PDEATHSIG), so it is not waited for long.
    fn dismiss_server(&self) {
        let Some(server) = &self.server else { return };
        let _ = shutdown(self.link.as_raw_fd(), Shutdown::Both);
        let timeout = PollTimeout::try_from(FAREWELL).unwrap_or(PollTimeout::ZERO);
        let _ = poll(&mut [PollFd::new(server.as_fd(), PollFlags::POLLIN)], timeout);
    }
}
