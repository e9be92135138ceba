//! Why a sandbox ends: what was recorded first stays the cause, whatever comes after it.

use crate::{sandbox::message::Report, sys::process::Status};
use cordon_protocol::EndedBy;
use nix::sys::signal::Signal;

/// What is known of the cause.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    cause: Option<EndedBy>,
    failure: Option<Report>,
}

impl Verdict {
    /// It is ended for this reason.
    pub(super) fn end(&mut self, cause: EndedBy) {
        if self.failure.is_none() {
            self.cause.get_or_insert(cause);
        }
    }

    /// Its launch failed. A failure that only says that the other process has gone gives way to what that
    /// process says; one that comes after it was told to end says nothing of the cause.
    pub(super) fn fail(&mut self, report: Report) {
        if self.cause.is_none() && self.failure.as_ref().is_none_or(Report::is_consequence) {
            self.failure = Some(report);
        }
    }

    /// What failed.
    pub(super) fn failure(&self) -> Option<&Report> {
        self.failure.as_ref()
    }

    /// What ended it, now that its process has ended in this way after so many kills for want of memory.
    pub(super) fn ended_by(&self, status: Status, oom_kills: u64) -> EndedBy {
        match (&self.failure, self.cause, status) {
            (Some(_), _, _) => EndedBy::LaunchFailed,
            (None, Some(cause), _) => cause,
            (None, None, Status::Killed(signal)) if signal == Signal::SIGKILL as i32 && oom_kills > 0 => {
                EndedBy::OutOfMemory
            }
            (None, None, Status::Killed(_)) => EndedBy::Signal,
            (None, None, Status::Exited(_)) => EndedBy::Exit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILLED: Status = Status::Killed(Signal::SIGKILL as i32);
    const CAUSES: [EndedBy; 5] = [
        EndedBy::WallTimeout,
        EndedBy::CpuTimeout,
        EndedBy::OutOfMemory,
        EndedBy::OutputLimit,
        EndedBy::Cancelled,
    ];

    fn failed(step: &str) -> Report {
        Report::Failed { step: step.to_owned(), errno: 5, detail: String::new() }
    }

    #[test]
    fn the_first_recorded_cause_stays_whatever_comes_after_it() {
        for first in CAUSES {
            for later in CAUSES {
                let mut verdict = Verdict::default();
                verdict.end(first);
                verdict.end(later);
                verdict.fail(failed("exec"));
                for status in [KILLED, Status::Killed(Signal::SIGTERM as i32), Status::Exited(0)] {
                    assert_eq!(verdict.ended_by(status, 1), first);
                }
                assert_eq!(verdict.failure(), None);
            }
        }
    }

    #[test]
    fn a_failure_before_any_cause_stays_and_its_reason_takes_the_place_of_its_consequence() {
        let mut verdict = Verdict::default();
        verdict.fail(Report::died("init"));
        verdict.end(EndedBy::Cancelled);
        verdict.fail(failed("mounts"));
        verdict.fail(failed("later"));
        verdict.fail(Report::died("lock_down"));
        assert_eq!(verdict.failure(), Some(&failed("mounts")));
        assert_eq!(verdict.ended_by(KILLED, 1), EndedBy::LaunchFailed);
    }

    #[test]
    fn without_a_cause_it_is_what_the_kernel_says() {
        let ended_by = |status, oom_kills| Verdict::default().ended_by(status, oom_kills);
        assert_eq!(ended_by(KILLED, 1), EndedBy::OutOfMemory);
        assert_eq!(ended_by(KILLED, 0), EndedBy::Signal);
        // A child was killed for want of memory, and the command made the best of it.
        assert_eq!(ended_by(Status::Exited(3), 1), EndedBy::Exit);
        assert_eq!(ended_by(Status::Killed(Signal::SIGTERM as i32), 1), EndedBy::Signal);
    }
}
