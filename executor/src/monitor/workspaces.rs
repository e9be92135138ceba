//! Named workspaces: directories below the state directory that stay when a command ends.
//!
//! `workspaces/UID/NAME`: what holds a workspace is root's, so that nothing that a command does in it can put
//! anything else in its place. Root makes, lists, renames and removes it by name and never looks into it; what is
//! in it is counted and deleted by a process with the command's rights.

use super::{
    link::{Deletion, LaunchRefusal},
    looks::{Answer, Looks},
    walk::{Caps, Free},
};
use crate::{
    config::Account,
    sandbox::{
        errand::tree::Size,
        steps::{About, Fault},
        storage::{make_for, start_deleting},
    },
    sys::{memfd, process::try_wait},
};
use cordon_protocol::limits;
use std::{
    fmt::Write as _,
    fs::{self, DirBuilder, File, Metadata, Permissions},
    io::{self, Seek},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::Instant,
};

/// Begins the names of those that are being deleted; no workspace's name begins with a dot.
const DELETED: &str = ".deleted-";
/// What its owner may do in a directory.
const OWNERS: u32 = 0o700;
/// How often the deletion of one is tried before it is left to the next start.
const TRIES: u32 = 10;
/// Processes that delete at once; other deletions wait for them.
const CLEANERS_MAX: usize = 4;

/// Every peer's workspaces.
#[derive(Debug)]
pub struct Workspaces {
    base: PathBuf,
    owner: Account,
    /// Bytes that must be free where they lie.
    floor: u64,
    deleting: Vec<Deleting>,
    deleted: u64,
    looks: Looks,
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
        Self { base, owner: owner.clone(), floor, deleting, deleted, looks: Looks::default() }
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

    /// The directory of a peer's workspace, made where there is none of that name, and how much is in it.
    ///
    /// # Errors
    /// A refusal, or the path that could not be made or measured.
    pub(super) fn open(&mut self, uid: u32, name: &str, caps: Caps) -> Result<(PathBuf, Size), Unusable> {
        if !limits::is_workspace_name(name) {
            return Err(Unusable::Refused(LaunchRefusal::BadWorkspace));
        }
        let path = self.path(uid, name);
        let mut is_new = false;
        let mut made = || -> Result<Option<LaunchRefusal>, Fault> {
            make_directory(&self.base)?;
            if let Some(free) = self.lacks_space()? {
                return Ok(Some(LaunchRefusal::DiskFull { free, floor: self.floor }));
            }
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() && meta.uid() == self.owner.uid() => {
                    return open_to_owner(&path, &meta).map(|()| None);
                }
                Ok(_) => return Err(Fault::new(nix::errno::Errno::ENOTDIR, path.to_string_lossy())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).about(path.display()),
            }
            make_directory(&self.base.join(uid.to_string()))?;
            if self.names(uid)?.len() >= limits::WORKSPACES_PER_PEER {
                return Ok(Some(LaunchRefusal::TooManyWorkspaces));
            }
            is_new = true;
            make_for(&path, &self.owner).map(|()| None)
        };
        let made = made();
        if is_new {
            let free = Free::at(&self.base).unwrap_or_default();
            self.looks.remember(uid, name, (Size::default(), free), caps);
        }
        match made {
            Ok(None) => match self.looks.ask(uid, name, caps) {
                Answer::Holds(size) => Ok((path, size)),
                Answer::Wait | Answer::Failed | Answer::Unknown => {
                    let text = format!("how much is in {} cannot be told", path.display());
                    Err(Unusable::Failed(Fault::new(nix::errno::Errno::ETIMEDOUT, text)))
                }
            },
            Ok(Some(refusal)) => Err(Unusable::Refused(refusal)),
            Err(fault) => Err(Unusable::Failed(fault)),
        }
    }

    /// Bytes that are free, where they are fewer than must be.
    ///
    /// # Errors
    /// errno of statvfs(3).
    pub(super) fn lacks_space(&self) -> Result<Option<u64>, Fault> {
        let free = Free::at(&self.base).about(self.base.display())?.bytes;
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
        self.looks.forget(uid, name);
        self.deleting.push(Deleting { path: gone, cleaner: None, tries: 0 });
        Deletion::Done
    }

    /// Whether a launch in a workspace has to wait until it is known how much is in it: before the first one since it
    /// was forgotten; and after an earlier command, one that `ends` or has, where what the disk has lost says that it
    /// may have left too much, or another one has started since. What `adds` something is given just the room that is
    /// left, so it waits in any case.
    /// One that has waited and is not `patient` any more goes on with what is known.
    pub(super) fn awaits_look(
        &mut self,
        (uid, name): (u32, &str),
        caps: Caps,
        ends: bool,
        adds: bool,
        patient: bool,
    ) -> bool {
        let path = self.path(uid, name);
        match self.looks.ask(uid, name, caps) {
            Answer::Wait => true,
            // What is no workspace is refused, and one that is not there is made.
            Answer::Unknown if !limits::is_workspace_name(name) || !path.is_dir() => false,
            Answer::Failed => false,
            Answer::Unknown => {
                self.looks.look((uid, name), path, caps, true, Instant::now());
                true
            }
            Answer::Holds(_) => {
                if !patient || !ends && !self.looks.is_looking(uid, name) {
                    return false;
                }
                let free = Free::at(&self.base).unwrap_or_default();
                adds || self.looks.may_be_over(uid, name, caps, free) || !self.looks.may_go_ahead(uid, name)
            }
        }
    }

    /// Nothing of a command in it is left: what it left there is counted.
    pub(super) fn look(&mut self, uid: u32, name: &str, caps: Caps) {
        let path = self.path(uid, name);
        if path.is_dir() {
            self.looks.look((uid, name), path, caps, false, Instant::now());
        }
    }

    /// A command's watch has found so much in it.
    pub(super) fn remember(&mut self, uid: u32, name: &str, found: (Size, Free), caps: Caps) {
        self.looks.remember(uid, name, found, caps);
    }

    /// What becomes readable when a deletion or a walk has come to an end.
    pub(super) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let cleaners = self.deleting.iter().filter_map(|one| one.cleaner.as_ref()).map(AsFd::as_fd);
        cleaners.chain(self.looks.watched())
    }

    /// When [`Self::go_on`] is to be called at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.looks.deadline()
    }

    /// Goes on with what is being deleted and walked through.
    pub(super) fn go_on(&mut self) {
        self.looks.go_on(&self.owner, Instant::now());
        let owner = &self.owner;
        let mut room =
            CLEANERS_MAX.saturating_sub(self.deleting.iter().filter(|one| one.cleaner.is_some()).count());
        self.deleting.retain_mut(|one| !one.is_done(owner, &mut room));
    }
}

