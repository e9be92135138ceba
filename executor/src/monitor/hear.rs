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
        _ => Heard::End,
    }
}
