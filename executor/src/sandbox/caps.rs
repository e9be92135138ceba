//! Capabilities: all five sets empty, the bounding set to the kernel's last one, securebits locked.

use super::steps::{About, Fault};
use crate::sys::privilege;
use caps::{CapSet, Capability, CapsHashSet, errors::CapsError};
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
    keep_alone(None)
}

/// As [`clear_all_sets`], but for the right to read every directory: to list it and to look at what is in it. Of a
/// process that starts no program. Where root itself has not got just that one, as in a container, it is the wider
/// one that root has.
///
/// # Errors
/// `EPERM` where root has neither; as [`clear_all_sets`].
pub fn keep_search() -> Result<u64, Fault> {
    let held = caps::read(None, CapSet::Permitted).map_err(failed)?;
    let search = [Capability::CAP_DAC_READ_SEARCH, Capability::CAP_DAC_OVERRIDE];
    let Some(kept) = search.into_iter().find(|one| held.contains(one)) else {
        return Err(Fault::new(Errno::EPERM, "neither CAP_DAC_READ_SEARCH nor CAP_DAC_OVERRIDE is held"));
    };
    keep_alone(Some(kept))
}

fn failed(error: CapsError) -> Fault {
    Fault::new(Errno::EPERM, error.to_string())
}

fn keep_alone(kept: Option<Capability>) -> Result<u64, Fault> {
    let kept: CapsHashSet = kept.into_iter().collect();
    caps::clear(None, CapSet::Ambient).map_err(failed)?;
    caps::clear(None, CapSet::Inheritable).map_err(failed)?;
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept).map_err(failed)?;
    }
    let bits = |set: &CapsHashSet| set.iter().fold(0, |bits, cap| bits | cap.bitmask());
    let found = |set| caps::read(None, set).map(|found| bits(&found)).map_err(failed);
    let (wanted, mut left) = (bits(&kept), found(CapSet::Effective)? | found(CapSet::Permitted)?);
    let mut passed_on = found(CapSet::Ambient)? | found(CapSet::Inheritable)?;
    for capability in 0..CAPABILITIES {
        match privilege::has_bounding(capability) {
            Ok(true) => passed_on |= 1 << capability,
            Ok(false) => {}
            Err(_) => break,
        }
    }
    left |= passed_on;
    if passed_on != 0 || left != wanted {
        return Err(Fault::mismatch("capabilities", left, wanted));
    }
    super::ids::check_no_way_back()?;
    Ok(left)
}
