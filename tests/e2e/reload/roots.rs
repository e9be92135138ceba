//! The roots of many profiles, which are made one by one.

use super::Reloading;
use crate::harness::{PATIENCE, daemon::write_configuration, eventually};
use nix::sys::signal::Signal;
use std::fs;

/// A configuration with 64 profiles, after these keys.
pub(super) fn many(keys: &str) -> String {
    let profiles: String = (1..64).map(|n| format!("[profiles.p{n:02}]\n")).collect();
    format!("{keys}\n{profiles}")
}

impl Reloading {
    /// How many roots of the policy that was the `generation`th to be read are there.
    pub(super) fn roots(&self, generation: u32) -> usize {
        let roots = fs::read_dir(self.executor.directory().join("state/roots")).unwrap();
        let ending = format!(".{generation}");
        roots.filter(|root| root.as_ref().unwrap().file_name().to_str().unwrap().ends_with(&ending)).count()
    }
}

#[test]
fn commands_go_on_while_the_roots_of_many_profiles_are_made() {
    let mut reloading = Reloading::start(&many(""));
    assert_eq!(reloading.roots(1), 64);
    write_configuration(reloading.executor.directory(), "available", &many("max_commands = 9"));
    reloading.executor.process().signal(Signal::SIGHUP);
    eventually("the first root is made", PATIENCE, || reloading.roots(2) > 0);
    reloading.executor.assert_works();
    let made = reloading.roots(2);
    assert!(made < 64, "the command waited for all of them");
    eventually("all are made", PATIENCE, || reloading.roots(2) == 64);
    eventually("those before are gone", PATIENCE, || reloading.roots(1) == 0);
    reloading.executor.assert_works();
}

#[test]
fn where_one_root_cannot_be_made_nothing_changes_and_the_others_are_removed() {
    let mut reloading = Reloading::start("");
    // A mount point that is no directory.
    fs::write(reloading.executor.directory().join("state/roots/p40.2"), "").unwrap();
    let status = reloading.reload(&many(""));
    assert!(
        status.starts_with("STATUS=The configuration stays as it was: ") && status.contains("p40.2"),
        "{status}"
    );
    eventually("those that were made are gone", PATIENCE, || reloading.roots(2) == 1);
    assert_eq!(reloading.roots(1), 1);
    reloading.executor.assert_works();
    assert_eq!(reloading.reload(&many("")), "STATUS=Configuration read anew: 64 profiles\n");
    assert_eq!(reloading.executor.inside_profile("p40", "echo works"), "works\n");
}
