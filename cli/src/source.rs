//! Files of ours on their way into a workspace.

use std::{
    fs::{File, Metadata, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Component, Path},
};

/// A regular file for reading, and what it is. What only looks like one is refused without waiting for it; of a
/// link, what it leads to is taken.
pub(crate) fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if meta.is_file() { Ok((file, meta)) } else { Err(io::Error::other("not a regular file")) }
}

/// The permission bits that go with a file.
pub(crate) fn mode(meta: &Metadata) -> u32 {
    meta.mode() & 0o777
}

/// A path as the executor takes it: relative to the workspace, and down from it.
pub(crate) fn check_path(path: &str) -> Result<(), String> {
    let down = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if down && !path.is_empty() && !path.ends_with('/') {
        return Ok(());
    }
    Err("not a path relative to the workspace, without `..`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_is_opened() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        std::fs::write(at("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (_, meta) = open(&at("link")).unwrap();
        assert_eq!((meta.len(), mode(&meta) & !0o777), (1, 0));
        assert_eq!(open(&at("pipe")).unwrap_err().to_string(), "not a regular file");
        assert_eq!(open(scratch.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(open(&at("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn paths_only_go_down() {
        for path in ["a", "a/b", ".a", "a b/ü", "a..b", "*"] {
            assert!(check_path(path).is_ok(), "{path}");
        }
        for path in ["", "/", "/a", "..", "a/..", "../a", "a/", "./a", "."] {
            assert!(check_path(path).is_err(), "{path}");
        }
    }
}
