//! The size of a directory tree, counted without following a link and however deep it is.

use cordon_protocol::Bytes;
use nix::{
    dir::Dir,
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
    /// Files, directories and whatever else has an inode, the top itself not counted.
    pub files: u64,
}

impl Size {
    /// As much as there may ever be.
    pub const ENDLESS: Self = Self { bytes: u64::MAX, files: u64::MAX };
}

/// Counts what is below a directory, up to `most` names.
///
/// It goes down and up by descriptors, one at a time: a path can be longer than any that the kernel takes.
///
/// # Errors
/// The top cannot be opened. What cannot be read below it counts as what is seen of it.
pub fn measure(top: &Path, most: u64) -> io::Result<Size> {
    measure_until(top, most, None)
}

/// As [`measure`], for so long. Landlock looks at every directory above one that is opened, so that a tree as deep as may be
/// would take hours.
///
/// # Errors
/// It could not be counted in that time.
pub(super) fn measure_for(top: &Path, most: u64, time: Duration) -> io::Result<Size> {
    measure_until(top, most, Some((Instant::now() + time, time)))
}

fn measure_until(top: &Path, most: u64, end: Option<(Instant, Duration)>) -> io::Result<Size> {
    let mut linked = HashSet::new();
    let mut at = open(top, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let own = fstat(&at)?;
    let empty = u64::try_from(own.st_blksize).unwrap_or(0);
    let mut size = Size { bytes: blocks(&own).saturating_sub(empty), files: 0 };
    // The directories still to be entered, for each level down to the one that `at` is.
    let mut pending = vec![list(&at, &mut size, &mut linked)];
    while size.files < most {
        if let Some((_, time)) = end.filter(|(until, _)| Instant::now() >= *until) {
            let Size { bytes, files } = size;
            let (bytes, depth, time) = (Bytes(bytes), pending.len(), time.as_secs());
            return Err(io::Error::other(format!(
                "it is too much or too deep to be counted in {time} s: {bytes} in {files} files so far, {depth} directories \
                 deep; remove what is that deep"
            )));
        }
        let Some(level) = pending.last_mut() else { break };
        let next = match level.pop() {
            Some(name) => match openat(&at, &*name, DIRECTORY, Mode::empty()) {
                Ok(next) => {
                    pending.push(list(&next, &mut size, &mut linked));
                    next
                }
                // Closed to its owner, gone, or something else by now.
                Err(_) => continue,
            },
            None => {
                pending.pop();
                if pending.is_empty() {
                    break;
                }
                // Not to be read again.
                openat(&at, "..", OFlag::O_DIRECTORY | OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?
            }
        };
        at = next;
    }
    Ok(size)
}

const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
/// Unit of `st_blocks` (stat(3type)), bytes.
const BLOCK: u64 = 512;

/// Adds what is in a directory to the size; gives the names of its directories.
fn list(at: &OwnedFd, size: &mut Size, linked: &mut HashSet<(u64, u64)>) -> Vec<CString> {
    let mut directories = Vec::new();
    // A descriptor of its own: a directory that is listed closes the one it was given.
    let Ok(own) = openat(at, ".", OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()) else {
        return directories;
    };
    let Ok(mut entries) = Dir::from_fd(own) else { return directories };
    for entry in entries.iter().flatten() {
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(stat) = fstatat(at, name, AtFlags::AT_SYMLINK_NOFOLLOW) else { continue };
        let is_directory = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR;
        if is_directory {
            directories.push(name.to_owned());
        } else if stat.st_nlink > 1 && !linked.insert((stat.st_dev, stat.st_ino)) {
            continue;
        }
        size.files += 1;
        size.bytes += blocks(&stat);
    }
    directories
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
        assert_eq!(measure(&tree, COUNT_MAX).unwrap(), Size { bytes, files: 4 });
        assert!(measure(&tree, 1).unwrap().files < 4);
        // The names of one file alone.
        let before = fs::metadata(&tree).unwrap().blocks();
        for number in 0..2000 {
            fs::hard_link(tree.join("again"), tree.join(format!("{number:0>200}"))).unwrap();
        }
        let grown = (fs::metadata(&tree).unwrap().blocks() - before) * BLOCK;
        assert_eq!(measure(&tree, COUNT_MAX).unwrap(), Size { bytes: bytes + grown, files: 4 });
        assert!(measure(&top.join("none"), 1).is_err());
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
        assert_eq!(measure(&top, COUNT_MAX).unwrap().files, 200);
        assert_eq!(measure_for(&top, COUNT_MAX, Duration::from_secs(600)).unwrap().files, 200);
        let late = measure_for(&top, COUNT_MAX, Duration::ZERO).unwrap_err().to_string();
        assert!(
            late.contains("to be counted in 0 s: ") && late.contains(" in 2 files so far, 1 directories"),
            "{late}"
        );
        fs::remove_dir_all(top).unwrap();
    }
}
