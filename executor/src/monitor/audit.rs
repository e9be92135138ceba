//! The audit trail: what the monitor itself decided and saw, written before a command runs.
//!
//! The server half can neither write here nor change what is written: it names a connection, the monitor
//! records the peer that the kernel named and the hash of the bytes that the command's process will read.
//!
//! Beside it, in `commands.jsonl`, stands the text of what was asked for, as the server half says it. The monitor adds
//! it, unread but for its being one line: a descriptor that can only append does not exist, as whoever has it can
//! take O_APPEND away again (fcntl(2), F_SETFL).

mod beginning;
mod budget;
mod ending;
mod kept;
mod power;
mod rotation;
mod trial;
mod trouble;

pub use rotation::Rotation;

use super::appended::Appended;
use crate::sandbox::steps::{About, Fault};
use budget::Budget;
use cordon_protocol::audit::{self as text, Entry, Head, append};
use ending::{TAIL, last, named, tail};
use kept::Kept;
use nix::errno::Errno;
use power::cut_to_lines;
use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::Path,
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use trouble::Trouble;

/// The open trail.
#[derive(Debug)]
pub struct Audit {
    trail: Appended,
    texts: Appended,
    kept: Kept,
    head: Head,
    told: u64,
    rotation: Rotation,
    /// Bytes of the trail from which both files are moved aside.
    due: u64,
    /// Bytes of the texts from which they alone are.
    texts_due: u64,
    budget: Budget,
    trouble: Trouble,
}

/// Name of the file with the texts, beside the trail.
const TEXTS: &str = "commands.jsonl";
/// Lines between two that tell the journal where the chain stands.
const ANCHOR_INTERVAL: u64 = 100;

impl Audit {
    /// Opens or makes the trail at `path`, for root alone, and goes on where it ends, with the line `started`. The head
    /// is kept in `kept` too, so that lines cut off the end are missed. A trail that is not there any more is begun anew,
    /// and says so.
    ///
    /// # Errors
    /// A file that cannot be written, is not root's alone, or does not end with a whole line.
    pub fn open(path: &Path, kept: &Path, rotation: Rotation, started: Entry) -> Result<Self, Fault> {
        let trail = Appended::open(path)?;
        let texts = Appended::open(&path.with_file_name(TEXTS))?;
        let (kept, known) = Kept::open(kept)?;
        let due = rotation.due_after(0);
        let (head, budget, trouble) = (Head::default(), Budget::default(), Trouble::default());
        let mut audit =
            Self { trail, texts, kept, head, told: 0, rotation, due, texts_due: due, budget, trouble };
        // What the host was writing when it went down.
        let torn =
            known.synced.is_some() && (cut_to_lines(&mut audit.trail)? | cut_to_lines(&mut audit.texts)?);
        let (end, anew) = if audit.trail.length() == 0 {
            audit.begin(&known)
        } else {
            let tail = tail(audit.trail.file(), audit.trail.length())?;
            (last(&tail, &known).map_err(named(path))?, None)
        };
        let lost = Self::lost(&known, &end, torn);
        audit.head = end.head;
        // Not before: a file that is no trail is somebody's.
        audit.trail.seize()?;
        audit.texts.seize()?;
        audit.seize_older();
        audit.kept.seize().about("head of the audit trail")?;
        anew.map_or(Ok(()), |anew| audit.record(anew))?;
        if let Some(lost) = lost {
            // Before anything else is on the disk, as a rotation brings it there: what is known now is not known again.
            audit.add(lost)?;
            // What was told before of numbers that are given again was told before this.
            audit.tell();
        }
        audit.record(started)?;
        audit.tell();
        audit.sync();
        // One that was broken off may have left more than stays.
        if let Err(fault) = audit.remove_oldest() {
            crate::log!("audit: rotation failed: {fault}");
        }
        Ok(audit)
    }

    /// Writes one line. When it cannot be written whole, what was written of it is taken back.
    ///
    /// # Errors
    /// errno of write(2): then nothing may run.
    pub fn record(&mut self, entry: Entry) -> Result<(), Fault> {
        let recorded = self.prepare().and_then(|()| self.add(entry));
        self.trouble.watch(recorded, false)
    }

    fn add(&mut self, entry: Entry) -> Result<(), Fault> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let time = u64::try_from(time).unwrap_or(u64::MAX);
        let (text, head) = append(&self.head, time, entry).map_err(io::Error::from)?;
        self.trail.settle()?;
        let before = self.trail.length();
        self.trail.append(text.as_bytes())?;
        if let Err(error) = self.kept.advance(&head) {
            self.trail.cut(before);
            return Err(error).about("head of the audit trail");
        }
        self.head = head;
        if self.head.seq >= self.told + ANCHOR_INTERVAL {
            self.tell();
        }
        Ok(())
    }

    /// Writes a launch, which is given the hash of its text, and before it the text: one of them alone is taken back.
    ///
    /// # Errors
    /// As [`Self::record`]; `EBADMSG` for a text of more than one line.
    pub fn record_launch(
        &mut self,
        about: &text::About,
        sealed: &OwnedFd,
        launch: impl FnOnce(String) -> Entry,
    ) -> Result<(), Fault> {
        let broken = |problem: &str| Fault::new(Errno::EBADMSG, format!("text of the command: {problem}"));
        let text = content(sealed).about("text of the command")?;
        let text = String::from_utf8(text).map_err(|_| broken("not UTF-8"))?;
        if text.contains('\n') {
            return Err(broken("more than one line"));
        }
        let whole = self.budget.take(about.uid, text.len(), Instant::now());
        let line = if whole {
            text::text_line(about, &text)
        } else {
            text::begun_line(about, &text[..text.floor_char_boundary(budget::SHORT)])
        };
        let line = line.map_err(io::Error::from)?;
        let launch = launch(text::line_hash(&line));
        let recorded = self.prepare().and_then(|()| self.add_both(&line, launch));
        if whole && recorded.is_err() {
            self.budget.give_back(about.uid, text.len());
        }
        self.trouble.watch(recorded, true)
    }

    fn add_both(&mut self, line: &str, launch: Entry) -> Result<(), Fault> {
        self.texts.settle()?;
        let before = self.texts.length();
        self.texts.append(line.as_bytes())?;
        let recorded = self.add(launch);
        if recorded.is_err() {
            self.texts.cut(before);
        }
        recorded
    }

    /// Brings everything to the disk. That takes its time, so it is not done for a launch.
    pub fn sync(&mut self) {
        if let Err(error) = self.kept.sync([self.texts.file(), self.trail.file()], &self.head) {
            crate::log!("audit: it cannot be brought to the disk: {error}");
        }
    }

    /// Tells the journal where the chain stands.
    pub fn tell(&mut self) {
        self.told = self.head.seq;
        crate::log!("audit head {} {}", self.head.seq, self.head.hash);
    }
}

