//! A walk along a trail, and what can be wrong with one.

use super::{Entry, Head, Line, read_line};
use std::ops::RangeInclusive;

/// What is wrong with a trail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Not a line of a trail, or without its end.
    #[error("line {line}: not a whole audit line: it was cut off or overwritten")]
    Malformed {
        /// Counts from 1.
        line: u64,
    },
    /// The hash is not that of the text.
    #[error("line {line} (number {seq}): changed: its hash does not fit its text")]
    Changed {
        /// Counts from 1.
        line: u64,
        /// Its own number.
        seq: u64,
    },
    /// It does not follow the one before.
    #[error("line {line}: number {found} where {expected} was expected: a line is missing, doubled or moved")]
    OutOfOrder {
        /// Counts from 1.
        line: u64,
        /// Number that follows.
        expected: u64,
        /// Number that is there.
        found: u64,
    },
    /// Right number, wrong chain.
    #[error("line {line} (number {seq}): does not follow the line before it")]
    Unchained {
        /// Counts from 1.
        line: u64,
        /// Its own number.
        seq: u64,
    },
    /// The trail ends before, or otherwise than, its head says.
    #[error(
        "the trail ends with number {found}, its head is number {expected}: lines are cut off or replaced"
    )]
    CutOff {
        /// Last number that is there.
        found: u64,
        /// Number of the head.
        expected: u64,
    },
}

/// A walk along a trail, line by line.
#[derive(Debug, Default)]
pub struct Walk {
    head: Head,
    /// Lines of the file that is walked along now.
    lines: u64,
    begun: bool,
    missing: Vec<RangeInclusive<u64>>,
}

impl Walk {
    /// From here on lines are those of the next file, which goes on where the last one ended.
    pub fn begin_file(&mut self) {
        self.lines = 0;
    }

