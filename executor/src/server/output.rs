//! What is kept of a stream: its head and its tail, in bounded memory, with exact totals.

use std::{collections::VecDeque, ops::Range};

/// Longest UTF-8 sequence less one: most bytes that a cut can leave of a character.
const PARTIAL_MAX: usize = 3;

/// Head and tail of a stream of unknown length. Holds at most `limit` bytes.
#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    head_room: usize,
    tail: VecDeque<u8>,
    tail_room: usize,
    /// Bytes that were offered to be kept.
    offered: u64,
    /// Bytes that came after the output limit and were only counted.
    discarded: u64,
}

/// What was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// Head and tail, one after the other, nothing between.
    pub(super) bytes: Vec<u8>,
    /// Bytes produced.
    pub(super) total: u64,
    /// More was produced than is kept.
    pub(super) truncated: bool,
}

impl Capture {
    /// Keeps at most `limit` bytes.
    pub(super) fn new(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let tail_room = limit / 2;
        let head_room = limit - tail_room;
        Self { head: Vec::new(), head_room, tail: VecDeque::new(), tail_room, offered: 0, discarded: 0 }
    }

    /// Takes the next bytes of the stream.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.offered += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_room - self.head.len()));
        self.head.extend_from_slice(first);
        // Only the last of a long piece can stay.
        let rest = &rest[rest.len().saturating_sub(self.tail_room)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(self.tail_room);
        self.tail.drain(..surplus);
        let needed = self.tail.len() + rest.len();
        if needed > self.tail.capacity() {
            // Doubling as a vector does, but never beyond what the tail may hold.
            let target = needed.max(self.tail.capacity().saturating_mul(2)).min(self.tail_room);
            self.tail.reserve_exact(target - self.tail.len());
        }
        self.tail.extend(rest);
    }

    /// Counts bytes that are past the output limit.
    pub(super) fn discard(&mut self, count: usize) {
        self.discarded += count as u64;
    }

    /// Bytes that were past the output limit.
    pub(super) fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Head and tail. Text is cut between characters; what is not text stays byte for byte.
    pub(super) fn finish(self) -> Kept {
        let total = self.offered + self.discarded;
        let tail = Vec::from(self.tail);
        let mut bytes = self.head;
        let gap = self.offered > (bytes.len() + tail.len()) as u64;
        let early_end = self.discarded > 0;
        if gap {
            let (head, tail_range) =
                text_around_gap(&bytes, &tail, early_end).unwrap_or((bytes.len(), 0..tail.len()));
            bytes.truncate(head);
            bytes.extend_from_slice(&tail[tail_range]);
        } else {
            bytes.extend(tail);
            if early_end && let Some(text) = without_partial_end(&bytes) {
                bytes.truncate(text.len());
            }
        }
        Kept { bytes, total, truncated: gap || early_end }
    }
}

/// How much of the head and which part of the tail are whole characters; none when the two are not text
/// but for the cuts.
fn text_around_gap(head: &[u8], tail: &[u8], early_end: bool) -> Option<(usize, Range<usize>)> {
    let head = without_partial_end(head)?;
    let continuing = tail.iter().take(PARTIAL_MAX).take_while(|b| **b & 0xC0 == 0x80).count();
    let tail = &tail[continuing..];
    let whole = without_partial_end(tail)?;
    let complete = early_end || whole.len() == tail.len();
    complete.then_some((head.len(), continuing..continuing + whole.len()))
}