/// The content of a sealed file, whose length has been checked.
fn content(sealed: &OwnedFd) -> io::Result<Vec<u8>> {
    let file = File::from(sealed.try_clone()?);
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cordon_protocol::audit::Walk;
    use nix::unistd::Uid;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn open(path: &Path, head: &Path) -> Result<Audit, Fault> {
        let started = Entry::Started { version: "1".into(), configuration: text::Configuration::default() };
        Audit::open(path, head, Rotation { size: 0, keep: 1 }, started)
    }

    fn walk(path: &Path) -> Walk {
        let mut walk = Walk::default();
        for line in fs::read_to_string(path).unwrap().lines() {
            walk.step(line).unwrap();
        }
        walk
    }

    fn kept(path: &Path) -> Head {
        let text = fs::read_to_string(path).unwrap();
        let (seq, hash) = text.trim_end().split_once(' ').unwrap();
        Head { seq: seq.parse().unwrap(), hash: hash.to_owned() }
    }

    #[test]
    fn a_trail_goes_on_where_it_ended_and_a_damaged_one_is_refused() {
        if !Uid::effective().is_root() {
            panic!("needs root: the trail must be root's");
        }
        let directory = std::env::temp_dir().join(format!("cordon-audit-{}", std::process::id()));
        let (path, head) = (directory.join("audit.jsonl"), directory.join("head"));
        for round in 1..=2 {
            let mut audit = open(&path, &head).unwrap();
            audit.record(Entry::Stopped).unwrap();
            let walk = walk(&path);
            assert_eq!(walk.head().seq, round * 2);
            walk.finish(&kept(&head)).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        let fault = open(&path, &head).unwrap_err();
        assert!(fault.detail.contains("audit.jsonl"), "{fault:?}");
        fs::write(&path, text.replace("\"seq\":4", "\"seq\":5")).unwrap();
        assert!(open(&path, &head).is_err());
        // The last line cut off whole: the head misses it.
        let without_last: String = text.split_inclusive('\n').take(3).collect();
        fs::write(&path, without_last).unwrap();
        assert!(open(&path, &head).unwrap_err().detail.contains("cut off"));
        // Moved away: the chain goes on, and the first line says that the others are gone.
        fs::remove_file(&path).unwrap();
        drop(open(&path, &head).unwrap());
        assert_eq!(walk(&path).head().seq, 6);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_line_that_was_replaced_is_no_end_to_go_on_from() {
        let directory = std::env::temp_dir().join(format!("cordon-audit-replaced-{}", std::process::id()));
        let (path, head) = (directory.join("audit.jsonl"), directory.join("head"));
        drop(open(&path, &head).unwrap());
        let (text, before) = (fs::read_to_string(&path).unwrap(), kept(&head));
        let mut audit = open(&path, &head).unwrap();
        audit.record(Entry::Stopped).unwrap();
        drop(audit);
        // Both lines anew, whole and chained, then one more that follows.
        let mut forged = text.clone();
        let mut at = before;
        for _ in 0..3 {
            let (line, next) = append(&at, 7, Entry::Stopped).unwrap();
            forged += &line;
            at = next;
            fs::write(&path, &forged).unwrap();
            if at.seq >= kept(&head).seq {
                let fault = open(&path, &head).unwrap_err();
                assert!(fault.detail.contains("number 3 is another line"), "{fault:?}");
            }
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_file_that_is_no_trail_is_left_as_it_is() {
        let directory = std::env::temp_dir().join(format!("cordon-audit-foreign-{}", std::process::id()));
        let (path, head) = (directory.join("notes"), directory.join("head"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(&path, "private\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&path, None, Some(12_345)).unwrap();
        let fault = open(&path, &head).unwrap_err();
        assert!(fault.detail.starts_with(&format!("{}: ", path.display())), "{fault:?}");
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.gid()), (0o600, 12_345));
        assert_eq!(fs::read_to_string(&path).unwrap(), "private\n");
        // The control: a trail is root's.
        fs::remove_file(&path).unwrap();
        drop(open(&path, &head).unwrap());
        let (trail, head) = (fs::metadata(&path).unwrap(), fs::metadata(&head).unwrap());
        assert_eq!((trail.mode() & 0o7777, trail.gid(), head.mode() & 0o7777), (0o640, 0, 0o600));
        fs::remove_dir_all(directory).unwrap();
    }
}
