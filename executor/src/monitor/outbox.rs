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
