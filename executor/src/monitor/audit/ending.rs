//! The end of a trail, which the next line goes on from: whether it is the one that was written last.

use super::{
    kept::Known,
    power::{AGAIN, End, piece, whole_lines},
};
use crate::{monitor::appended::open_root_file, sandbox::steps::Fault};
use cordon_protocol::audit::{Entry, Head, read_line};
use nix::{errno::Errno, fcntl::OFlag};
use std::{fs::File, io, path::Path};

/// Bytes at the end of either file in which its last line must be.
pub(super) const TAIL: u64 = 128 << 10;

/// The end of what is in the first so many bytes of a file, in which their last line is.
pub(super) fn tail(file: &File, length: u64) -> io::Result<Vec<u8>> {
    piece(file, length.saturating_sub(TAIL), length)
}

/// Where such an end ends, which must not be another line where it is known to have ended.
///
/// # Errors
/// What is wrong with it, in our own words.
pub(super) fn last(tail: &[u8], known: &Known) -> Result<End, Fault> {
    let text = String::from_utf8_lossy(tail);
    let whole =
        text.strip_suffix('\n').ok_or_else(|| broken(format!("the last line is cut off; {AGAIN}")))?;
    let mut lines = whole.rsplit('\n').map(|line| {
        read_line(line, 0)
            .map_err(|e| broken(format!("{}; {AGAIN}", e.to_string().replacen("line 0", "the last line", 1))))
    });
    let (line, hash) = lines.next().ok_or_else(|| broken("there is no line".to_owned()))??;
    let stopped = line.entry == Entry::Stopped;
    let last = Head { seq: line.seq, hash };
    let heads = lines.map_while(Result::ok).map(|(line, hash)| Head { seq: line.seq, hash });
    // As far as it must be there.
    let ended = known.synced.as_ref().filter(|_| last.seq < known.head.seq).unwrap_or(&known.head);
    if last.seq < ended.seq {
        let (found, expected) = (last.seq, ended.seq);
        let problem =
            format!("it ends with number {found}, its head was number {expected}: lines were cut off");
        return Err(broken(format!("{problem}; {AGAIN}")));
    }
    // Further back than the tail goes only a trail can be that another state directory went on with.
    let there = std::iter::once(last.clone()).chain(heads).find(|head| head.seq <= ended.seq);
    if there.is_some_and(|head| head.seq == ended.seq && head.hash != ended.hash) {
        return Err(broken(format!("number {} is another line than it was; {AGAIN}", ended.seq)));
    }
    Ok(End { head: last, stopped })
}

fn broken(problem: String) -> Fault {
    Fault::new(Errno::EBADMSG, problem)
}

/// A fault of the file at `path`.
pub(super) fn named(path: &Path) -> impl Fn(Fault) -> Fault {
    move |fault| Fault::new(fault.errno, format!("{}: {}", path.display(), fault.detail))
}

/// Whether an executor that is started now would go on with what is at `path`, where `kept` has the head; nothing is
/// changed.
///
/// # Errors
/// What it would refuse to start by.
pub(super) fn would_be_taken(path: &Path, kept: &Path) -> Result<(), Fault> {
    let known = Known::found(kept)?;
    if path.symlink_metadata().is_err() {
        // Begun anew.
        return Ok(());
    }
    let file = open_root_file(path, OFlag::O_APPEND)?;
    let length = file.metadata()?.len();
    let length = if known.synced.is_some() { whole_lines(&file, length, path)? } else { length };
    let tail = tail(&file, length)?;
    if tail.is_empty() { Ok(()) } else { last(&tail, &known).map(drop).map_err(named(path)) }
}
