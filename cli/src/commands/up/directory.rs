//! DIR: everything that `cordon up` writes.
//!
//! ```text
//! DIR/                  root, 0755
//!   executor.sock       made by the executor
//!   gateway.sock        0660 root:cordon
//!   token               0640 root:cordon, kept from run to run
//!   state/              root, 0755
//!     executor.toml  gateway.toml  lock  notify-*.sock
//!     executor/         the executor's own, 0711
//! ```

use super::{
    accounts,
    trust::{check_above, check_trust},
};
use crate::failure::Failure;
use nix::{
    fcntl::OFlag,
    unistd::{Group, User, chown},
};
use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read, Write},
    os::unix::{
        fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

/// Longest path of a socket, bytes (unix(7): `sun_path`, less its terminator).
const SOCKET_PATH_MAX: usize = 107;
/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// The directory, checked, prepared and locked by us.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Checks DIR and everything above it, makes what is missing and takes the lock.
    pub(super) fn prepare(path: &Path) -> Result<Self, Failure> {
        let made = make_if_missing(path)?;
        let directory = Self::open(path)?;
        if made {
            // For `--undo`, which leaves a directory alone that was there before.
            write_root_file(&directory.made_mark(), "", 0o644)?;
        }
        let longest = directory.notify_socket("cordon-executor");
        if longest.as_os_str().len() > SOCKET_PATH_MAX {
            let cause = format!(
                "{} is longer than the {SOCKET_PATH_MAX} bytes of a socket's path",
                longest.display()
            );
            return Err(Failure::new("preparing DIR", cause, "choose a shorter one with --dir"));
        }
        directory.refuse_foreign_daemons()?;
        // The lock is ours: whatever is left is from a run that was killed.
        directory.remove_sockets();
        make_directory(&directory.executor_state(), 0o711)?;
        Ok(directory)
    }

    /// Takes the lock of a directory that is there, after checking it.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let path = resolve(path)?;
        check_trust(&path)?;
        make_directory(&path.join("state"), 0o755)?;
        let lock_path = path.join("state/lock");
        let what = format!("locking {}", path.display());
        let next = "end the other one (Ctrl-C), or choose another directory with --dir";
        let opened = root_file(0o600).truncate(false).open(&lock_path);
        let lock = opened.map_err(|e| Failure::new(&what, e, next))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::new(&what, "another `cordon up` is running in this directory", next))
            }
            Err(TryLockError::Error(error)) => Err(Failure::new(&what, error, next)),
        }
    }

    /// DIR itself, without symbolic links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the executor listens.
    pub(super) fn executor_socket(&self) -> PathBuf {
        self.path.join("executor.sock")
    }

    /// Where the gateway listens beside its port.
    pub(super) fn gateway_socket(&self) -> PathBuf {
        self.path.join("gateway.sock")
    }

    /// The executor's audit trail.
    pub(super) fn audit_file(&self) -> PathBuf {
        self.path.join("audit.jsonl")
    }

    /// The file with the gateway's token.
    pub(super) fn token_file(&self) -> PathBuf {
        self.path.join("token")
    }

    /// Everything but sockets and token.
    pub(super) fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// The executor's `state_dir`.
    pub(super) fn executor_state(&self) -> PathBuf {
        self.path.join("state/executor")
    }

    /// The executor's configuration.
    pub(super) fn executor_configuration(&self) -> PathBuf {
        self.path.join("state/executor.toml")
    }

    /// The gateway's configuration.
    pub(super) fn gateway_configuration(&self) -> PathBuf {
        self.path.join("state/gateway.toml")
    }

    /// Where the daemon of that name says that it is ready.
    pub(super) fn notify_socket(&self, name: &str) -> PathBuf {
        self.path.join(format!("state/notify-{name}.sock"))
    }

    /// There when we made DIR.
    pub(super) fn made_mark(&self) -> PathBuf {
        self.path.join("state/made-by-cordon-up")
    }

    /// Removes every socket. What is not there needs no removing.
    pub(super) fn remove_sockets(&self) {
        let notify = ["cordon-executor", "cordon-gateway"].map(|name| self.notify_socket(name));
        for path in notify.into_iter().chain([self.executor_socket(), self.gateway_socket()]) {
            let _ = fs::remove_file(path);
        }
    }

    /// An executor or gateway that answers here is not ours (the lock is), so it is a system service.
    fn refuse_foreign_daemons(&self) -> Result<(), Failure> {
        for path in [self.executor_socket(), self.gateway_socket()] {
            if UnixStream::connect(&path).is_ok() {
                let cause = format!("somebody already listens at {}", path.display());
                let next = "stop it (systemctl stop cordon-executor cordon-gateway), or use another --dir";
                return Err(Failure::new("preparing DIR", cause, next));
            }
        }
        Ok(())
    }

    /// The token; a new one is made where there is none.
    pub(super) fn token(&self) -> Result<String, Failure> {
        let path = self.token_file();
        let what = format!("reading {}", path.display());
        let next = format!("remove {}: a new one is made", path.display());
        let opened = OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(&path);
        let mut file = match opened {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return self.make_token(),
            Err(e) => return Err(Failure::new(what, e, next)),
        };
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|e| Failure::new(&what, e, next.clone()))?;
        let token = text.trim();
        if token.len() < TOKEN_BYTES || !token.bytes().all(|b| b.is_ascii_graphic()) {
            let cause = format!("it holds no token of {TOKEN_BYTES} or more plain characters");
            return Err(Failure::new(what, cause, next));
        }
        Ok(token.to_owned())
    }

    fn make_token(&self) -> Result<String, Failure> {
        let path = self.token_file();
        let failed = |e: io::Error| {
            Failure::new(format!("making {}", path.display()), e, "see whether DIR can be written")
        };
        let mut random = [0; TOKEN_BYTES];
        File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut random)).map_err(failed)?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        // Complete before it has its name: half a token must never be read.
        let draft = self.path.join("state/token.draft");
        let _ = fs::remove_file(&draft);
        let mut file = root_file(0o600).create_new(true).open(&draft).map_err(failed)?;
        file.write_all(token.as_bytes()).map_err(failed)?;
        set_owner(&draft, None, Some(accounts::GROUP), 0o640)?;
        fs::rename(&draft, &path).map_err(failed)?;
        Ok(token)
    }
}

