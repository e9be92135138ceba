//! What a sandbox's process says to the monitor, taken in without waiting.

use crate::{
    sandbox::message::{REPORT_LEN, Report},
    sys::scm,
};
use nix::errno::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};

/// One look at a pair.
pub(super) enum Heard {
    /// No message yet.
    Nothing,
    /// A message and its descriptors.
    Report(Report, Vec<OwnedFd>),
    /// The other end is closed.
    End,
}

/// Takes in one message; anything that is none counts as a failure to report.
pub(super) fn receive(control: BorrowedFd<'_>) -> Heard {
    let mut bytes = [0; REPORT_LEN];
    match scm::receive_now(control, &mut bytes) {
        Err(Errno::EAGAIN | Errno::EINTR) => Heard::Nothing,
        Ok(received) if received.length > 0 => match Report::decode(&bytes[..received.length]) {
            Some(report) => Heard::Report(report, received.descriptors),
            None => Heard::Report(Report::died("report"), Vec::new()),
        },
        // It closed before it took the word to go, so nothing was executed. The kernel says this once, before it
        // hands out what was said earlier: that is the reason, where there is one, and takes this one's place.
        Err(Errno::ECONNRESET) => {
            let (step, errno) = ("go".to_owned(), Errno::EPIPE as i32);
            Heard::Report(Report::Failed { step, errno, detail: String::new() }, Vec::new())
        }
        _ => Heard::End,
    }
}
