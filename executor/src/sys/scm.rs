//! Messages with descriptors over a Unix socket (unix(7), SCM_RIGHTS).

use cordon_protocol::limits::SERVICES_MAX;
use nix::{
    cmsg_space,
    errno::Errno,
    sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg},
};
use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

/// Most descriptors that one message may carry: two for each service of a sandbox.
pub const DESCRIPTORS_MAX: usize = 2 * SERVICES_MAX;

/// Most descriptors that the kernel passes in one message (unix(7)).
const SCM_MAX_FD: usize = 253;

/// A received message.
#[derive(Debug)]
pub struct Received {
    /// Bytes of it; 0 is the end of the connection.
    pub length: usize,
    /// The message was longer than the buffer, or had more than [`DESCRIPTORS_MAX`] descriptors.
    pub truncated: bool,
    /// Descriptors that came with it, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
}

/// Sends one message with descriptors; never raises SIGPIPE.
///
/// # Errors
/// errno of sendmsg(2); `EAGAIN` on a full non-blocking socket.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &rights };
    let parts = [IoSlice::new(bytes)];
    let sent = sendmsg::<()>(socket.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None)?;
    if sent == bytes.len() { Ok(()) } else { Err(Errno::EMSGSIZE) }
}

/// Receives one message and the descriptors that came with it.
///
/// # Errors
/// errno of recvmsg(2); `EAGAIN` on an empty non-blocking socket.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Received, Errno> {
    receive_with(socket, buffer, MsgFlags::empty())
}

/// As [`receive`], but never waits.
///
/// # Errors
/// errno of recvmsg(2); `EAGAIN` when there is no message.
pub fn receive_now(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Received, Errno> {
    receive_with(socket, buffer, MsgFlags::MSG_DONTWAIT)
}

fn receive_with(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: MsgFlags) -> Result<Received, Errno> {
    // Room for as many as the kernel passes at once, so that none is ever received and then not known.
    let mut control = cmsg_space!([RawFd; SCM_MAX_FD]);
    let mut parts = [IoSliceMut::new(buffer)];
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
    let mut descriptors = Vec::new();
    for item in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = item {
            // SAFETY: the kernel has just made these descriptors for this process and nothing else in it
            // knows their numbers, so that this is their only owner.
            descriptors.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    let truncated = message.flags.contains(MsgFlags::MSG_TRUNC) || descriptors.len() > DESCRIPTORS_MAX;
    Ok(Received { length: message.bytes, truncated, descriptors })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    use std::{fs::File, io::Read, os::fd::AsFd};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
    }

    #[test]
    fn a_descriptor_arrives_with_its_message() {
        let (left, right) = pair();
        let (reader, writer) = nix::unistd::pipe().unwrap();
        send(left.as_fd(), b"hello", &[reader.as_fd()]).unwrap();
        nix::unistd::write(&writer, b"through").unwrap();
        drop((reader, writer));
        let mut buffer = [0; 16];
        let received = receive(right.as_fd(), &mut buffer).unwrap();
        assert_eq!((&buffer[..received.length], received.truncated), (&b"hello"[..], false));
        let mut text = String::new();
        File::from(received.descriptors.into_iter().next().unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
    }

    #[test]
    fn what_does_not_fit_is_marked() {
        let (left, right) = pair();
        send(left.as_fd(), b"longer than four", &[]).unwrap();
        assert!(receive(right.as_fd(), &mut [0; 4]).unwrap().truncated);
        let many: Vec<_> = std::iter::repeat_with(|| left.as_fd()).take(DESCRIPTORS_MAX + 4).collect();
        send(left.as_fd(), b"x", &many).unwrap();
        let received = receive(right.as_fd(), &mut [0; 4]).unwrap();
        assert!(received.truncated && received.descriptors.len() == many.len());
    }
}
