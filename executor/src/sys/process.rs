//! Processes: signals and waiting by pidfd, dispositions, closing of inherited descriptors.

use nix::{
    errno::Errno,
    sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
    unistd::Pid,
};
use std::{
    cmp::Ordering,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

/// Whether the calling process has one thread (`Threads:` is the number of entries in /proc/self/task).
pub fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// Sends a signal to the process that the descriptor names (pidfd_send_signal(2)).
///
/// # Errors
/// `ESRCH` when it has ended.
pub fn signal(pidfd: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    let number = signal as libc::c_int;
    // SAFETY: takes a descriptor, a number, no siginfo and no flags; touches no memory of ours.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            number,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    Errno::result(result).map(drop)
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// With this exit status.
    Exited(i32),
    /// By this signal, real-time ones included (which nix cannot name).
    Killed(i32),
}

/// Reaps the child that the descriptor names, once it has ended.
///
/// # Errors
/// `ECHILD` when it is not a child, or was reaped already.
pub fn wait(pidfd: BorrowedFd<'_>) -> Result<Status, Errno> {
    loop {
        match wait_with(pidfd, 0) {
            Ok(Some(status)) => return Ok(status),
            Ok(None) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Reaps the child if it has ended. One that cannot be waited for any more counts as killed.
pub fn try_wait(pidfd: BorrowedFd<'_>) -> Option<Status> {
    match wait_with(pidfd, libc::WNOHANG) {
        Ok(status) => status,
        Err(Errno::EINTR) => None,
        Err(_) => Some(Status::Killed(libc::SIGKILL)),
    }
}

fn wait_with(pidfd: BorrowedFd<'_>, flags: libc::c_int) -> Result<Option<Status>, Errno> {
    let id = libc::id_t::try_from(pidfd.as_raw_fd()).map_err(|_| Errno::EBADF)?;
    // SAFETY: siginfo_t is plain old data for which all zeros is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to a structure that outlives the call.
    let result = unsafe { libc::waitid(libc::P_PIDFD, id, &raw mut info, libc::WEXITED | flags) };
    Errno::result(result)?;
    // SAFETY: waitid(2) fills in these fields, or leaves the pid 0 when nothing has ended.
    let (pid, value) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    Ok(Some(if info.si_code == libc::CLD_EXITED { Status::Exited(value) } else { Status::Killed(value) }))
}

/// Whether the child has ended; it can be reaped afterwards. One that cannot be waited for has.
pub fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    !matches!(wait_with(pidfd, libc::WNOHANG | libc::WNOWAIT), Ok(None) | Err(Errno::EINTR))
}

/// A child that has ended and was not reaped yet; it stays so.
pub fn ended_child() -> Option<Pid> {
    // SAFETY: siginfo_t is plain old data for which all zeros is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the kernel writes to a structure that outlives the call.
    let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) };
    Errno::result(result).ok()?;
    // SAFETY: waitid(2) fills in this field, or leaves it 0 when nothing has ended.
    let pid = unsafe { info.si_pid() };
    (pid != 0).then(|| Pid::from_raw(pid))
}

/// Reaps the child of that number, which has ended.
pub fn reap(pid: Pid) {
    // SAFETY: takes numbers and a null pointer, for which the kernel writes nothing.
    unsafe { libc::waitpid(pid.as_raw(), std::ptr::null_mut(), libc::WNOHANG) };
}

/// Ignores a signal from now on.
///
/// # Errors
/// errno of sigaction(2).
pub fn ignore(signal: Signal) -> Result<(), Errno> {
    set_disposition(signal, SigHandler::SigIgn)
}

/// Gives a signal its default disposition.
///
/// # Errors
/// errno of sigaction(2).
pub fn stop_ignoring(signal: Signal) -> Result<(), Errno> {
    set_disposition(signal, SigHandler::SigDfl)
}

/// Gives every signal its default disposition and blocks none: what a program expects at its start. Rust's
/// start-up ignores SIGPIPE, and whoever started the executor may ignore more, which an executed program
/// would inherit.
///
/// # Errors
/// errno of sigprocmask(2).
pub fn reset_signals() -> Result<(), Errno> {
    /// Signals of Linux, real-time ones included; the C library hides two of them from its own sigaction.
    const SIGNALS: libc::c_int = 64;
    /// Bytes of the kernel's signal set.
    const SET_LEN: usize = 8;
    // The kernel's structure: handler (null is SIG_DFL), flags, restorer, mask.
    let default = [0_u64; 4];
    for signal in 1..=SIGNALS {
        // SAFETY: the kernel reads a structure that outlives the call; no code of ours becomes a handler.
        // SIGKILL and SIGSTOP answer EINVAL, which changes nothing.
        unsafe {
            let none = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, SET_LEN)
        };
    }
    SigSet::empty().thread_set_mask()
}

