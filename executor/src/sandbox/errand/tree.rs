//! The size of a directory tree, counted without following a link and however deep it is.

use cordon_protocol::Bytes;
use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{AtFlags, OFlag, open, openat},
    sys::stat::{FileStat, Mode, SFlag, fstat, fstatat},
};
use std::{
    collections::HashSet,
    ffi::CString,
    io,
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, Instant},
};

/// Names that are looked at before the rest is taken to be endless: a tree can be changed while it is counted.
pub const COUNT_MAX: u64 = 10_000_000;

/// What a tree takes, or may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes on the disk; what has several names counts once, and of the top itself only what it takes beyond an empty
    /// directory, for its names.
    pub bytes: u64,
    /// Names of files, directories and whatever else there is, the top itself not counted.
    pub files: u64,
}

impl Size {
    /// As much as there may ever be.
    pub const ENDLESS: Self = Self { bytes: u64::MAX, files: u64::MAX };
}

/// What was found in a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// What was seen.
    pub size: Size,
    /// Directories closed to whoever counts; what is in them is not in the size.
    pub closed: u64,
}

/// Counts what is below a directory, up to `most` names.
///
/// It goes down and up by descriptors, one at a time: a path can be longer than any that the kernel takes. A directory
/// may be moved while it is looked into, so what is above it is what it was on the way down, or is found anew from the
/// top: whoever counts may be allowed to read more than whoever moves.
///
/// # Errors
/// The top cannot be opened, or something below it cannot be looked at that is neither gone nor closed.
pub fn measure(top: &Path, most: u64) -> io::Result<Measured> {
    measure_until(top, most, None)
}

/// As [`measure`], for so long. Landlock looks at every directory above one that is opened, so that a tree as deep as may be
/// would take hours.
///
/// # Errors
/// It could not be counted in that time.
pub(super) fn measure_for(top: &Path, most: u64, time: Duration) -> io::Result<Measured> {
    measure_until(top, most, Some((Instant::now() + time, time)))
}

fn measure_until(top: &Path, most: u64, end: Option<(Instant, Duration)>) -> io::Result<Measured> {
    let top = open(top, LISTED, Mode::empty())?;
    let own = fstat(&top)?;
    let empty = u64::try_from(own.st_blksize).unwrap_or(0);
    let mut count = Count::default();
    count.found.size.bytes = blocks(&own).saturating_sub(empty);
    let mut at = openat(&top, ".", LISTED, Mode::empty())?;
    // For each level down to the one that `at` is.
    let mut levels =
        vec![Level { name: CString::default(), identity: identity(&own), pending: count.list(&at)? }];
    while count.found.size.files < most {
        if let Some((_, time)) = end.filter(|(until, _)| Instant::now() >= *until) {
            return Err(too_long(count.found.size, levels.len(), time));
        }
        let Some(level) = levels.last_mut() else { break };
        at = match level.pending.pop() {
            Some(name) => {
                let Some(next) = count.unless_hidden(openat(&at, &*name, DIRECTORY, Mode::empty()))? else {
                    continue;
                };
                let identity = identity(&fstat(&next)?);
                levels.push(Level { name, identity, pending: count.list(&next)? });
                next
            }
            None => {
                levels.pop();
                let Some(above) = levels.last() else { break };
                match known(openat(&at, "..", ABOVE, Mode::empty()), above)? {
                    Some(next) => next,
                    None => descend(&top, &mut levels)?,
                }
            }
        };
    }
    Ok(count.found)
}

fn too_long(Size { bytes, files }: Size, depth: usize, time: Duration) -> io::Error {
    let (bytes, time) = (Bytes(bytes), time.as_secs());
    io::Error::other(format!(
        "it is too much or too deep to be counted in {time} s: {bytes} in {files} files so far, {depth} directories \
         deep; remove what is that deep"
    ))
}

const LISTED: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_CLOEXEC);
/// Not to be read again.
const ABOVE: OFlag = LISTED.union(OFlag::O_PATH);
const DIRECTORY: OFlag = LISTED.union(OFlag::O_NOFOLLOW);
/// Unit of `st_blocks` (stat(3type)), bytes.
const BLOCK: u64 = 512;

/// A directory on the way down.
struct Level {
    /// In the one above.
    name: CString,
    identity: (u64, u64),
    /// Its directories that are still to be entered.
    pending: Vec<CString>,
}

