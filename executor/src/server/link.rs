//! The server's end of the link: one task that sends in order, one place that receives.

use super::ServerError;
use crate::{
    monitor::link::{MESSAGE_LEN, ToMonitor, ToServer},
    sys::scm,
};
use nix::errno::Errno;
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};
use tokio::{io::unix::AsyncFd, sync::mpsc};

/// Messages that may wait for the monitor before those who send have to wait too.
pub(super) const WAITING_MAX: usize = 256;

/// A message for the monitor.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The message.
    pub(super) message: ToMonitor,
    /// The descriptors that go with it.
    pub(super) descriptors: Vec<OwnedFd>,
}

/// Sends what comes from the channel, in that order, until the channel ends.
///
/// # Errors
/// When the link is broken.
pub(super) async fn send_all(
    link: &AsyncFd<OwnedFd>,
    mut outgoing: mpsc::Receiver<Outgoing>,
) -> Result<(), ServerError> {
    while let Some(Outgoing { message, descriptors }) = outgoing.recv().await {
        let bytes = message.encode();
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        loop {
            match scm::send(link.get_ref().as_fd(), &bytes, &descriptors) {
                Ok(()) => break,
                Err(Errno::EAGAIN) => link.writable().await.map_err(ServerError::Link)?.clear_ready(),
                Err(Errno::EINTR) => {}
                // The monitor is gone: the receiving side sees that too, and says it better.
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Ok(()),
                Err(e) => return Err(ServerError::Link(e.into())),
            }
        }
    }
    Ok(())
}

/// The next message and its descriptors; none when the monitor is gone. Cancel safe.
///
/// # Errors
/// When the link is broken, or the message is none.
pub(super) async fn receive(
    link: &AsyncFd<OwnedFd>,
) -> Result<Option<(ToServer, Vec<OwnedFd>)>, ServerError> {
    let mut buffer = [0; MESSAGE_LEN];
    loop {
        tokio::task::coop::consume_budget().await;
        match scm::receive(link.get_ref().as_fd(), &mut buffer) {
            Ok(received) if received.length == 0 => return Ok(None),
            Ok(received) if received.truncated => {
                return Err(ServerError::Unexpected("a message of another size"));
            }
            Ok(received) => {
                let message = ToServer::decode(&buffer[..received.length])?;
                return Ok(Some((message, received.descriptors)));
            }
            Err(Errno::EAGAIN) => link.readable().await.map_err(ServerError::Link)?.clear_ready(),
            Err(Errno::EINTR) => {}
            Err(Errno::ECONNRESET) => return Ok(None),
            Err(e) => return Err(ServerError::Link(io::Error::from(e))),
        }
    }
}
