//! A trail that cannot be written: what the log is told of it, and what the trail, as soon as it takes a line again.

use super::Audit;
use crate::sandbox::steps::Fault;
use cordon_protocol::{audit::Entry, counted};
use std::time::{Duration, Instant};

/// Time between two that begin. On a disk that is all but full a short line fits and a long one does not, again and
/// again.
const QUIET: Duration = Duration::from_secs(60);
/// Time between two tries to tell the trail what is not in it, where nothing else is written.
const EVERY: Duration = Duration::from_secs(5);

/// Whether it can be written.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    /// The log was told last that it cannot.
    told: bool,
    /// When.
    at: Option<Instant>,
    /// Lines that could not be written, of which the trail has not been told.
    unwritten: u64,
    /// When it was last tried to write one, or to tell of them.
    tried: Option<Instant>,
}

/// What there is to be told.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Begins,
    Over,
    Nothing,
}

impl Audit {
    /// Writes a line about what has happened and cannot be undone. One that cannot be written is counted.
    pub fn note(&mut self, entry: Entry) {
        if self.record(entry).is_err() {
            self.trouble.unwritten += 1;
            self.trouble.tried = Some(Instant::now());
        }
    }

    /// Makes sure that the next line can be written, and that nothing which is missing is missing untold.
    ///
    /// # Errors
    /// It cannot.
    pub(super) fn prepare(&mut self) -> Result<(), Fault> {
        self.make_room()?;
        let count = self.trouble.unwritten;
        if count > 0 {
            self.add(Entry::Unwritten { count })?;
            self.trouble.unwritten = 0;
        }
        Ok(())
    }

    /// When it is to be tried again to tell what could not be written.
    pub fn due(&self) -> Option<Instant> {
        self.trouble.tried.filter(|_| self.trouble.unwritten > 0).map(|tried| tried + EVERY)
    }

    /// Tries to, when it is time.
    pub fn go_on(&mut self, now: Instant) {
        if self.due().is_some_and(|due| due <= now) {
            self.trouble.tried = Some(now);
            let told = self.prepare();
            let _ = self.trouble.watch(told, false);
        }
    }

    /// The last of all: tells the log where the chain stands, and what could not be told the trail.
    pub fn close(&mut self) {
        self.tell();
        self.sync();
        if self.trouble.unwritten > 0 {
            crate::log!("audit: {} could not be written", counted(self.trouble.unwritten, "line"));
        }
    }
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
    use super::super::Rotation;
    use super::*;
    use cordon_protocol::audit::{Configuration, read_line};
    use std::fs;

    #[test]
    fn what_could_not_be_written_is_told_before_the_next_line_or_when_it_is_time() {
        let place = std::env::temp_dir().join(format!("cordon-trouble-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        let log = place.join("log");
        fs::create_dir_all(&log).unwrap();
        let started = Entry::Started { version: "1".into(), configuration: Configuration::default() };
        let rotation = Rotation { size: 0, keep: 1 };
        let mut audit =
            Audit::open(&log.join("audit.jsonl"), &place.join("head"), rotation, started).unwrap();
        let entries = || -> Vec<Entry> {
            let text = fs::read_to_string(log.join("audit.jsonl")).unwrap();
            text.lines().map(|line| read_line(line, 0).unwrap().0.entry).collect()
        };
        audit.note(Entry::Stopped);
        assert_eq!((audit.due(), entries().len()), (None, 2));
        // By the next line, and when nothing else comes.
        for next in [true, false] {
            fs::remove_dir_all(&log).unwrap();
            (0..3).for_each(|_| audit.note(Entry::Stopped));
            // Whoever counts them himself.
            assert!(audit.record(Entry::Stopped).is_err());
            let due = audit.due().unwrap();
            audit.go_on(due);
            assert_eq!(audit.due(), Some(due + EVERY), "it still cannot be written");
            fs::create_dir(&log).unwrap();
            if next {
                audit.note(Entry::Stopped);
                assert_eq!(entries(), [Entry::Unwritten { count: 3 }, Entry::Stopped]);
            } else {
                audit.go_on(due + EVERY - Duration::from_millis(1));
                assert!(!log.join("audit.jsonl").exists(), "not before it is time");
                audit.go_on(due + EVERY);
                assert_eq!(entries(), [Entry::Unwritten { count: 3 }]);
            }
            assert_eq!(audit.due(), None);
        }
        fs::remove_dir_all(place).unwrap();
    }

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
