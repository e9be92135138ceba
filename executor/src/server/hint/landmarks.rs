//! What every user of the host can see of its file tree near the root, looked up once, at start.
//!
//! A file that is missing inside is a refusal only if it is there outside. Nobody may follow a command's path on the
//! host to find that out, and what came of it would tell the command about the host; see
//! `docs/decisions/0012-hints.md`.

use crate::config::Config;
use nix::errno::Errno;
use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    ffi::OsString,
    fs,
    path::{Component, Path, PathBuf},
};

/// Directories that are listed have fewer components than this.
const DEPTH: usize = 3;
/// A directory with more names is known to be there, and no more.
const NAMES_MAX: usize = 2048;
/// Names altogether.
const TOTAL_MAX: usize = 32 << 10;
/// Never looked into: what is there is a process's or comes and goes.
const PASSING: [&str; 2] = ["/proc", "/tmp"];
/// Listed themselves, with nothing below them.
const SHALLOW: [&str; 2] = ["/sys", "/dev"];
/// File systems whose listing cannot make one wait for somebody else.
const LOCAL: [&str; 11] =
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "overlay", "tmpfs", "devtmpfs", "sysfs", "zfs"];

/// What is known of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    Directory,
    Link,
    Other,
}

/// Names near the root, as of the start.
#[derive(Debug, Clone, Default)]
pub struct Landmarks {
    listed: HashMap<PathBuf, HashMap<OsString, Entry>>,
    /// What profiles hide and the host has.
    hidden: BTreeSet<PathBuf>,
}

/// What is known of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    /// It is there, or a directory above it whose content nobody knows: that.
    There(PathBuf),
    /// It was not there.
    Missing,
    /// A link is on the way.
    Unclear,
}

impl Landmarks {
    /// Looks around with the caller's rights, which are to be nobody's in particular, without leaving local file
    /// systems.
    pub fn look(config: &Config) -> Self {
        let mut landmarks = Self::below(Path::new("/"), &remote_mounts());
        let hidden = config.profiles.values().flat_map(|profile| &profile.hide);
        // One that may not be looked at is there.
        let there = |path: &&PathBuf| match nix::sys::stat::lstat(*path) {
            Ok(_) => true,
            Err(errno) => errno == Errno::EACCES,
        };
        landmarks.hidden = hidden.filter(there).cloned().collect();
        landmarks
    }

    fn below(root: &Path, beyond: &BTreeSet<PathBuf>) -> Self {
        let mut landmarks = Self::default();
        let mut waiting = VecDeque::from([PathBuf::from("/")]);
        let mut left = TOTAL_MAX;
        // Breadth first, so that what is left out is what lies deepest.
        while let Some(at) = waiting.pop_front() {
            let relative = at.strip_prefix("/").unwrap_or(&at);
            let Some(names) = names_in(&root.join(relative)).filter(|names| names.len() <= left) else {
                continue;
            };
            left -= names.len();
            let deeper = at.components().count() < DEPTH && !is_among(&SHALLOW, &at);
            for (name, entry) in names.iter().filter(|_| deeper) {
                let path = at.join(name);
                let looked_into = !is_among(&PASSING, &path) && !beyond.contains(&path);
                if *entry == Entry::Directory && looked_into {
                    waiting.push_back(path);
                }
            }
            landmarks.listed.insert(at, names);
        }
        landmarks
    }

    /// What is known of a path without `.` and `..`.
    pub(super) fn of(&self, path: &Path) -> Known {
        let mut at = PathBuf::from("/");
        let mut components = path.components().filter_map(|component| match component {
            Component::Normal(name) => Some(name),
            _ => None,
        });
        while let Some(name) = components.next() {
            let Some(names) = self.listed.get(&at) else {
                return if at == Path::new("/") { Known::Unclear } else { Known::There(at) };
            };
            at.push(name);
            match names.get(name) {
                None => return Known::Missing,
                Some(Entry::Link) => return Known::Unclear,
                Some(Entry::Other) if components.next().is_some() => return Known::Missing,
                Some(Entry::Other) => break,
                Some(Entry::Directory) => {}
            }
        }
        Known::There(at)
    }

    /// Whether the host has what a profile hides.
    pub(super) fn has_hidden(&self, path: &Path) -> bool {
        self.hidden.contains(path)
    }