/// Gives a file in a directory of ours (a socket, above all) its user, group and mode; root where none is named.
pub(super) fn set_owner(
    path: &Path,
    user: Option<&str>,
    group: Option<&str>,
    mode: u32,
) -> Result<(), Failure> {
    let given = || -> io::Result<()> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no such user or group");
        let uid = match user {
            Some(name) => Some(User::from_name(name)?.ok_or_else(missing)?.uid),
            None => None,
        };
        let gid = match group {
            Some(name) => Some(Group::from_name(name)?.ok_or_else(missing)?.gid),
            None => None,
        };
        chown(path, uid, gid)?;
        fs::set_permissions(path, Permissions::from_mode(mode))
    };
    let next = "see whether the file system of DIR knows owners and modes";
    given().map_err(|e| Failure::new(format!("setting owner and mode of {}", path.display()), e, next))
}

/// Writes a file of root's.
pub(super) fn write_root_file(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let written = || -> io::Result<()> {
        let mut file = root_file(mode).truncate(true).open(path)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())
    };
    let next = "see whether DIR can be written and has room";
    written().map_err(|e| Failure::new(format!("writing {}", path.display()), e, next))
}

fn root_file(mode: u32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(mode).custom_flags(OFlag::O_NOFOLLOW.bits());
    options
}

fn make_directory(path: &Path, mode: u32) -> Result<(), Failure> {
    let made = match DirBuilder::new().mode(mode).create(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // The mode asked for went through the umask.
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)),
        other => other,
    };
    let next = "make the directory above it, or choose another with --dir";
    made.map_err(|e| Failure::new(format!("making {}", path.display()), e, next))
}

