//! Named workspaces: directories below the state directory that stay when a command ends.
//!
//! `workspaces/UID/NAME`: what holds a workspace is root's, so that nothing that a command does in it can put
//! anything else in its place. Root makes, lists, renames and removes it by name and never looks into it; what is
//! in it is counted and deleted by a process with the command's rights.

use super::link::{Deletion, LaunchRefusal};
use crate::{
    config::Account,
    sandbox::{
        steps::{About, Fault},
        storage::{make_for, start_deleting},
    },
    sys::{memfd, process::try_wait},
};
use cordon_protocol::limits;
use nix::sys::statvfs::statvfs;
use std::{
    fmt::Write as _,
    fs::{self, DirBuilder, File},
    io::{self, Seek},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

/// Begins the names of those that are being deleted; no workspace's name begins with a dot.
const DELETED: &str = ".deleted-";
/// How often the deletion of one is tried before it is left to the next start.
const TRIES: u32 = 10;

/// Every peer's workspaces.
#[derive(Debug)]
pub struct Workspaces {
    base: PathBuf,
    owner: Account,
    /// Bytes that must be free where they lie.
    floor: u64,
    deleting: Vec<Deleting>,
    deleted: u64,
}

/// One that is no longer there by its name.
#[derive(Debug)]
struct Deleting {
    path: PathBuf,
    /// Empties it; none between two tries.
    cleaner: Option<OwnedFd>,
    tries: u32,
}

/// Why a workspace cannot be used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// Not allowed.
    Refused(LaunchRefusal),
    /// Could not be made.
    Failed(Fault),
}

impl Workspaces {
    /// Those below a state directory, for commands of `owner`; goes on deleting what was being deleted when an
    /// earlier monitor ended.
    pub fn new(state_dir: &Path, owner: &Account, floor: u64) -> Self {
        let base = state_dir.join("workspaces");
        let mut deleting = Vec::new();
        for peer in fs::read_dir(&base).into_iter().flatten().flatten() {
            let left = fs::read_dir(peer.path()).into_iter().flatten().flatten();
            let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(DELETED));
            deleting.extend(left.map(|entry| Deleting { path: entry.path(), cleaner: None, tries: 0 }));
        }
        // Names of this run come after those that are left.
        let deleted = deleting.len() as u64;
        Self { base, owner: owner.clone(), floor, deleting, deleted }
    }

    /// So many bytes must be free from now on.
    pub(super) fn set_floor(&mut self, bytes: u64) {
        self.floor = bytes;
    }

    /// Bytes that must be free.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    fn path(&self, uid: u32, name: &str) -> PathBuf {
        self.base.join(uid.to_string()).join(name)
    }

    /// The directory of a peer's workspace, made where there is none of that name.
    ///
    /// # Errors
    /// A refusal, or the path that could not be made.
    pub(super) fn open(&self, uid: u32, name: &str) -> Result<PathBuf, Unusable> {
        if !limits::is_workspace_name(name) {
            return Err(Unusable::Refused(LaunchRefusal::BadWorkspace));
        }
        let path = self.path(uid, name);
        let made = || -> Result<Option<LaunchRefusal>, Fault> {
            make_directory(&self.base)?;
            if let Some(free) = self.lacks_space()? {
                return Ok(Some(LaunchRefusal::DiskFull { free, floor: self.floor }));
            }
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() && meta.uid() == self.owner.uid() => return Ok(None),
                Ok(_) => return Err(Fault::new(nix::errno::Errno::ENOTDIR, path.to_string_lossy())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).about(path.display()),
            }
            make_directory(&self.base.join(uid.to_string()))?;
            if self.names(uid)?.len() >= limits::WORKSPACES_PER_PEER {
                return Ok(Some(LaunchRefusal::TooManyWorkspaces));
            }
            make_for(&path, &self.owner).map(|()| None)
        };
        match made() {
            Ok(None) => Ok(path),
            Ok(Some(refusal)) => Err(Unusable::Refused(refusal)),
            Err(fault) => Err(Unusable::Failed(fault)),
        }
    }

    /// Bytes that are free, where they are fewer than must be.
    ///
    /// # Errors
    /// errno of statvfs(3).
    pub(super) fn lacks_space(&self) -> Result<Option<u64>, Fault> {
        let free = free_bytes(&self.base).about(self.base.display())?;
        Ok(Some(free).filter(|free| *free < self.floor))
    }

    fn names(&self, uid: u32) -> Result<Vec<String>, Fault> {
        let directory = self.base.join(uid.to_string());
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.about(directory.display())?,
        };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<_> = names.filter(|name| limits::is_workspace_name(name)).collect();
        names.sort();
        Ok(names)
    }

    /// A memory file with a line `NAME SECONDS` for each workspace of a peer.
    ///
    /// # Errors
    /// The directory that could not be read.
    pub(super) fn list(&self, uid: u32) -> Result<OwnedFd, Fault> {
        let mut text = String::new();
        for name in self.names(uid)? {
            let meta = fs::symlink_metadata(self.path(uid, &name));
            let modified = meta.map_or(0, |meta| meta.mtime());
            let _ = writeln!(text, "{name} {modified}");
        }
        let mut list = File::from(memfd::sealed(text.as_bytes())?);
        // The server may not do so itself.
        list.rewind()?;
        Ok(list.into())
    }

    /// Takes a workspace away from its name and begins to delete it. The caller knows that nothing uses it.
    pub(super) fn delete(&mut self, uid: u32, name: &str) -> Deletion {
        let path = self.path(uid, name);
        if !limits::is_workspace_name(name) || !path.is_dir() {
            return Deletion::NotFound;
        }
        let gone = loop {
            self.deleted += 1;
            let gone = path.with_file_name(format!("{DELETED}{}", self.deleted));
            if fs::symlink_metadata(&gone).is_err() {
                break gone;
            }
        };
        if let Err(error) = fs::rename(&path, &gone) {
            crate::log!("workspace {} cannot be deleted: {error}", path.display());
            return Deletion::Failed;
        }
        self.deleting.push(Deleting { path: gone, cleaner: None, tries: 0 });
        Deletion::Done
    }

    /// What becomes readable when a deletion has come to an end.
    pub(super) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.deleting.iter().filter_map(|one| one.cleaner.as_ref()).map(AsFd::as_fd)
    }

    /// Goes on with what is being deleted.
    pub(super) fn go_on_deleting(&mut self) {
        let owner = &self.owner;
        self.deleting.retain_mut(|one| !one.is_done(owner));
    }
}

