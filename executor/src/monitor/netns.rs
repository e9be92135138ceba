//! Network namespaces with nothing but a loopback of their own, made off the path and used once.

use super::stock::Stock;
use crate::{sandbox::steps::injected, sys::socket::bring_up_loopback};
use nix::{
    errno::Errno,
    sched::{CloneFlags, setns, unshare},
};
use std::{fs::File, io, os::fd::OwnedFd, process::abort, time::Instant};

/// Fails the making of a namespace in tests.
const FAULT: &str = "network_namespace";

/// The monitor's own namespace, and others that wait to be leased.
#[derive(Debug)]
pub(super) struct Networks {
    own: File,
    stock: Stock<OwnedFd>,
}

impl Networks {
    /// An empty stock.
    ///
    /// # Errors
    /// When the monitor's own namespace cannot be named.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { own: File::open("/proc/self/ns/net")?, stock: Stock::new() })
    }

    /// A namespace in which nothing has ever run.
    ///
    /// # Errors
    /// errno of unshare(2).
    pub(super) fn lease(&mut self) -> Result<OwnedFd, Errno> {
        let Self { own, stock } = self;
        stock.take(|| make(own))
    }

    /// Whether one is missing from the stock and could be made.
    pub(super) fn wants_more(&self, now: Instant) -> bool {
        self.stock.wants_more(now)
    }

    /// Adds one to the stock if one is missing; for times when nobody waits.
    pub(super) fn refill(&mut self, now: Instant) {
        let Self { own, stock } = self;
        stock.refill(now, || make(own));
    }
}

/// Makes a namespace, and returns to the monitor's `own`.
fn make(own: &File) -> Result<OwnedFd, Errno> {
    if injected(FAULT) {
        return Err(Errno::ENOSPC);
    }
    unshare(CloneFlags::CLONE_NEWNET)?;
    let made = bring_up_loopback().and_then(|()| {
        let file = File::open("/proc/self/ns/net");
        file.map(OwnedFd::from).map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))
    });
    if let Err(errno) = setns(own, CloneFlags::CLONE_NEWNET) {
        // A monitor in a sandbox's network must not go on. That it can return was tried at the start.
        crate::log!(
            "ending at once, and every command with it: setns, which leaves a new network namespace again, failed: \
             {}; start the executor behind no filter that refuses setns",
            errno.desc()
        );
        abort();
    }
    made
}
