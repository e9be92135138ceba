//! The mount interface by descriptors: a mount is made and its attributes set before anybody can see it.

use nix::errno::Errno;
use std::{
    ffi::{CStr, CString},
    mem::size_of,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    path::Path,
};

/// Attributes of a mount (mount_setattr(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes(u64);

impl Attributes {
    /// MOUNT_ATTR_RDONLY.
    pub const READ_ONLY: Self = Self(0x1);
    /// MOUNT_ATTR_NOSUID.
    pub const NO_SUID: Self = Self(0x2);
    /// MOUNT_ATTR_NODEV.
    pub const NO_DEV: Self = Self(0x4);
    /// MOUNT_ATTR_NOEXEC.
    pub const NO_EXEC: Self = Self(0x8);

    /// Both.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

const AT_EMPTY_PATH: libc::c_uint = 0x1000;
const AT_RECURSIVE: libc::c_uint = 0x8000;
const AT_NO_AUTOMOUNT: libc::c_uint = 0x800;
const OPEN_TREE_CLONE: libc::c_uint = 1;
const CLOEXEC: libc::c_uint = libc::O_CLOEXEC.unsigned_abs();
const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;
const MS_PRIVATE: u64 = 1 << 18;

/// A path as the kernel wants it.
fn c_path(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Errno::EINVAL)
}

/// Makes the descriptor that a system call returned ours.
fn owned(result: libc::c_long) -> Result<OwnedFd, Errno> {
    let fd = i32::try_from(Errno::result(result)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the calls below return new descriptors that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A detached copy of what is mounted at `path`, with everything below it (open_tree(2)).
///
/// # Errors
/// errno of open_tree(2).
pub fn clone_tree(path: &Path) -> Result<OwnedFd, Errno> {
    let path = c_path(path)?;
    let flags = OPEN_TREE_CLONE | AT_RECURSIVE | AT_NO_AUTOMOUNT | CLOEXEC;
    // SAFETY: `path` is a terminated string that outlives the call.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) })
}

/// Sets attributes on a detached tree, on every mount in it, and makes it private.
///
/// # Errors
/// errno of mount_setattr(2).
pub fn set_attributes(tree: BorrowedFd<'_>, attributes: Attributes) -> Result<(), Errno> {
    let attr =
        libc::mount_attr { attr_set: attributes.0, attr_clr: 0, propagation: MS_PRIVATE, userns_fd: 0 };
    let flags = AT_EMPTY_PATH | AT_RECURSIVE;
    // SAFETY: an empty terminated path and a structure of the given size, both outliving the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    Errno::result(result).map(drop)
}

/// Attaches a detached tree at `path` (move_mount(2)).
///
/// # Errors
/// errno of move_mount(2).
pub fn attach(tree: BorrowedFd<'_>, path: &Path) -> Result<(), Errno> {
    let path = c_path(path)?;
    // SAFETY: two terminated strings that outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    Errno::result(result).map(drop)
}

/// A new file system, detached, with these options and attributes (fsopen(2), fsconfig(2), fsmount(2)).
///
/// An option without a value is a flag.
///
/// # Errors
/// errno of the call that failed.
pub fn new_filesystem(
    kind: &CStr,
    options: &[(&CStr, Option<&str>)],
    attributes: Attributes,
) -> Result<OwnedFd, Errno> {
    // SAFETY: a terminated string that outlives the call.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), 1_u32) })?;
    for (key, value) in options {
        let value = value.map(CString::new).transpose().map_err(|_| Errno::EINVAL)?;
        let command = if value.is_some() { FSCONFIG_SET_STRING } else { FSCONFIG_SET_FLAG };
        let pointer = value.as_ref().map_or(std::ptr::null(), |v| v.as_ptr());
        // SAFETY: a terminated key and a terminated value, or none, which outlive the call.
        let result = unsafe {
            libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, key.as_ptr(), pointer, 0)
        };
        Errno::result(result)?;
    }
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: creation takes neither key nor value.
    let result =
        unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, none, none, 0) };
    Errno::result(result)?;
    // SAFETY: descriptor and numbers only.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 1_u32, attributes.0) })
}

/// Sets attributes on the one mount at `path`, without those below it.
///
/// # Errors
/// errno of mount_setattr(2).
pub fn restrict_mounted(path: &Path, attributes: Attributes) -> Result<(), Errno> {
    let path = c_path(path)?;
    let attr = libc::mount_attr { attr_set: attributes.0, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: a terminated path and a structure of the given size, both outliving the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            0_u32,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    Errno::result(result).map(drop)
}
