//! Every launch step with its reason, in order, for people and for the fault tests.

use crate::{
    monitor::launch,
    sandbox::{command, init},
};

/// Names and reasons: the monitor's steps, then init's, then the command's.
pub fn all() -> Vec<(&'static str, &'static str)> {
    let mut steps = launch::list();
    steps.extend(init::STEPS.iter().map(|step| (step.name, step.why)));
    let command = command::LOCK_DOWN.iter().chain(command::START);
    steps.extend(command.map(|step| (step.name, step.why)));
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_step_has_a_name_of_its_own_and_a_reason() {
        let steps = super::all();
        let names: BTreeSet<_> = steps.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), steps.len());
        assert!(steps.iter().all(|(name, why)| name.len() <= 32 && why.len() > 10));
    }
}
