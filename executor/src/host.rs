//! What this host has of each layer, found at start by trying, and what to do where it is missing.

use crate::{
    config::{Config, Require},
    monitor::cgroup::Cgroups,
    sandbox::{landlock, steps::Fault},
    sys::{
        mount::{Attributes, attach, clone_tree, new_filesystem, set_attributes},
        process::{CloneOptions, Cloned, Status, clone_process, exit_now, wait},
    },
};
use caps::{CapSet, Capability};
use cordon_protocol::{CgroupMode, Health, LayerReport};
use nix::{
    mount::MsFlags,
    sched::{CloneFlags, setns, unshare},
};
use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs::{self, File},
    os::fd::AsFd,
    path::Path,
};

/// What launches on this host can rely on.
#[derive(Debug, Clone)]
pub struct Host {
    /// pid, mount, ipc, uts and net namespaces can be made.
    pub namespaces: bool,
    /// Landlock ABI that will be in force; 0 is none.
    pub landlock_abi: u32,
    /// How limits are held.
    pub cgroup: CgroupMode,
    /// Two commands at once could reach one another: there is neither a pid namespace nor a signal scope, or
    /// nothing but the uid tells whose a process is.
    pub one_at_a_time: bool,
    /// What each probe found, for `doctor`.
    pub layers: Vec<LayerReport>,
}

/// Layers that `strict` misses, in words.
#[derive(Debug, thiserror::Error)]
#[error(
    "this host lacks what `require = \"strict\"` asks for:{0}\nset require = \"available\" to run with the rest"
)]
pub struct Lacking(String);

/// Limits would be counted from a /proc that does not show what is to be counted.
#[derive(Debug, thiserror::Error)]
#[error(
    "limits are counted from /proc here, as cgroup v2 cannot hold them, and /proc hides other users' processes from the \
     executor (hidepid=): give it CAP_SYS_PTRACE, or set ProtectProc=default in its unit"
)]
pub struct Blind;

/// Namespaces of a sandbox (namespaces(7)).
pub const NAMESPACES: u64 = {
    let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    flags.unsigned_abs() as u64
};

impl Host {
    /// Tries every layer.
    pub fn probe(config: &Config, cgroups: &Cgroups) -> Self {
        let namespaces = namespaces_can_be_made();
        let landlock_abi = landlock::effective_abi();
        let mut layers = vec![
            identity_layer(),
            cgroups.layer(),
            namespace_layer(namespaces),
            landlock_layer(landlock_abi, config.landlock_abi_min),
            seccomp_layer(),
        ];
        layers.extend(services_layer(&config.relays.ports, landlock_abi));
        let cgroup = cgroups.mode();
        let one_at_a_time =
            !namespaces && (landlock_abi < landlock::SIGNAL_SCOPE_ABI || cgroup == CgroupMode::None);
        Self { namespaces, landlock_abi, cgroup, one_at_a_time, layers }
    }

    /// Refuses a host that lacks a layer, when the configuration says so.
    ///
    /// # Errors
    /// Names each layer and its remedy.
    pub fn check(&self, require: Require) -> Result<(), Lacking> {
        if require == Require::Available {
            return Ok(());
        }
        let mut text = String::new();
        for layer in self.layers.iter().filter(|layer| layer.health != Health::Ok) {
            let remedy = layer.remedy.as_deref().unwrap_or("none is known");
            let _ = write!(text, "\n  {}: {}; remedy: {remedy}", layer.layer, layer.detail);
        }
        if text.is_empty() { Ok(()) } else { Err(Lacking(text)) }
    }

    /// Refuses to count what cannot be seen: nothing would ever be over a limit.
    ///
    /// # Errors
    /// Whatever `require` says.
    pub fn check_counting(&self) -> Result<(), Blind> {
        if self.cgroup == CgroupMode::V2 || sees_processes() { Ok(()) } else { Err(Blind) }
    }
}

/// Whether processes of other users can be looked for: of this process's /proc the options say so (proc(5)).
fn sees_processes() -> bool {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_PTRACE).unwrap_or(false)
        || !fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| hides_processes(&mounts))
}

/// What mountinfo says of the topmost mount on /proc.
fn hides_processes(mounts: &str) -> bool {
    let at_proc = |line: &&str| line.split(' ').nth(4) == Some("/proc");
    let options = mounts.lines().rfind(at_proc).and_then(|line| line.rsplit(' ').next());
    options.is_some_and(|o| {
        o.split(',').any(|o| o.starts_with("hidepid=") && !["hidepid=0", "hidepid=off"].contains(&o))
    })
}

fn report(layer: &str, health: Health, detail: impl Into<String>, remedy: Option<&str>) -> LayerReport {
    LayerReport { layer: layer.to_owned(), health, detail: detail.into(), remedy: remedy.map(str::to_owned) }
}

