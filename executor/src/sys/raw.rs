//! System calls by number, for tests alone.

use nix::errno::Errno;

/// Makes a call with arguments that are numbers.
///
/// # Errors
/// errno of the call.
pub(crate) fn call(number: u32, arguments: [u64; 6]) -> Result<i64, Errno> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: tests pass only numbers and null pointers, which the kernel refuses as addresses (EFAULT); none
    // of the calls they make changes memory of the process.
    let result = unsafe { libc::syscall(i64::from(number), a, b, c, d, e, f) };
    if result == -1 { Err(Errno::last()) } else { Ok(result) }
}

/// getpid by the 32-bit way into the kernel; the process id, or −errno.
pub(crate) fn getpid_by_interrupt() -> i32 {
    const GETPID: i32 = 20;
    let result;
    // SAFETY: the call takes no argument and touches no memory; the interrupt changes rax and, on older
    // kernels, r8 to r11.
    unsafe {
        std::arch::asm!("int 0x80", inout("eax") GETPID => result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _, options(nostack));
    }
    result
}

/// Gives the calling thread, and no other, another uid, gid and supplementary groups: the C library's
/// functions would change every thread.
///
/// # Errors
/// errno of setgroups(2), setresgid(2) or setresuid(2).
pub(crate) fn become_other(uid: u32, gid: u32, groups: &[u32]) -> Result<(), Errno> {
    // SAFETY: the kernel reads as many numbers as the slice has, which outlives the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    // SAFETY: numbers only.
    Errno::result(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: as above.
    Errno::result(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }).map(drop)
}
