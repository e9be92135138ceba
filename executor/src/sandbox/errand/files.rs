//! Single files of the workspace: made, written, opened, never outside it.

use super::tree::{Size, blocks};
use crate::{
    sandbox::steps::{About, Fault},
    sealed::FileHead,
};
use nix::{
    errno::Errno,
    fcntl::{self, AtFlags, OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::{Mode, SFlag, fchmod, fstat, fstatat, mkdirat},
    unistd::{UnlinkatFlags, unlinkat},
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Component, Path},
};

/// Permission bits where none are given.
pub const DEFAULT_MODE: u32 = 0o644;
/// What file systems give files at least, bytes.
const UNIT: u64 = 4 << 10;

/// Puts files with their content into the workspace, in their order, where together they take no more than `room`.
///
/// # Errors
/// The file that could not be written.
pub fn put(home: &Path, files: &[(&FileHead, &[u8])], mut room: Size) -> Result<(), Fault> {
    files.iter().try_for_each(|(file, content)| {
        let made = create(home, &file.path, file.mode, &mut room).about(&file.path)?;
        made.fill(*content, room.bytes).about(&file.path)?;
        room.bytes = room.bytes.saturating_sub((content.len() as u64).next_multiple_of(UNIT));
        Ok(())
    })
}

/// A file that has just been made, and is empty.
#[derive(Debug)]
pub(super) struct Made {
    file: File,
    directory: OwnedFd,
    name: OsString,
}

impl Made {
    /// Writes what comes from there, up to `room` bytes; where that is more, the file is removed again.
    pub(super) fn fill(mut self, from: impl io::Read, room: u64) -> io::Result<()> {
        let written = io::copy(&mut from.take(room.saturating_add(1)), &mut self.file)?;
        if written <= room {
            return Ok(());
        }
        let _ = unlinkat(&self.directory, &*self.name, UnlinkatFlags::NoRemoveDir);
        Err(Errno::EDQUOT.into())
    }
}

/// A new file at a path below the workspace in place of whatever is there; missing directories are made. That gives and
/// takes room.
pub(super) fn create(home: &Path, path: &str, mode: u32, room: &mut Size) -> io::Result<Made> {
    let path = relative(path)?;
    let name = path.file_name().ok_or(Errno::EISDIR)?;
    let mut at = open_directory(home)?;
    for part in path.parent().into_iter().flat_map(Path::components) {
        at = enter(&at, part.as_os_str(), room)?;
    }
    if let Ok(before) = fstatat(&at, name, AtFlags::AT_SYMLINK_NOFOLLOW)
        && before.st_nlink == 1
    {
        room.bytes = room.bytes.saturating_add(blocks(&before));
        room.files = room.files.saturating_add(1);
    }
    take_one(room)?;
    // A link or a pipe that is there is replaced, not followed or waited for.
    match unlinkat(&at, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let own = Mode::S_IRUSR | Mode::S_IWUSR;
    let file = openat2(&at, name, OpenHow::new().flags(flags).mode(own).resolve(within()))?;
    // After the umask, which would take bits away.
    fchmod(&file, Mode::from_bits_truncate(mode & 0o777))?;
    Ok(Made { file: file.into(), name: name.to_owned(), directory: at })
}

/// A regular file below the workspace, for reading. What only looks like one is refused without waiting.
pub(super) fn open(home: &Path, path: &str) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let how = OpenHow::new().flags(flags).resolve(within());
    let file = openat2(open_directory(home)?, relative(path)?, how)?;
    match SFlag::from_bits_truncate(fstat(&file)?.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => Ok(file.into()),
        SFlag::S_IFDIR => Err(Errno::EISDIR.into()),
        _ => Err(io::Error::other("not a regular file")),
    }
}