impl Deleting {
    /// Whether it is gone, or given up; takes one of so many places for a process while that is at work.
    fn is_done(&mut self, owner: &Account, room: &mut usize) -> bool {
        if let Some(cleaner) = &self.cleaner {
            if try_wait(cleaner.as_fd()).is_none() {
                return false;
            }
            self.cleaner = None;
            *room += 1;
        }
        if *room == 0 {
            return false;
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
            Ok(cleaner) => {
                self.cleaner = Some(cleaner);
                *room -= 1;
            }
            Err(fault) => {
                crate::log!("{} is left until the next start: {}", self.path.display(), fault.errno.desc());
                return true;
            }
        }
        false
    }
}

/// A directory that everybody may pass and only root may change.
fn make_directory(path: &Path) -> Result<(), Fault> {
    match DirBuilder::new().mode(0o711).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.about(path.display()),
    }
}

/// Lets the owner in again where a command has closed its home to itself: nothing could run there any more. The
/// directory is what `meta` says, as nobody but root can put another one in its place.
fn open_to_owner(path: &Path, meta: &Metadata) -> Result<(), Fault> {
    let mode = meta.mode() & 0o7777;
    if mode & OWNERS == OWNERS {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode | OWNERS)).about(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read, os::unix::fs::symlink};

    const CAPS: Caps = Caps { bytes: 1 << 20, files: 10 };

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
        let (mut workspaces, directory) = workspaces("made");
        let (path, size) = workspaces.open(1000, "work", CAPS).unwrap();
        assert_eq!(size, Size::default());
        fs::write(path.join("file"), "x").unwrap();
        assert_eq!(workspaces.open(1000, "work", CAPS).unwrap(), (path.clone(), size));
        let (other, _) = workspaces.open(1001, "work", CAPS).unwrap();
        assert!(path.join("file").exists() && !other.join("file").exists());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o7777, 0o711);
        for bad in ["", "..", "a/b", ".deleted-1"] {
            let refused = workspaces.open(1000, bad, CAPS).unwrap_err();
            assert!(matches!(refused, Unusable::Refused(LaunchRefusal::BadWorkspace)), "{bad}");
        }
        // What root did not make there is not used.
        symlink("/etc", directory.join("workspaces/1000/link")).unwrap();
        assert!(matches!(workspaces.open(1000, "link", CAPS), Err(Unusable::Failed(_))));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let (mut workspaces, directory) = workspaces("many");
        for number in 0..limits::WORKSPACES_PER_PEER {
            workspaces.open(1, &format!("w{number}"), CAPS).unwrap();
        }
        let refused = workspaces.open(1, "more", CAPS).unwrap_err();
        assert!(matches!(refused, Unusable::Refused(LaunchRefusal::TooManyWorkspaces)));
        assert!(workspaces.open(1, "w7", CAPS).is_ok() && workspaces.open(2, "more", CAPS).is_ok());
        workspaces.floor = u64::MAX;
        let refused = workspaces.open(1, "w7", CAPS).unwrap_err();
        let full = |refusal| matches!(refusal, LaunchRefusal::DiskFull { floor: u64::MAX, free } if free > 0);
        assert!(matches!(refused, Unusable::Refused(refusal) if full(refusal)));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_list_has_names_in_order_and_a_deleted_one_is_not_among_them() {
        let (mut workspaces, directory) = workspaces("list");
        for name in ["b", "a"] {
            workspaces.open(5, name, CAPS).unwrap();
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
        workspaces.go_on();
        assert!(workspaces.deleting.is_empty());
        assert_eq!(fs::read_dir(directory.join("workspaces/5")).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }
}