fn set_disposition(signal: Signal, handler: SigHandler) -> Result<(), Errno> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: the callers pass SigDfl or SigIgn only, so that no code of ours runs in a handler.
    unsafe { sigaction(signal, &action) }.map(drop)
}

/// Sets the calling process's nice value (setpriority(2)), lower being served before, and reads it back.
///
/// # Errors
/// `EACCES` for a lower one without CAP_SYS_NICE; `EPROTO` when it reads back otherwise.
pub fn set_nice(value: i32) -> Result<(), Errno> {
    // SAFETY: takes numbers and touches no memory.
    Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, value) })?;
    // SAFETY: as above.
    if unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) } == value { Ok(()) } else { Err(Errno::EPROTO) }
}

/// Whether two processes have the same memory, and else which comes first in an order of the kernel's (kcmp(2)).
///
/// # Errors
/// errno of kcmp(2): `EPERM` without CAP_SYS_PTRACE, `ESRCH` when one has ended.
pub fn compare_memory(one: i32, other: i32) -> Result<Ordering, Errno> {
    const KCMP_VM: i32 = 1;
    // SAFETY: takes numbers and touches no memory.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, 0, 0) };
    match Errno::result(result)? {
        0 => Ok(Ordering::Equal),
        1 => Ok(Ordering::Less),
        _ => Ok(Ordering::Greater),
    }
}

/// Closes every descriptor that is not in `keep` (close_range(2)).
///
/// For the first step of a cloned process that will exec or exit: owners of the closed descriptors that
/// live on in the copied memory must never be dropped there.
///
/// # Errors
/// errno of close_range(2).
pub fn close_all_but(keep: &[RawFd]) -> Result<(), Errno> {
    let mut kept: Vec<u32> = keep.iter().filter_map(|fd| u32::try_from(*fd).ok()).collect();
    kept.sort_unstable();
    kept.dedup();
    let mut first = 0;
    for fd in kept {
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    // SAFETY: closes descriptors by number; the callers' contract says that nothing uses them afterwards.
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// SIGKILL to every process that the caller may signal but itself (kill(2), pid -1): one call, so that no
/// fork escapes between two.
pub fn kill_everything_of_own_uid() {
    // SAFETY: takes two numbers and touches no memory. The callers are processes without a privilege, whose
    // uid belongs to commands alone.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Gives every buffer from this many bytes on a mapping of its own, so that its memory is the kernel's again as soon
/// as it is dropped (mallopt(3)). By itself glibc raises that size to the largest buffer it has seen, and then holds
/// as much.
pub fn return_large_buffers() {
    const LARGE: libc::c_int = 128 << 10;
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number of the allocator's; it touches no memory of ours.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE)
    };
}

/// Ends the calling process at once: no destructor, no buffer, no handler of the copied program runs.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit never returns and touches no memory.
    unsafe { libc::_exit(status) }
}

/// Makes the descriptor with this number, inherited from the process that started us, ours.
///
/// # Errors
/// `EBADF` when there is none.
pub fn inherited(number: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: only asks about the number; on an open one F_SETFD marks it close-on-exec.
    Errno::result(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, and by the contract of inheritance nothing else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
