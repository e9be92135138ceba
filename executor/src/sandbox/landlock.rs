//! Landlock: what the profile lets a command read, write and execute, whatever is mounted where.
//!
//! Rules are made by root, while it can still open every path, and enforced after the uid is gone.

use super::{
    Plan,
    plan::Place,
    steps::{About, Fault},
};
use crate::sys::privilege;
use cordon_protocol::NetworkMode;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::{
    errno::Errno,
    sys::stat::{Mode, SFlag, mknod},
};
use std::path::Path;

/// The newest ABI whose meaning is known here; newer kernels are used as if they had this one.
pub const KNOWN_ABI: ABI = ABI::V10;

/// The first ABI that keeps signals and abstract sockets inside.
pub const SIGNAL_SCOPE_ABI: u32 = ABI::V6 as u32;

/// The first ABI that knows TCP.
pub const TCP_ABI: u32 = ABI::V4 as u32;

/// The ABI that will be in force: the kernel's, as far as it is known here.
pub fn effective_abi() -> u32 {
    u32::try_from(privilege::landlock_abi()).unwrap_or(0).min(KNOWN_ABI as u32)
}

/// Opens every path of the profile and makes the rules; none on a kernel without Landlock. In a workspace that is `full`
/// nothing may be added.
///
/// # Errors
/// A path that cannot be opened, or an ABI below the floor.
pub fn prepare(plan: &Plan, place: &Place, full: bool) -> Result<Option<RulesetCreated>, Fault> {
    let number = effective_abi();
    if number < plan.landlock_floor {
        let text = format!("ABI {number} is below the configured least, {}", plan.landlock_floor);
        return Err(Fault::new(Errno::ENOSYS, text));
    }
    if number == 0 {
        return Ok(None);
    }
    let abi = ABI::from(i32::try_from(number).map_err(|_| Errno::ERANGE)?);
    let rules = rules(plan, place, abi, full);
    let failed = |error: landlock::RulesetError| Fault::new(Errno::EINVAL, error.to_string());
    // Everything asked for below exists in `abi`, so that nothing may be left out silently.
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset = ruleset.handle_access(AccessFs::from_all(abi)).map_err(failed)?;
    if number >= SIGNAL_SCOPE_ABI {
        ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal).map_err(failed)?;
    }
    if number >= TCP_ABI && !plan.isolates_network() {
        // Nothing of the host's ports may be taken over. Connecting is what the mode `host` is for; without
        // a namespace that should be there, nothing goes anywhere.
        let mut refused = BitFlags::from(AccessNet::BindTcp);
        if plan.profile.network != NetworkMode::Host {
            // With UDP where the kernel can.
            refused |= AccessNet::from_all(abi);
        }
        ruleset = ruleset.handle_access(refused).map_err(failed)?;
    }
    let mut created = ruleset.create().map_err(failed)?;
    if number >= TCP_ABI && !plan.isolates_network() {
        // Without a namespace they are not relayed: they are where they are.
        for port in &plan.profile.services {
            created =
                created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp)).map_err(failed).about(port)?;
        }
    }
    for (path, access) in rules {
        if !path.exists() {
            continue;
        }
        let fd = PathFd::new(&path).map_err(|e| Fault::new(Errno::EACCES, e.to_string()))?;
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(abi) };
        created = created.add_rule(PathBeneath::new(fd, access)).map_err(failed).about(path.display())?;
    }
    Ok(Some(created))
}

type Rule = (std::path::PathBuf, BitFlags<AccessFs>);

fn rules(plan: &Plan, place: &Place, abi: ABI, full: bool) -> Vec<Rule> {
    let profile = &plan.profile;
    let list: BitFlags<AccessFs> = AccessFs::ReadDir.into();
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    // What may be written may hold files, directories, links, pipes and sockets, never device nodes.
    let devices = BitFlags::from(AccessFs::MakeChar) | AccessFs::MakeBlock;
    let own = AccessFs::from_all(abi) & !devices & !io_control(abi);
    // What holds too much is read and made smaller.
    let removing = AccessFs::RemoveFile | AccessFs::RemoveDir;
    let home = if full { own & !(AccessFs::from_write(abi) & !removing) } else { own };
    let mut rules: Vec<Rule> =
        vec![("/proc".into(), read), ("/sys/devices/system/cpu".into(), read), (place.tmp.clone(), own)];
    if plan.template.is_some() {
        // The root holds nothing but the allow-list: it may be listed everywhere.
        rules.push(("/".into(), list));
        rules.push(("/dev/shm".into(), own));
        rules.push(("/dev/pts".into(), read | AccessFs::WriteFile | io_control(abi)));
        // The parent of the workspace: a rule on a mount point says nothing about what is mounted on it
        // later.
        rules.push(("/home".into(), home));
    } else {
        rules.push((place.home.clone(), home));
    }
    for device in ["null", "zero", "full", "random", "urandom", "tty"] {
        rules.push((Path::new("/dev").join(device), AccessFs::ReadFile | AccessFs::WriteFile));
    }
    rules.extend(profile.read.iter().map(|path| (path.clone(), read)));
    rules.extend(profile.execute.iter().map(|path| (path.clone(), read | AccessFs::Execute)));
    rules.extend(profile.write.iter().map(|path| (path.clone(), own)));
    rules
}

/// The right to control devices, on a kernel that can withhold it.
fn io_control(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::from_all(abi) & AccessFs::IoctlDev
}

/// Enforces the rules on the calling process; returns the ABI in force.
///
/// # Errors
/// Anything but full enforcement.
pub fn enforce(ruleset: RulesetCreated, place: &Place) -> Result<u8, Fault> {
    let status = ruleset.restrict_self().map_err(|e| Fault::new(Errno::EINVAL, e.to_string()))?;
    if status.ruleset != RulesetStatus::FullyEnforced || !status.no_new_privs {
        let found = match status.ruleset {
            RulesetStatus::FullyEnforced => "without no_new_privs",
            RulesetStatus::PartiallyEnforced => "partially enforced",
            RulesetStatus::NotEnforced => "not enforced",
        };
        return Err(Fault::mismatch("landlock", found, "fully enforced"));
    }
    // The kernel has no call that shows a domain, so an act that no rule allows is tried. For a device node
    // Landlock's EACCES comes before the EPERM of a missing capability.
    let null = nix::sys::stat::makedev(1, 3);
    match mknod(&place.tmp.join("landlock-probe"), SFlag::S_IFCHR, Mode::empty(), null) {
        Err(Errno::EACCES) => {}
        other => return Err(Fault::not_refused("making a device", other, Errno::EACCES)),
    }
    u8::try_from(effective_abi()).map_err(|_| Errno::ERANGE.into())
}