    /// A tree for tests: directories end with a slash; what is not named is not there.
    #[cfg(test)]
    pub(super) fn with(paths: &[&str], hidden: &[&str]) -> Self {
        let mut landmarks = Self::default();
        landmarks.listed.insert("/".into(), HashMap::new());
        for text in paths {
            let (path, entry) = match (text.strip_suffix('/'), text.strip_suffix('@')) {
                (Some(path), _) => (path, Entry::Directory),
                (_, Some(path)) => (path, Entry::Link),
                _ => (*text, Entry::Other),
            };
            let path = Path::new(path);
            let names = landmarks.listed.entry(path.parent().unwrap().to_owned()).or_default();
            names.insert(path.file_name().unwrap().to_owned(), entry);
        }
        landmarks.hidden = hidden.iter().map(PathBuf::from).collect();
        landmarks
    }
}

fn is_among(list: &[&str], path: &Path) -> bool {
    list.iter().any(|name| Path::new(name) == path)
}

/// The names in a directory; none where it cannot be listed or has too many. Nothing in it is looked at.
fn names_in(directory: &Path) -> Option<HashMap<OsString, Entry>> {
    let mut names = HashMap::new();
    for entry in fs::read_dir(directory).ok()? {
        let entry = entry.ok()?;
        let kind = match entry.file_type().ok()? {
            kind if kind.is_dir() => Entry::Directory,
            kind if kind.is_symlink() => Entry::Link,
            _ => Entry::Other,
        };
        if names.len() == NAMES_MAX {
            return None;
        }
        names.insert(entry.file_name(), kind);
    }
    Some(names)
}

/// Mount points of file systems that may keep one waiting (proc(5), mountinfo).
fn remote_mounts() -> BTreeSet<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().filter_map(remote_mount).collect()
}

fn remote_mount(line: &str) -> Option<PathBuf> {
    let (place, kind) = line.split_once(" - ")?;
    let kind = kind.split(' ').next()?;
    let at = place.split(' ').nth(4)?;
    // Blanks are written in octal; a path with one is not found in the tree and costs a listing at worst.
    (!LOCAL.contains(&kind)).then(|| PathBuf::from(at.replace("\\040", " ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_known_as_deep_as_was_looked() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for made in ["var/lib/dpkg/info", "srv", "proc/1", "tmp/x", "sys/class/net", "far/away", "home/a/b/c"]
        {
            fs::create_dir_all(root.join(made)).unwrap();
        }
        fs::write(root.join("var/file"), "").unwrap();
        std::os::unix::fs::symlink("var", root.join("link")).unwrap();
        let landmarks = Landmarks::below(root, &BTreeSet::from(["/far".into()]));
        let there = |path: &str| Known::There(path.into());
        for (path, expected) in [
            ("/var", there("/var")),
            ("/var/file", there("/var/file")),
            ("/var/file/x", Known::Missing),
            ("/var/none", Known::Missing),
            ("/none/x", Known::Missing),
            // Listed: two levels below the root. Not looked into: three.
            ("/var/lib/none", Known::Missing),
            ("/var/lib/dpkg/none", there("/var/lib/dpkg")),
            ("/home/a/b/none", there("/home/a/b")),
            ("/srv/none", Known::Missing),
            ("/link/file", Known::Unclear),
            ("/proc/none", there("/proc")),
            ("/tmp/none", there("/tmp")),
            ("/sys/none", Known::Missing),
            ("/sys/class/none", there("/sys/class")),
            ("/far/none", there("/far")),
        ] {
            assert_eq!(landmarks.of(Path::new(path)), expected, "{path}");
        }
        assert_eq!(Landmarks::default().of(Path::new("/x")), Known::Unclear);
    }

    #[test]
    fn a_directory_with_too_many_names_is_there_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let many = directory.path().join("many");
        fs::create_dir(&many).unwrap();
        for number in 0..=NAMES_MAX {
            fs::write(many.join(number.to_string()), "").unwrap();
        }
        let landmarks = Landmarks::below(directory.path(), &BTreeSet::new());
        assert_eq!(landmarks.of(Path::new("/many/none")), Known::There("/many".into()));
    }

    #[test]
    fn file_systems_that_may_keep_one_waiting_are_not_entered() {
        let line = |kind: &str| format!("36 35 98:0 / /mnt/data rw,noatime master:1 - {kind} server:/x rw");
        assert_eq!(remote_mount(&line("nfs4")), Some("/mnt/data".into()));
        assert_eq!(remote_mount(&line("fuse.sshfs")), Some("/mnt/data".into()));
        assert_eq!(remote_mount(&line("ext4")), None);
    }
}
