//! The sockets the gateway answers on: of each kind systemd's where it passed one, otherwise its own.
//!
//! They are taken before the lock-down, after which no file can be made and no port bound.

use crate::config::{Config, ConfigError};
use listenfd::ListenFd;
use nix::sys::stat::{Mode, umask};
use std::{
    fmt, fs, io,
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::FileTypeExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

/// Listening sockets, not yet blocking or otherwise set up.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Guarded by the token.
    pub tcp: Vec<TcpListener>,
    /// Guarded by their group.
    pub unix: Vec<UnixListener>,
}

/// Why there is nothing to listen on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A descriptor from systemd is of no use.
    #[error(
        "socket activation: descriptor {index} of {count} is not a TCP or Unix stream listener: {source}"
    )]
    Passed {
        /// Which, counted from 0.
        index: usize,
        /// How many there are.
        count: usize,
        /// Cause.
        source: io::Error,
    },
    /// The port cannot be had.
    #[error("listen: cannot bind {address}: {source}; is another gateway running?")]
    Tcp {
        /// Address.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// The Unix socket cannot be had.
    #[error("socket: cannot bind {}: {problem}", path.display())]
    Unix {
        /// Path.
        path: PathBuf,
        /// What is in the way.
        problem: String,
    },
    /// An address that other machines reach.
    #[error(transparent)]
    Address(#[from] ConfigError),
}

impl Listeners {
    /// The descriptors of `LISTEN_FDS` (sd_listen_fds(3)); what the configuration says of a kind that is not among them.
    ///
    /// # Errors
    /// As [`ListenError`] says.
    pub fn from_systemd_or_bind(config: &Config) -> Result<Self, ListenError> {
        let mut listeners = Self::take(&mut ListenFd::from_env())?;
        if listeners.tcp.is_empty() {
            let tcp = |source| ListenError::Tcp { address: config.listen, source };
            listeners.tcp.push(TcpListener::bind(config.listen).map_err(tcp)?);
        }
        if let Some(path) = config.socket.as_ref().filter(|_| listeners.unix.is_empty()) {
            let unix = |problem| ListenError::Unix { path: path.clone(), problem };
            listeners.unix.push(bind_unix(path).map_err(unix)?);
        }
        for listener in &listeners.tcp {
            let passed = |source| ListenError::Passed { index: 0, count: listeners.tcp.len(), source };
            config.check_address("listen", listener.local_addr().map_err(passed)?)?;
        }
        Ok(listeners)
    }

    fn take(passed: &mut ListenFd) -> Result<Self, ListenError> {
        let mut listeners = Self::default();
        let count = passed.len();
        for index in 0..count {
            // A socket of the wrong kind is left in its place, so that the second attempt finds it.
            if let Ok(Some(listener)) = passed.take_unix_listener(index) {
                listeners.unix.push(listener);
            } else {
                let error = |source| ListenError::Passed { index, count, source };
                listeners.tcp.extend(passed.take_tcp_listener(index).map_err(error)?);
            }
        }
        Ok(listeners)
    }
}

/// A socket at `path` of mode 0660; its group is the directory's where that is setgid, else the process's.
fn bind_unix(path: &Path) -> Result<UnixListener, String> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.to_string()),
        Ok(meta) if !meta.file_type().is_socket() => return Err("something else is there; remove it".into()),
        Ok(_) => match UnixStream::connect(path) {
            // Nobody listens: what is there was left by an earlier run.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(|e| format!("cannot remove the stale socket: {e}"))?;
            }
            Err(error) => return Err(format!("cannot tell whether it is in use: {error}")),
            Ok(_) => return Err("another process answers on it; stop it first".into()),
        },
    }
    // The mode is right from the first moment; there is no other thread that the mask could surprise.
    let before = umask(Mode::S_IXUSR | Mode::S_IXGRP | Mode::S_IRWXO);
    let listener = UnixListener::bind(path);
    umask(before);
    listener.map_err(|e| e.to_string())
}

impl fmt::Display for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Vec::new();
        for listener in &self.tcp {
            names.push(listener.local_addr().map_or("http://?".into(), |a| format!("http://{a}")));
        }
        for listener in &self.unix {
            let address = listener.local_addr().ok();
            let path = address.as_ref().and_then(|a| a.as_pathname());
            names.push(path.map_or("unix:?".into(), |p| format!("unix:{}", p.display())));
        }
        f.write_str(&names.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gateway.sock");
        let first = bind_unix(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert!(bind_unix(&path).unwrap_err().contains("another process"));
        assert!(UnixStream::connect(&path).is_ok());
        drop(first);
        bind_unix(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(bind_unix(&path).unwrap_err().contains("something else"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
