//! Hosts on which a filter in front of the executor refuses system calls, as container runtimes and units do.

use super::hosts::{assert_ends, assert_enforced, assert_gone, assert_workspaces};
use crate::harness::{
    Executor, PATIENCE,
    client::line,
    eventually, host,
    lesser_host::{LesserHost, MOUNTS, WHOLE},
    marker,
    process::sandboxed,
};
use cordon_protocol::{CgroupMode, Health, client::blocking};
use nix::libc;
use std::fs;

const fn refusing(refused: &'static [(i64, i32)]) -> LesserHost {
    LesserHost { refused, ..WHOLE }
}

/// Commands run, without namespaces, and `doctor` tells what to do about that.
fn assert_runs_without_namespaces(executor: &Executor) {
    let report = executor.report(&["-c", "echo x > ~/x && cat ~/x"]);
    assert_eq!((report.exit_code, report.stdout.as_deref()), (Some(0), Some("x\n")), "{report:?}");
    assert!(report.enforced.namespaces.is_empty());
    let layers = blocking::doctor(&executor.socket, "test").unwrap();
    let layer = layers.iter().find(|l| l.layer == "namespaces").unwrap();
    assert!(layer.health == Health::Missing && layer.remedy.is_some(), "{layer:?}");
}

#[test]
fn where_namespaces_can_be_made_but_nothing_mounted_commands_run_without_them() {
    assert_runs_without_namespaces(&refusing(MOUNTS).start(""));
    assert!(refusing(MOUNTS).refused().contains("namespaces: "));
}

/// As behind a container runtime, or `RestrictNamespaces=` in a unit: a filter cannot look at what clone3 asks for, so
/// it says that there is no such call.
#[test]
fn without_clone3_everything_else_is_as_it_was() {
    let executor = refusing(&[(libc::SYS_clone3, libc::ENOSYS)]).start("");
    assert_enforced(&executor, WHOLE);
    assert_ends(&executor);
    assert_workspaces(&executor);
    let layers = blocking::doctor(&executor.socket, "test").unwrap();
    let layer = layers.iter().find(|l| l.layer == "processes").unwrap_or_else(|| panic!("{layers:?}"));
    assert_eq!(layer.health, Health::Ok);
    assert!(layer.detail.contains("clone3 is refused (Function not implemented)"), "{layer:?}");
    let remedy = layer.remedy.as_deref().unwrap();
    assert!(remedy.contains("kernel 5.3") && remedy.contains("container runtime"), "{layer:?}");
    // Older runtimes answer so to every call that they do not know.
    let executor = refusing(&[(libc::SYS_clone3, libc::EPERM)]).start("");
    assert_enforced(&executor, WHOLE);
}

/// As container runtimes do; what they refuse no command can use either.
#[test]
fn where_keyrings_are_refused_altogether_there_is_none_to_leave() {
    let executor = refusing(&[(libc::SYS_keyctl, libc::EPERM), (libc::SYS_add_key, libc::EPERM)]).start("");
    assert_enforced(&executor, WHOLE);
}

/// The process is in its leaf before it does anything: all of it is seen there.
#[test]
fn without_clone3_a_command_is_in_its_leaf_all_the_same() {
    let host = refusing(&[(libc::SYS_clone3, libc::ENOSYS)]);
    let executor = host.start("");
    let marker = marker();
    let connection = blocking::run(&executor.socket, "test", line(&format!("exec sleep {marker}"))).unwrap();
    eventually("it runs", PATIENCE, || !sandboxed(&marker).is_empty());
    let [pid] = sandboxed(&marker)[..] else { panic!("not one process") };
    let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let in_leaf = cgroup.lines().any(|line| line.starts_with("0::/") && line.ends_with(".cmd"));
    assert_eq!(in_leaf, host::cgroup_mode() != CgroupMode::None, "{cgroup}");
    drop(connection);
    assert_gone(&marker);
}

#[test]
fn where_no_process_can_be_started_it_says_so_and_nothing_else() {
    let host = refusing(&[(libc::SYS_clone3, libc::ENOSYS), (libc::SYS_clone, libc::EPERM)]);
    for require in ["strict", "available"] {
        let said = host.refused_by(require);
        for words in
            ["processes: no process can be started: clone3 and clone: Operation not permitted", "5.3"]
        {
            assert!(said.contains(words), "{words}: {said}");
        }
        for other in ["identity", "seccomp", "namespaces:"] {
            assert!(!said.contains(other), "{other}: {said}");
        }
    }
}

#[test]
fn where_namespaces_cannot_be_left_again_commands_run_without_them() {
    for (name, host) in [
        ("(setns)", refusing(&[(libc::SYS_setns, libc::EPERM)])),
        ("(unshare)", refusing(&[(libc::SYS_unshare, libc::EPERM)])),
    ] {
        assert_runs_without_namespaces(&host.start(""));
        let said = host.refused();
        assert!(said.contains("namespaces: ") && said.contains(name) && !said.contains("seccomp:"), "{said}");
    }
}
