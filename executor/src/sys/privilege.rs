//! What nix and caps leave out of dropping privileges: bounding set, securebits, session keyring, filters.

use nix::errno::Errno;

/// Securebits that make root mean nothing and cannot be taken back (capabilities(7)).
pub const LOCKED_SECUREBITS: i32 = {
    let bits = (1 << 0) | (1 << 2) | (1 << 6); // NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE
    bits | bits << 1 | (1 << 5) // each with its lock; KEEP_CAPS off and locked
};

fn prctl(option: libc::c_int, argument: libc::c_ulong) -> Result<i32, Errno> {
    // SAFETY: only used below with options whose arguments are plain numbers.
    Errno::result(unsafe { libc::prctl(option, argument, 0, 0, 0) })
}

/// Takes one capability out of the bounding set.
///
/// # Errors
/// `EINVAL` for a number above the kernel's last capability.
pub fn drop_bounding(capability: u32) -> Result<(), Errno> {
    prctl(libc::PR_CAPBSET_DROP, capability.into()).map(drop)
}

/// Whether the bounding set has the capability.
///
/// # Errors
/// `EINVAL` for a number above the kernel's last capability.
pub fn has_bounding(capability: u32) -> Result<bool, Errno> {
    prctl(libc::PR_CAPBSET_READ, capability.into()).map(|answer| answer == 1)
}

/// Sets the securebits.
///
/// # Errors
/// `EPERM` without CAP_SETPCAP.
pub fn set_securebits(bits: i32) -> Result<(), Errno> {
    prctl(libc::PR_SET_SECUREBITS, libc::c_ulong::from(bits.unsigned_abs())).map(drop)
}

/// The securebits.
///
/// # Errors
/// None is known.
pub fn securebits() -> Result<i32, Errno> {
    prctl(libc::PR_GET_SECUREBITS, 0)
}

/// Leaves the inherited session keyring for a new, empty, nameless one (keyctl_join_session_keyring(3)).
///
/// # Errors
/// `ENOSYS` on a kernel without keyrings, where there is nothing to leave, and behind a filter that refuses whatever
/// has to do with them, as container runtimes have: no command can then reach a keyring either.
pub fn join_new_session_keyring() -> Result<(), Errno> {
    let join = libc::c_long::from(1_i32); // KEYCTL_JOIN_SESSION_KEYRING
    // SAFETY: a null name asks for an anonymous keyring; nothing is read from our memory.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, join, std::ptr::null::<libc::c_char>()) };
    match Errno::result(result) {
        Err(Errno::EPERM) if asking_for_a_keyring_is_refused() => Err(Errno::ENOSYS),
        other => other.map(drop),
    }
}

/// Whether even the number of one's own session keyring is not told, which the kernel itself never refuses.
fn asking_for_a_keyring_is_refused() -> bool {
    let [ask, session] = [0_i32, -3].map(libc::c_long::from); // KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING
    // SAFETY: takes numbers and touches no memory.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, ask, session, libc::c_long::from(0_i32)) };
    Errno::result(result) == Err(Errno::EPERM)
}

/// The kernel's Landlock ABI; 0 where it has none or it is switched off (landlock_create_ruleset(2)).
pub fn landlock_abi() -> i32 {
    let version = 1_u32; // LANDLOCK_CREATE_RULESET_VERSION
    // SAFETY: with this flag and a null attribute the call only answers a number.
    let result = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, version)
    };
    i32::try_from(result).unwrap_or(0).max(0)
}