/// A failure in the words of whoever asked: what the kernel calls a way out says nothing of links.
pub(super) fn explain(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EXDEV) => {
            "a link leads out of the workspace, where nothing is read or written; put a copy of \
                               what it leads to in its place"
                .to_owned()
        }
        Some(Errno::ELOOP) => "links lead to one another and to no file".to_owned(),
        Some(Errno::EDQUOT) => {
            "the workspace would hold more than its limit, named_workspace or named_workspace_files, and the file was removed again; remove \
             others first, or raise the limit"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// The directory of this name, made where there is none.
fn enter(at: &OwnedFd, name: &OsStr, room: &mut Size) -> nix::Result<OwnedFd> {
    let how = OpenHow::new().flags(OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).resolve(within());
    match openat2(at, name, how) {
        Err(Errno::ENOENT) => {}
        found => return found,
    }
    take_one(room)?;
    match mkdirat(at, name, Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => openat2(at, name, how),
        Err(errno) => Err(errno),
    }
}

/// Takes room for one file more.
fn take_one(room: &mut Size) -> nix::Result<()> {
    room.files = room.files.checked_sub(1).ok_or(Errno::EDQUOT)?;
    Ok(())
}

/// No way out of the directory that a look-up starts from (openat2(2)).
pub(super) fn within() -> ResolveFlag {
    ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS
}

pub(super) fn open_directory(home: &Path) -> nix::Result<OwnedFd> {
    fcntl::open(home, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
}

/// A path that only goes down. The server has refused every other one before.
fn relative(path: &str) -> io::Result<&Path> {
    let path = Path::new(path);
    let down = path.components().all(|c| matches!(c, Component::Normal(_)));
    if down && path.components().next().is_some() { Ok(path) } else { Err(Errno::EINVAL.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    fn home(name: &str) -> std::path::PathBuf {
        let home = std::env::temp_dir().join(format!("cordon-errand-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&home);
        fs::create_dir_all(home.join("inside")).unwrap();
        home
    }

    #[test]
    fn files_are_made_with_their_directories_content_and_mode() {
        let home = home("make");
        let file = |path: &str, mode| FileHead { path: path.into(), size: 1, mode };
        let put = |files: &[FileHead]| {
            put(&home, &files.iter().map(|file| (file, b"x".as_slice())).collect::<Vec<_>>(), Size::ENDLESS)
        };
        put(&[file("a/b/c", DEFAULT_MODE), file("run", 0o4755), file("a/b/c", 0o600)]).unwrap();
        let mode = |path: &str| fs::metadata(home.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("a/b/c"), mode("run")), (0o600, 0o755));
        assert_eq!(fs::read(home.join("a/b/c")).unwrap(), b"x");
        for path in ["", "/etc/x", "../x", "a/../../x", ".", "a"] {
            let fault = put(&[file(path, DEFAULT_MODE)]).unwrap_err();
            assert_eq!(fault.detail, path);
        }
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn links_lead_nowhere_outside() {
        let home = home("links");
        let outside = home.with_extension("outside");
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        symlink(&outside, home.join("out")).unwrap();
        symlink(outside.join("kept"), home.join("file")).unwrap();
        symlink("inside", home.join("in")).unwrap();
        assert!(create(&home, "out/new", 0o644, &mut Size::ENDLESS.clone()).is_err());
        assert!(open(&home, "out/kept").is_err());
        assert!(open(&home, "file").is_err());
        // The link itself is what is replaced.
        create(&home, "file", 0o644, &mut Size::ENDLESS.clone()).unwrap();
        assert!(fs::symlink_metadata(home.join("file")).unwrap().is_file());
        create(&home, "in/new", 0o644, &mut Size::ENDLESS.clone()).unwrap();
        assert!(home.join("inside/new").exists() && open(&home, "in/new").is_ok());
        let left: Vec<_> = fs::read_dir(&outside).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["kept"]);
        assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
        nix::unistd::mkfifo(&home.join("pipe"), Mode::S_IRWXU).unwrap();
        assert!(open(&home, "pipe").unwrap_err().to_string().contains("not a regular file"));
        fs::remove_dir_all(home).unwrap();
        fs::remove_dir_all(outside).unwrap();
    }
}
