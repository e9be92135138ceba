//! The last words of a command: the end of what it wrote, kept for the hint whether or not output is captured.

use std::collections::VecDeque;

/// Bytes of each stream that are looked at.
const KEPT: usize = 8 << 10;
/// Lines of them: what went wrong stands at the end.
const LINES: usize = 32;
/// Longest line that is read, characters.
const LINE_MAX: usize = 1024;
/// Longest command line that is read, bytes; it may be one more.
const LINE_BYTES_MAX: usize = 4096;

/// The end of a stream.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct Tail(VecDeque<u8>);

impl Tail {
    /// Takes the next bytes.
    pub(in crate::server) fn push(&mut self, bytes: &[u8]) {
        let last = &bytes[bytes.len().saturating_sub(KEPT)..];
        let surplus = (self.0.len() + last.len()).saturating_sub(KEPT);
        self.0.drain(..surplus);
        self.0.extend(last);
    }

    /// Nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last lines, the last one first; bytes that are no text are replaced.
    pub(super) fn lines(&self) -> Vec<String> {
        let bytes: Vec<u8> = self.0.iter().copied().collect();
        let pieces = bytes.split(|byte| matches!(byte, b'\n' | b'\r')).rev();
        let text = |piece: &[u8]| match String::from_utf8_lossy(piece).trim() {
            "" => None,
            line => Some(line.chars().take(LINE_MAX).collect()),
        };
        pieces.filter_map(text).take(LINES).collect()
    }
}

impl From<&str> for Tail {
    fn from(text: &str) -> Self {
        let mut tail = Self::default();
        tail.push(text.as_bytes());
        tail
    }
}

/// Both streams of a command.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct LastWords {
    /// Of standard output.
    pub(in crate::server) stdout: Tail,
    /// Of standard error.
    pub(in crate::server) stderr: Tail,
}

impl LastWords {
    /// What it complained about, the last line first. Standard output counts where the command line sends errors
    /// there and none came the usual way.
    pub(super) fn complaints(&self, line: &str) -> Vec<String> {
        let joined = line.contains("2>&1") || line.contains("&>") || line.contains("|&");
        let stream = if self.stderr.is_empty() && joined { &self.stdout } else { &self.stderr };
        stream.lines()
    }
}

/// A command line of bounded length, from its words.
pub(super) fn joined(words: &[String]) -> String {
    let mut line = String::new();
    for word in words {
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        if room == 0 {
            break;
        }
        let gap = if line.is_empty() { "" } else { " " };
        let end = word.floor_char_boundary(room.min(word.len()));
        line.extend([gap, &word[..end]]);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept_whatever_comes_how() {
        let mut tail = Tail::default();
        tail.push(&[b'a'; 3 * KEPT]);
        assert_eq!(tail.0.len(), KEPT);
        for _ in 0..KEPT {
            tail.push(b"b\n");
        }
        assert_eq!((tail.0.len(), tail.lines().len()), (KEPT, LINES));
        tail.push(b"last\xff words\n\n");
        assert_eq!(tail.lines()[0], "last\u{fffd} words");
        tail.push(&[b'c'; 2000]);
        assert_eq!(tail.lines()[0].len(), LINE_MAX);
    }

    #[test]
    fn a_command_line_is_bounded_and_cut_between_characters() {
        let of = |words: &[&str]| joined(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["a", "b c", ""]), "a b c ");
        assert_eq!(of(&["€".repeat(LINE_BYTES_MAX).as_str()]), "€".repeat(LINE_BYTES_MAX / 3));
        assert!(of(&vec!["ab"; LINE_BYTES_MAX]).len() <= LINE_BYTES_MAX + 1);
    }

    #[test]
    fn errors_that_were_sent_to_standard_output_are_found_there() {
        let words = LastWords { stdout: Tail::from("out"), stderr: Tail::default() };
        assert_eq!(words.complaints("x 2>&1 | tail"), ["out"]);
        assert_eq!(words.complaints("x"), [""; 0]);
        let both = LastWords { stderr: Tail::from("err"), ..words };
        assert_eq!(both.complaints("x 2>&1"), ["err"]);
    }
}
