//! A directory of ours on its way into a workspace, without following a link.

use super::{Load, join};
use crate::failure::Failure;
use cap_fs_ext::{DirExt, FollowSymlinks, OpenOptionsFollowExt};
use cap_std::{
    ambient_authority,
    fs::{Dir, DirEntry, File, OpenOptions, OpenOptionsExt},
};
use std::{io, path::Path};

/// Puts what is in the directory below this path of the workspace.
pub(super) fn put(load: &mut Load<'_>, local: &Path, path: &str) -> Result<(), Failure> {
    match Dir::open_ambient_dir(local, ambient_authority()) {
        Ok(directory) => walk(load, &directory, local, path),
        Err(error) => {
            load.complain(local, &error);
            Ok(())
        }
    }
}

/// Puts what is in an open directory, in the order of names. A path is for messages alone: nothing is opened by it,
/// so that whoever can change the tree meanwhile leads nowhere else.
fn walk(load: &mut Load<'_>, directory: &Dir, local: &Path, path: &str) -> Result<(), Failure> {
    let entries = directory.entries().and_then(Iterator::collect::<io::Result<Vec<DirEntry>>>);
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(error) => {
            load.complain(local, &error);
            return Ok(());
        }
    };
    if entries.is_empty() {
        load.leave_out(local, "an empty directory");
    }
    entries.sort_by_key(DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let local = local.join(&name);
        let Some(text) = name.to_str() else {
            load.complain(&local, &"its name is not UTF-8");
            continue;
        };
        let path = join(path, text);
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) => {
                load.complain(&local, &error);
                continue;
            }
        };
        if kind.is_dir() {
            match directory.open_dir_nofollow(&name) {
                Ok(below) => walk(load, &below, &local, &path)?,
                Err(error) => load.complain(&local, &error),
            }
        } else if kind.is_symlink() {
            load.leave_out(&local, "a link");
        } else if !kind.is_file() {
            load.leave_out(&local, "not a regular file");
        } else {
            match open(directory, Path::new(&name)) {
                Ok((file, meta)) => load.add(path, file, &meta)?,
                Err(error) => load.complain(&local, &error),
            }
        }
    }
    Ok(())
}

/// A regular file for reading; what has become something else since it was listed is not waited for.
fn open(directory: &Dir, name: &Path) -> io::Result<(std::fs::File, std::fs::Metadata)> {
    let mut options = OpenOptions::new();
    options.read(true).follow(FollowSymlinks::No).custom_flags(nix::libc::O_NONBLOCK);
    let file = directory.open_with(name, &options).map(File::into_std)?;
    let meta = file.metadata()?;
    if meta.is_file() { Ok((file, meta)) } else { Err(io::Error::other("not a regular file any more")) }
}
