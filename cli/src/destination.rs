//! A directory of ours for files whose names a command chose: nothing is written outside it or through a link.

use crate::failure::Failure;
use cap_fs_ext::DirExt;
use cap_std::{
    ambient_authority,
    fs::{Dir, Permissions, PermissionsExt},
};
use cap_tempfile::TempFile;
use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

/// The directory. Every look-up starts from its descriptor and goes down one name at a time.
#[derive(Debug)]
pub(crate) struct Destination {
    top: Dir,
    shown: PathBuf,
    umask: u32,
}

/// Where one file goes: a name, free or a regular file's, in a directory that is there.
#[derive(Debug)]
pub(crate) struct Place {
    directory: Dir,
    name: String,
    umask: u32,
}

impl Destination {
    /// The directory at this path, made where there is none.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let open = || -> io::Result<Dir> {
            fs::create_dir_all(path)?;
            Dir::open_ambient_dir(path, ambient_authority())
        };
        let failed = |error| {
            let what = format!("opening the directory {}", path.display());
            Failure::new(what, error, "name another directory with --into")
        };
        let umask = umask().map_err(failed)?;
        Ok(Self { top: open().map_err(failed)?, shown: path.to_owned(), umask })
    }

    /// The place of a file, its parents made where they are missing; else why it has none.
    pub(crate) fn place(&self, path: &str) -> Result<Place, String> {
        let parts: Option<Vec<&str>> = Path::new(path).components().map(plain).collect();
        let Some((name, parents)) = parts.as_deref().and_then(<[_]>::split_last) else {
            return Err(format!("that does not lead to a file below {}", self.shown.display()));
        };
        let mut directory = self.top.try_clone().map_err(|error| error.to_string())?;
        for parent in parents {
            directory = enter(&directory, parent).map_err(|error| format!("{parent}: {error}"))?;
        }
        match directory.symlink_metadata(name) {
            Ok(there) if !there.is_file() => Err("what is there is not a regular file, and stays".to_owned()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.to_string()),
            _ => Ok(Place { directory, name: (*name).to_owned(), umask: self.umask }),
        }
    }

    /// Writes a whole file; else why it was not written.
    pub(crate) fn write(&self, path: &str, mode: u32, content: &[u8]) -> Result<(), String> {
        let place = self.place(path)?;
        let written = place.begin(mode).and_then(|mut file| {
            io::Write::write_all(&mut file, content)?;
            place.finish(file)
        });
        written.map_err(|error| error.to_string())
    }
}

impl Place {
    /// A file without a name yet, with these permission bits less those that our umask takes.
    pub(crate) fn begin(&self, mode: u32) -> io::Result<TempFile<'_>> {
        let file = TempFile::new(&self.directory)?;
        file.as_file().set_permissions(Permissions::from_mode(mode & 0o777 & !self.umask))?;
        Ok(file)
    }

    /// Gives the file its name, all of it written: what was there is replaced at once, or not at all.
    pub(crate) fn finish(&self, file: TempFile<'_>) -> io::Result<()> {
        file.replace(&self.name)
    }
}

/// A part of a path that only goes down.
fn plain(part: Component<'_>) -> Option<&str> {
    match part {
        Component::Normal(name) => name.to_str().filter(|name| !name.contains('\0')),
        _ => None,
    }
}

/// The directory of this name, made where there is none. A link is not followed, wherever it leads.
fn enter(directory: &Dir, name: &str) -> io::Result<Dir> {
    match directory.create_dir(name) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => directory.open_dir_nofollow(name),
    }
}

/// Our umask, without changing it for a moment as umask(2) would (proc_pid_status(5)).
fn umask() -> io::Result<u32> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
    mask.ok_or_else(|| io::Error::other("/proc/self/status has no Umask"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions()) & 0o7777
    }

    #[test]
    fn files_are_written_with_parents_and_bits_and_replaced_whole() {
        let scratch = tempfile::tempdir().unwrap();
        let top = scratch.path().join("made/for it");
        let destination = Destination { umask: 0o027, ..Destination::open(&top).unwrap() };
        destination.write("a/b/c", 0o6755, b"\xff\0").unwrap();
        assert_eq!(
            (fs::read(top.join("a/b/c")).unwrap(), mode(&top.join("a/b/c"))),
            (b"\xff\0".into(), 0o750)
        );
        destination.write("a/b/c", 0o444, b"new").unwrap();
        destination.write("a/b/c", 0o400, b"newer").unwrap();
        assert_eq!(
            (fs::read(top.join("a/b/c")).unwrap(), mode(&top.join("a/b/c"))),
            (b"newer".into(), 0o400)
        );
        let names: Vec<_> = fs::read_dir(top.join("a/b")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["c"], "nothing else is left");
        // Another name of what was there keeps it.
        fs::hard_link(top.join("a/b/c"), scratch.path().join("other")).unwrap();
        destination.write("a/b/c", 0o600, b"third").unwrap();
        assert_eq!(fs::read(scratch.path().join("other")).unwrap(), b"newer");
        // One that is begun and not finished has left nothing.
        let place = destination.place("begun").unwrap();
        io::Write::write_all(&mut place.begin(0o644).unwrap(), b"half").unwrap();
        assert!(!top.join("begun").exists());
    }

    #[test]
    fn no_name_leads_outside_or_through_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let (top, outside) = (scratch.path().join("top"), scratch.path().join("outside"));
        fs::create_dir_all(top.join("inside")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        symlink(&outside, top.join("out")).unwrap();
        symlink("inside", top.join("in")).unwrap();
        symlink("../outside/kept", top.join("file")).unwrap();
        symlink("nowhere", top.join("dangling")).unwrap();
        nix::unistd::mkfifo(&top.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let destination = Destination::open(&top).unwrap();
        let absolute = outside.join("kept");
        for path in [
            "",
            ".",
            "/",
            "..",
            "../outside/kept",
            "a/../../outside/kept",
            absolute.to_str().unwrap(),
            "a\0b",
            "out/kept",
            "out/new",
            "in/new",
            "file",
            "dangling",
            "dangling/x",
            "pipe",
            "inside",
            "pipe/x",
        ] {
            assert!(destination.write(path, 0o644, b"written").is_err(), "{path:?}");
        }
        assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(fs::read_dir(top.join("inside")).unwrap().count(), 0);
        assert!(fs::symlink_metadata(top.join("file")).unwrap().is_symlink());
        // And the same names lead somewhere where they are plain.
        destination.write("inside/new", 0o644, b"written").unwrap();
        assert!(top.join("inside/new").is_file());
    }
}
