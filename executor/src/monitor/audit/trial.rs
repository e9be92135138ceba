//! Whether a launch could be recorded now, tried as far as that goes without writing a line, and whether an executor
//! that is started would go on with what is there: `cordon doctor` asks.

use super::{
    Audit, TEXTS,
    beginning::is_not_gone,
    ending::{self, last, named, tail},
    kept::Known,
};
use crate::{
    monitor::appended::open_root_file,
    sandbox::steps::{About, Fault},
};
use nix::{
    errno::Errno,
    fcntl::{FallocateFlags, OFlag, fallocate},
    sys::{
        resource::{Resource, getrlimit},
        statvfs::{FsFlags, statvfs},
    },
};
use std::{fs::File, path::Path};

/// Room for a launch's line, bytes.
const ROOM: u64 = 4 << 10;

impl Audit {
    /// Tries both files, and the one with the head. The trail's last line must still be the one that was written.
    ///
    /// # Errors
    /// What a launch, or the next start, would fail by.
    pub(in crate::monitor) fn try_out(&mut self) -> Result<(), Fault> {
        for file in [&mut self.trail, &mut self.texts] {
            file.settle()?;
            reserve(file.file(), file.length()).about(file.path().display())?;
        }
        reserve(self.kept.file(), 0).about("head of the audit trail")?;
        if self.trail.length() == 0 {
            // Moved aside, or removed.
            return is_not_gone(self.trail.path(), &Known { head: self.head.clone(), synced: None });
        }
        let path = self.trail.path();
        let end = tail(self.trail.file(), self.trail.length()).about(path.display())?;
        for head in [&self.head, &self.kept.head_now("audit.head".as_ref())?] {
            last(&end, &Known { head: head.clone(), synced: None }).map_err(named(path))?;
        }
        Ok(())
    }

    /// Whether a trail at `path`, with its head at `kept`, could be gone on with and written by an executor that is
    /// started now; nothing is made.
    ///
    /// # Errors
    /// What it would fail by.
    pub fn could_be_at(path: &Path, kept: &Path) -> Result<(), Fault> {
        ending::would_be_taken(path, kept)?;
        for path in [path, &path.with_file_name(TEXTS)] {
            if path.symlink_metadata().is_ok() {
                let file = open_root_file(path, OFlag::O_APPEND)?;
                reserve(&file, file.metadata().about(path.display())?.len()).about(path.display())?;
            } else {
                let there = path.ancestors().skip(1).find(|directory| directory.exists());
                there.map_or(Ok(()), takes_files)?;
            }
        }
        let empty = path.symlink_metadata().map_or(true, |meta| meta.len() == 0);
        // Last, as it keeps nobody from writing.
        if empty { is_not_gone(path, &Known::found(kept)?) } else { Ok(()) }
    }
}

/// Takes room behind what is in a file, which neither reads otherwise nor is longer for it (fallocate(2)).
fn reserve(file: &File, length: u64) -> Result<(), Errno> {
    let (most, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    if length + ROOM > most {
        return Err(Errno::EFBIG);
    }
    let offset = |bytes: u64| i64::try_from(bytes).map_err(|_| Errno::EFBIG);
    match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, offset(length)?, offset(ROOM)?) {
        // Some file systems have no such call; what they take is seen when it is written.
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => Ok(()),
        tried => tried,
    }
}

/// Whether something can be made in a directory, by root.
fn takes_files(directory: &Path) -> Result<(), Fault> {
    let found = statvfs(directory).about(directory.display())?;
    let problem = if !directory.is_dir() {
        Errno::ENOTDIR
    } else if found.flags().contains(FsFlags::ST_RDONLY) {
        Errno::EROFS
    } else if found.blocks_free() == 0 {
        Errno::ENOSPC
    } else {
        return Ok(());
    };
    Err(problem).about(directory.display())
}
