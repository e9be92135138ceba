//! What nix leaves out of sockets: a peer's groups, and bringing up a loopback interface.

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};
use std::{
    mem::size_of,
    os::fd::{AsRawFd, BorrowedFd},
};

/// Most groups that a process can have (NGROUPS_MAX, limits.h).
const GROUPS_MAX: usize = 65536;

/// Supplementary groups of the process that connected (SO_PEERGROUPS, unix(7)).
///
/// # Errors
/// errno of getsockopt(2).
pub fn peer_groups(socket: BorrowedFd<'_>) -> Result<Vec<u32>, Errno> {
    let mut groups = vec![0_u32; 64];
    loop {
        let mut length =
            libc::socklen_t::try_from(groups.len() * size_of::<u32>()).map_err(|_| Errno::E2BIG)?;
        // SAFETY: the kernel writes at most `length` bytes to a buffer that has them, and the length it wrote
        // or needs to `length`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        match Errno::result(result) {
            Ok(_) => {
                groups.truncate(length as usize / size_of::<u32>());
                return Ok(groups);
            }
            Err(Errno::ERANGE) if groups.len() < GROUPS_MAX => groups.resize(GROUPS_MAX, 0),
            Err(error) => return Err(error),
        }
    }
}

/// Lets nobody pass descriptors over this socket or, where it listens, over those that connect to it from now
/// on (SO_PASSRIGHTS). False before Linux 6.16, which cannot do that.
pub fn refuse_descriptors(socket: BorrowedFd<'_>) -> bool {
    const SO_PASSRIGHTS: libc::c_int = 83; // asm-generic/socket.h; libc does not have it
    let off: libc::c_int = 0;
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(0);
    // SAFETY: the kernel reads an integer of the given size that outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const off).cast(), length)
    };
    result == 0
}

/// Brings up the `lo` of the calling thread's network namespace (netdevice(7)).
///
/// # Errors
/// errno of socket(2) or ioctl(2).
pub fn bring_up_loopback() -> Result<(), Errno> {
    let control = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: ifreq is plain old data for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (target, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *target = libc::c_char::from_ne_bytes([*byte]);
    }
    // SAFETY: SIOCGIFFLAGS reads the name from and writes the flags to a structure that outlives the call.
    Errno::result(unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) })?;
    let up = i16::try_from(libc::IFF_UP).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the call above has filled in this member of the union.
    request.ifr_ifru.ifru_flags = unsafe { request.ifr_ifru.ifru_flags } | up;
    // SAFETY: SIOCSIFFLAGS only reads the structure.
    Errno::result(unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })
        .map(drop)
}
