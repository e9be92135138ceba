//! A root-owned file that only grows, whole piece by whole piece, and goes on in a new one where it was moved away.

use crate::sandbox::steps::{About, Fault};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg, OFlag},
    unistd::{Gid, Uid, fchown},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Permission bits: root's alone, as the group is root's too. What is in it is every user's.
const MODE: u32 = 0o640;

/// The open file.
#[derive(Debug)]
pub(super) struct Appended {
    path: PathBuf,
    /// Locked: two executors that write to one file would break it.
    file: Flock<File>,
    length: u64,
}

impl Appended {
    /// Opens or makes the file, and the directories above it.
    ///
    /// # Errors
    /// A file that cannot be written, or is not root's alone.
    pub(super) fn open(path: &Path) -> Result<Self, Fault> {
        if let Some(parent) = path.parent() {
            fs::DirBuilder::new().recursive(true).create(parent).about(parent.display())?;
        }
        let file = open_locked(path)?;
        Ok(Self { path: path.to_owned(), length: file.metadata()?.len(), file })
    }

    /// Makes it root's and of root's group. Not before it has proven to be what it is to be: any other file is
    /// somebody's.
    ///
    /// # Errors
    /// errno of fchown(2) or fchmod(2).
    pub(super) fn seize(&self) -> Result<(), Fault> {
        seize(&self.file, MODE).about(self.path.display())
    }

    /// Where it is, or was until it was moved away.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Bytes that are in it.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Makes sure that what is written next can be found under the path: a file that was moved away is followed by a
    /// new one, where its directory still takes one.
    ///
    /// # Errors
    /// There can be none, or what is there is not what was written.
    pub(super) fn settle(&mut self) -> Result<(), Fault> {
        let own = self.file.metadata().about(self.path.display())?;
        match fs::symlink_metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (own.dev(), own.ino()) => {
                if own.len() > self.length {
                    // What could not be taken back then.
                    self.file.set_len(self.length).about(self.path.display())?;
                }
                if own.len() >= self.length {
                    return Ok(());
                }
                let text = format!(
                    "{} was cut off; stop the executor and move it away, and a new one is begun",
                    self.path.display()
                );
                return Err(Fault::new(Errno::EBADMSG, text));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).about(self.path.display()),
        }
        let fresh = open_locked(&self.path)?;
        if fresh.metadata()?.len() > 0 {
            let text = format!("{} is another file than it was; move it away", self.path.display());
            return Err(Fault::new(Errno::EBADMSG, text));
        }
        (self.file, self.length) = (fresh, 0);
        self.seize()
    }

    /// Adds a piece. When it cannot be written whole, what was written of it is taken back.
    ///
    /// # Errors
    /// errno of write(2).
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if let Err(error) = (&*self.file).write_all(bytes) {
            self.cut(self.length);
            return Err(error).about(self.path.display());
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Takes back what was added since it had so many bytes.
    pub(super) fn cut(&mut self, length: u64) {
        self.length = length;
        // Where that fails, the next one tries again.
        let _ = self.file.set_len(length);
    }
}

fn open_locked(path: &Path) -> Result<Flock<File>, Fault> {
    let file = open_root_file(path, OFlag::O_APPEND)?;
    let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
    let taken = |errno| Fault::new(errno, format!("{}: another executor writes to it", path.display()));
    locked.map_err(|(_, errno)| taken(errno))
}

/// A file that only root may write, made when it is missing, for root alone.
///
/// # Errors
/// It cannot be opened or made, or somebody else may write it.
pub(super) fn open_root_file(path: &Path, flags: OFlag) -> Result<File, Fault> {
    let mut options = OpenOptions::new();
    // Never a pipe that is waited for.
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    options.read(true).write(true).create(true).mode(0o600).custom_flags(flags.bits());
    let file = options.open(path).about(path.display())?;
    let meta = file.metadata().about(path.display())?;
    if !meta.is_file() || meta.uid() != 0 || meta.mode() & 0o022 != 0 {
        let text = format!("{} is not a file of root's alone; chown root, chmod go-w", path.display());
        return Err(Fault::new(Errno::EPERM, text));
    }
    Ok(file)
}

/// Gives the file to root and root's group, with this mode.
pub(super) fn seize(file: &File, mode: u32) -> io::Result<()> {
    fchown(file, Some(Uid::from_raw(0)), Some(Gid::from_raw(0)))?;
    file.set_permissions(fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        assert!(Uid::effective().is_root(), "needs root: the file must be root's");
        let directory = std::env::temp_dir().join(format!("cordon-appended-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        directory
    }

    #[test]
    fn what_was_moved_away_is_followed_by_a_new_file_and_what_was_cut_or_replaced_is_not() {
        let directory = directory("moved");
        let (path, moved) = (directory.join("file"), directory.join("file.1"));
        let mut file = Appended::open(&path).unwrap();
        let mut add = |text: &[u8]| file.settle().and_then(|()| file.append(text));
        add(b"one\n").unwrap();
        fs::rename(&path, &moved).unwrap();
        add(b"two\n").unwrap();
        assert_eq!((fs::read(&moved).unwrap(), fs::read(&path).unwrap()), (b"one\n".into(), b"two\n".into()));
        // Whoever has written more than we have is not followed, nor whoever has cut.
        fs::write(&path, b"tw").unwrap();
        assert!(add(b"x").unwrap_err().detail.contains("was cut off"));
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"forged\n").unwrap();
        assert!(add(b"x").unwrap_err().detail.contains("another file"));
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(add(b"x").unwrap_err().errno, Errno::ENOENT);
        fs::create_dir_all(&directory).unwrap();
        add(b"three\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, MODE);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_was_added_can_be_taken_back() {
        let directory = directory("cut");
        let path = directory.join("file");
        let mut file = Appended::open(&path).unwrap();
        file.append(b"one\n").unwrap();
        let length = file.length();
        file.append(b"two\n").unwrap();
        file.cut(length);
        file.settle().unwrap();
        file.append(b"three\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\nthree\n");
        assert!(Appended::open(&path).is_err(), "it is locked");
        fs::remove_dir_all(&directory).unwrap();
    }
}
