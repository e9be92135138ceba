//! What the trail says was lost when the host went down, and which marks of the log that explains.

use cordon_protocol::audit::{Entry, Head};
use std::{fs, io, path::Path};

/// A line of the trail about a power loss: the first that the start after it has written.
#[derive(Debug, Clone)]
pub(super) struct Loss {
    /// The line itself.
    pub(super) at: Head,
    /// Launches after this number may be without their text,
    pub(super) after: u64,
    /// up to this one, behind which the trail went on.
    pub(super) found: u64,
    /// Up to this number there were lines, as far as the head knew.
    pub(super) known: u64,
}

impl Loss {
    /// The loss that a line of the trail, which ends with `at`, tells of.
    pub(super) fn of(entry: &Entry, at: &Head) -> Option<Self> {
        let Entry::Lost { after, found, known } = *entry else { return None };
        Some(Self { at: at.clone(), after, found, known })
    }

    /// Whether a launch of this number may be without its text.
    pub(super) fn may_have_taken_text_of(&self, seq: u64) -> bool {
        self.after < seq && seq <= self.found
    }

    /// Whether a line of this number is said to be lost.
    fn names(&self, seq: u64) -> bool {
        self.found < seq && seq <= self.known
    }
}

/// Heads of the trail that the executor logged, in the order of the log.
#[derive(Debug, Default)]
pub(super) struct Anchors(Vec<Head>);

impl Anchors {
    /// Every `audit head NUMBER HASH` in a log; `-` is standard input.
    pub(super) fn read(file: &Path) -> io::Result<Self> {
        let text =
            if file == Path::new("-") { io::read_to_string(io::stdin())? } else { fs::read_to_string(file)? };
        Ok(Self::of(&text))
    }

    fn of(log: &str) -> Self {
        let anchor =
            |line: &str| line.split_once("audit head ").and_then(|(_, rest)| parse_head(rest.trim()));
        Self(log.lines().filter_map(anchor).collect())
    }

    /// How many name this number and another line than this, all of them lines that were lost.
    ///
    /// # Errors
    /// One is of no line that was lost.
    pub(super) fn lost_at(&self, here: &Head, losses: &[Loss]) -> Result<u64, String> {
        let other = |anchor: &Head| anchor.seq == here.seq && anchor.hash != here.hash;
        self.lost(other, losses).map_err(|(seq, why)| {
            format!("number {seq} is not the line that the log names: the trail was replaced{why}")
        })
    }

    /// How many name a line behind the end of the trail, all of them lines that were lost.
    ///
    /// # Errors
    /// One is of no line that was lost.
    pub(super) fn lost_behind(&self, end: u64, losses: &[Loss]) -> Result<u64, String> {
        self.lost(|anchor| anchor.seq > end, losses)
            .map_err(|(seq, why)| format!("the log names number {seq}, the trail ends with {end}{why}"))
    }

    fn lost(&self, these: impl Fn(&Head) -> bool, losses: &[Loss]) -> Result<u64, (u64, String)> {
        let mut lost = 0;
        let mut wrong = None;
        for (at, anchor) in self.0.iter().enumerate().filter(|(_, anchor)| these(anchor)) {
            if self.is_lost(at, losses) {
                lost += 1;
            } else if wrong.is_none_or(|seq| seq < anchor.seq) {
                wrong = Some(anchor.seq);
            }
        }
        wrong.map_or(Ok(lost), |seq| Err((seq, why_not(seq, losses))))
    }

    /// Numbers that were lost are given again, so it must be told which of two lines a mark is of. The line about the
    /// loss has a mark of its own: whatever was lost was logged before.
    fn is_lost(&self, at: usize, losses: &[Loss]) -> bool {
        let explains = |loss: &Loss| loss.names(self.0[at].seq) && self.0[at..].contains(&loss.at);
        losses.iter().any(explains)
    }
}

/// What a power loss has to do with a mark that it does not explain.
fn why_not(seq: u64, losses: &[Loss]) -> String {
    if let Some(loss) = losses.iter().rev().find(|loss| loss.names(seq)) {
        let Head { seq, hash } = &loss.at;
        return format!(
            " (lines of this number were lost when the host went down, but the log has no `audit head {seq} {hash}` after \
             it: where it goes on, check with all of it)"
        );
    }
    let before = losses.iter().rev().find(|loss| loss.found < seq);
    before.map_or_else(String::new, |loss| {
        let (at, known) = (loss.at.seq, loss.known);
        format!(", or more was lost when the host went down, before number {at}, than its head knew of, which is up to {known}")
    })
}

/// A number and a hash.
pub(super) fn parse_head(text: &str) -> Option<Head> {
    let (seq, hash) = text.split_once(' ')?;
    Some(Head { seq: seq.parse().ok()?, hash: hash.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_of_a_lost_line_only_where_its_number_is_named_and_the_loss_is_logged_after_it() {
        let head = |seq, hash: &str| Head { seq, hash: hash.to_owned() };
        // The trail went on behind 4, with the loss as number 5.
        let losses = [Loss { at: head(5, "loss"), after: 2, found: 4, known: 7 }];
        let lost = |log: &str, here| Anchors::of(log).lost_at(&here, &losses).map_err(drop);
        let log =
            "audit head 4 four\naudit head 6 old\naudit head 5 loss\naudit head 6 new\naudit head 9 nine";
        for (here, expected) in [
            (head(4, "four"), Ok(0)),
            (head(4, "other"), Err(())),
            (head(6, "new"), Ok(1)),
            // The mark of the new line stands after the loss.
            (head(6, "other"), Err(())),
            (head(9, "other"), Err(())),
        ] {
            assert_eq!(lost(log, here.clone()), expected, "{here:?}");
        }
        for (log, expected) in [
            ("audit head 6 old\naudit head 5 loss", Ok(1)),
            ("audit head 5 loss\naudit head 6 old", Err(())),
            ("audit head 6 old", Err(())),
            ("audit head 6 old\naudit head 5 another", Err(())),
        ] {
            assert_eq!(lost(log, head(6, "new")), expected, "{log}");
        }
        let behind = |log: &str| Anchors::of(log).lost_behind(6, &losses);
        assert_eq!(behind("audit head 7 old\naudit head 5 loss\naudit head 6 new"), Ok(1));
        let wrong = behind("audit head 7 old\naudit head 8 old\naudit head 5 loss").unwrap_err();
        assert!(wrong.starts_with("the log names number 8") && wrong.contains("up to 7"), "{wrong}");
        assert!(behind("audit head 7 old").unwrap_err().contains("no `audit head 5 loss` after it"));
    }
}