/// The bytes less a character that has only begun; none when they are not text.
fn without_partial_end(bytes: &[u8]) -> Option<&[u8]> {
    match std::str::from_utf8(bytes) {
        Ok(_) => Some(bytes),
        Err(e) if e.error_len().is_none() => bytes.get(..e.valid_up_to()),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keep(limit: u64, pieces: &[&[u8]]) -> Kept {
        let mut capture = Capture::new(limit);
        pieces.iter().for_each(|p| capture.push(p));
        capture.finish()
    }

    #[test]
    fn up_to_the_limit_everything_is_kept() {
        for data in [&b""[..], b"a", b"0123456789", "äöü€".as_bytes(), b"\xff\xfe"] {
            let kept = keep(10, &[data]);
            assert_eq!((&kept.bytes[..], kept.truncated), (data, false));
        }
        assert_eq!(keep(0, &[b""]), Kept { bytes: vec![], total: 0, truncated: false });
    }

    #[test]
    fn beyond_it_head_and_tail_stay() {
        let kept = keep(4, &[b"abc", b"", b"defg"]);
        assert_eq!(kept, Kept { bytes: b"abfg".to_vec(), total: 7, truncated: true });
        assert_eq!(keep(5, &[b"abcdefgh"]).bytes, b"abcgh");
        assert_eq!(keep(1, &[b"abc"]).bytes, b"a");
        assert_eq!(keep(0, &[b"abc"]), Kept { bytes: vec![], total: 3, truncated: true });
    }

    #[test]
    fn text_is_cut_between_characters_and_binary_is_not() {
        // Six bytes of two-byte characters at an odd cut: "äää" cut to two and two.
        let text = "aääääb".as_bytes();
        assert_eq!(keep(6, &[text]).bytes, "aääb".as_bytes());
        let smile = "😀😀😀".as_bytes();
        assert_eq!(keep(6, &[smile]).bytes, b"");
        let binary = b"\xffab\x80\x80\x80\x80\x80";
        assert_eq!(keep(6, &[binary]).bytes, b"\xffab\x80\x80\x80");
        // A tail that is no text keeps the head's half character too.
        let mixed = b"a\xc3\xa4zzz\xff";
        assert_eq!(keep(4, &[mixed]).bytes, b"a\xc3z\xff");
    }

    #[test]
    fn what_is_past_the_output_limit_is_counted_and_cuts_no_character() {
        let mut capture = Capture::new(100);
        capture.push("ä".as_bytes());
        capture.push(&"ö".as_bytes()[..1]);
        capture.discard(41);
        assert_eq!(capture.finish(), Kept { bytes: "ä".into(), total: 44, truncated: true });
    }

    #[test]
    fn memory_stays_within_the_limit() {
        let mut capture = Capture::new(1000);
        for _ in 0..1000 {
            capture.push(&[1; 997]);
            assert!(capture.head.capacity() <= 1000 && capture.tail.capacity() <= 500);
        }
        assert_eq!(capture.finish().total, 997_000);
    }

    /// Pushes `data` in pieces of the given lengths, over and over.
    fn in_pieces(limit: u64, data: &[u8], lengths: &[usize]) -> Kept {
        let mut capture = Capture::new(limit);
        let mut rest = data;
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, more) = rest.split_at((*length).min(rest.len()));
            capture.push(piece);
            rest = more;
        }
        capture.finish()
    }

    proptest! {
        #[test]
        fn binary_is_exact(
            data in proptest::collection::vec(128u8..=255, 0..400),
            limit in 0u64..300,
            lengths in proptest::collection::vec(1usize..50, 1..8),
        ) {
            // A leading 0xff keeps it from being text.
            let data = [&[0xff], &data[..]].concat();
            let limit_bytes = usize::try_from(limit).unwrap();
            let kept = in_pieces(limit, &data, &lengths);
            prop_assert_eq!(kept.total, data.len() as u64);
            prop_assert_eq!(kept.truncated, data.len() > limit_bytes);
            if limit > 0 {
                let expected = if kept.truncated {
                    let tail = limit_bytes / 2;
                    [&data[..limit_bytes - tail], &data[data.len() - tail..]].concat()
                } else {
                    data.clone()
                };
                prop_assert_eq!(kept.bytes, expected);
            }
        }

        #[test]
        fn text_stays_text(
            text in "[aä€😀]{0,200}",
            limit in 0u64..300,
            lengths in proptest::collection::vec(1usize..50, 1..8),
        ) {
            let kept = in_pieces(limit, text.as_bytes(), &lengths);
            prop_assert_eq!(kept.total, text.len() as u64);
            prop_assert_eq!(kept.truncated, kept.total > limit);
            let bytes = kept.bytes.len() as u64;
            prop_assert!(bytes <= limit);
            if kept.truncated {
                // Not more is lost than a character's part on each side of the cut.
                prop_assert!(bytes + 2 * PARTIAL_MAX as u64 >= limit);
            }
            let result = String::from_utf8(kept.bytes).unwrap();
            let splits = |at: &usize| {
                result.is_char_boundary(*at) && text.starts_with(&result[..*at]) && text.ends_with(&result[*at..])
            };
            prop_assert!((0..=result.len()).any(|at| splits(&at)));
        }
    }
}
