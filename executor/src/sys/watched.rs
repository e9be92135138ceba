//! Descriptors that tokio's runtime watches. Only the server half has a runtime.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::{io, os::fd::OwnedFd};
use tokio::io::unix::AsyncFd;

/// The descriptor, non-blocking, watched for reading and writing. Needs a runtime around it.
///
/// # Errors
/// errno of fcntl(2) or epoll_ctl(2); a regular file for example cannot be watched.
pub fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
    fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    // SAFETY: an `OwnedFd` is open and names the same descriptor for as long as it lives, and the
    // `AsyncFd` that owns it takes it out of the runtime before it is closed.
    unsafe { AsyncFd::register(fd) }.map_err(|e| e.into_parts().1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::unix::net::UnixStream, time::Duration};

    #[tokio::test]
    async fn a_socket_is_watched_and_a_file_is_not() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = watched(ours.into()).unwrap();
        let early = tokio::time::timeout(Duration::from_millis(10), socket.readable()).await;
        assert!(early.is_err(), "nothing to read yet");
        drop(theirs);
        assert!(socket.readable().await.unwrap().ready().is_read_closed());
        assert!(watched(File::open("/etc/passwd").unwrap().into()).is_err());
    }
}
