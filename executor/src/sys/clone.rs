//! Copies of the calling process, with a pidfd: clone3(2), or clone(2) where that is refused.
//!
//! What stands between the executor and the kernel may know clone(2) alone: a container runtime answers ENOSYS to
//! clone3, whose flags lie in memory that no filter can look at, and older ones EPERM to every call that they do not
//! know.

use super::process::{exit_now, is_single_threaded, signal, wait};
use nix::{
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::{signal::Signal, stat::Mode},
    unistd::{Pid, pipe2, read, write},
};
use std::{
    fs::File,
    io::Write as _,
    mem::size_of,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

/// Namespaces and the cgroup that a new process starts in.
#[derive(Debug, Clone, Copy)]
pub struct CloneOptions<'a> {
    /// CLONE_NEW* bits (namespaces(7)); 0 is none.
    pub namespaces: u64,
    /// Directory of the cgroup v2 leaf to start in (CLONE_INTO_CGROUP, clone(2)); none is the parent's.
    pub cgroup: Option<BorrowedFd<'a>>,
}

/// Who returns from [`clone_process`].
#[derive(Debug)]
pub enum Cloned {
    /// The caller: the new process and a descriptor that names it for ever.
    Parent {
        /// Its number as the caller sees it.
        pid: Pid,
        /// pidfd_open(2).
        pidfd: OwnedFd,
    },
    /// The new process: a copy of the caller, with all its descriptors and rights.
    Child,
}

/// Copies the calling process, which must have one thread only.
///
/// # Errors
/// errno of clone3(2), or of clone(2) where that is refused; `EBUSY` when the process has more than one thread, whose
/// locks the copy would keep.
pub fn clone_process(options: CloneOptions<'_>) -> Result<Cloned, Errno> {
    if !is_single_threaded() {
        return Err(Errno::EBUSY);
    }
    match by_clone3(options) {
        // The same refusal again where it is not the call that is refused, but what it asks for.
        Err(Errno::ENOSYS | Errno::EPERM) => by_clone(options),
        other => other,
    }
}

/// Whether clone3(2) gets through to the kernel, which does not take arguments of no length (EINVAL).
///
/// # Errors
/// What is answered instead: `ENOSYS` before Linux 5.3, and by filters.
pub fn find_clone3() -> Result<(), Errno> {
    // SAFETY: with no length the kernel looks at no memory, and starts nothing.
    let result = unsafe { libc::syscall(libc::SYS_clone3, std::ptr::null_mut::<libc::clone_args>(), 0) };
    match Errno::result(result) {
        Err(Errno::EINVAL) | Ok(_) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn by_clone3(options: CloneOptions<'_>) -> Result<Cloned, Errno> {
    let mut pidfd: RawFd = -1;
    // SAFETY: clone_args is plain old data for which all zeros is a valid value.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = options.namespaces | flag(libc::CLONE_PIDFD);
    arguments.pidfd = (&raw mut pidfd).expose_provenance() as u64;
    arguments.exit_signal = flag(libc::SIGCHLD);
    if let Some(cgroup) = options.cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = flag(cgroup.as_raw_fd());
    }
    // SAFETY: without CLONE_VM this is a fork: the child has its own copy of everything and returns here.
    // The caller is single-threaded, so that no lock can be held by a thread the child does not have. The
    // kernel writes the descriptor to `pidfd`, which outlives the call.
    let result =
        unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of::<libc::clone_args>()) };
    cloned(result, &pidfd)
}

/// As by clone3. The parent moves the new process into its leaf, which waits for that before it returns from here: it
/// does nothing outside.
fn by_clone(options: CloneOptions<'_>) -> Result<Cloned, Errno> {
    let held = options.cgroup.map(|cgroup| pipe2(OFlag::O_CLOEXEC).map(|pipe| (cgroup, pipe))).transpose()?;
    let mut pidfd: RawFd = -1;
    let flags = options.namespaces | flag(libc::CLONE_PIDFD) | flag(libc::SIGCHLD);
    // SAFETY: as in `by_clone3`; with CLONE_PIDFD the descriptor goes where the parent's copy of the number would. The
    // child goes on on its own copy of this stack.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) };
    let cloned = cloned(result, &pidfd)?;
    let Some((cgroup, (waits, moved))) = held else { return Ok(cloned) };
    match &cloned {
        Cloned::Child => {
            drop(moved);
            if !was_told(waits.as_fd()) {
                exit_now(1);
            }
        }
        Cloned::Parent { pid, pidfd } => {
            drop(waits);
            let told = move_into(cgroup, *pid).and_then(|()| write(&moved, &[1]));
            if let Err(errno) = told {
                let _ = signal(pidfd.as_fd(), Signal::SIGKILL);
                let _ = wait(pidfd.as_fd());
                return Err(errno);
            }
        }
    }
    Ok(cloned)
}

/// Waits for the parent's word; false when it has ended, or could not keep it.
fn was_told(waits: BorrowedFd<'_>) -> bool {
    let mut word = [0];
    loop {
        match read(waits, &mut word) {
            Ok(length) => return length == 1,
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

fn move_into(cgroup: BorrowedFd<'_>, pid: Pid) -> Result<(), Errno> {
    let file = openat(cgroup, "cgroup.procs", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let written = File::from(file).write_all(pid.to_string().as_bytes());
    written.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// What came of a call that puts the descriptor into `pidfd`.
fn cloned(result: libc::c_long, pidfd: &RawFd) -> Result<Cloned, Errno> {
    match Errno::result(result)? {
        0 => Ok(Cloned::Child),
        pid => {
            // SAFETY: CLONE_PIDFD has just made this descriptor for the caller alone.
            let pidfd = unsafe { OwnedFd::from_raw_fd(*pidfd) };
            let pid = i32::try_from(pid).map_err(|_| Errno::EOVERFLOW)?;
            Ok(Cloned::Parent { pid: Pid::from_raw(pid), pidfd })
        }
    }
}

/// Bit 33 of clone3's flags (linux/sched.h); libc's constant does not fit its own type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// A non-negative C constant or descriptor as the u64 that clone3 wants.
fn flag(value: i32) -> u64 {
    u64::from(value.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_moved_into_its_leaf_never_runs() {
        let no_cgroup = File::open("/usr").unwrap();
        let options = CloneOptions { namespaces: 0, cgroup: Some(no_cgroup.as_fd()) };
        match by_clone(options) {
            Err(errno) => assert_eq!(errno, Errno::ENOENT),
            Ok(Cloned::Child) => exit_now(0),
            Ok(Cloned::Parent { pid, .. }) => panic!("{pid} runs"),
        }
    }

    #[test]
    fn clone3_is_found_where_it_is() {
        // Any kernel that the executor is for has it.
        assert_eq!(find_clone3(), Ok(()));
    }
}
