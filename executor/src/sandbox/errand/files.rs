//! Single files of the workspace: made, written, opened, never outside it.

use super::tree::{Size, blocks};
use crate::{
    sandbox::steps::{About, Fault},
    sealed::FileHead,
};
use nix::{
    errno::Errno,
    fcntl::{self, AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat2, renameat},
    sys::stat::{Mode, SFlag, fchmod, fstat, fstatat, mkdirat},
    unistd::{UnlinkatFlags, linkat, unlinkat},
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
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

/// A file that is being written, and what is at its path is there until it is whole. It has no name till then: nothing is
/// left of it where its process is ended.
#[derive(Debug)]
pub(super) struct Made {
    file: File,
    directory: OwnedFd,
    name: OsString,
    /// It stands at its path already: this file system has no files without a name.
    named: bool,
}

impl Made {
    /// Writes what comes from there, up to `room` bytes, and puts it in its place; of what is more, or cannot be written,
    /// nothing is left.
    pub(super) fn fill(mut self, from: impl io::Read, room: u64) -> io::Result<()> {
        let filled = match io::copy(&mut from.take(room.saturating_add(1)), &mut self.file) {
            Ok(written) if written > room => Err(Errno::EDQUOT.into()),
            Ok(_) if self.named => return Ok(()),
            Ok(_) => self.appear().map_err(io::Error::from),
            Err(error) => Err(error),
        };
        if filled.is_err() && self.named {
            let _ = unlinkat(&self.directory, &*self.name, UnlinkatFlags::NoRemoveDir);
        }
        filled
    }

    /// Gives it its name, in place of what is there.
    fn appear(&self) -> nix::Result<()> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let name_it =
            |name: &OsStr| linkat(AT_FDCWD, &own[..], &self.directory, name, AtFlags::AT_SYMLINK_FOLLOW);
        match name_it(&self.name) {
            Err(Errno::EEXIST) => {}
            named => return named,
        }
        // No link takes another file's place. Whoever else writes here has a file of another number.
        let beside = OsString::from(format!(".cordon-put-{}", fstat(&self.file)?.st_ino));
        name_it(&beside)?;
        renameat(&self.directory, &*beside, &self.directory, &*self.name).inspect_err(|_| {
            let _ = unlinkat(&self.directory, &*beside, UnlinkatFlags::NoRemoveDir);
        })
    }
}

/// A new file for a path below the workspace, to take the place of whatever is there but a directory; missing directories
/// are made. That gives and takes room.
pub(super) fn create(home: &Path, path: &str, mode: u32, room: &mut Size) -> io::Result<Made> {
    let path = relative(path)?;
    let name = path.file_name().ok_or(Errno::EISDIR)?;
    let mut at = open_directory(home)?;
    for part in path.parent().into_iter().flat_map(Path::components) {
        at = enter(&at, part.as_os_str(), room)?;
    }
    if let Ok(before) = fstatat(&at, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        if SFlag::from_bits_truncate(before.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR {
            return Err(Errno::EISDIR.into());
        }
        if before.st_nlink == 1 {
            room.bytes = room.bytes.saturating_add(blocks(&before));
            room.files = room.files.saturating_add(1);
        }
    }
    take_one(room)?;
    let own = Mode::S_IRUSR | Mode::S_IWUSR;
    let how = |flags: OFlag| {
        OpenHow::new().flags(OFlag::O_WRONLY | OFlag::O_CLOEXEC | flags).mode(own).resolve(within())
    };
    let (file, named) = match openat2(&at, ".", how(OFlag::O_TMPFILE)) {
        Err(Errno::EOPNOTSUPP) => {
            // A link or a pipe that is there is replaced, not followed or waited for.
            match unlinkat(&at, name, UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
            (openat2(&at, name, how(OFlag::O_CREAT | OFlag::O_EXCL))?, true)
        }
        opened => (opened?, false),
    };
    // After the umask, which would take bits away.
    fchmod(&file, Mode::from_bits_truncate(mode & 0o777))?;
    Ok(Made { file: file.into(), directory: at, name: name.to_owned(), named })
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
    use crate::sealed::{CONTENT_END, Pieces, piece_head};
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
        let made = |path: &str| create(&home, path, 0o644, &mut Size::ENDLESS.clone()).unwrap();
        made("file").fill(io::empty(), 0).unwrap();
        assert!(fs::symlink_metadata(home.join("file")).unwrap().is_file());
        made("in/new").fill(io::empty(), 0).unwrap();
        assert!(home.join("inside/new").exists() && open(&home, "in/new").is_ok());
        let left: Vec<_> = fs::read_dir(&outside).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["kept"]);
        assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
        nix::unistd::mkfifo(&home.join("pipe"), Mode::S_IRWXU).unwrap();
        assert!(open(&home, "pipe").unwrap_err().to_string().contains("not a regular file"));
        fs::remove_dir_all(home).unwrap();
        fs::remove_dir_all(outside).unwrap();
    }

    #[test]
    fn what_is_there_stays_until_the_new_one_is_whole_and_of_one_that_fails_nothing_is_left() {
        struct Broken(u8);
        impl io::Read for Broken {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(1).ok_or(Errno::EIO)?;
                Ok(buffer.len())
            }
        }
        let home = home("whole");
        let names = || {
            let mut names: Vec<_> = fs::read_dir(&home).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let made = |path: &str| create(&home, path, 0o640, &mut Size::ENDLESS.clone()).unwrap();
        fs::write(home.join("old"), "old").unwrap();
        for path in ["old", "new"] {
            let begun = made(path);
            assert_eq!(fs::read(home.join("old")).unwrap(), b"old");
            drop(begun);
            assert!(made(path).fill(Broken(3), u64::MAX).is_err());
            // Whoever sent it has gone: that is no end.
            let sent = [&piece_head(b"half").unwrap()[..], b"half"].concat();
            assert!(made(path).fill(Pieces::new(&sent[..]), 5).is_err());
            let over = made(path).fill(&b"longer"[..], 5).unwrap_err();
            assert_eq!(over.raw_os_error(), Some(Errno::EDQUOT as i32));
            assert_eq!(
                (names(), fs::read(home.join("old")).unwrap()),
                (vec!["inside".into(), "old".into()], b"old".into())
            );
        }
        // What goes before its pieces and after them takes no room.
        let sent = [&piece_head(b"newer").unwrap()[..], b"newer", &CONTENT_END].concat();
        made("old").fill(Pieces::new(&sent[..]), 5).unwrap();
        assert_eq!(
            (names(), fs::read(home.join("old")).unwrap()),
            (vec!["inside".into(), "old".into()], b"newer".into())
        );
        assert_eq!(fs::metadata(home.join("old")).unwrap().permissions().mode() & 0o7777, 0o640);
        fs::remove_dir_all(home).unwrap();
    }
}