    /// The next line of the file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn step(&mut self, text: &str) -> Result<Line, Broken> {
        self.lines += 1;
        let number = self.lines;
        let (line, hash) = read_line(text, number)?;
        // A trail whose older lines were rotated away begins anywhere.
        let first = !std::mem::replace(&mut self.begun, true);
        if matches!(line.entry, Entry::BegunAnew { .. }) && line.seq > self.head.seq + 1 {
            self.missing.push(self.head.seq + 1..=line.seq - 1);
        } else if !first && line.seq != self.head.seq + 1 {
            return Err(Broken::OutOfOrder { line: number, expected: self.head.seq + 1, found: line.seq });
        } else if !first && line.prev != self.head.hash {
            return Err(Broken::Unchained { line: number, seq: line.seq });
        }
        self.head = Head { seq: line.seq, hash };
        Ok(line)
    }

    /// Numbers of the lines that were gone when the trail was begun anew, and that it says are.
    pub fn missing(&self) -> &[RangeInclusive<u64>] {
        &self.missing
    }

    /// Where the walk stands.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Compares the end of the trail with a head kept elsewhere.
    ///
    /// # Errors
    /// `CutOff`.
    pub fn finish(&self, kept: &Head) -> Result<(), Broken> {
        if self.head == *kept {
            return Ok(());
        }
        Err(Broken::CutOff { found: self.head.seq, expected: kept.seq })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Entry, Half, append};

    fn trail() -> (Vec<String>, Head) {
        let mut head = Head::default();
        let mut lines = Vec::new();
        for n in 0..5 {
            let entry = Entry::Refused {
                uid: Some(n),
                pid: None,
                profile: "}\"p,\"hash\":\"".into(),
                reason: "r".into(),
                by: Half::Server,
            };
            let (text, next) = append(&head, 1000 + u64::from(n), entry).unwrap();
            lines.push(text.trim_end().to_owned());
            head = next;
        }
        (lines, head)
    }

    fn walk(lines: &[String], head: &Head) -> Result<(), Broken> {
        let mut walk = Walk::default();
        lines.iter().try_for_each(|line| walk.step(line).map(drop))?;
        walk.finish(head)
    }

    #[test]
    fn a_whole_trail_holds() {
        let (lines, head) = trail();
        assert_eq!(walk(&lines, &head), Ok(()));
        // Rotation takes lines from the front.
        assert_eq!(walk(&lines[2..], &head), Ok(()));
        // In the next file lines are counted anew, and the chain goes on.
        let mut walk = Walk::default();
        for file in [&lines[..2], &lines[3..]] {
            walk.begin_file();
            let walked = file.iter().try_for_each(|line| walk.step(line).map(drop));
            let missing = Err(Broken::OutOfOrder { line: 1, expected: 3, found: 4 });
            assert_eq!(walked, if file.len() == 2 && file[0] == lines[0] { Ok(()) } else { missing });
        }
    }

    #[test]
    fn lines_are_missing_only_before_one_that_says_so() {
        let (mut lines, head) = trail();
        let mut after = |entry| {
            let (text, next) = append(&head, 7, entry).unwrap();
            lines.truncate(5);
            lines.push(text.trim_end().to_owned());
            (lines.clone(), next)
        };
        let (anew, end) = after(Entry::BegunAnew { found: Some(2) });
        for (kept, missing) in [(2, vec![3..=5]), (5, vec![]), (0, vec![1..=5])] {
            let mut walk = Walk::default();
            [&anew[..kept], &anew[5..]].concat().iter().for_each(|line| drop(walk.step(line).unwrap()));
            assert_eq!((walk.missing(), walk.finish(&end)), (&missing[..], Ok(())));
        }
        let (other, _) = after(Entry::Stopped);
        let without = [&other[..2], &other[5..]].concat();
        assert_eq!(walk(&without, &head), Err(Broken::OutOfOrder { line: 3, expected: 3, found: 6 }));
        // Nor twice, nor back.
        let doubled = [&anew[..], &anew[5..]].concat();
        assert_eq!(walk(&doubled, &end), Err(Broken::OutOfOrder { line: 7, expected: 7, found: 6 }));
    }

    #[test]
    fn every_change_is_found() {
        let (lines, head) = trail();
        let mut changed = lines.clone();
        changed[2] = changed[2].replace("\"uid\":2", "\"uid\":7");
        assert_eq!(walk(&changed, &head), Err(Broken::Changed { line: 3, seq: 3 }));
        let missing = [&lines[..2], &lines[3..]].concat();
        assert_eq!(walk(&missing, &head), Err(Broken::OutOfOrder { line: 3, expected: 3, found: 4 }));
        let mut moved = lines.clone();
        moved.swap(1, 2);
        assert!(matches!(walk(&moved, &head), Err(Broken::OutOfOrder { line: 2, .. })));
        let cut = &lines[..4];
        assert_eq!(walk(cut, &head), Err(Broken::CutOff { found: 4, expected: 5 }));
        let mut half = lines.clone();
        half[4].truncate(60);
        assert_eq!(walk(&half, &head), Err(Broken::Malformed { line: 5 }));
        // A line made anew with a hash of its own does not fit the next.
        let (forged, _) = append(&Head { seq: 2, hash: head.hash.clone() }, 5, Entry::Stopped).unwrap();
        let mut replaced = lines;
        replaced[2] = forged.trim_end().to_owned();
        assert_eq!(walk(&replaced, &head), Err(Broken::Unchained { line: 3, seq: 3 }));
    }

    #[test]
    fn lines_of_older_versions_are_read() {
        for body in [
            r#"{"seq":1,"time_ms":1,"event":"started","version":"0.1.0","prev":"00"}"#,
            r#"{"seq":1,"time_ms":1,"event":"refused","uid":7,"profile":"p","reason":"r","prev":"00"}"#,
        ] {
            let hash = crate::audit::sha256(body.as_bytes());
            let line = format!("{},\"hash\":\"{hash}\"}}", body.strip_suffix('}').unwrap());
            let read = read_line(&line, 1).unwrap().0.entry;
            let configuration = crate::audit::Configuration::default();
            let started = Entry::Started { version: "0.1.0".into(), configuration };
            let (profile, reason) = ("p".to_owned(), "r".to_owned());
            let refused = Entry::Refused { uid: Some(7), pid: None, profile, reason, by: Half::Monitor };
            assert!(read == started || read == refused, "{read:?}");
        }
    }
}
