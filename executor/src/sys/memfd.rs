//! Sealed memory files (memfd_create(2), file seals in fcntl(2)): what is in one can no longer change.

use nix::{
    errno::Errno,
    fcntl::{F_ADD_SEALS, F_GET_SEALS, SealFlag, fcntl},
    sys::{
        memfd::{MFdFlags, memfd_create},
        stat::fstat,
    },
};
use std::{
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// The file can never be executed (memfd_create(2)); nix does not name the flag.
const NOEXEC_SEAL: MFdFlags = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);

/// Every seal that fixes content and length.
fn seals() -> SealFlag {
    SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE
}

/// A memory file with this content, sealed.
///
/// # Errors
/// When the system has no room for it.
pub fn sealed(content: &[u8]) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let fd = match memfd_create("request", flags | NOEXEC_SEAL) {
        // Before Linux 6.3 there is no such flag.
        Err(Errno::EINVAL) => memfd_create("request", flags)?,
        other => other?,
    };
    let mut file = File::from(fd);
    file.write_all(content)?;
    fcntl(&file, F_ADD_SEALS(seals()))?;
    Ok(file.into())
}

/// The length of a descriptor that is a sealed memory file; none when it is anything else.
pub fn sealed_length(fd: BorrowedFd<'_>) -> Option<u64> {
    let found = SealFlag::from_bits_retain(fcntl(fd, F_GET_SEALS).ok()?);
    let length = u64::try_from(fstat(fd.as_fd()).ok()?.st_size).ok()?;
    found.contains(seals()).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sealed_memory_file_has_a_sealed_length() {
        let fd = sealed(b"content").unwrap();
        assert_eq!(sealed_length(fd.as_fd()), Some(7));
        assert!(File::from(fd).write_all(b"x").is_err());
        let open = memfd_create("open", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        assert_eq!(sealed_length(open.as_fd()), None);
        assert_eq!(sealed_length(File::open("/etc/passwd").unwrap().as_fd()), None);
    }
}
