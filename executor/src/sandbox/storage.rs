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
    sys::process::{CloneOptions, Cloned, clone_process, exit_now, kill_everything_of_own_uid, wait},
};
use nix::unistd::{Gid, Uid, chown};
use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{DirBuilderExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

/// The directories of one command.
#[derive(Debug)]
pub struct Storage {
    base: PathBuf,
}

impl Storage {
    /// Makes the directories of a job below `parent`, which is root's.
    ///
    /// # Errors
    /// The path that could not be made.
    pub fn make(parent: &Path, job: u64, owner: &Account) -> Result<Self, Fault> {
        let storage = Self { base: parent.join(format!("{job:016x}")) };
        DirBuilder::new().recursive(true).mode(0o711).create(&storage.base).about(storage.base.display())?;
        let place = storage.place();
        for path in [&place.home, &place.tmp] {
            DirBuilder::new().mode(0o700).create(path).about(path.display())?;
            let (uid, gid) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
            chown(path, Some(uid), Some(gid)).about(path.display())?;
        }
        Ok(storage)
    }

    /// Ends and deletes what an earlier monitor left below `parent`.
    ///
    /// # Errors
    /// The directory that could not be listed or removed.
    pub fn sweep(parent: &Path, owner: &Account, alone: bool) -> Result<(), Fault> {
        let entries = match fs::read_dir(parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.about(parent.display())?,
        };
        for entry in entries {
            let storage = Self { base: entry.about(parent.display())?.path() };
            let cleaner = storage.start_cleaner(owner, alone)?;
            wait(cleaner.as_fd())?;
            storage.remove().about(storage.base.display())?;
        }
        Ok(())
    }

    /// The paths as the command sees them.
    pub fn place(&self) -> Place {
        Place { home: self.base.join("home"), tmp: self.base.join("tmp") }
    }

    /// Removes the directories, which must be empty.
    ///
    /// # Errors
    /// `ENOTEMPTY` when something is left in them.
    pub fn remove(&self) -> io::Result<()> {
        let place = self.place();
        for path in [&place.home, &place.tmp, &self.base] {
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
    /// errno of clone3(2).
    pub fn start_cleaner(&self, owner: &Account, alone: bool) -> Result<OwnedFd, Fault> {
        match clone_process(CloneOptions { namespaces: 0, cgroup: None })? {
            Cloned::Parent { pidfd, .. } => Ok(pidfd),
            Cloned::Child => exit_now(i32::from(self.clean(owner, alone).is_err())),
        }
    }

    fn clean(&self, owner: &Account, alone: bool) -> Result<(), Fault> {
        fds::close_all_but(&[])?;
        caps::drop_bounding_set()?;
        caps::lock_securebits()?;
        ids::drop_groups()?;
        ids::become_account(owner)?;
        caps::clear_all_sets()?;
        init::no_new_privs()?;
        if alone {
            kill_everything_of_own_uid();
        }
        let place = self.place();
        for path in [&place.home, &place.tmp] {
            delete_content(path);
        }
        Ok(())
    }
}

/// Deletes what is in a directory, also below directories that their owner has closed. What cannot be
/// deleted stays; root then finds the directory not empty.
fn delete_content(directory: &Path) {
    let _ = fs::set_permissions(directory, Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            delete_content(&path);
            let _ = fs::remove_dir(&path);
        } else {
            let _ = fs::remove_file(&path);
        }
    }
}
