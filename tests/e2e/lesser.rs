//! Hosts that lack a layer: `strict` refuses and says why, `available` runs and says what held.

use crate::harness::{
    Executor, daemon,
    daemon::{open_directory, start_refused, write_configuration},
    host, shared,
};
use cordon_protocol::{CgroupMode, Health, client::blocking};

#[test]
fn strict_refuses_a_host_without_controllers_and_names_the_remedy() {
    daemon::ensure_users();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "strict", "");
    if host::has_controllers() {
        // The other half of the statement: where nothing is missing, strict starts.
        let mut command = crate::harness::process::tied(&crate::harness::build::programs().executor);
        command.arg("--config").arg(file);
        let executor = Executor::wait_ready(command, directory);
        assert_eq!(executor.report(&["--", "true"]).enforced.cgroup, CgroupMode::V2);
        return;
    }
    let said = start_refused(&file).stderr;
    for word in ["cgroup", "memory", "strict"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!directory.path().join("executor.sock").exists());
}

#[test]
fn strict_refuses_an_older_landlock_than_is_asked_for() {
    daemon::ensure_users();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "strict", "landlock_abi_min = 99");
    let said = start_refused(&file).stderr;
    assert!(said.contains(if host::has_controllers() { "landlock" } else { "cgroup" }), "{said}");
    // Where a lesser host will do, the same floor is no obstacle.
    Executor::start("landlock_abi_min = 99").assert_works();
}

#[test]
fn available_runs_with_what_there_is_and_says_so() {
    let report = shared().report(&["--", "true"]);
    assert_eq!(report.enforced.cgroup, host::cgroup_mode());
    let layers = blocking::doctor(&shared().socket, "test").unwrap();
    let cgroup = layers.iter().find(|l| l.layer == "cgroup").expect("a layer");
    let expected = match host::cgroup_mode() {
        CgroupMode::V2 => Health::Ok,
        CgroupMode::Sampled => Health::Lesser,
        CgroupMode::None => Health::Missing,
    };
    let seen = (cgroup.health, cgroup.remedy.is_some());
    assert!(seen == (expected, true) || seen == (Health::Ok, false), "{cgroup:?}");
    assert_eq!(cgroup.health, expected, "{cgroup:?}");
}

#[test]
fn a_lesser_host_is_a_warning_at_the_start() {
    let mut executor = Executor::start("");
    executor.assert_works();
    let log = executor.process().log().to_lowercase();
    let warns = log.lines().any(|l| l.contains("cgroup") && !l.contains("error"));
    assert!(warns || host::has_controllers(), "{log}");
}
