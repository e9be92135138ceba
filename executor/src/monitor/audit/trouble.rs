//! What the log is told of a trail that cannot be written: once when it begins, once when commands run again.

use crate::sandbox::steps::Fault;
use std::time::{Duration, Instant};

/// Time between two that begin. On a disk that is all but full a short line fits and a long one does not, again and
/// again.
const QUIET: Duration = Duration::from_secs(60);

/// Whether it can be written.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// The log was told last that it cannot.
    told: bool,
    /// When.
    at: Option<Instant>,
}

/// What there is to be told.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Begins,
    Over,
    Nothing,
}

impl Trouble {
    /// Takes in whether a line could be written, that of a launch or another.
    pub(super) fn watch(&mut self, recorded: Result<(), Fault>, launch: bool) -> Result<(), Fault> {
        match (self.news(recorded.is_ok(), launch, Instant::now()), &recorded) {
            (News::Begins, Err(fault)) => {
                crate::log!("audit: {fault}; nothing runs until it can be written again");
            }
            (News::Over, _) => crate::log!("audit: it is written again"),
            _ => {}
        }
        recorded
    }

    fn news(&mut self, written: bool, launch: bool, now: Instant) -> News {
        let quiet = self.at.is_some_and(|at| now.saturating_duration_since(at) < QUIET);
        if !written && !self.told && !quiet {
            (self.told, self.at) = (true, Some(now));
            return News::Begins;
        }
        // Shorter lines may still fit.
        if written && launch && self.told {
            self.told = false;
            return News::Over;
        }
        News::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_once_a_while_and_is_over_with_a_launch() {
        let (start, mut trouble) = (Instant::now(), Trouble::default());
        assert_eq!(trouble.news(true, true, start), News::Nothing);
        assert_eq!(trouble.news(false, true, start), News::Begins);
        for _ in 0..5 {
            // The end of a command that was not run still fits.
            assert_eq!(trouble.news(true, false, start), News::Nothing);
            assert_eq!(trouble.news(false, true, start), News::Nothing);
        }
        assert_eq!(trouble.news(true, true, start), News::Over);
        // Short launches fit and long ones do not.
        for _ in 0..5 {
            assert_eq!(trouble.news(false, true, start), News::Nothing);
            assert_eq!(trouble.news(true, true, start), News::Nothing);
        }
        assert_eq!(trouble.news(false, true, start + QUIET), News::Begins);
        assert_eq!(trouble.news(true, true, start + QUIET), News::Over);
    }
}
