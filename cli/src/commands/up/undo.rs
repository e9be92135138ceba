//! `cordon up --undo`: removes what `cordon up` made and nothing else.

use super::{
    accounts,
    directory::{Directory, was_used},
};
use crate::{commands::audit::files, exit_status, failure::Failure, output};
use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// Removes what we made in DIR, DIR itself where we made that, and the users.
pub(super) fn execute(path: &Path) -> Result<u8, Failure> {
    clear(path)?;
    accounts::remove()?;
    Ok(exit_status::SUCCESS)
}

fn clear(path: &Path) -> Result<(), Failure> {
    if was_used(path) {
        return remove_content(&Directory::open(path)?);
    }
    output::complain(&format!("cordon: nothing to clear: no `cordon up` has run in {}", path.display()));
    Ok(())
}

fn remove_content(directory: &Directory) -> Result<(), Failure> {
    let path = directory.path();
    let unknown = |e| Failure::new(format!("clearing {}", path.display()), e, "mount /proc, then undo again");
    if let Some(mounted) = mounted_in(&directory.state()).map_err(unknown)? {
        let cause = format!("{} is still mounted", mounted.display());
        let next = format!("umount {}, then undo again", mounted.display());
        return Err(Failure::new(format!("clearing {}", path.display()), cause, next));
    }
    let we_made_it = directory.made_mark().exists();
    directory.remove_sockets();
    if directory.made_token_mark().exists() {
        removed(&directory.token_file(), fs::remove_file(directory.token_file()))?;
    }
    if directory.made_audit_mark().exists() {
        for file in [directory.audit_file(), directory.texts_file()] {
            for older in files::older(&file).map_err(|e| {
                Failure::new(
                    format!("looking into {}", path.display()),
                    e,
                    "see whether root can read it, then undo again",
                )
            })? {
                removed(&older, fs::remove_file(&older))?;
            }
            removed(&file, fs::remove_file(&file))?;
        }
    }
    removed(&directory.state(), fs::remove_dir_all(directory.state()))?;
    if we_made_it {
        match fs::remove_dir(path) {
            // Something that is not ours is in it.
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            other => removed(path, other)?,
        }
    }
    output::complain(&format!("cordon: cleared {}", path.display()));
    Ok(())
}

fn removed(path: &Path, result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Failure::new(
            format!("removing {}", path.display()),
            e,
            "remove it yourself, then undo again",
        )),
        _ => Ok(()),
    }
}

/// A mount on the path or below: deleting must not reach into it (proc_pid_mountinfo(5), fifth field).
fn mounted_in(path: &Path) -> io::Result<Option<PathBuf>> {
    // Bytes, as paths are: one that is no text must not hide the others.
    fs::read("/proc/self/mountinfo").map(|table| first_in(&table, path))
}

fn first_in(table: &[u8], path: &Path) -> Option<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points.map(unescaped).find(|point| point.starts_with(path))
}

/// A path as it is: blanks, line breaks and backslashes stand there as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let (mut path, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((first, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|_| *first == b'\\').and_then(|digits| str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => {
                path.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn fresh() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        directory
    }

    #[test]
    fn what_was_made_goes_and_what_was_there_stays() {
        let parent = fresh();
        let path = parent.path().join("dir");
        let directory = Directory::prepare(&path).unwrap();
        directory.token().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(directory.executor_socket()).unwrap();
        fs::write(path.join("mine"), "").unwrap();
        remove_content(&directory).unwrap();
        let left: Vec<_> = fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["mine"]);

        fs::remove_dir_all(&path).unwrap();
        remove_content(&Directory::prepare(&path).unwrap()).unwrap();
        assert!(!path.exists(), "made by us and empty");

        fs::create_dir(&path).unwrap();
        remove_content(&Directory::prepare(&path).unwrap()).unwrap();
        assert!(path.exists(), "not made by us");
    }

    #[test]
    fn a_directory_in_which_it_never_ran_keeps_everything() {
        let place = fresh();
        fs::create_dir(place.path().join("state")).unwrap();
        for name in ["state/precious", "token", "gateway.sock"] {
            fs::write(place.path().join(name), "precious").unwrap();
        }
        clear(place.path()).unwrap();
        for name in ["state/precious", "token", "gateway.sock"] {
            assert_eq!(fs::read_to_string(place.path().join(name)).unwrap(), "precious");
        }
        assert!(!place.path().join("state/cordon-up.lock").exists());
    }

    #[test]
    fn a_token_that_was_there_before_stays() {
        let place = fresh();
        fs::write(place.path().join("token"), "k".repeat(64)).unwrap();
        let directory = Directory::prepare(place.path()).unwrap();
        directory.token().unwrap();
        remove_content(&directory).unwrap();
        assert!(place.path().join("token").exists() && !place.path().join("state").exists());
    }

    #[test]
    fn of_audit_trails_only_one_that_was_begun_here_goes() {
        for there_before in [false, true] {
            let place = fresh();
            let trail = place.path().join("audit.jsonl");
            if there_before {
                fs::write(&trail, "precious").unwrap();
            }
            drop(Directory::prepare(place.path()).unwrap());
            fs::write(&trail, "a line").unwrap();
            let older = [place.path().join("audit.jsonl.12"), place.path().join("commands.jsonl.1")];
            older.iter().for_each(|older| fs::write(older, "older").unwrap());
            // A later run finds it there.
            remove_content(&Directory::prepare(place.path()).unwrap()).unwrap();
            assert_eq!(trail.exists(), there_before);
            assert!(older.iter().all(|older| older.exists() == there_before));
        }
    }

    #[test]
    fn a_running_one_is_not_undone() {
        let place = fresh();
        let _running = Directory::prepare(place.path()).unwrap();
        assert!(clear(place.path()).is_err());
        assert!(place.path().join("state").exists());
    }

    #[test]
    fn mounts_are_found_below_not_beside() {
        let table = b"1 2 0:1 / / rw - x x rw\n4 1 0:3 / /srv/\xff rw - x x rw\n\
            3 1 0:2 / /run/cordon\\040b\\134\\011c/state rw - tmpfs t rw\n";
        let found = |path: &str| first_in(table, Path::new(path));
        assert_eq!(found("/run/cordon b\\\tc"), Some("/run/cordon b\\\tc/state".into()));
        assert_eq!(found("/run/cordon b\\\tc/state"), Some("/run/cordon b\\\tc/state".into()));
        for beside in
            ["/run/cordon", "/run/cordon b", "/run/cordon b\\\tc/state/x", "/run/cordon\\040b\\134\\011c"]
        {
            assert_eq!(found(beside), None, "{beside}");
        }
        assert_eq!(unescaped(b"\\0\\zzz\\777\\04"), Path::new("\\0\\zzz\\777\\04"));
    }
}
