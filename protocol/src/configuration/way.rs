//! The way to a configuration file: whether somebody else than root could lead it elsewhere.
//!
//! A daemon's own words about a file show lines of it. A link that anybody may make would have root show lines of any
//! file, so that nothing is read behind one that is not root's.

use std::{
    ffi::OsString,
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Component, Path, PathBuf},
};

/// As many links as the kernel follows (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Where something is wrong, and what.
pub type Doubt = (PathBuf, &'static str);

/// A way that has been gone.
#[derive(Debug)]
pub struct Way {
    /// Where it ends, without links.
    pub end: PathBuf,
    /// The first directory on it in which others than root could put something else.
    pub directory: Option<Doubt>,
    /// The first link on it that others than root could have made.
    link: Option<Doubt>,
    /// What is at its end.
    meta: Metadata,
}

impl Way {
    /// Goes along the path, link by link.
    ///
    /// # Errors
    /// What lstat(2) says; too many links.
    pub fn follow(path: &Path) -> io::Result<Self> {
        let mut ahead = Vec::new();
        push(&mut ahead, &std::path::absolute(path)?);
        let mut end = PathBuf::from("/");
        let mut meta = fs::symlink_metadata(&end)?;
        let (mut directory, mut link, mut links) = (doubt_of_directory(&end, &meta), None, 0);
        while let Some(name) = ahead.pop() {
            let next = match Path::new(&name).components().next() {
                Some(Component::RootDir) => PathBuf::from("/"),
                Some(Component::ParentDir) => end.parent().unwrap_or(&end).to_owned(),
                _ => end.join(&name),
            };
            meta = fs::symlink_metadata(&next)?;
            if meta.is_symlink() {
                links += 1;
                if links > LINKS_MAX {
                    return Err(io::Error::other("there are too many symbolic links on the way to it"));
                }
                if link.is_none() && (directory.is_some() || meta.uid() != 0) {
                    link =
                        Some((next.clone(), "is a link that others could have made (name the file itself)"));
                }
                push(&mut ahead, &fs::read_link(&next)?);
                continue;
            }
            if meta.is_dir() && directory.is_none() {
                directory = doubt_of_directory(&next, &meta);
            }
            end = next;
        }
        Ok(Self { end, directory, link, meta })
    }

    /// Opens what is at the end, and nothing that has taken its place since.
    ///
    /// # Errors
    /// What open(2) says; something else is there.
    pub fn open(&self, flags: i32) -> io::Result<File> {
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&self.end)?;
        let opened = file.metadata()?;
        if (opened.dev(), opened.ino()) != (self.meta.dev(), self.meta.ino()) {
            return Err(io::Error::other("another file was put in its place meanwhile"));
        }
        Ok(file)
    }

    /// Why it may not be the file that was meant, so that nobody may be shown what is in it.
    pub fn doubt(&self) -> Option<Doubt> {
        // Where others may put files, a name may be a second one for a file of somebody else's (link(2)).
        let second = self.directory.is_some() && self.meta.is_file() && self.meta.nlink() > 1;
        let second = second.then(|| (self.end.clone(), "has a second name (use a copy that has one)"));
        self.link.clone().or(second)
    }
}

/// What is ahead, the next last.
fn push(ahead: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    ahead.extend(parts.map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>().into_iter().rev());
}

fn doubt_of_directory(path: &Path, meta: &Metadata) -> Option<Doubt> {
    let problem = if meta.uid() != 0 {
        "is a directory that does not belong to root"
    } else if meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0 {
        // In a sticky directory (/tmp) others cannot replace root's entries.
        "is a directory that can be written by others"
    } else {
        return None;
    };
    Some((path.to_owned(), problem))
}
