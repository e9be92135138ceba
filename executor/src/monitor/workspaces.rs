//! Named workspaces: directories below the state directory that stay when a command ends.
//!
//! `workspaces/UID/NAME`: what holds a workspace is root's, so that nothing that a command does in it can put
//! anything else in its place. Root makes, lists, renames and removes it by name and never looks into it; what is
//! in it is counted and deleted by a process with the command's rights.

use super::{
    link::{Deletion, JobId, LaunchRefusal},
    looks::{Answer, Looks},
    room::{Room, Use},
    walk::{Caps, Count, Free},
};
use crate::{
    config::Account,
    sandbox::{
        errand::tree::Size,
        steps::{About, Fault},
        storage::{make_for, make_passage, start_deleting},
    },
    sys::{memfd, process::try_wait},
};
use cordon_protocol::limits;
use std::{
    fmt::Write as _,
    fs::{self, File, Metadata, Permissions},
    io::{self, Seek},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::Instant,
};

/// Begins the names of those that are being deleted; no workspace's name begins with a dot.
const DELETED: &str = ".deleted-";
/// Mode of a workspace.
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
    room: Room,
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
        // What an earlier version made let everybody through.
        if base.is_dir()
            && let Err(fault) = make_passage(&base, owner)
        {
            crate::log!("{}: {}", fault.detail, fault.errno.desc());
        }
        let mut deleting = Vec::new();
        for peer in fs::read_dir(&base).into_iter().flatten().flatten() {
            let left = fs::read_dir(peer.path()).into_iter().flatten().flatten();
            let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(DELETED));
            deleting.extend(left.map(|entry| Deleting { path: entry.path(), cleaner: None, tries: 0 }));
        }
        // Names of this run come after those that are left.
        let deleted = deleting.len() as u64;
        Self {
            base,
            owner: owner.clone(),
            floor,
            deleting,
            deleted,
            looks: Looks::default(),
            room: Room::default(),
        }
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
            make_passage(&self.base, &self.owner)?;
            if let Some(free) = self.lacks_space()? {
                return Ok(Some(LaunchRefusal::DiskFull { free, floor: self.floor }));
            }
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() && meta.uid() == self.owner.uid() => {
                    return give_back(&path, &meta).map(|()| None);
                }
                Ok(_) => return Err(Fault::new(nix::errno::Errno::ENOTDIR, path.to_string_lossy())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).about(path.display()),
            }
            make_passage(&self.base.join(uid.to_string()), &self.owner)?;
            if self.names(uid)?.len() >= limits::WORKSPACES_PER_PEER {
                return Ok(Some(LaunchRefusal::TooManyWorkspaces));
            }
            is_new = true;
            make_for(&path, &self.owner).map(|()| None)
        };
        let made = made();
        if is_new {
            let free = Free::at(&self.base).unwrap_or_default();
            let (size, most, since) = (Size::default(), caps.enough(), Instant::now());
            self.looks.remember(uid, name, Count { size, free, most, since });
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
        self.room.forget(uid, name);
        self.deleting.push(Deleting { path: gone, cleaner: None, tries: 0 });
        Deletion::Done
    }

    /// Whether a launch in a workspace has to wait until it is known how much is in it: before the first one since it
    /// was forgotten; and after an earlier command, one that `ends` or has, where what the disk has lost says that it
    /// may have left too much, or another one has started since. What `adds` something is given just the room that is
    /// left, so it waits in any case, also until what others were given is counted.
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
                let looking = self.looks.is_looking(uid, name);
                match self.room.used(uid, name).filter(|_| adds) {
                    Some(Use::Over) if !looking => {
                        self.looks.look((uid, name), path, caps, true, Instant::now());
                        return true;
                    }
                    Some(_) => return true,
                    None => {}
                }
                if !patient || !ends && !looking {
                    return false;
                }
                let free = Free::at(&self.base).unwrap_or_default();
                adds || self.looks.may_be_over(uid, name, caps, free) || !self.looks.may_go_ahead(uid, name)
            }
        }
    }

    /// Gives a job that puts something in the room that is left, less what others were given.
    pub(super) fn give_room(
        &mut self,
        (uid, name): (u32, &str),
        job: JobId,
        left: Size,
        until_exec: bool,
    ) -> Size {
        self.room.give((uid, name.to_owned()), job, left, until_exec)
    }

    /// A job's program was executed, or its process has ended: it puts in no more.
    pub(super) fn takes_no_more(&mut self, job: JobId, executed: bool) {
        self.room.end(job, executed, Instant::now());
    }

    /// Files after which a walk need not go on where this one is not to be counted anew for others.
    pub(super) fn enough(&self, uid: u32, name: &str, caps: Caps) -> u64 {
        self.looks.enough(uid, name, caps)
    }

    /// Nothing of a command in it is left: what it left there is counted.
    pub(super) fn look(&mut self, uid: u32, name: &str, caps: Caps) {
        let path = self.path(uid, name);
        if path.is_dir() {
            self.looks.look((uid, name), path, caps, false, Instant::now());
        }
    }

    /// A command's watch has found so much in it.
    pub(super) fn remember(&mut self, uid: u32, name: &str, found: Count) {
        self.looks.remember(uid, name, found);
        self.room.take_in(&self.looks);
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
        self.room.take_in(&self.looks);
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

/// Makes it its owner's alone again where a command has changed that: closed to itself, nothing could run there any more,
/// and nobody else has any business there. The directory is what `meta` says, as nobody but root can put another one in
/// its place.
fn give_back(path: &Path, meta: &Metadata) -> Result<(), Fault> {
    if meta.mode() & 0o7777 == OWNERS {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(OWNERS)).about(path.display())
}

#[cfg(test)]
mod tests;
