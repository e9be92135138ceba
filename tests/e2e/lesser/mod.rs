//! Hosts that lack a layer: `strict` refuses and says why, `available` runs and says what held.

mod filters;
mod hosts;

use crate::harness::{
    Executor,
    build::programs,
    daemon,
    daemon::{open_directory, start_refused, write_configuration},
    host, process, shared,
};
use cordon_protocol::{CgroupMode, Health, client::blocking};

/// Layers that this host lacks with the default configuration.
fn lacking() -> Vec<&'static str> {
    let cgroup = host::cgroup_mode() != CgroupMode::V2;
    // The default of landlock_abi_min.
    let landlock = host::landlock_abi() < 2;
    [("cgroup", cgroup), ("landlock", landlock)].into_iter().filter(|l| l.1).map(|l| l.0).collect()
}

#[test]
fn strict_starts_where_nothing_is_missing_and_else_names_the_layer_and_the_remedy() {
    daemon::ensure_users();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "strict", "");
    if lacking().is_empty() {
        let mut command = daemon::in_scope(&programs().executor);
        command.arg("--config").arg(file);
        let executor = Executor::wait_ready(command, directory);
        let enforced = executor.report(&["--", "true"]).enforced;
        assert_eq!((enforced.cgroup, enforced.landlock_abi >= 2), (CgroupMode::V2, true));
        let layers = blocking::doctor(&executor.socket, "test").unwrap();
        assert!(layers.iter().all(|l| l.health == Health::Ok), "{layers:?}");
        return;
    }
    let said = start_refused(&file).stderr;
    for word in [&lacking()[..], &["strict", "remedy"]].concat() {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!directory.path().join("executor.sock").exists());
}

#[test]
fn strict_refuses_a_cgroup_that_nobody_gave_it() {
    daemon::ensure_users();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "strict", "");
    // Under systemd whoever is started without Delegate= may not limit anything (CGROUP_DELEGATION.md); on
    // other hosts this is how the executor starts anyway.
    if !host::has_systemd() && lacking().is_empty() {
        return;
    }
    let mut command = process::tied(&programs().executor);
    command.arg("--config").arg(file);
    let ran = process::run(command, &[]);
    assert!(ran.status != 0 && ran.stderr.contains("cgroup"), "{ran:?}");
}

#[test]
fn strict_refuses_an_older_landlock_than_is_asked_for() {
    let _verdict = crate::escape::probe!();
    daemon::ensure_users();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "strict", "landlock_abi_min = 99");
    let said = start_refused(&file).stderr;
    let found = if host::landlock_abi() == 0 { "no Landlock" } else { "landlock_abi_min = 99" };
    assert!(said.contains("landlock:") && said.contains(found), "{said}");
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
    let log = executor.process().log();
    let abi = host::landlock_abi().min(10);
    let found = format!("executor.sock (cgroup: {}, Landlock ABI: {abi})", host::cgroup_mode());
    assert!(log.contains(&found), "{found}: {log}");
    let log = log.to_lowercase();
    let warns = log.lines().any(|l| l.contains("cgroup") && !l.contains("error"));
    assert!(warns || host::has_controllers(), "{log}");
}
