//! Messages to the server that wait for room: the monitor never blocks on a server that does not read.

use super::link::{Message, ToServer};
use crate::sys::scm;
use nix::errno::Errno;
use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// A server that leaves so many messages unread has stopped working.
const MESSAGES_MAX: usize = 16_384;

/// With so many waiting, those who connect wait in the listening socket's own queue.
const LONG: usize = 64;

/// Messages in order, each with its descriptors.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<(Message, Vec<OwnedFd>)>,
}

impl Outbox {
    /// Adds a message.
    pub(super) fn push(&mut self, message: &ToServer, descriptors: Vec<OwnedFd>) {
        self.waiting.push_back((message.encode(), descriptors));
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether so much waits that nothing should be added that can wait elsewhere.
    pub(super) fn is_long(&self) -> bool {
        self.waiting.len() > LONG
    }

    /// Sends what there is room for. The link must not block.
    ///
    /// # Errors
    /// errno of sendmsg(2); `ENOBUFS` when the server has stopped reading.
    pub(super) fn flush(&mut self, link: BorrowedFd<'_>) -> Result<(), Errno> {
        while let Some((message, descriptors)) = self.waiting.front() {
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            match scm::send(link, message, &borrowed) {
                Ok(()) => drop(self.waiting.pop_front()),
                Err(Errno::EAGAIN) if self.waiting.len() > MESSAGES_MAX => return Err(Errno::ENOBUFS),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::link::MESSAGE_LEN;
    use nix::{
        sys::socket::{AddressFamily, SockFlag, SockType, socketpair},
        unistd::pipe,
    };
    use std::{fs::File, io::Write};

    fn link() -> (OwnedFd, OwnedFd) {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap()
    }

    /// The next message, if there is one, and what came with it.
    fn read(server: &OwnedFd) -> Option<(ToServer, Vec<OwnedFd>)> {
        let mut buffer = [0; MESSAGE_LEN];
        let received = scm::receive_now(server.as_fd(), &mut buffer).ok()?;
        Some((ToServer::decode(&buffer[..received.length]).unwrap(), received.descriptors))
    }

    #[test]
    fn a_server_that_does_not_read_is_never_waited_for_and_given_up_in_the_end() {
        let (link, _server) = link();
        let mut outbox = Outbox::default();
        let mut pushed = 0;
        let given_up = loop {
            outbox.push(&ToServer::Executed(pushed), Vec::new());
            pushed += 1;
            if let Err(errno) = outbox.flush(link.as_fd()) {
                break errno;
            }
            assert!(outbox.waiting.len() <= MESSAGES_MAX, "more and more wait");
            assert_eq!(outbox.is_long(), outbox.waiting.len() > LONG);
        };
        assert_eq!(given_up, Errno::ENOBUFS);
        // What fits into the socket, what may wait, and the one too many.
        assert!(pushed > MESSAGES_MAX as u64, "{pushed}");
    }

    #[test]
    fn what_waits_arrives_once_in_order_and_with_its_descriptors() {
        let (link, server) = link();
        let mut outbox = Outbox::default();
        let mut expected = 0;
        let mut check = |(message, descriptors): (ToServer, Vec<OwnedFd>)| {
            assert_eq!(message, ToServer::Executed(expected));
            assert_eq!(descriptors.len(), usize::from(expected % 21 == 0), "{expected}");
            for fd in descriptors {
                // It is the one that was pushed: what is written to it comes out of its pipe.
                File::from(fd).write_all(&[1]).unwrap();
            }
            expected += 1;
        };
        let mut readers = Vec::new();
        let mut waited = false;
        for number in 0..2000 {
            let mut descriptors = Vec::new();
            if number % 21 == 0 {
                let (reader, writer) = pipe().unwrap();
                readers.push(reader);
                descriptors.push(writer);
            }
            outbox.push(&ToServer::Executed(number), descriptors);
            outbox.flush(link.as_fd()).unwrap();
            waited |= !outbox.is_empty();
            // A server that reads one message for three that come.
            if number % 3 == 0 {
                read(&server).into_iter().for_each(&mut check);
            }
        }
        while !outbox.is_empty() {
            read(&server).into_iter().for_each(&mut check);
            outbox.flush(link.as_fd()).unwrap();
        }
        while let Some(received) = read(&server) {
            check(received);
        }
        assert!(waited, "the socket never was full");
        assert_eq!(expected, 2000);
        for reader in readers {
            let mut byte = [0];
            assert_eq!(nix::unistd::read(&reader, &mut byte), Ok(1));
        }
    }

    #[test]
    fn a_server_that_has_gone_is_an_error_and_what_was_for_it_stays_nobodys() {
        let (link, server) = link();
        let (reader, writer) = pipe().unwrap();
        let mut outbox = Outbox::default();
        outbox.push(&ToServer::Drain, vec![writer]);
        drop(server);
        assert_eq!(outbox.flush(link.as_fd()), Err(Errno::EPIPE));
        drop(outbox);
        assert_eq!(nix::unistd::read(&reader, &mut [0]), Ok(0), "the other end is still open");
    }
}
