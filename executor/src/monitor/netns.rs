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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, os::unix::process::ExitStatusExt, process::Command};

    /// In the second process: it is the one that cannot return.
    const LOST: &str = "CORDON_NETNS_TEST";

    #[test]
    fn a_monitor_that_cannot_return_says_why_and_does_not_go_on() {
        if env::var_os(LOST).is_some() {
            let made = make(&File::open("/proc/self/ns/uts").unwrap());
            crate::log!("it went on: {made:?}");
            return;
        }
        let test = module_path!().split_once("::").unwrap().1;
        let test = format!("{test}::a_monitor_that_cannot_return_says_why_and_does_not_go_on");
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([&test, "--exact", "--nocapture", "--test-threads=1"]).env(LOST, "1");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
        for words in ["setns", "network namespace", "Invalid argument", "no filter that refuses setns"] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}
