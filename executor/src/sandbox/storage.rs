//! A command's files on a host without namespaces: two directories under a root-owned one.
//!
//! Root makes them and removes them when they are empty. What is in them is deleted by a process with the
//! command's own rights, so that no link in it can make root touch anything else.

use super::{
    caps, fds, ids, init,
    plan::Place,
    steps::{About, Fault},
};
use crate::{
    config::Account,
    sys::{
        clone::{CloneOptions, Cloned, clone_process},
        process::{exit_now, kill_everything_of_own_uid, set_nice, wait},
    },
};
use nix::{
    fcntl::OFlag,
    unistd::{Gid, Uid, chown},
};
use std::{
    ffi::OsString,
    fs::{self, DirBuilder, OpenOptions, Permissions},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

/// The directories of one command.
#[derive(Debug)]
pub struct Storage {
    base: PathBuf,
    /// Elsewhere, and stays.
    workspace: Option<PathBuf>,
}

impl Storage {
    /// Makes the directories of a job below `parent`, which is root's; its workspace only where it has no named
    /// one.
    ///
    /// # Errors
    /// The path that could not be made.
    pub fn make(parent: &Path, job: u64, owner: &Account, workspace: Option<&Path>) -> Result<Self, Fault> {
        let storage =
            Self { base: parent.join(format!("{job:016x}")), workspace: workspace.map(Path::to_owned) };
        make_passage(parent, owner)?;
        make_passage(&storage.base, owner)?;
        storage.own().iter().try_for_each(|path| make_for(path, owner))?;
        Ok(storage)
    }

    /// What goes with the command.
    fn own(&self) -> Vec<PathBuf> {
        let tmp = self.base.join("tmp");
        if self.workspace.is_some() { vec![tmp] } else { vec![self.base.join("home"), tmp] }
    }

    /// Ends and deletes what an earlier monitor left below `parent`.
    ///
    /// # Errors
    /// The directory that could not be listed.
    pub fn sweep(parent: &Path, owner: &Account, alone: bool) -> Result<(), Fault> {
        let entries = match fs::read_dir(parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.about(parent.display())?,
        };
        for entry in entries {
            let storage = Self { base: entry.about(parent.display())?.path(), workspace: None };
            let cleaner = storage.start_cleaner(owner, alone)?;
            wait(cleaner.as_fd())?;
            // It is in nobody's way: the next command has a directory of its own.
            if let Err(error) = storage.remove() {
                crate::log!("files of an ended command are left: {}: {error}", storage.base.display());
            }
        }
        Ok(())
    }

    /// The paths as the command sees them.
    pub fn place(&self) -> Place {
        let home = self.workspace.clone().unwrap_or_else(|| self.base.join("home"));
        Place { home, tmp: self.base.join("tmp") }
    }

    /// Removes the directories, which must be empty.
    ///
    /// # Errors
    /// `ENOTEMPTY` when something is left in them.
    pub fn remove(&self) -> io::Result<()> {
        for path in self.own().iter().chain([&self.base]) {
            match fs::remove_dir(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Starts a process with the command's rights that ends whatever still runs under its uid, when
    /// `alone` says that nothing else may, and deletes what the command left.
    ///
    /// # Errors
    /// errno of clone(2).
    pub fn start_cleaner(&self, owner: &Account, alone: bool) -> Result<OwnedFd, Fault> {
        start_as(owner, alone, || self.own().iter().for_each(|path| delete_content(path)))
    }
}

/// Who may go through a directory: root, and by its group the commands' user.
const PASSAGE: u32 = 0o710;

/// Makes a directory of root's through which the commands' user goes to what is its own, and nobody else: a command can
/// make a program there that anybody may run and that runs as its owner (set-user-ID), which has to be out of reach.
///
/// # Errors
/// The path that could not be made.
pub fn make_passage(path: &Path, owner: &Account) -> Result<(), Fault> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other.about(path.display())?,
    }
    let meta = fs::symlink_metadata(path).about(path.display())?;
    if meta.gid() != owner.gid() {
        chown(path, None, Some(Gid::from_raw(owner.gid()))).about(path.display())?;
    }
    if meta.mode() & 0o7777 != PASSAGE {
        fs::set_permissions(path, Permissions::from_mode(PASSAGE)).about(path.display())?;
    }
    Ok(())
}

/// Makes a directory that is the user's and nobody else's.
///
/// # Errors
/// The path that could not be made.
pub fn make_for(path: &Path, owner: &Account) -> Result<(), Fault> {
    DirBuilder::new().mode(0o700).create(path).about(path.display())?;
    let (uid, gid) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
    chown(path, Some(uid), Some(gid)).about(path.display())
}

/// Starts a process with the user's rights that deletes what is in a directory of the user's.
///
/// # Errors
/// errno of clone(2).
pub fn start_deleting(directory: &Path, owner: &Account) -> Result<OwnedFd, Fault> {
    start_as(owner, false, || delete_content(directory))
}

/// Starts a process that has nothing but the user's rights; it ends everything else of that uid first when `alone`
/// says that nothing else may run.
///
/// # Errors
/// errno of clone(2).
pub fn start_as(owner: &Account, alone: bool, work: impl FnOnce()) -> Result<OwnedFd, Fault> {
    start(|| confine(owner, &[], caps::clear_all_sets), alone, work)
}

/// Starts a process that has the user's rights and may read every directory: what its owner has closed hides nothing
/// from a count. It changes nothing, and has the descriptors that it keeps to say what it found.
///
/// # Errors
/// errno of clone(2).
pub fn start_counting(owner: &Account, keep: &[RawFd], work: impl FnOnce()) -> Result<OwnedFd, Fault> {
    start(|| confine(owner, keep, caps::keep_search), false, work)
}

fn start(
    confine: impl FnOnce() -> Result<(), Fault>,
    alone: bool,
    work: impl FnOnce(),
) -> Result<OwnedFd, Fault> {
    match clone_process(CloneOptions { namespaces: 0, cgroup: None })? {
        Cloned::Parent { pidfd, .. } => Ok(pidfd),
        Cloned::Child => {
            let confined = confine();
            if confined.is_ok() {
                if alone {
                    kill_everything_of_own_uid();
                } else {
                    // Nobody waits for it; where that cannot be set, it is done all the same.
                    let _ = set_nice(LATER);
                }
                work();
            }
            exit_now(i32::from(confined.is_err()))
        }
    }
}

fn confine(owner: &Account, keep: &[RawFd], last: impl FnOnce() -> Result<u64, Fault>) -> Result<(), Fault> {
    fds::close_all_but(keep)?;
    caps::drop_bounding_set()?;
    caps::lock_securebits()?;
    ids::drop_groups()?;
    ids::become_account(owner)?;
    last()?;
    init::no_new_privs()
}

/// Served after commands and whoever starts them, and before it would take so long that it is given up (sched(7)).
const LATER: i32 = 10;

/// Failures after which what is left stays: somebody must be at work in it.
const FAILURES_MAX: u32 = 1000;

/// Deletes what is in a directory, also below directories that their owner has closed. What cannot be
/// deleted stays; root then finds the directory not empty.
///
/// It goes down and up by descriptors, one at a time: a path can be deeper than any path that the kernel takes
/// (PATH_MAX), and than this process has stack for.
fn delete_content(directory: &Path) {
    let Ok(mut at) = Opened::at(directory) else { return };
    let mut names = Vec::new();
    let mut failures = 0;
    while failures < FAILURES_MAX {
        let moved = match at.delete_all_but_a_directory() {
            Some(name) => Opened::at(&at.path().join(&name)).inspect(|_| names.push(name)),
            None => {
                let Some(name) = names.pop() else { return };
                Opened::at(&at.path().join("..")).inspect(|above| {
                    failures += u32::from(fs::remove_dir(above.path().join(name)).is_err());
                })
            }
        };
        match moved {
            Ok(next) => at = next,
            Err(_) => failures += 1,
        }
    }
}

/// A directory that is open, and so has a short path.
struct Opened(OwnedFd);

impl Opened {
    /// Opens it, after its owner has opened it to itself.
    fn at(path: &Path) -> io::Result<Self> {
        let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
        let flags = (OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        Ok(Self(opened.into()))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Deletes what is in it up to the first directory with something in it, whose name is given.
    fn delete_all_but_a_directory(&self) -> Option<OsString> {
        let entries = fs::read_dir(self.path()).into_iter().flatten().flatten();
        entries.map(|entry| (entry.file_type().is_ok_and(|kind| kind.is_dir()), entry)).find_map(
            |(is_directory, entry)| {
                let deleted = match is_directory {
                    true => fs::remove_dir(entry.path()),
                    false => fs::remove_file(entry.path()),
                };
                (is_directory && deleted.is_err()).then(|| entry.file_name())
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn deeper_than_any_path_and_closed_it_is_deleted_and_links_are_not_followed() {
        let top = std::env::temp_dir().join(format!("cordon-storage-{}", std::process::id()));
        let kept = top.join("kept");
        fs::create_dir_all(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        fs::create_dir_all(top.join("content")).unwrap();
        let mut at = Opened::at(&top.join("content")).unwrap();
        let name = "d".repeat(200);
        for _ in 0..100 {
            fs::create_dir(at.path().join(&name)).unwrap();
            fs::create_dir(at.path().join("beside")).unwrap();
            fs::write(at.path().join("beside/file"), "x").unwrap();
            symlink(&kept, at.path().join("link")).unwrap();
            let next = Opened::at(&at.path().join(&name)).unwrap();
            fs::set_permissions(at.path(), Permissions::from_mode(0o000)).unwrap();
            at = next;
        }
        delete_content(&top.join("content"));
        fs::remove_dir(top.join("content")).unwrap();
        assert!(kept.join("file").exists());
        fs::remove_dir_all(top).unwrap();
    }
}