impl Deleting {
    /// Whether it is gone, or given up.
    fn is_done(&mut self, owner: &Account) -> bool {
        if let Some(cleaner) = &self.cleaner {
            if try_wait(cleaner.as_fd()).is_none() {
                return false;
            }
            self.cleaner = None;
        }
        match fs::remove_dir(&self.path) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(error) if self.tries == TRIES => {
                crate::log!("{} is left until the next start: {error}", self.path.display());
                return true;
            }
            Err(_) => {}
        }
        self.tries += 1;
        match start_deleting(&self.path, owner) {
            Ok(cleaner) => self.cleaner = Some(cleaner),
            Err(fault) => {
                crate::log!("{} is left until the next start: {}", self.path.display(), fault.errno.desc());
                return true;
            }
        }
        false
    }
}

/// Bytes that are free for others than root.
///
/// # Errors
/// errno of statvfs(3).
pub(super) fn free_bytes(path: &Path) -> nix::Result<u64> {
    statvfs(path).map(|stat| stat.blocks_available().saturating_mul(stat.fragment_size()))
}

/// A directory that everybody may pass and only root may change.
fn make_directory(path: &Path) -> Result<(), Fault> {
    match DirBuilder::new().mode(0o711).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.about(path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read, os::unix::fs::symlink};

    fn workspaces(name: &str) -> (Workspaces, PathBuf) {
        let directory = std::env::temp_dir().join(format!("cordon-workspaces-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let own = nix::unistd::getuid().as_raw();
        (
            Workspaces::new(&directory, &Account::of("execuser", own, nix::unistd::getgid().as_raw()), 1),
            directory,
        )
    }

    #[test]
    fn a_workspace_is_made_once_and_kept_apart_by_peer() {
        let (workspaces, directory) = workspaces("made");
        let path = workspaces.open(1000, "work").unwrap();
        fs::write(path.join("file"), "x").unwrap();
        assert_eq!(workspaces.open(1000, "work").unwrap(), path);
        let other = workspaces.open(1001, "work").unwrap();
        assert!(path.join("file").exists() && !other.join("file").exists());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o7777, 0o711);
        for bad in ["", "..", "a/b", ".deleted-1"] {
            let refused = workspaces.open(1000, bad).unwrap_err();
            assert!(matches!(refused, Unusable::Refused(LaunchRefusal::BadWorkspace)), "{bad}");
        }
        // What root did not make there is not used.
        symlink("/etc", directory.join("workspaces/1000/link")).unwrap();
        assert!(matches!(workspaces.open(1000, "link"), Err(Unusable::Failed(_))));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let (mut workspaces, directory) = workspaces("many");
        for number in 0..limits::WORKSPACES_PER_PEER {
            workspaces.open(1, &format!("w{number}")).unwrap();
        }
        let refused = workspaces.open(1, "more").unwrap_err();
        assert!(matches!(refused, Unusable::Refused(LaunchRefusal::TooManyWorkspaces)));
        assert!(workspaces.open(1, "w7").is_ok() && workspaces.open(2, "more").is_ok());
        workspaces.floor = u64::MAX;
        let refused = workspaces.open(1, "w7").unwrap_err();
        let full = |refusal| matches!(refusal, LaunchRefusal::DiskFull { floor: u64::MAX, free } if free > 0);
        assert!(matches!(refused, Unusable::Refused(refusal) if full(refusal)));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_list_has_names_in_order_and_a_deleted_one_is_not_among_them() {
        let (mut workspaces, directory) = workspaces("list");
        for name in ["b", "a"] {
            workspaces.open(5, name).unwrap();
        }
        let names = |workspaces: &Workspaces| {
            let mut text = String::new();
            File::from(workspaces.list(5).unwrap()).read_to_string(&mut text).unwrap();
            let name = |line: &str| line.split(' ').next().unwrap().to_owned();
            text.lines().map(name).collect::<Vec<_>>()
        };
        assert_eq!(names(&workspaces), ["a", "b"]);
        assert_eq!(workspaces.delete(5, "a"), Deletion::Done);
        assert_eq!(names(&workspaces), ["b"]);
        for missing in ["a", "c", "..", ""] {
            assert_eq!(workspaces.delete(5, missing), Deletion::NotFound, "{missing}");
        }
        assert_eq!(workspaces.delete(6, "b"), Deletion::NotFound, "another peer's");
        // An empty one needs nobody to empty it.
        workspaces.go_on_deleting();
        assert!(workspaces.deleting.is_empty());
        assert_eq!(fs::read_dir(directory.join("workspaces/5")).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }
}
