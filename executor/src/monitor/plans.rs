//! The plans of all profiles, with their prepared roots, kept in step with the host's /etc.
//!
//! A root holds a copy of /etc. When the host's changes, the roots are made anew and swapped; sandboxes that
//! run keep the one they have.

mod changes;

use super::{MonitorError, STORAGE};
use crate::{
    config::{Config, Policy, Require, Users},
    host::Host,
    profile::Profile,
    sandbox::{
        Plan, init,
        root::Template,
        seccomp,
        steps::{About, Fault},
        storage::Storage,
    },
};
use changes::{Pending, watch_copied};
use cordon_protocol::CgroupMode;
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
    path::PathBuf,
    sync::Arc,
    time::Instant,
};

/// The plans by profile.
#[derive(Debug)]
pub struct Plans {
    by_name: BTreeMap<String, Arc<Plan>>,
    common: Common,
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
            retired: Vec::new(),
            max_commands: count(config.max_commands),
            roots,
            generation: 0,
            watch: None,
            pending: Pending::default(),
        };
        plans.replace(wanted, || Ok(())).map_err(failed("the roots of the profiles"))?;
        Ok(plans)
    }

    /// Takes over other profiles: all of them, or none where one's root cannot be made or `record` fails, after which
    /// nothing else can.
    ///
    /// # Errors
    /// What could not be made, or recorded.
    pub(super) fn adopt(
        &mut self,
        policy: &Policy,
        record: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.replace(self.common.plans(&policy.profiles), record)?;
        self.max_commands = count(policy.max_commands);
        Ok(())
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

    /// Takes in changes of /etc and, once they have settled, makes the roots anew. Where that fails the old
    /// ones stay.
    pub fn keep_fresh(&mut self, now: Instant) {
        self.drop_retired();
        if self.watch.as_ref().is_some_and(|watch| watch.read_events().is_ok()) {
            self.pending.add(now);
        }
        if !self.pending.take(now) {
            return;
        }
        let same = self.by_name.iter().map(|(name, plan)| (name.clone(), Plan::clone(plan))).collect();
        if let Err(fault) = self.replace(same, || Ok(())) {
            crate::log!("/etc has changed, the old copy stays: {}: {}", fault.detail, fault.errno.desc());
        }
    }

    /// Puts these plans in the place of those in force, each with a root made for it, and watches what was copied;
    /// `record` has the last say.
    fn replace(
        &mut self,
        wanted: BTreeMap<String, Plan>,
        record: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let fresh = if self.common.host.namespaces {
            self.with_roots(wanted, record)?
        } else {
            record()?;
            wanted
        };
        let fresh = fresh.into_iter().map(|(name, plan)| (name, Arc::new(plan))).collect();
        self.retired.extend(std::mem::replace(&mut self.by_name, fresh).into_values());
        Ok(())
    }

    /// Drops the roots that no sandbox is of: the mount point of one that is being launched must stay, as the
    /// kernel takes the mount away from every namespace together with it.
    fn drop_retired(&mut self) {
        for plan in self.retired.extract_if(.., |plan| Arc::strong_count(plan) == 1) {
            plan.template.iter().for_each(|template| drop_root(&template.at));
        }
    }

    fn with_roots(
        &mut self,
        mut wanted: BTreeMap<String, Plan>,
        record: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<BTreeMap<String, Plan>, Fault> {
        self.generation += 1;
        // Before the copy: what changes while it is made is seen.
        let hidden = wanted.values().map(|plan| plan.profile.hide.as_slice());
        let watch = watch_copied(&hidden.collect::<Vec<_>>());
        let mut made: Vec<PathBuf> = Vec::new();
        for (name, plan) in &mut wanted {
            let at = self.roots.join(format!("{name}.{}", self.generation));
            made.push(at.clone());
            match Template::build(&plan.home, &plan.profile, at) {
                Ok(template) => plan.template = Some(template),
                Err(fault) => {
                    made.iter().for_each(drop_root);
                    return Err(fault);
                }
            }
        }
        if let Err(fault) = record() {
            made.iter().for_each(drop_root);
            return Err(fault);
        }
        self.watch = watch
            .map_err(|fault| {
                crate::log!("changes of /etc are not seen: {}: {}", fault.detail, fault.errno.desc());
            })
            .ok();
        Ok(wanted)
    }
}

fn count(commands: u32) -> usize {
    usize::try_from(commands).unwrap_or(usize::MAX)
}

/// Unmounts a root of the monitor's; the copies in running sandboxes are not touched.
fn drop_root(at: &PathBuf) {
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
        let template = Some(Template { at: at.clone(), exposed: Vec::new() });
        let launching = Arc::new(Plan { template, ..common.plan(&config.profiles["small"]) });
        let mut plans = Plans {
            by_name: BTreeMap::new(),
            common,
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
