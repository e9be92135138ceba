//! The audit trail: what the monitor itself decided and saw, written before a command runs.
//!
//! The server half can neither write here nor change what is written: it names a connection, the monitor
//! records the peer that the kernel named and the hash of the bytes that the command's process will read.

use crate::sandbox::steps::{About, Fault};
use cordon_protocol::audit::{Entry, Head, append, hexadecimal, read_line};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg, OFlag},
    unistd::{Gid, Uid, fchown},
};
use sha2::{Digest, Sha256};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// The open trail.
#[derive(Debug)]
pub struct Audit {
    /// Locked: two executors on one trail would break its chain.
    file: Flock<File>,
    kept: File,
    length: u64,
    head: Head,
    told: u64,
}

/// Lines between two that tell the journal where the chain stands.
const ANCHOR_INTERVAL: u64 = 100;
/// Bytes at the end of the trail in which its last line must be.
const TAIL: u64 = 64 << 10;

impl Audit {
    /// Opens or makes the trail at `path`, readable by `group`, and goes on where it ends. The head is kept
    /// in `kept` too, so that lines cut off the end are missed.
    ///
    /// # Errors
    /// A file that cannot be written, is not root's alone, or does not end with a whole line.
    pub fn open(path: &Path, kept: &Path, group: u32) -> Result<Self, Fault> {
        let file = open_root_file(path, Some(group), 0o640)?;
        let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        let taken = |errno| Fault::new(errno, format!("{}: another executor writes to it", path.display()));
        let file = locked.map_err(|(_, errno)| taken(errno))?;
        let kept = open_root_file(kept, None, 0o600)?;
        let mut audit = Self { length: file.metadata()?.len(), file, kept, head: Head::default(), told: 0 };
        let ended = audit.kept_head()?;
        audit.head = if audit.length == 0 {
            // Rotated away, or the first of all: the chain goes on.
            ended
        } else {
            let last = audit.last().about(path.display())?;
            if last.seq < ended.seq {
                let text = format!(
                    "{} ends with number {}, its head was number {}: lines were cut off; look into it, move the file \
                     away and start again",
                    path.display(),
                    last.seq,
                    ended.seq
                );
                return Err(Fault::new(Errno::EBADMSG, text));
            }
            last
        };
        audit.record(Entry::Started { version: env!("CARGO_PKG_VERSION").to_owned() })?;
        audit.tell();
        Ok(audit)
    }

    /// The head that was kept; none yet in a new file.
    fn kept_head(&self) -> Result<Head, Fault> {
        let mut text = String::new();
        (&self.kept).read_to_string(&mut text).about("head of the audit trail")?;
        let parsed = text.trim_end().split_once(' ').and_then(|(seq, hash)| Some((seq.parse().ok()?, hash)));
        Ok(parsed.map_or_else(Head::default, |(seq, hash)| Head { seq, hash: hash.to_owned() }))
    }

    /// The head after the last line that is there.
    fn last(&mut self) -> Result<Head, Fault> {
        if self.length == 0 {
            return Ok(Head::default());
        }
        self.file.seek(SeekFrom::Start(self.length.saturating_sub(TAIL)))?;
        let mut tail = Vec::new();
        self.file.read_to_end(&mut tail)?;
        let text = String::from_utf8_lossy(&tail);
        let broken = |problem: String| Fault::new(Errno::EBADMSG, problem);
        let whole = text.strip_suffix('\n').ok_or_else(|| broken("the last line is cut off".to_owned()))?;
        let line = whole.rsplit('\n').next().unwrap_or_default();
        let (line, hash) = read_line(line, 0).map_err(|e| broken(e.to_string()))?;
        Ok(Head { seq: line.seq, hash })
    }

    /// Writes one line. When it cannot be written whole, what was written of it is taken back.
    ///
    /// # Errors
    /// errno of write(2): then nothing may run.
    pub fn record(&mut self, entry: Entry) -> Result<(), Fault> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let time = u64::try_from(time).unwrap_or(u64::MAX);
        let (text, head) = append(&self.head, time, entry).map_err(io::Error::from)?;
        if let Err(error) = self.file.write_all_at(text.as_bytes(), self.length) {
            let _ = self.file.set_len(self.length);
            return Err(error).about("audit trail");
        }
        self.length += text.len() as u64;
        self.head = head;
        // Fixed width: a shorter head never leaves the end of a longer one.
        let kept = format!("{:020} {}\n", self.head.seq, self.head.hash);
        self.kept.write_all_at(kept.as_bytes(), 0).about("head of the audit trail")?;
        if self.head.seq >= self.told + ANCHOR_INTERVAL {
            self.tell();
        }
        Ok(())
    }

    /// Tells the journal where the chain stands.
    pub fn tell(&mut self) {
        self.told = self.head.seq;
        crate::log!("audit head {} {}", self.head.seq, self.head.hash);
    }
}

/// A file that only root may write, made when it is missing.
fn open_root_file(path: &Path, group: Option<u32>, mode: u32) -> Result<File, Fault> {
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new().recursive(true).create(parent).about(parent.display())?;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(mode).custom_flags(OFlag::O_NOFOLLOW.bits());
    let file = options.open(path).about(path.display())?;
    let meta = file.metadata().about(path.display())?;
    if !meta.is_file() || meta.uid() != 0 || meta.mode() & 0o022 != 0 {
        let text = format!("{} is not a file of root's alone; chown root, chmod go-w", path.display());
        return Err(Fault::new(Errno::EPERM, text));
    }
    fchown(&file, Some(Uid::from_raw(0)), group.map(Gid::from_raw)).about(path.display())?;
    file.set_permissions(fs::Permissions::from_mode(mode)).about(path.display())?;
    Ok(file)
}

/// SHA-256 of a sealed request, hexadecimal. Its bytes are not looked at otherwise.
///
/// # Errors
/// errno of read(2).
pub(super) fn fingerprint(request: &OwnedFd) -> Result<String, Fault> {
    let file = File::from(request.try_clone()?);
    let (mut digest, mut at, mut buffer) = (Sha256::new(), 0, [0; 16 << 10]);
    loop {
        let length = file.read_at(&mut buffer, at).about("sealed request")?;
        if length == 0 {
            return Ok(hexadecimal(&digest.finalize()));
        }
        digest.update(&buffer[..length]);
        at += length as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cordon_protocol::audit::Walk;

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
            let mut audit = Audit::open(&path, &head, 0).unwrap();
            audit.record(Entry::Stopped).unwrap();
            let walk = walk(&path);
            assert_eq!(walk.head().seq, round * 2);
            walk.finish(&kept(&head)).unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        let fault = Audit::open(&path, &head, 0).unwrap_err();
        assert!(fault.detail.contains("audit.jsonl"), "{fault:?}");
        fs::write(&path, text.replace("\"seq\":4", "\"seq\":5")).unwrap();
        assert!(Audit::open(&path, &head, 0).is_err());
        // The last line cut off whole: the head misses it.
        let without_last: String = text.split_inclusive('\n').take(3).collect();
        fs::write(&path, without_last).unwrap();
        assert!(Audit::open(&path, &head, 0).unwrap_err().detail.contains("cut off"));
        // Moved away, as a rotation does: the chain goes on.
        fs::remove_file(&path).unwrap();
        drop(Audit::open(&path, &head, 0).unwrap());
        assert_eq!(walk(&path).head().seq, 5);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_request_is_known_by_its_bytes() {
        let request = crate::sys::memfd::sealed(&[7; 40_000]).unwrap();
        assert_eq!(fingerprint(&request).unwrap(), cordon_protocol::audit::sha256(&[7; 40_000]));
    }
}
