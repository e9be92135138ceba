//! The listening socket: systemd's, or one of our own that only root and one group may connect to.

use crate::sys::{process::inherited, socket::refuse_descriptors};
use nix::{
    sys::{
        socket::{
            SockType, getsockopt,
            sockopt::{AcceptConn, SockType as SocketType},
        },
        stat::{Mode, umask},
    },
    unistd::{Gid, Uid, chown},
};
use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody answers on it.
    #[error("socket {0}: another executor is listening there; stop it or choose another `socket`")]
    InUse(String),
    /// It could not be made.
    #[error("socket {path}: cannot listen: {source}")]
    Bind {
        /// Path.
        path: String,
        /// Cause.
        source: io::Error,
    },
}

/// Takes a socket's file away again, whichever way the executor ends; systemd goes on listening on its own.
#[derive(Debug)]
pub struct BoundFile(Option<PathBuf>);

impl Drop for BoundFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// systemd's first descriptor when there is one (sd_listen_fds(3)), else a socket bound at `path`.
///
/// # Errors
/// As [`ListenError`] says.
pub fn listen(path: &Path, group: u32) -> Result<(UnixListener, BoundFile), ListenError> {
    let failed = |source| ListenError::Bind { path: path.display().to_string(), source };
    let given = sd_notify::listen_fds().map_err(failed)?.next();
    let (listener, bound) = match given {
        Some(fd) => (adopt(inherited(fd).map_err(|e| failed(e.into()))?).map_err(failed)?, None),
        None => {
            let bound = bind(path, group).map_err(|error| match error {
                BindError::InUse => ListenError::InUse(path.display().to_string()),
                BindError::Failed(source) => failed(source),
            });
            (bound?, Some(path.to_owned()))
        }
    };
    // Where the kernel cannot do that, a client can hold up the server half, though never the monitor.
    refuse_descriptors(listener.as_fd());
    Ok((listener, BoundFile(bound)))
}

/// A descriptor that was handed over, once it is known to be what it should.
fn adopt(fd: OwnedFd) -> io::Result<UnixListener> {
    let listens = getsockopt(&fd, AcceptConn)? && getsockopt(&fd, SocketType)? == SockType::Stream;
    let listener = UnixListener::from(fd);
    // Of any other family there is no such address.
    if listens && listener.local_addr().is_ok() {
        return Ok(listener);
    }
    Err(io::Error::other("the descriptor that was handed over is no listening Unix stream socket"))
}

enum BindError {
    InUse,
    Failed(io::Error),
}

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

fn bind(path: &Path, group: u32) -> Result<UnixListener, BindError> {
    if UnixStream::connect(path).is_ok() {
        return Err(BindError::InUse);
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    // Nobody may connect between bind and the change of group.
    let before = umask(Mode::from_bits_truncate(0o777));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound?;
    let owned = chown(path, Some(Uid::from_raw(0)), Some(Gid::from_raw(group)));
    owned.map_err(io::Error::from)?;
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o660))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, net::TcpListener, os::linux::net::SocketAddrExt, os::unix::net::SocketAddr};

    #[test]
    fn only_a_listening_unix_socket_is_adopted() {
        let address = SocketAddr::from_abstract_name(format!("cordon-{}", std::process::id())).unwrap();
        assert!(adopt(UnixListener::bind_addr(&address).unwrap().into()).is_ok());
        assert!(adopt(UnixStream::pair().unwrap().0.into()).is_err());
        assert!(adopt(TcpListener::bind("127.0.0.1:0").unwrap().into()).is_err());
        assert!(adopt(File::open("/dev/null").unwrap().into()).is_err());
    }
}