/// Runs `attempt` in a copy of this process; true when it came back true.
fn in_a_copy(namespaces: u64, attempt: fn() -> bool) -> bool {
    match clone_process(CloneOptions { namespaces, cgroup: None }) {
        Ok(Cloned::Child) => exit_now(i32::from(!attempt())),
        Ok(Cloned::Parent { pidfd, .. }) => wait(pidfd.as_fd()) == Ok(Status::Exited(0)),
        Err(_) => false,
    }
}

/// Makes every namespace in a process that ends at once, and does there what a sandbox's root takes: a host that lets
/// namespaces be made may still refuse every mount.
fn namespaces_can_be_made() -> bool {
    in_a_copy(NAMESPACES | u64::from(libc::CLONE_NEWNET.unsigned_abs()), || mount_something().is_ok())
}

fn mount_something() -> Result<(), Fault> {
    let own = File::open("/proc/self/ns/uts")?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
    let tree = new_filesystem(c"tmpfs", &[], Attributes::NO_SUID)?;
    attach(tree.as_fd(), Path::new("/tmp"))?;
    let tree = clone_tree(Path::new("/usr"))?;
    set_attributes(tree.as_fd(), Attributes::READ_ONLY)?;
    Ok(setns(&own, CloneFlags::CLONE_NEWUTS)?)
}

fn identity_layer() -> LayerReport {
    let works = in_a_copy(0, || {
        use crate::sandbox::{caps, ids};
        let drop_all = || caps::drop_bounding_set().and_then(|()| caps::lock_securebits());
        drop_all().and_then(|()| ids::drop_groups()).is_ok()
    });
    if works {
        return report(
            "identity",
            Health::Ok,
            "bounding set emptied, securebits locked, groups dropped",
            None,
        );
    }
    let remedy = "start the executor as root with CAP_SETUID, CAP_SETGID and CAP_SETPCAP";
    report("identity", Health::Missing, "privileges could not be dropped", Some(remedy))
}

fn namespace_layer(found: bool) -> LayerReport {
    if found {
        return report("namespaces", Health::Ok, "pid, mount, ipc, uts and net were made", None);
    }
    let remedy =
        "give the executor CAP_SYS_ADMIN (in a container: run it on the host, or with the capability)";
    report(
        "namespaces",
        Health::Missing,
        "namespaces could not be made, or nothing be mounted in them",
        Some(remedy),
    )
}

fn landlock_layer(abi: u32, least: u32) -> LayerReport {
    let remedy = "use kernel 5.19 or newer with `landlock` in the lsm= boot parameter";
    if abi == 0 {
        return report("landlock", Health::Missing, "the kernel has no Landlock", Some(remedy));
    }
    if abi < least {
        let text = format!("ABI {abi} is below landlock_abi_min = {least}");
        return report("landlock", Health::Lesser, text, Some(remedy));
    }
    report("landlock", Health::Ok, format!("ABI {abi} in force"), None)
}

/// What the server half may connect to; none where it may not at all.
fn services_layer(ports: &BTreeSet<u16>, abi: u32) -> Option<LayerReport> {
    let list = ports.iter().map(u16::to_string).reduce(|list, port| format!("{list}, {port}"))?;
    if abi < landlock::TCP_ABI {
        let text = format!("profiles name {list}, but nothing keeps the server half to these ports");
        return Some(report("services", Health::Ok, text, Some("use kernel 6.7 or newer")));
    }
    let text = format!("the server half can connect to {list} and to no other port");
    Some(report("services", Health::Ok, text, None))
}

fn seccomp_layer() -> LayerReport {
    let works = in_a_copy(0, || {
        use crate::sandbox::{init::no_new_privs, seccomp};
        let program = seccomp::program().ok();
        no_new_privs().is_ok() && program.is_some_and(|program| seccomp::apply(&program).is_ok())
    });
    if works {
        return report("seccomp", Health::Ok, "the command's filter was loaded", None);
    }
    let remedy = "use a kernel with CONFIG_SECCOMP_FILTER, and do not start the executor behind a filter";
    report("seccomp", Health::Missing, "the command's filter could not be loaded", Some(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proc_that_hides_processes_is_known_by_its_options() {
        let line = |at: &str, options: &str| format!("22 1 0:21 / {at} rw,nosuid - proc proc {options}\n");
        for (mounts, hides) in [
            (line("/proc", "rw"), false),
            (line("/proc", "rw,hidepid=invisible"), true),
            (line("/proc", "rw,gid=5,hidepid=2"), true),
            (line("/proc", "rw,hidepid=off"), false),
            (line("/other", "rw,hidepid=2"), false),
            (line("/proc", "rw") + &line("/proc", "rw,hidepid=ptraceable"), true),
            (line("/proc", "rw,hidepid=2") + &line("/proc", "rw"), false),
            (String::new(), false),
        ] {
            assert_eq!(hides_processes(&mounts), hides, "{mounts}");
        }
    }
}
