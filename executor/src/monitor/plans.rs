//! The plans of all profiles, with their prepared roots, kept in step with the host's /etc.
//!
//! A root holds a copy of /etc. When the host's changes, the roots are made anew and swapped; sandboxes that
//! run keep the one they have. Roots are made, and removed, one in each turn of the monitor's loop.

mod changes;
mod making;

use super::{MonitorError, STORAGE};
use crate::{
    config::{Config, Require, Users},
    host::Host,
    profile::Profile,
    sandbox::{
        Plan, init, seccomp,
        steps::{About, Fault},
        storage::Storage,
    },
};
use changes::Pending;
use cordon_protocol::CgroupMode;
use making::Making;
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::inotify::Inotify,
};
use seccompiler::BpfProgram;
use std::{
    collections::BTreeMap,
    fs,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

/// The plans by profile.
#[derive(Debug)]
pub struct Plans {
    by_name: BTreeMap<String, Arc<Plan>>,
    common: Common,
    /// To be in force, once all of them are there.
    making: Option<Making>,
    /// Had been in force; a launch may still need their roots.
    retired: Vec<Arc<Plan>>,
    max_commands: usize,
    roots: PathBuf,
    generation: u64,
    watch: Option<Inotify>,
    pending: Pending,
}

/// What the plans of all profiles share.
#[derive(Debug)]
struct Common {
    users: Users,
    home: PathBuf,
    host: Arc<Host>,
    landlock_floor: u32,
    filter: Arc<BpfProgram>,
    init_filter: Arc<BpfProgram>,
}

impl Common {
    /// The plan of a profile, without a root.
    fn plan(&self, profile: &Profile) -> Plan {
        Plan {
            profile: profile.clone(),
            users: self.users.clone(),
            home: self.home.clone(),
            host: Arc::clone(&self.host),
            landlock_floor: self.landlock_floor,
            template: None,
            filter: Arc::clone(&self.filter),
            init_filter: Arc::clone(&self.init_filter),
        }
    }

    fn plans(&self, profiles: &BTreeMap<String, Profile>) -> BTreeMap<String, Plan> {
        profiles.iter().map(|(name, profile)| (name.clone(), self.plan(profile))).collect()
    }
}

impl Plans {
    /// Makes the monitor's own mount namespace, the filters and the prepared roots.
    ///
    /// # Errors
    /// What could not be made.
    pub fn prepare(config: &Config, host: &Arc<Host>) -> Result<Self, MonitorError> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |fault| MonitorError::Prepare { what, fault }
        };
        let filter = Arc::new(seccomp::program()?);
        let init_filter = Arc::new(seccomp::allow_list(init::SYSCALLS)?);
        let roots = config.state_dir.join("roots");
        if host.namespaces {
            own_mount_namespace().map_err(failed("a mount namespace of its own"))?;
            fs::create_dir_all(&roots).about(roots.display()).map_err(failed("the directory of roots"))?;
            // Mount points of an earlier monitor, whose mounts went with it.
            for entry in fs::read_dir(&roots).into_iter().flatten().flatten() {
                let _ = fs::remove_dir(entry.path());
            }
        }
        let alone = host.cgroup == CgroupMode::None;
        let swept = Storage::sweep(&config.state_dir.join(STORAGE), &config.users.command, alone);
        swept.map_err(failed("the directory of commands' files"))?;
        let strict = config.require == Require::Strict;
        let common = Common {
            users: config.users.clone(),
            home: config.home.clone(),
            host: Arc::clone(host),
            landlock_floor: if strict { config.landlock_abi_min } else { 0 },
            filter,
            init_filter,
        };
        let wanted = common.plans(&config.profiles);
        let mut plans = Self {
            by_name: BTreeMap::new(),
            common,
            making: None,
            retired: Vec::new(),
            max_commands: count(config.max_commands),
            roots,
            generation: 0,
            watch: None,
            pending: Pending::default(),
        };
        plans.begin(wanted);
        // Nobody waits yet.
        let made = loop {
            if let Some(made) = plans.make_next() {
                break made;
            }
        };
        if made.is_err() {
            while plans.is_busy() {
                plans.drop_retired();
            }
        }
        made.map_err(failed("the roots of the profiles"))?;
        plans.put_in_force();
        Ok(plans)
    }

    /// Begins to make the plans of other profiles.
    pub(super) fn begin_others(&mut self, profiles: &BTreeMap<String, Profile>) {
        self.begin(self.common.plans(profiles));
    }

    fn begin(&mut self, wanted: BTreeMap<String, Plan>) {
        self.generation += 1;
        self.making = Some(if self.common.host.namespaces {
            Making::of(wanted, self.generation)
        } else {
            Making::without_roots(wanted)
        });
    }

    /// Whether plans are being made: others have to wait.
    pub(super) fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// Whether there is something to be made or removed in the next turn.
    pub(super) fn is_busy(&self) -> bool {
        self.is_making() || self.retired.iter().any(unused)
    }

    /// Makes one root of those that are wanted. Once all are there, or one could not be made and none of them is wanted
    /// any more, it says so.
    pub(super) fn make_next(&mut self) -> Option<Result<(), Fault>> {
        match self.making.as_mut()?.make_one(&self.roots) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(fault) => {
                self.abandon();
                Some(Err(fault))
            }
        }
    }

    /// Puts those that have been made in the place of those that are in force.
    pub(super) fn put_in_force(&mut self) {
        let Some((fresh, watch)) = self.making.take().map(Making::finish) else { return };
        self.watch = watch;
        self.retired.extend(std::mem::replace(&mut self.by_name, fresh).into_values());
    }

    /// Drops those that have been made.
    pub(super) fn abandon(&mut self) {
        let made = self.making.take().map(|making| making.finish().0);
        self.retired.extend(made.into_iter().flat_map(BTreeMap::into_values));
    }

    /// Commands of all peers at once, from now on.
    pub(super) fn set_max_commands(&mut self, commands: u32) {
        self.max_commands = count(commands);
    }

    /// Whether this host cannot keep two commands apart.
    pub(super) fn one_at_a_time(&self) -> bool {
        self.common.host.one_at_a_time
    }

    /// All plans, in the order of their names.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Plan>> {
        self.by_name.values()
    }

    /// Commands of all peers at once.
    pub fn max_commands(&self) -> usize {
        self.max_commands
    }

    /// The plan of a profile.
    pub fn get(&self, name: &str) -> Option<&Arc<Plan>> {
        self.by_name.get(name)
    }

    /// What becomes readable when /etc changes.
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// When the roots are to be made anew.
    pub fn refresh_due(&self) -> Option<Instant> {
        self.pending.due()
    }

    /// Takes in changes of /etc and, once they have settled, begins to make the roots anew.
    pub fn keep_fresh(&mut self, now: Instant) {
        self.drop_retired();
        if self.watch.as_ref().is_some_and(|watch| watch.read_events().is_ok()) {
            self.pending.add(now);
        }
        if !self.is_making() && self.pending.take(now) {
            self.begin(self.by_name.iter().map(|(name, plan)| (name.clone(), Plan::clone(plan))).collect());
        }
    }

    /// Drops a root that no sandbox is of: the mount point of one that is being launched must stay, as the
    /// kernel takes the mount away from every namespace together with it.
    fn drop_retired(&mut self) {
        if let Some(at) = self.retired.iter().position(unused) {
            let plan = self.retired.swap_remove(at);
            plan.template.iter().for_each(|template| drop_root(&template.at));
        }
    }
}

