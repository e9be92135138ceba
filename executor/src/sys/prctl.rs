//! What a process may ask about itself and nix has no wrapper for (prctl(2)).

use nix::errno::Errno;

/// Mode of a thread that has a filter (linux/seccomp.h).
pub const SECCOMP_MODE_FILTER: u32 = 2;

/// The seccomp mode of the calling thread: 0 none, [`SECCOMP_MODE_FILTER`].
///
/// # Errors
/// When a filter refuses the question, or the kernel has no seccomp.
pub fn seccomp_mode() -> Result<u32, Errno> {
    // SAFETY: this option takes no further argument and touches no memory of the process.
    let mode = unsafe { libc::prctl(libc::PR_GET_SECCOMP) };
    u32::try_from(mode).map_err(|_| Errno::last())
}