/// Makes DIR where it is missing, in a parent that is fit for it; whether it was missing.
fn make_if_missing(path: &Path) -> Result<bool, Failure> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(false);
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if let Some(parent) = absolute.parent() {
        check_above(&resolve(parent)?)?;
    }
    make_directory(&absolute, 0o755).map(|()| true)
}

fn resolve(path: &Path) -> Result<PathBuf, Failure> {
    let next = "make the directory, or choose another with --dir";
    fs::canonicalize(path).map_err(|e| Failure::new(format!("finding {}", path.display()), e, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn told<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
        match result {
            Err(Failure::Told { problem, next }) => format!("{problem}\n{next}"),
            other => panic!("{other:?}"),
        }
    }

    /// A fresh directory that is fit to be DIR. These tests are root's, as the program is.
    fn fresh() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        directory
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_missing_directory_is_made_and_marked() {
        let parent = fresh();
        let path = parent.path().join("new");
        let directory = Directory::prepare(&path).unwrap();
        assert_eq!(mode(&path), 0o755);
        assert_eq!((mode(&directory.state()), mode(&directory.executor_state())), (0o755, 0o711));
        assert!(directory.made_mark().exists());
        let there = fresh();
        assert!(!Directory::prepare(there.path()).unwrap().made_mark().exists());
    }

    #[test]
    fn the_component_that_is_unfit_is_named() {
        let parent = fresh();
        let middle = parent.path().join("middle");
        fs::create_dir(&middle).unwrap();
        for (unfit, says) in [(0o700, "cannot pass through it"), (0o777, "can write to it")] {
            fs::set_permissions(&middle, Permissions::from_mode(unfit)).unwrap();
            let text = told(Directory::prepare(&middle.join("dir")));
            assert!(
                text.contains(&format!("checking {}", middle.display())) && text.contains(says),
                "{text}"
            );
            assert!(!middle.join("dir").exists(), "nothing is made in an unfit place");
        }
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(told(Directory::prepare(&file)).contains("not a directory"));
        let text = told(Directory::prepare(&parent.path().join("a/b")));
        assert!(text.contains(&format!("finding {}", parent.path().join("a").display())), "{text}");
    }

    #[test]
    fn two_at_once_refuse_and_the_second_may_come_later() {
        let directory = fresh();
        let first = Directory::prepare(directory.path()).unwrap();
        assert!(told(Directory::prepare(directory.path())).contains("another `cordon up` is running"));
        drop(first);
        Directory::prepare(directory.path()).unwrap();
    }

    #[test]
    fn a_living_service_is_left_alone_and_a_dead_socket_is_removed() {
        let place = fresh();
        let socket = place.path().join("executor.sock");
        let service = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(told(Directory::prepare(place.path())).contains("already listens"));
        assert!(socket.exists());
        drop(service);
        Directory::prepare(place.path()).unwrap();
        assert!(!socket.exists());
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused() {
        let place = fresh();
        let long = place.path().join("x".repeat(100));
        assert!(told(Directory::prepare(&long)).contains("longer than the 107 bytes"));
    }

    #[test]
    fn a_token_is_kept_and_nonsense_in_its_place_is_refused() {
        let place = fresh();
        let directory = Directory::prepare(place.path()).unwrap();
        let kept = "k".repeat(TOKEN_BYTES);
        fs::write(directory.token_file(), format!("{kept}\n")).unwrap();
        assert_eq!(directory.token().unwrap(), kept);
        for text in ["", "short", &" ".repeat(64)] {
            fs::write(directory.token_file(), text).unwrap();
            assert!(told(directory.token()).contains("holds no token"), "{text:?}");
        }
        fs::remove_file(directory.token_file()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", directory.token_file()).unwrap();
        assert!(told(directory.token()).contains("reading"));
    }
}