/// Whether no sandbox is of it.
fn unused(plan: &Arc<Plan>) -> bool {
    Arc::strong_count(plan) == 1
}

fn count(commands: u32) -> usize {
    usize::try_from(commands).unwrap_or(usize::MAX)
}

/// Unmounts a root of the monitor's; the copies in running sandboxes are not touched.
fn drop_root(at: &Path) {
    let _ = umount2(at, MntFlags::MNT_DETACH);
    let _ = fs::remove_dir(at);
}

/// The host's mounts go on appearing; nothing of ours appears on the host.
fn own_mount_namespace() -> Result<(), Fault> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    Ok(mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fixture;

    #[test]
    fn a_root_stays_as_long_as_a_sandbox_is_of_it() {
        let config = fixture::config();
        let host = Host {
            namespaces: true,
            landlock_abi: 0,
            cgroup: CgroupMode::None,
            one_at_a_time: false,
            layers: Vec::new(),
        };
        let common = Common {
            users: config.users.clone(),
            home: config.home.clone(),
            host: Arc::new(host),
            landlock_floor: 0,
            filter: Arc::default(),
            init_filter: Arc::default(),
        };
        let at = std::env::temp_dir().join(format!("cordon-root-{}", std::process::id()));
        fs::create_dir_all(&at).unwrap();
        let template = Some(crate::sandbox::root::Template { at: at.clone(), exposed: Vec::new() });
        let launching = Arc::new(Plan { template, ..common.plan(&config.profiles["small"]) });
        let mut plans = Plans {
            by_name: BTreeMap::new(),
            common,
            making: None,
            retired: vec![Arc::clone(&launching)],
            max_commands: 1,
            roots: PathBuf::new(),
            generation: 0,
            watch: None,
            pending: Pending::default(),
        };
        plans.keep_fresh(Instant::now());
        assert!(at.exists() && plans.retired.len() == 1);
        drop(launching);
        plans.keep_fresh(Instant::now());
        assert!(!at.exists() && plans.retired.is_empty());
    }
}