/// What tells a directory from every other: its device and inode.
fn identity(stat: &FileStat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// The directory, if it is the one of that level.
fn known(opened: nix::Result<OwnedFd>, level: &Level) -> io::Result<Option<OwnedFd>> {
    match opened {
        Ok(next) => {
            Ok(Some(next).filter(|next| fstat(next).is_ok_and(|stat| identity(&stat) == level.identity)))
        }
        Err(errno) if errno == Errno::EACCES || is_gone(errno) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Goes down again by the names of these levels, as far as they still are what they were; the rest is left out.
fn descend(top: &OwnedFd, levels: &mut Vec<Level>) -> io::Result<OwnedFd> {
    let mut at = openat(top, ".", LISTED, Mode::empty())?;
    for depth in 1..levels.len() {
        match known(openat(&at, &*levels[depth].name, DIRECTORY, Mode::empty()), &levels[depth])? {
            Some(next) => at = next,
            None => {
                levels.truncate(depth);
                break;
            }
        }
    }
    Ok(at)
}

/// Whether there is no longer what there was.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP)
}

/// What has been found so far.
#[derive(Default)]
struct Count {
    found: Measured,
    /// What has several names and was counted.
    linked: HashSet<(u64, u64)>,
}

impl Count {
    /// None of what is gone, or closed to whoever counts.
    fn unless_hidden<T>(&mut self, looked: nix::Result<T>) -> io::Result<Option<T>> {
        match looked {
            Ok(seen) => Ok(Some(seen)),
            Err(Errno::EACCES) => {
                self.found.closed += 1;
                Ok(None)
            }
            Err(errno) if is_gone(errno) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Adds what is in a directory; gives the names of its directories.
    fn list(&mut self, at: &OwnedFd) -> io::Result<Vec<CString>> {
        let mut directories = Vec::new();
        // A descriptor of its own: a directory that is listed closes the one it was given.
        let Some(own) = self.unless_hidden(openat(at, ".", LISTED, Mode::empty()))? else {
            return Ok(directories);
        };
        for entry in Dir::from_fd(own)?.iter() {
            let Some(entry) = self.unless_hidden(entry)? else { break };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = match fstatat(at, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Err(errno) if is_gone(errno) => continue,
                looked => self.unless_hidden(looked)?,
            };
            // Where one cannot be looked at, none can.
            let Some(stat) = stat else { break };
            let is_directory = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
            // Every name counts, or endless ones of one file would make a count that never ends.
            self.found.size.files += 1;
            if is_directory {
                directories.push(name.to_owned());
            } else if stat.st_nlink > 1 && !self.linked.insert(identity(&stat)) {
                continue;
            }
            self.found.size.bytes += blocks(&stat);
        }
        Ok(directories)
    }
}

/// Bytes that something takes on the disk.
pub(super) fn blocks(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        os::unix::fs::{MetadataExt, symlink},
    };

    #[test]
    fn what_is_there_is_counted_once_and_links_are_not_followed() {
        let top = std::env::temp_dir().join(format!("cordon-measure-{}", std::process::id()));
        let _ = fs::remove_dir_all(&top);
        fs::create_dir_all(top.join("tree/a/b")).unwrap();
        fs::create_dir_all(top.join("elsewhere")).unwrap();
        fs::write(top.join("elsewhere/large"), vec![1; 1 << 20]).unwrap();
        let tree = top.join("tree");
        fs::write(tree.join("a/b/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(tree.join("a/b/file"), tree.join("again")).unwrap();
        symlink(top.join("elsewhere"), tree.join("link")).unwrap();
        let blocks = |path: &str| fs::symlink_metadata(tree.join(path)).unwrap().blocks() * BLOCK;
        let bytes = ["a", "a/b", "a/b/file", "link"].map(blocks).iter().sum();
        assert_eq!(measure(&tree, COUNT_MAX).unwrap().size, Size { bytes, files: 5 });
        assert!(measure(&tree, 1).unwrap().size.files < 4);
        // The names of one file alone.
        let before = fs::metadata(&tree).unwrap().blocks();
        for number in 0..2000 {
            fs::hard_link(tree.join("again"), tree.join(format!("{number:0>200}"))).unwrap();
        }
        let grown = (fs::metadata(&tree).unwrap().blocks() - before) * BLOCK;
        assert_eq!(measure(&tree, COUNT_MAX).unwrap().size, Size { bytes: bytes + grown, files: 2005 });
        assert!(measure(&top.join("none"), 1).is_err());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn whoever_moves_directories_leads_the_count_nowhere_else() {
        let top = std::env::temp_dir().join(format!("cordon-moved-{}", std::process::id()));
        let _ = fs::remove_dir_all(&top);
        // Moved up by one, what is two above it is above the tree.
        let (tree, below, beside) = (top.join("tree"), top.join("tree/a/c"), top.join("tree/c"));
        fs::create_dir_all(below.join("d/e/f")).unwrap();
        // Names that are still to be looked into where the count must never come.
        for name in 0..50 {
            fs::create_dir_all(tree.join(name.to_string())).unwrap();
            fs::create_dir_all(top.join(name.to_string()).join("strange/s/s/s/s/s/s/s/s/s/s")).unwrap();
        }
        std::thread::scope(|scope| {
            let moving = scope.spawn(|| {
                for _ in 0..5000 {
                    fs::rename(&below, &beside).unwrap();
                    fs::rename(&beside, &below).unwrap();
                }
            });
            while !moving.is_finished() {
                let found = measure(&tree, COUNT_MAX).unwrap();
                // It may be seen in both places, or in none.
                assert!((51..=59).contains(&found.size.files), "{found:?}");
            }
        });
        let found = measure(&tree, COUNT_MAX).unwrap();
        assert_eq!((found.size.files, found.closed), (55, 0));
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn deeper_than_any_path_it_is_counted_too() {
        let top = std::env::temp_dir().join(format!("cordon-deep-{}", std::process::id()));
        let _ = fs::remove_dir_all(&top);
        fs::create_dir_all(&top).unwrap();
        let script = "import os, sys\nos.chdir(sys.argv[1])\nfor _ in range(100):\n  os.mkdir('d' * 100); os.mkdir('e'); os.chdir('d' * 100)";
        let python = std::process::Command::new("python3").args(["-c", script]).arg(&top).status().unwrap();
        assert!(python.success());
        assert_eq!(measure(&top, COUNT_MAX).unwrap().size.files, 200);
        assert_eq!(measure_for(&top, COUNT_MAX, Duration::from_secs(600)).unwrap().size.files, 200);
        let late = measure_for(&top, COUNT_MAX, Duration::ZERO).unwrap_err().to_string();
        assert!(
            late.contains("to be counted in 0 s: ") && late.contains(" in 2 files so far, 1 directories"),
            "{late}"
        );
        fs::remove_dir_all(top).unwrap();
    }
}
