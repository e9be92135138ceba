//! What this host has of each layer, found at start by trying, and what to do where it is missing.

mod namespaces;

use crate::{
    config::{Config, Require},
    monitor::cgroup::Cgroups,
    sandbox::{landlock, steps::omitted},
    sys::{
        clone::{CloneOptions, Cloned, clone_process, find_clone3},
        process::{Status, exit_now, wait},
    },
};
use caps::{CapSet, Capability};
use cordon_protocol::{CgroupMode, Health, LayerReport};
use nix::errno::Errno;
use std::{collections::BTreeSet, fmt::Write as _, fs, os::fd::AsFd};

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

/// Why nothing is started on this host.
#[derive(Debug, thiserror::Error)]
pub enum Lacking {
    /// Layers that `strict` misses, in words.
    #[error(
        "this host lacks what `require = \"strict\"` asks for:{0}\nset require = \"available\" to run with the rest"
    )]
    Layers(String),
    /// What no kind of host can do without, in words.
    #[error("this host lacks what nothing can be run without:{0}")]
    Processes(String),
}

/// Name of what is not a layer itself but what every layer takes.
const PROCESSES: &str = "processes";

/// Limits would be counted from a /proc that does not show what is to be counted.
#[derive(Debug, thiserror::Error)]
#[error(
    "limits are counted from /proc here, as cgroup v2 cannot hold them, and /proc hides other users' processes from the \
     executor (hidepid=): give it CAP_SYS_PTRACE, or set ProtectProc=default in its unit"
)]
pub struct Blind;

/// Namespaces that a sandbox is cloned into (namespaces(7)), as flags.
pub fn cloned_namespaces() -> u64 {
    let others = [("pid", libc::CLONE_NEWPID), ("ipc", libc::CLONE_NEWIPC), ("uts", libc::CLONE_NEWUTS)];
    let made = others.into_iter().filter(|(name, _)| !omitted(name));
    // In the host's mount namespace a test would pivot the host's own root.
    made.fold(libc::CLONE_NEWNS, |flags, (_, flag)| flags | flag).unsigned_abs().into()
}

impl Host {
    /// Tries every layer.
    pub fn probe(config: &Config, cgroups: &Cgroups) -> Self {
        let clone3 = find_clone3();
        let started = start_a_copy();
        let landlock_abi = landlock::effective_abi();
        let (mut namespaces, mut layers) = (false, Vec::new());
        layers.extend(process_layer(clone3, started));
        // Everything else is tried in copies, so that without any there is nothing to say of it.
        if started.is_ok() {
            let refused = namespaces::refused();
            namespaces = refused.is_none();
            layers.extend([
                identity_layer(),
                cgroups.layer(),
                namespace_layer(refused, clone3),
                landlock_layer(landlock_abi, config.landlock_abi_min),
                seccomp_layer(),
            ]);
            layers.extend(services_layer(&config.relays.ports, landlock_abi));
        }
        let cgroup = cgroups.mode();
        let one_at_a_time =
            !namespaces && (landlock_abi < landlock::SIGNAL_SCOPE_ABI || cgroup == CgroupMode::None);
        Self { namespaces, landlock_abi, cgroup, one_at_a_time, layers }
    }

    /// Refuses a host that lacks a layer, when the configuration says so, and one on which no process can be started.
    ///
    /// # Errors
    /// Names each layer and its remedy.
    pub fn check(&self, require: Require) -> Result<(), Lacking> {
        let mut text = String::new();
        for layer in self.layers.iter().filter(|layer| layer.health != Health::Ok) {
            let remedy = layer.remedy.as_deref().unwrap_or("none is known");
            let _ = write!(text, "\n  {}: {}; remedy: {remedy}", layer.layer, layer.detail);
        }
        if self.layers.iter().any(|layer| layer.layer == PROCESSES && layer.health == Health::Missing) {
            return Err(Lacking::Processes(text));
        }
        if require == Require::Available || text.is_empty() { Ok(()) } else { Err(Lacking::Layers(text)) }
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

/// Runs `attempt` in a copy of this process, whose exit status it gives; none where that was not one.
fn run_copy(attempt: impl FnOnce() -> i32) -> Option<i32> {
    match clone_process(CloneOptions { namespaces: 0, cgroup: None }) {
        Ok(Cloned::Child) => exit_now(attempt()),
        Ok(Cloned::Parent { pidfd, .. }) => match wait(pidfd.as_fd()) {
            Ok(Status::Exited(status)) => Some(status),
            _ => None,
        },
        Err(_) => None,
    }
}

/// Runs `attempt` in a copy of this process; true when it came back true.
fn in_a_copy(attempt: fn() -> bool) -> bool {
    run_copy(|| i32::from(!attempt())) == Some(0)
}

fn start_a_copy() -> Result<(), Errno> {
    match clone_process(CloneOptions { namespaces: 0, cgroup: None })? {
        Cloned::Child => exit_now(0),
        Cloned::Parent { pidfd, .. } => wait(pidfd.as_fd()).map(drop),
    }
}

/// What to do about a clone3(2) that does not get through.
const LET_CLONE3_THROUGH: &str = "use kernel 5.3 or newer, and start the executor behind no filter that refuses clone3 \
     (an older container runtime, RestrictNamespaces= in its unit)";

/// How processes are started; nothing to say where it is as it should be.
fn process_layer(clone3: Result<(), Errno>, started: Result<(), Errno>) -> Option<LayerReport> {
    match (clone3, started) {
        (Ok(()), Ok(())) => None,
        (Err(refused), Ok(())) => {
            let text = format!("clone3 is refused ({}), clone is used in its place", refused.desc());
            Some(report(PROCESSES, Health::Ok, text, Some(LET_CLONE3_THROUGH)))
        }
        (clone3, Err(errno)) => {
            let calls = if clone3.is_ok() { "clone3" } else { "clone3 and clone" };
            let text = format!("no process can be started: {calls}: {}", errno.desc());
            Some(report(PROCESSES, Health::Missing, text, Some(LET_CLONE3_THROUGH)))
        }
    }
}

fn identity_layer() -> LayerReport {
    let works = in_a_copy(|| {
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

fn namespace_layer(refused: Option<&str>, clone3: Result<(), Errno>) -> LayerReport {
    let Some(refused) = refused else {
        return report("namespaces", Health::Ok, "pid, mount, ipc, uts and net were made", None);
    };
    let mut remedy =
        "give the executor CAP_SYS_ADMIN and CAP_NET_ADMIN, start it behind no filter that refuses unshare, setns or mount (in a \
         container: run it on the host, or with the capability), and leave user.max_*_namespaces (sysctl) above 0"
            .to_owned();
    if clone3.is_err() {
        remedy.push_str("; ");
        remedy.push_str(LET_CLONE3_THROUGH);
    }
    report("namespaces", Health::Missing, refused, Some(&remedy))
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
    let works = in_a_copy(|| {
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
