//! The head of the trail, kept in a file of its own, and how much of the trail is known to be on the disk.
//!
//! The head goes forward with each line and waits for no disk; so after a power loss it may be ahead of the trail that
//! the disk has. A second file beside it names the last line that was brought to the disk, after it was, and in which
//! run of the host: only where the host has started anew since may the trail end earlier than its head, and never
//! before that line.

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
        let (head, synced) =
            (open_root_file(path, OFlag::empty())?, open_root_file(&beside, OFlag::empty())?);
        let run = this_run()?;
        let known = Known::of(read(&head, path)?.0, read(&synced, &beside)?, &run);
        Ok((Self { head, synced, run }, known))
    }

    /// What the file with the head says now.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub(super) fn head_now(&self, path: &Path) -> Result<Head, Fault> {
        (&self.head).rewind().about("head of the audit trail")?;
        read(&self.head, path).map(|(head, _)| head)
    }

    /// Makes them root's alone.
    ///
    /// # Errors
    /// errno of fchown(2) or fchmod(2).
    pub(super) fn seize(&self) -> io::Result<()> {
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
        // Fixed width: a shorter one never leaves the end of a longer one.
        self.head.write_all_at(format!("{:020} {}\n", head.seq, head.hash).as_bytes(), 0)
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
        self.synced.write_all_at(format!("{:020} {} {}\n", head.seq, head.hash, self.run).as_bytes(), 0)?;
        self.synced.sync_data()
    }
}

impl Known {
    /// What the files beside and at `path` say, none of which is made or changed.
    ///
    /// # Errors
    /// As [`Kept::open`].
    pub(super) fn found(path: &Path) -> Result<Self, Fault> {
        let beside = path.with_extension("synced");
        let read = |path: &Path| match path.symlink_metadata() {
            Err(_) => Ok((Head::default(), None)),
            Ok(_) => read(&open_root_file(path, OFlag::empty())?, path),
        };
        Ok(Self::of(read(path)?.0, read(&beside)?, &this_run()?))
    }

    /// Where it ended, and what was brought to the disk in which run of the host.
    fn of(head: Head, (synced, of): (Head, Option<String>), run: &str) -> Self {
        let anew = of.is_some_and(|of| of != run);
        Self { synced: anew.then_some(synced).filter(|synced| synced.seq <= head.seq), head }
    }
}

fn this_run() -> Result<String, Fault> {
    Ok(fs::read_to_string(RUN).about(RUN)?.trim_end().to_owned())
}

/// Tells that the trail ends with the one line and not with the other, as the host went down.
pub(super) fn tell_lost(last: &Head, ended: &Head) {
    let (found, expected) = (last.seq, ended.seq);
    crate::log!(
        "audit: the host went down before all was on the disk: numbers after {found}, up to {expected}, are lost"
    );
}

