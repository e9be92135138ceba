//! Capabilities: all five sets empty, the bounding set to the kernel's last one, securebits locked.

use super::steps::{About, Fault};
use crate::sys::privilege;
use caps::CapSet;
use nix::errno::Errno;

/// Capability numbers end before this on every kernel (a set is 64 bits).
const CAPABILITIES: u32 = 64;

/// Empties the bounding set. The kernel says where its capabilities end, as it may know newer ones than
/// any library.
///
/// # Errors
/// `EPERM` without CAP_SETPCAP; a capability that is still there.
pub fn drop_bounding_set() -> Result<(), Fault> {
    for capability in 0..CAPABILITIES {
        match privilege::has_bounding(capability) {
            Err(Errno::EINVAL) => break,
            Ok(false) => {}
            Ok(true) => {
                privilege::drop_bounding(capability).about(format_args!("capability {capability}"))?
            }
            Err(errno) => return Err(errno.into()),
        }
        if privilege::has_bounding(capability)? {
            return Err(Fault::mismatch("bounding set", capability, "none"));
        }
    }
    Ok(())
}

/// Makes uid 0 mean nothing for capabilities, and the bits themselves unchangeable.
///
/// # Errors
/// `EPERM` without CAP_SETPCAP; bits that read back otherwise.
pub fn lock_securebits() -> Result<(), Fault> {
    privilege::set_securebits(privilege::LOCKED_SECUREBITS)?;
    let found = privilege::securebits()?;
    if found == privilege::LOCKED_SECUREBITS {
        Ok(())
    } else {
        Err(Fault::mismatch("securebits", found, privilege::LOCKED_SECUREBITS))
    }
}

/// Empties the four sets that a process holds; returns what is left in all five. Until then the uid means
/// little: the securebits keep the sets through its change, and with them the right to change it back.
///
/// # Errors
/// What the crate says; anything left in a set.
pub fn clear_all_sets() -> Result<u64, Fault> {
    let failed = |error: caps::errors::CapsError| Fault::new(Errno::EPERM, error.to_string());
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set).map_err(failed)?;
    }
    let mut left = 0;
    for set in [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        left |= caps::read(None, set).map_err(failed)?.iter().fold(0, |bits, cap| bits | cap.bitmask());
    }
    for capability in 0..CAPABILITIES {
        match privilege::has_bounding(capability) {
            Ok(true) => left |= 1 << capability,
            Ok(false) => {}
            Err(_) => break,
        }
    }
    if left != 0 {
        return Err(Fault::mismatch("capabilities", left, 0));
    }
    super::ids::check_no_way_back()?;
    Ok(left)
}
