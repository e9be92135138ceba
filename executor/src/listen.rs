//! The listening socket: systemd's, or one of our own that only root and one group may connect to.

use crate::sys::{process::inherited, socket::refuse_descriptors};
use nix::{
    errno::Errno,
    sys::{
        socket::{
            AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket,
            sockopt::{AcceptConn, SockType as SocketType},
        },
        stat::{Mode, umask},
    },
    unistd::{Gid, Uid, chown},
};
use std::{
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{fs::FileTypeExt, net::UnixListener},
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
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
        Ok(meta) if meta.file_type().is_socket() => match knock(path) {
            // Nobody listens: an executor that was killed has left it.
            Err(Errno::ECONNREFUSED) => fs::remove_file(path)?,
            // With as many waiting as may, somebody listens all the more.
            Ok(()) | Err(Errno::EAGAIN) => return Err(BindError::InUse),
            Err(errno) => return Err(io::Error::from(errno).into()),
        },
        Ok(_) => return Err(io::Error::other("something else is there; remove it, or name another").into()),
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

/// Connects without waiting for anybody, and hangs up again.
fn knock(path: &Path) -> Result<(), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let client = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(client.as_raw_fd(), &UnixAddr::new(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{Backlog, Shutdown, listen as listen_again, shutdown};
    use std::{
        fs::File,
        net::TcpListener,
        os::{
            linux::net::SocketAddrExt,
            unix::net::{SocketAddr, UnixDatagram, UnixStream},
        },
    };

    #[test]
    fn only_a_socket_that_nobody_listens_on_is_replaced() {
        if !Uid::effective().is_root() {
            panic!("needs root: the socket must be root's");
        }
        let directory = std::env::temp_dir().join(format!("cordon-listen-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("executor.sock");
        let first = bind(&path, 0).unwrap_or_else(|_| panic!("nothing is there"));
        assert!(matches!(bind(&path, 0), Err(BindError::InUse)));
        // Also when nobody takes in who has connected, and no more may wait.
        listen_again(&first, Backlog::new(1).unwrap()).unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let client = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
            let connected = connect(client.as_raw_fd(), &UnixAddr::new(&path).unwrap());
            connected.is_ok().then_some(client)
        })
        .take(100)
        .collect();
        assert!(matches!(bind(&path, 0), Err(BindError::InUse)), "{} wait", waiting.len());
        // Closing it would not do: a process that another test is just starting may have it still.
        shutdown(first.as_raw_fd(), Shutdown::Both).unwrap();
        drop((first, waiting));
        drop(bind(&path, 0).unwrap_or_else(|_| panic!("left by one that has ended")));
        fs::remove_file(&path).unwrap();
        // Files are somebody's, and so is a socket of another kind.
        fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&path, 0), Err(BindError::Failed(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
        let _datagrams = UnixDatagram::bind(&path).unwrap();
        assert!(matches!(bind(&path, 0), Err(BindError::Failed(_))));
        assert!(path.exists());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn only_a_listening_unix_socket_is_adopted() {
        let address = SocketAddr::from_abstract_name(format!("cordon-{}", std::process::id())).unwrap();
        assert!(adopt(UnixListener::bind_addr(&address).unwrap().into()).is_ok());
        assert!(adopt(UnixStream::pair().unwrap().0.into()).is_err());
        assert!(adopt(TcpListener::bind("127.0.0.1:0").unwrap().into()).is_err());
        assert!(adopt(File::open("/dev/null").unwrap().into()).is_err());
    }
}
