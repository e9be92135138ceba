//! DIR: everything that `cordon up` writes, and the one file that it reads.
//!
//! ```text
//! DIR/                  root, 0755
//!   executor.sock       made by the executor
//!   gateway.sock        0660 root:cordon
//!   token               0640 root:cordon, kept from run to run
//!   profiles.toml       a person's, of root: profiles for the executor; never written, never removed
//!   state/              root, 0755
//!     cordon-up.lock    held while it runs; says that state/ is ours
//!     made-*            what we made outside state/, for --undo
//!     executor.toml  gateway.toml  notify-*.sock
//!     executor/         the executor's own, 0711
//! ```

use super::{
    accounts,
    trust::{check_above, check_trust},
};
use crate::failure::Failure;
use cordon_protocol::supervision::Supervision;
use nix::{
    fcntl::OFlag,
    unistd::{Group, User, chown},
};
use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read, Write},
    os::unix::{
        fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

/// Longest path of a socket, bytes (unix(7): `sun_path`, less its terminator).
const SOCKET_PATH_MAX: usize = 107;
/// Neither a link elsewhere nor a pipe that would be waited for.
const PLAIN_FILE: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK);
/// The executor's configuration, in DIR.
const EXECUTOR_CONFIGURATION: &str = "state/executor.toml";
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
        if fs::symlink_metadata(directory.audit_file()).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            write_root_file(&directory.made_audit_mark(), "", 0o644)?;
        }
        make_directory(&directory.executor_state(), 0o711)?;
        Ok(directory)
    }

    /// Takes the lock of a directory that is there, after checking it.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let path = resolve(path)?;
        check_trust(&path)?;
        make_directory(&path.join("state"), 0o755)?;
        refuse_foreign_state(&path)?;
        let lock_path = lock_path(&path);
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

    /// The texts of commands, which the executor keeps beside the trail.
    pub(super) fn texts_file(&self) -> PathBuf {
        self.audit_file().with_file_name("commands.jsonl")
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
        self.path.join(EXECUTOR_CONFIGURATION)
    }

    /// A person's own profiles, where there are any.
    pub(super) fn profiles_file(&self) -> PathBuf {
        self.path.join("profiles.toml")
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
        self.path.join("state/made-dir")
    }

    /// There when we made the token.
    pub(super) fn made_token_mark(&self) -> PathBuf {
        self.path.join("state/made-token")
    }

    /// There when the audit trail is one that we began.
    pub(super) fn made_audit_mark(&self) -> PathBuf {
        self.path.join("state/made-audit")
    }

    /// Removes every socket, and nothing else that may have its name. What is not there needs no removing.
    pub(super) fn remove_sockets(&self) {
        let notify = ["cordon-executor", "cordon-gateway"].map(|name| self.notify_socket(name));
        for path in notify.into_iter().chain([self.executor_socket(), self.gateway_socket()]) {
            if fs::symlink_metadata(&path).is_ok_and(|meta| meta.file_type().is_socket()) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// An executor or gateway that answers here is not ours (the lock is), so it is a system service.
    fn refuse_foreign_daemons(&self) -> Result<(), Failure> {
        for path in [self.executor_socket(), self.gateway_socket()] {
            if UnixStream::connect(&path).is_ok() {
                let cause = format!("somebody already listens at {}", path.display());
                let stop = match Supervision::of_this_host() {
                    Supervision::Systemd => "systemctl stop cordon-executor cordon-gateway",
                    _ => "`ss -xlp` names its process",
                };
                let next = format!("stop it ({stop}), or use another --dir");
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
        let opened = OpenOptions::new().read(true).custom_flags(PLAIN_FILE.bits()).open(&path);
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

    /// Whether the file holds this token still.
    pub(super) fn holds(&self, token: &str) -> bool {
        fs::read_to_string(self.token_file()).is_ok_and(|text| text.trim() == token)
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
        write_root_file(&self.made_token_mark(), "", 0o644)?;
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
    options.write(true).create(true).mode(mode).custom_flags(PLAIN_FILE.bits());
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

/// Held by a running `cordon up`, and there wherever one has run.
fn lock_path(directory: &Path) -> PathBuf {
    directory.join("state/cordon-up.lock")
}

/// The configuration that `cordon up` gave the executor of this socket, where one is there that only root can have
/// written.
pub(in crate::commands) fn configuration_of(socket: &Path) -> Option<PathBuf> {
    let directory = fs::canonicalize(std::path::absolute(socket).ok()?.parent()?).ok()?;
    let file = directory.join(EXECUTOR_CONFIGURATION);
    // With all that is above it.
    check_trust(&directory.join("state")).ok()?;
    let meta = fs::symlink_metadata(&file).ok()?;
    let of_root = meta.is_file() && meta.uid() == 0 && meta.mode() & 0o022 == 0;
    (of_root && File::open(&file).is_ok()).then_some(file)
}

/// Whether `cordon up` has run in DIR.
pub(super) fn was_used(directory: &Path) -> bool {
    lock_path(directory).exists()
}

/// What `cordon up` keeps in `state/`, `--undo` removes: it must not be somebody else's. The lock is the first
/// thing that we make in it.
fn refuse_foreign_state(directory: &Path) -> Result<(), Failure> {
    let state = directory.join("state");
    let what = format!("checking {}", state.display());
    let next = "choose another directory with --dir";
    let mut entries = fs::read_dir(&state).map_err(|e| Failure::new(&what, e, next))?;
    if entries.next().is_some() && !was_used(directory) {
        return Err(Failure::new(what, "it was there before and is not `cordon up`'s", next));
    }
    Ok(())
}

fn resolve(path: &Path) -> Result<PathBuf, Failure> {
    let next = "make the directory, or choose another with --dir";
    fs::canonicalize(path).map_err(|e| Failure::new(format!("finding {}", path.display()), e, next))
}

#[cfg(test)]
mod tests;
