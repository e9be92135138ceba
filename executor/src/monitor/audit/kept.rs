//! The head of the trail, kept in a file of its own, and how much of the trail is known to be on the disk.
//!
//! The head goes forward with each line and waits for no disk; so after a power loss it may be ahead of the trail that
//! the disk has. A second file beside it names the last line that was brought to the disk, after it was, and in which
//! run of the host: only where the host has started anew since may the trail end earlier than its head, and never
//! before that line. Either can itself be lost with the power, and is then empty or zeros: of the one nothing is known
//! but what the other says, and without the second nothing is known to be on the disk.

use crate::{
    monitor::appended::{open_root_file, seize},
    sandbox::steps::{About, Fault},
};
use cordon_protocol::audit::Head;
use nix::{errno::Errno, fcntl::OFlag};
use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    os::unix::fs::FileExt,
    path::Path,
};

/// Names this run of the host (random(4)).
const RUN: &str = "/proc/sys/kernel/random/boot_id";

/// The open files.
#[derive(Debug)]
pub(super) struct Kept {
    head: File,
    synced: File,
    run: String,
}

/// What they say.
#[derive(Debug)]
pub(super) struct Known {
    /// Where the trail ended.
    pub(super) head: Head,
    /// What of it is on the disk at least; none where nothing may be missing.
    pub(super) synced: Option<Head>,
}

impl Kept {
    /// Opens or makes both, and gives what they say.
    ///
    /// # Errors
    /// They cannot be read, or are not what they are to be.
    pub(super) fn open(path: &Path) -> Result<(Self, Known), Fault> {
        let beside = path.with_extension("synced");
        let begun = beside.symlink_metadata().is_ok();
        let (head, synced) =
            (open_root_file(path, OFlag::empty())?, open_root_file(&beside, OFlag::empty())?);
        let kept = Self { head, synced, run: this_run()? };
        let ended = read(&kept.head, path)?;
        let reached = if begun { Some(read(&kept.synced, &beside)?) } else { None };
        let known = Known::of(ended, reached, &kept.run).ok_or_else(|| none(path))?;
        if !begun {
            // An empty one is from a power loss from here on.
            kept.reach(&known.head).about(beside.display())?;
        }
        Ok((kept, known))
    }

    /// What the file with the head says now.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub(super) fn head_now(&self, path: &Path) -> Result<Head, Fault> {
        (&self.head).rewind().about("head of the audit trail")?;
        match read(&self.head, path)? {
            Said::Known(head, _) => Ok(head),
            Said::Nothing | Said::Zeros => Err(none(path)),
        }
    }

    /// Makes them root's alone, and no longer than what will stand in them, as zeros may be.
    ///
    /// # Errors
    /// errno of fchown(2), fchmod(2) or ftruncate(2).
    pub(super) fn seize(&self) -> io::Result<()> {
        let zero = Head::default();
        for (file, line) in [(&self.head, said(&zero)), (&self.synced, self.reached(&zero))] {
            if file.metadata()?.len() > line.len() as u64 {
                file.set_len(line.len() as u64)?;
            }
        }
        seize(&self.head, 0o600)?;
        seize(&self.synced, 0o600)
    }

    /// The file with the head.
    pub(super) fn file(&self) -> &File {
        &self.head
    }

    /// The trail ends here now.
    ///
    /// # Errors
    /// errno of write(2).
    pub(super) fn advance(&self, head: &Head) -> io::Result<()> {
        self.head.write_all_at(said(head).as_bytes(), 0)
    }

    /// Brings these files, which hold everything up to `head`, to the disk, then says so.
    ///
    /// # Errors
    /// errno of fdatasync(2) or write(2).
    pub(super) fn sync(&self, files: [&File; 2], head: &Head) -> io::Result<()> {
        for file in files {
            file.sync_data()?;
        }
        self.head.sync_data()?;
        self.reach(head)
    }

    /// Says that everything up to `head` is on the disk.
    fn reach(&self, head: &Head) -> io::Result<()> {
        self.synced.write_all_at(self.reached(head).as_bytes(), 0)?;
        self.synced.sync_data()
    }

    /// What stands in the second file when everything up to `head` is on the disk.
    fn reached(&self, head: &Head) -> String {
        format!("{:020} {} {}\n", head.seq, head.hash, self.run)
    }
}

impl Known {
    /// What the files beside and at `path` say, none of which is made or changed.
    ///
    /// # Errors
    /// As [`Kept::open`].
    pub(super) fn found(path: &Path) -> Result<Self, Fault> {
        let said = |path: &Path| match path.symlink_metadata() {
            Err(_) => Ok(None),
            Ok(_) => read(&open_root_file(path, OFlag::empty())?, path).map(Some),
        };
        let (ended, reached) = (said(path)?, said(&path.with_extension("synced"))?);
        Self::of(ended.unwrap_or(Said::Nothing), reached, &this_run()?).ok_or_else(|| none(path))
    }

    /// What is known of what the files said in this run of the host, of which there may be no second one; none where the
    /// first one is no head.
    fn of(ended: Said, reached: Option<Said>, run: &str) -> Option<Self> {
        let Some(reached) = reached else {
            // From before there was one, or the first of all: nothing is known to be missing.
            let head = match ended {
                Said::Known(head, _) => head,
                Said::Nothing => Head::default(),
                Said::Zeros => return None,
            };
            return Some(Self { head, synced: None });
        };
        let Said::Known(reached, of) = reached else {
            let head = if let Said::Known(head, _) = ended { head } else { Head::default() };
            return Some(Self { head, synced: Some(Head::default()) });
        };
        let anew = of.is_some_and(|of| of != run);
        let head = match ended {
            Said::Known(head, _) => head,
            Said::Zeros if !anew => return None,
            Said::Nothing | Said::Zeros => reached.clone(),
        };
        let synced = anew.then_some(reached).filter(|synced| synced.seq <= head.seq);
        Some(Self { head, synced })
    }
}

fn this_run() -> Result<String, Fault> {
    Ok(fs::read_to_string(RUN).about(RUN)?.trim_end().to_owned())
}

/// What stands in the first file. Fixed width: a shorter one never leaves the end of a longer one.
fn said(head: &Head) -> String {
    format!("{:020} {}\n", head.seq, head.hash)
}

/// What stands in a file.
#[derive(Debug)]
enum Said {
    /// A head, and the run of the host where it names one.
    Known(Head, Option<String>),
    /// It is empty.
    Nothing,
    /// Zero bytes alone.
    Zeros,
}

/// Bytes of either file that are read: more is none.
const LONGEST: u64 = 4 << 10;

fn none(path: &Path) -> Fault {
    let problem = format!(
        "{}: not the head of a trail, a number and a hash: compare the trail's end with the log (`cordon audit verify \
         --anchors`), move the file away and start again",
        path.display()
    );
    Fault::new(Errno::EBADMSG, problem)
}

fn read(file: &File, path: &Path) -> Result<Said, Fault> {
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).about(path.display())?;
    if text.is_empty() {
        return Ok(Said::Nothing);
    }
    if text.iter().all(|byte| *byte == 0) {
        return Ok(Said::Zeros);
    }
    let text = String::from_utf8_lossy(&text);
    let mut words = text.split_whitespace();
    let seq = words.next().and_then(|seq| seq.parse().ok());
    let hash = words.next().filter(|hash| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
    let (Some(seq), Some(hash)) = (seq, hash) else { return Err(none(path)) };
    Ok(Said::Known(Head { seq, hash: hash.to_owned() }, words.next().map(str::to_owned)))
}

#[cfg(test)]
mod tests;
