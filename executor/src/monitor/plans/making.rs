//! Plans that are to be in force, whose roots are made one by one: one takes about as long as a launch, and commands
//! that run are not to wait for 64 of them.

use super::{changes::watch_copied, drop_root};
use crate::sandbox::{Plan, root::Template, steps::Fault};
use nix::sys::inotify::Inotify;
use std::{collections::BTreeMap, path::Path, sync::Arc};

/// The plans.
#[derive(Debug)]
pub(super) struct Making {
    generation: u64,
    /// Those without a root, as yet.
    bare: BTreeMap<String, Plan>,
    made: BTreeMap<String, Arc<Plan>>,
    /// Sees what changes of what is copied.
    watch: Option<Inotify>,
}

impl Making {
    /// Plans that need no root.
    pub(super) fn without_roots(plans: BTreeMap<String, Plan>) -> Self {
        let made = plans.into_iter().map(|(name, plan)| (name, Arc::new(plan))).collect();
        Self { generation: 0, bare: BTreeMap::new(), made, watch: None }
    }

    /// Plans that need a root each, which is not that of another generation.
    pub(super) fn of(plans: BTreeMap<String, Plan>, generation: u64) -> Self {
        // Before the copy: what changes while it is made is seen.
        let hidden = plans.values().map(|plan| plan.profile.hide.as_slice());
        let watch = watch_copied(&hidden.collect::<Vec<_>>());
        let watch = watch.map_err(|fault| {
            crate::log!("changes of /etc are not seen: {}: {}", fault.detail, fault.errno.desc());
        });
        Self { generation, bare: plans, made: BTreeMap::new(), watch: watch.ok() }
    }

    /// Makes one root, below `roots`; true when that was the last.
    ///
    /// # Errors
    /// What could not be made. The others are still there.
    pub(super) fn make_one(&mut self, roots: &Path) -> Result<bool, Fault> {
        if let Some((name, mut plan)) = self.bare.pop_first() {
            let at = roots.join(format!("{name}.{}", self.generation));
            let built = Template::build(&plan.home, &plan.profile, at.clone());
            plan.template = Some(built.inspect_err(|_| drop_root(&at))?);
            self.made.insert(name, Arc::new(plan));
        }
        Ok(self.bare.is_empty())
    }

    /// What has been made, and what sees changes of it.
    pub(super) fn finish(self) -> (BTreeMap<String, Arc<Plan>>, Option<Inotify>) {
        (self.made, self.watch)
    }
}
