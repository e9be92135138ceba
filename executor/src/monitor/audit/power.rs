//! What a power loss leaves of the trail: an end to be cut to whole lines, and a line that says what may be missing.
//!
//! Trail, texts and head reach the disk each in its own time. Where the host went down in between, the files may end
//! anywhere behind what was brought to the disk for sure, half a line or zero bytes after it: file systems make a file
//! longer before they write what is in it. Of all that nobody can be asked, so the next start writes the range into the
//! trail; whoever compares trail and texts then knows where they may be out of step, and that they must not be elsewhere.

use super::{Audit, TAIL, kept::Known};
use crate::{
    monitor::appended::Appended,
    sandbox::steps::{About, Fault},
};
use cordon_protocol::audit::{Entry, Head};
use nix::errno::Errno;
use std::{fmt::Write as _, fs::File, io, os::unix::fs::FileExt, path::Path};

/// Zero bytes that are looked through from the end of a file, at most: what a host writes before it reaches the disk is
/// far less.
const ZEROS_MAX: u64 = 64 << 20;
/// Bytes that are looked at in one piece.
const PIECE: u64 = 64 << 10;

/// What to do about anything else.
pub(super) const AGAIN: &str = "look into it, move the file away and start again";

/// The last line there is, in this file or an older one.
#[derive(Debug)]
pub(super) struct End {
    /// The trail goes on from here.
    pub(super) head: Head,
    /// The executor ended in order there.
    pub(super) stopped: bool,
}

impl Audit {
    /// The line about what may be missing; none where the last end was a clean one, or the host has not gone down since.
    pub(super) fn lost(known: &Known, end: &End, torn: bool) -> Option<Entry> {
        let synced = known.synced.as_ref()?;
        let last = known.head.seq.max(end.head.seq);
        // All that was written since may be gone, head and lines alike: then both end where the disk was brought up to
        // date, and not with the end of an executor.
        let clean = last == synced.seq && (end.stopped || last == 0);
        if clean && !torn {
            return None;
        }
        let (after, found) = (synced.seq, end.head.seq);
        crate::log!("audit: {}", what_is_lost(after, found, last));
        Some(Entry::Lost { after, found, known: last })
    }
}

/// In words: texts may be missing of what has a number after `after`, lines are there up to `found` and were up to `known`.
fn what_is_lost(after: u64, found: u64, known: u64) -> String {
    let numbers = |from: u64, to: u64| match from {
        from if from == to => format!("number {from}"),
        from => format!("numbers {from} to {to}"),
    };
    let mut said = "the host went down before all was on the disk".to_owned();
    if found > after {
        let _ = write!(said, "; {} may be without text", numbers(after + 1, found));
    }
    if known > found {
        let is = if known == found + 1 { "is" } else { "are" };
        let _ = write!(said, "; {} {is} lost", numbers(found + 1, known));
    }
    if found <= after && known <= found {
        said.push_str("; no line or text is known to be lost");
    }
    said
}

/// Takes away what is behind the last whole line; whether there was something.
///
/// # Errors
/// It cannot be read, or is more than a power loss leaves.
pub(super) fn cut_to_lines(file: &mut Appended) -> Result<bool, Fault> {
    let whole = whole_lines(file.file(), file.length(), file.path())?;
    let torn = whole < file.length();
    if torn {
        file.cut(whole);
    }
    Ok(torn)
}

/// Where the last whole line of a file of this length ends.
///
/// # Errors
/// It cannot be read, or has more behind that than a power loss leaves.
pub(super) fn whole_lines(file: &File, length: u64, path: &Path) -> Result<u64, Fault> {
    let end = without_zeros(file, length, path)?;
    let start = end.saturating_sub(TAIL);
    let tail = piece(file, start, end).about(path.display())?;
    match tail.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => Ok(start + at as u64 + 1),
        None if start == 0 => Ok(0),
        None => {
            let problem = format!("{}: its end is no line of a trail; {AGAIN}", path.display());
            Err(Fault::new(Errno::EBADMSG, problem))
        }
    }
}

/// Where a file ends but for zero bytes.
fn without_zeros(file: &File, length: u64, path: &Path) -> Result<u64, Fault> {
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(PIECE);
        let read = piece(file, start, end).about(path.display())?;
        if let Some(at) = read.iter().rposition(|byte| *byte != 0) {
            return Ok(start + at as u64 + 1);
        }
        if length - start > ZEROS_MAX {
            let (path, bytes) = (path.display(), cordon_protocol::Bytes(ZEROS_MAX));
            let problem =
                format!("{path}: more than {bytes} of zeros at its end, which no power loss leaves; {AGAIN}");
            return Err(Fault::new(Errno::EBADMSG, problem));
        }
        end = start;
    }
    Ok(0)
}

/// Some bytes of a file.
pub(super) fn piece(file: &File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(end - start).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_lost_is_said_in_numbers_that_there_are() {
        let said = |after, found, known| {
            let said = what_is_lost(after, found, known);
            said.strip_prefix("the host went down before all was on the disk; ").unwrap().to_owned()
        };
        assert_eq!(said(1, 1, 4), "numbers 2 to 4 are lost");
        assert_eq!(said(1, 1, 2), "number 2 is lost");
        assert_eq!(said(1, 2, 2), "number 2 may be without text");
        assert_eq!(said(1, 3, 5), "numbers 2 to 3 may be without text; numbers 4 to 5 are lost");
        assert!(said(1, 1, 1).starts_with("no line or text is known"));
    }

    #[test]
    fn an_end_of_zeros_and_half_a_line_is_cut_off_and_any_other_is_left() {
        let directory = std::env::temp_dir().join(format!("cordon-power-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("file");
        let tail = usize::try_from(TAIL).unwrap();
        let cut = |text: &[u8], length: u64| {
            fs::write(&path, text).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
            let torn = cut_to_lines(&mut Appended::open(&path).unwrap());
            (torn.map_err(|fault| fault.detail), fs::read(&path).unwrap())
        };
        for (text, left) in [("one\n", "one\n"), ("one\ntw", "one\n"), ("", ""), ("on", "")] {
            let length = text.len() as u64;
            assert_eq!(cut(text.as_bytes(), length), (Ok(text != left), left.into()), "{text}");
            for zeros in [1, PIECE - length, PIECE, PIECE + 1, 3 * TAIL, ZEROS_MAX - PIECE] {
                assert_eq!(cut(text.as_bytes(), length + zeros), (Ok(true), left.into()), "{text} {zeros}");
            }
        }
        // A line may be as long as the tail, and no longer.
        let long = [b"one\n", &vec![b'x'; tail - 1][..]].concat();
        assert_eq!(cut(&long, long.len() as u64 + 7), (Ok(true), b"one\n".to_vec()));
        for (text, zeros, says) in [
            ([b"one\n", &vec![b'x'; tail][..]].concat(), 7, "no line of a trail"),
            (b"one\n".to_vec(), ZEROS_MAX + PIECE, "zeros at its end"),
        ] {
            let length = text.len() as u64 + zeros;
            let (torn, left) = cut(&text, length);
            let problem = torn.unwrap_err();
            assert!(problem.contains(says) && problem.contains(AGAIN), "{problem}");
            assert_eq!(left.len() as u64, length, "it is left as it is");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