/// The head in a file, and the run of the host; none yet in a new one.
fn read(mut file: &File, path: &Path) -> Result<(Head, Option<String>), Fault> {
    let mut text = Vec::new();
    file.read_to_end(&mut text).about(path.display())?;
    if text.is_empty() {
        return Ok((Head::default(), None));
    }
    let text = String::from_utf8_lossy(&text);
    let mut words = text.split_whitespace();
    let seq = words.next().and_then(|seq| seq.parse().ok());
    let hash = words.next().filter(|hash| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
    let (Some(seq), Some(hash)) = (seq, hash) else {
        let problem = format!(
            "{}: not the head of a trail, a number and a hash: compare the trail's end with the log (`cordon audit \
             verify --anchors`), move the file away and start again",
            path.display()
        );
        return Err(Fault::new(Errno::EBADMSG, problem));
    };
    Ok((Head { seq, hash: hash.to_owned() }, words.next().map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::super::{Audit, Rotation};
    use super::*;
    use cordon_protocol::audit::{Configuration, Entry, Walk};

    /// A trail of one start and three more lines, of which the disk has the first for sure.
    fn trail(name: &str) -> std::path::PathBuf {
        let directory = std::env::temp_dir().join(format!("cordon-kept-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let mut audit = open(&directory).unwrap();
        (0..3).for_each(|_| audit.record(Entry::Stopped).unwrap());
        directory
    }

    fn open(directory: &Path) -> Result<Audit, Fault> {
        let started = Entry::Started { version: "1".into(), configuration: Configuration::default() };
        let rotation = Rotation { size: 1 << 20, keep: 1 };
        Audit::open(&directory.join("audit.jsonl"), &directory.join("audit.head"), rotation, started)
    }

    /// Numbers of the lines, which are a chain.
    fn numbers(directory: &Path) -> Vec<u64> {
        let mut walk = Walk::default();
        let text = fs::read_to_string(directory.join("audit.jsonl")).unwrap();
        text.lines().map(|line| walk.step(line).unwrap().seq).collect()
    }

    /// As if the host had started anew since.
    fn start_host(directory: &Path) {
        let file = directory.join("audit.synced");
        let text = fs::read_to_string(&file).unwrap();
        let run = text.trim_end().rsplit_once(' ').unwrap().1;
        fs::write(&file, text.replace(run, "another")).unwrap();
    }

    #[test]
    fn what_the_disk_never_had_is_no_cut_and_anything_else_is() {
        let directory = trail("lost");
        let path = directory.join("audit.jsonl");
        let whole = fs::read_to_string(&path).unwrap();
        // Two lines and a half.
        let torn: String = whole.split_inclusive('\n').take(2).collect();
        fs::write(&path, format!("{torn}{{\"seq\":3,")).unwrap();
        fs::write(directory.join("commands.jsonl"), "{\"job\":").unwrap();
        assert!(open(&directory).is_err(), "the host has not gone down");
        fs::write(&path, &torn).unwrap();
        assert!(open(&directory).unwrap_err().detail.contains("cut off"), "the host has not gone down");
        fs::write(&path, format!("{torn}{{\"seq\":3,")).unwrap();
        start_host(&directory);
        drop(open(&directory).unwrap());
        assert_eq!(numbers(&directory), [1, 2, 3]);
        assert_eq!(fs::read_to_string(directory.join("commands.jsonl")).unwrap(), "");
        // Number 3 is on the disk now.
        start_host(&directory);
        fs::write(&path, &torn).unwrap();
        assert!(open(&directory).unwrap_err().detail.contains("cut off"));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_new_file_that_the_disk_never_had_goes_on_where_the_older_one_ends() {
        let directory = trail("empty");
        let older = fs::read_to_string(directory.join("audit.jsonl")).unwrap();
        let first: String = older.split_inclusive('\n').take(1).collect();
        let known = ["audit.head", "audit.synced"].map(|name| fs::read(directory.join(name)).unwrap());
        // Nothing of it, or half a line.
        for begun in ["", "{\"seq\":2,"] {
            fs::write(directory.join("audit.jsonl"), begun).unwrap();
            fs::write(directory.join("audit.jsonl.1"), &first).unwrap();
            fs::write(directory.join("audit.head"), &known[0]).unwrap();
            fs::write(directory.join("audit.synced"), &known[1]).unwrap();
            start_host(&directory);
            drop(open(&directory).unwrap());
            assert_eq!(numbers(&directory), [2], "{begun}");
            let next = fs::read_to_string(directory.join("audit.jsonl")).unwrap();
            let mut walk = Walk::default();
            (first.clone() + &next).lines().for_each(|line| drop(walk.step(line).unwrap()));
        }
        // Where that one is gone too, the head is what is known of it.
        fs::write(directory.join("audit.jsonl"), "").unwrap();
        fs::remove_file(directory.join("audit.jsonl.1")).unwrap();
        fs::write(directory.join("audit.head"), &known[0]).unwrap();
        fs::write(directory.join("audit.synced"), &known[1]).unwrap();
        start_host(&directory);
        drop(open(&directory).unwrap());
        assert_eq!(numbers(&directory), [5, 6]);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_head_that_is_none_is_refused_and_an_empty_one_is_new() {
        let directory = trail("none");
        for (file, text) in [("audit.head", "rubbish"), ("audit.head", "7 x"), ("audit.synced", "\0\0\0\0")] {
            let whole = fs::read(directory.join(file)).unwrap();
            fs::write(directory.join(file), text).unwrap();
            let fault = open(&directory).unwrap_err();
            for word in [file, "not the head of a trail", "move the file away"] {
                assert!(fault.detail.contains(word), "{fault:?}");
            }
            assert_eq!(fs::read_to_string(directory.join(file)).unwrap(), text);
            fs::write(directory.join(file), whole).unwrap();
        }
        fs::write(directory.join("audit.head"), "").unwrap();
        drop(open(&directory).unwrap());
        assert_eq!(numbers(&directory), [1, 2, 3, 4, 5]);
        fs::remove_dir_all(directory).unwrap();
    }
}
