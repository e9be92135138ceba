//! Network namespaces with nothing but a loopback of their own, made off the path and used once.

use crate::sys::socket::bring_up_loopback;
use nix::{
    errno::Errno,
    sched::{CloneFlags, setns, unshare},
};
use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    process::abort,
    time::{Duration, Instant},
};

/// Namespaces that wait.
const STOCK: usize = 4;

/// The stock.
#[derive(Debug)]
pub(super) struct Networks {
    own: File,
    stock: Vec<OwnedFd>,
    /// None can be made at the moment: the next attempt is after this.
    failing_until: Option<Instant>,
}

/// Time between two attempts that fail, so that they take nobody else's.
const RETRY: Duration = Duration::from_secs(1);

impl Networks {
    /// An empty stock.
    ///
    /// # Errors
    /// When the monitor's own namespace cannot be named.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { own: File::open("/proc/self/ns/net")?, stock: Vec::new(), failing_until: None })
    }

    /// A namespace in which nothing has ever run.
    ///
    /// # Errors
    /// errno of unshare(2).
    pub(super) fn lease(&mut self) -> Result<OwnedFd, Errno> {
        match self.stock.pop() {
            Some(network) => Ok(network),
            None => self.make(),
        }
    }

    /// Whether one is missing from the stock.
    pub(super) fn wants_more(&self) -> bool {
        self.stock.len() < STOCK && self.failing_until.is_none_or(|until| Instant::now() >= until)
    }

    /// Adds one to the stock; for times when nobody waits.
    pub(super) fn refill(&mut self) {
        match self.make() {
            Ok(network) => {
                self.stock.push(network);
                self.failing_until = None;
            }
            Err(_) => self.failing_until = Some(Instant::now() + RETRY),
        }
    }

    fn make(&self) -> Result<OwnedFd, Errno> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let made = bring_up_loopback().and_then(|()| {
            let file = File::open("/proc/self/ns/net");
            file.map(OwnedFd::from).map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))
        });
        if setns(&self.own, CloneFlags::CLONE_NEWNET).is_err() {
            // A monitor in a sandbox's network must not go on.
            abort();
        }
        made
    }
}
