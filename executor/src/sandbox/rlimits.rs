//! Resource limits of a process. Memory, processes and time of a whole tree are the cgroup's.

use super::steps::{About, Fault};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// A limit with its soft and hard value.
pub type Limit = (Resource, u64, u64);

/// Soft limit of open files: programs that use select(2) break above it.
const NOFILE_SOFT: u64 = 1024;
/// Hard limit of open files.
const NOFILE_HARD: u64 = 65536;

/// What every command gets. Never RLIMIT_AS: V8, Go and sanitizers reserve far more than they use.
pub fn command_limits(file_size: u64) -> Vec<Limit> {
    vec![
        // 1, not 0: with 0 the kernel still feeds a core_pattern pipe, whose program runs as root outside
        // (core(5)).
        (Resource::RLIMIT_CORE, 1, 1),
        (Resource::RLIMIT_FSIZE, file_size, file_size),
        (Resource::RLIMIT_NOFILE, NOFILE_SOFT, NOFILE_HARD),
        // Locked memory does not count against the cgroup on every kernel.
        (Resource::RLIMIT_MEMLOCK, 64 << 10, 64 << 10),
        // Landlock lets no POSIX queue be opened, but only after it was made; and what is made counts for all
        // commands together, as they are one user.
        (Resource::RLIMIT_MSGQUEUE, 0, 0),
        (Resource::RLIMIT_NICE, 0, 0),
        (Resource::RLIMIT_RTPRIO, 0, 0),
        (Resource::RLIMIT_STACK, 8 << 20, 64 << 20),
    ]
}

/// What init gets: it opens nothing, writes nothing, forks nothing.
pub fn init_limits() -> Vec<Limit> {
    vec![(Resource::RLIMIT_CORE, 1, 1), (Resource::RLIMIT_FSIZE, 0, 0), (Resource::RLIMIT_NPROC, 0, 0)]
}

/// Sets the limits, no higher than the hard limits that are inherited, and reads them back.
///
/// # Errors
/// errno of setrlimit(2); a limit that reads back otherwise.
pub fn apply(limits: &[Limit]) -> Result<(), Fault> {
    for (resource, soft, hard) in limits {
        let (_, inherited) = getrlimit(*resource)?;
        let (soft, hard) = ((*soft).min(inherited), (*hard).min(inherited));
        // Debug is the constant's name in setrlimit(2).
        let name = format!("{resource:?}");
        setrlimit(*resource, soft, hard).about(format_args!("{name} {soft} {hard}"))?;
        let found = getrlimit(*resource)?;
        if found != (soft, hard) {
            let (found, wanted) = (format!("{} {}", found.0, found.1), format!("{soft} {hard}"));
            return Err(Fault::mismatch(&name, found, wanted));
        }
    }
    Ok(())
}
