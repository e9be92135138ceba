//! The monitor's own check of a launch: profile, peer and limits, whatever the server says.

use super::{
    link::{AskedLimits, LaunchRefusal, LimitField},
    peers::Peer,
    plans::Plans,
};
use crate::{profile::Profile, sandbox::Plan, sys::memfd};
use cordon_protocol::{audit::TEXT_MAX, limits};
use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

/// The limits of one command: what it asked for, or the profile's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Milliseconds by the clock.
    pub(super) wall_ms: u64,
    /// Milliseconds of processor time.
    pub(super) cpu_time_ms: Option<u64>,
    /// Bytes.
    pub(super) memory: u64,
    /// Processes and threads.
    pub(super) pids: u64,
    /// Percent of one processor.
    pub(super) cpu_percent: Option<u64>,
    /// Bytes kept of each stream.
    pub(super) capture: u64,
    /// Bytes of both streams.
    pub(super) output: u64,
}

/// The plan for a profile that exists and that this peer may use. The two refusals are one, so that a
/// peer cannot find out the names of others' profiles.
///
/// # Errors
/// `UnknownProfile`.
pub(super) fn authorize<'a>(
    plans: &'a Plans,
    name: &str,
    peer: &Peer,
) -> Result<&'a Arc<Plan>, LaunchRefusal> {
    let plan = plans.get(name).filter(|plan| plan.profile.allows(peer.uid, &peer.groups));
    plan.ok_or(LaunchRefusal::UnknownProfile)
}

/// The limits in force, every one between its floor and its ceiling.
///
/// # Errors
/// The first limit that is not.
pub(super) fn resolve(profile: &Profile, asked: &AskedLimits) -> Result<Limits, LaunchRefusal> {
    let value = |field: LimitField| -> Result<Option<u64>, LaunchRefusal> {
        let range = profile.limit(field);
        let Some(value) = asked.get(field) else { return Ok(range.default) };
        let floor = Profile::floor(field);
        if value < floor {
            return Err(LaunchRefusal::BelowFloor { limit: field, value, floor });
        }
        if value > range.ceiling {
            return Err(LaunchRefusal::AboveCeiling { limit: field, value, ceiling: range.ceiling });
        }
        Ok(Some(value))
    };
    // A limit without a default is bounded by its ceiling, but for the two that may be absent.
    let bounded = |field: LimitField| Ok(value(field)?.unwrap_or(profile.limit(field).ceiling));
    Ok(Limits {
        wall_ms: bounded(LimitField::Wall)?,
        cpu_time_ms: value(LimitField::CpuTime)?,
        memory: bounded(LimitField::Memory)?,
        pids: bounded(LimitField::Pids)?,
        cpu_percent: value(LimitField::Cpu)?,
        capture: bounded(LimitField::Capture)?,
        output: bounded(LimitField::Output)?,
    })
}

/// Sizes of the descriptors of a launch: the request, its text and, where there are to be some, the files.
pub(super) fn launch_sizes(files: bool) -> &'static [u64] {
    const SIZES: [u64; 3] = [limits::SEALED_REQUEST_MAX, TEXT_MAX as u64, limits::SEALED_FILES_MAX];
    &SIZES[..2 + usize::from(files)]
}

/// Descriptors that are sealed memory files of at most these sizes, so that what is forwarded unread can neither
/// change nor be anything else.
///
/// # Errors
/// What there is, when there are fewer, or more, or one is another kind of file.
pub(super) fn check_sealed(descriptors: Vec<OwnedFd>, most: &[u64]) -> Result<Vec<OwnedFd>, Vec<OwnedFd>> {
    let fits =
        |(fd, most): (&OwnedFd, &u64)| memfd::sealed_length(fd.as_fd()).is_some_and(|found| found <= *most);
    if descriptors.len() == most.len() && descriptors.iter().zip(most).all(fits) {
        Ok(descriptors)
    } else {
        Err(descriptors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::RawProfile;
    use std::fs::File;

    #[test]
    fn limits_stay_between_floor_and_ceiling() {
        let profile = Profile::from_raw("p", RawProfile::default(), 1).unwrap();
        let limits = resolve(&profile, &AskedLimits::default()).unwrap();
        assert_eq!((limits.wall_ms, limits.cpu_time_ms, limits.memory), (60_000, None, 512 << 20));
        let at = AskedLimits { memory_bytes: Some(2 << 30), ..AskedLimits::default() };
        assert_eq!(resolve(&profile, &at).unwrap().memory, 2 << 30);
        let above = AskedLimits { memory_bytes: Some((2 << 30) + 1), ..AskedLimits::default() };
        let refusal =
            LaunchRefusal::AboveCeiling { limit: LimitField::Memory, value: (2 << 30) + 1, ceiling: 2 << 30 };
        assert_eq!(resolve(&profile, &above), Err(refusal));
        let zero = AskedLimits { wall_ms: Some(0), ..AskedLimits::default() };
        assert!(matches!(resolve(&profile, &zero), Err(LaunchRefusal::BelowFloor { value: 0, .. })));
    }

    #[test]
    fn only_sealed_memory_files_are_forwarded_and_only_as_many_as_were_announced() {
        let sealed = || memfd::sealed(b"x").unwrap();
        let check = |descriptors, files| check_sealed(descriptors, launch_sizes(files));
        assert_eq!(check(vec![sealed(), sealed()], false).unwrap().len(), 2);
        assert_eq!(check(vec![sealed(), sealed(), sealed()], true).unwrap().len(), 3);
        let file = || OwnedFd::from(File::open("/etc/passwd").unwrap());
        for (descriptors, files) in [
            (vec![], false),
            (vec![sealed()], false),
            (vec![sealed(), sealed(), sealed()], false),
            (vec![sealed(), sealed()], true),
            (vec![file(), sealed()], false),
            (vec![sealed(), file()], false),
            (vec![sealed(), sealed(), file()], true),
        ] {
            let count = descriptors.len();
            assert_eq!(check(descriptors, files).unwrap_err().len(), count, "given back");
        }
        let large = vec![0; usize::try_from(limits::SEALED_REQUEST_MAX).unwrap() + 1];
        let large = || memfd::sealed(&large).unwrap();
        assert!(check(vec![large(), sealed()], false).is_err());
        assert!(check(vec![sealed(), large()], false).is_err());
        assert!(check(vec![sealed(), sealed(), large()], true).is_ok(), "files may be larger");
    }
}
