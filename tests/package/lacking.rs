//! The packaged default is strict: each layer is taken from the running host in turn, and the executor does not start,
//! says which one is missing and what to do, and starts again once it is given back.
//!
//! What only a boot takes is in `without.rs`.

use crate::guest::{Host, cursor, forget_failures, journal, journal_since, member, ok, sh};
use std::fs;

/// What the journal has of a start that comes to nothing.
fn refusal() -> String {
    ok("systemctl stop cordon-executor.socket cordon-executor");
    forget_failures();
    let since = cursor();
    let started = sh("systemctl start cordon-executor");
    ok("systemctl stop cordon-executor.socket cordon-executor; journalctl --sync");
    let said = journal_since(&since, "-u cordon-executor");
    assert_ne!(started.status, 0, "it starts: {said}");
    said
}

/// The executor does not start, and the journal has the layer, what was found of it, and words of the remedy.
fn assert_refuses(layer: &str, found: &str, remedy: &str) {
    let said = refusal();
    let line = said.lines().find(|line| line.contains(&format!("{layer}: ")));
    let line = line.unwrap_or_else(|| panic!("{layer} is not named: {said}"));
    assert!(line.contains(found), "not `{found}`: {line}");
    let (_, rest) = line.split_once("; remedy: ").unwrap_or_else(|| panic!("no remedy: {line}"));
    assert!(rest.contains(remedy), "not `{remedy}`: {rest}");
    assert!(said.contains("require = \"strict\""), "{said}");
    // That one alone.
    assert_eq!(said.lines().filter(|line| line.contains("; remedy: ")).count(), count(&said), "{said}");
}

/// Starts of which the journal tells: each names what is missing.
fn count(said: &str) -> usize {
    said.lines().filter(|line| line.contains("this host lacks what")).count()
}

/// The control: nothing else was in its way.
fn assert_starts() {
    forget_failures();
    let started = sh("systemctl start cordon-executor.socket cordon-executor");
    assert_eq!(started.status, 0, "{started:?}\n{}", journal());
    assert_eq!(member("cordon run -- echo again"), "again");
}

/// No more namespaces of a kind (namespaces(7)), until it is dropped.
struct NoMore {
    file: String,
    before: String,
}

impl NoMore {
    fn of(kind: &str) -> Self {
        let file = format!("/proc/sys/user/max_{kind}_namespaces");
        let before = fs::read_to_string(&file).unwrap();
        fs::write(&file, "0").unwrap();
        Self { file, before }
    }
}

impl Drop for NoMore {
    fn drop(&mut self) {
        fs::write(&self.file, &self.before).unwrap();
    }
}

#[test]
fn without_one_kind_of_namespace_it_does_not_start() {
    let _host = Host::with_package();
    let cloned = "no process could be started in namespaces of its own (clone)";
    for (kind, found) in [
        ("net", "no network namespace could be made (unshare)"),
        ("pid", cloned),
        ("ipc", cloned),
        ("uts", cloned),
    ] {
        let taken = NoMore::of(kind);
        assert_refuses("namespaces", found, "user.max_*_namespaces");
        drop(taken);
        assert_starts();
    }
    // Mount namespaces systemd needs itself to start the unit, so there the executor is started without it.
    let taken = NoMore::of("mnt");
    let said = refusal();
    assert!(said.contains("Failed at step") && said.contains("No space left on device"), "{said}");
    let said = sh("systemd-run --quiet --scope -p Delegate=yes cordon-executor").stderr;
    assert!(said.contains(&format!("namespaces: {cloned}; remedy: ")), "{said}");
    drop(taken);
    assert_starts();
}

/// Gone when it is dropped, with what runs in it.
struct Slice;

impl Drop for Slice {
    fn drop(&mut self) {
        sh("systemctl stop cordon-executor.socket cordon-executor cordon.slice");
    }
}

#[test]
fn without_one_controller_or_any_delegation_it_does_not_start() {
    let host = Host::with_package();
    let slice = Slice;
    for controller in ["memory", "pids", "cpu"] {
        // Of a slice of its own, in which nobody can have it.
        host.amend("cordon-lacking.slice", &format!("[Slice]\nDisableControllers={controller}\n"));
        host.amend("cordon-executor.service", "[Service]\nSlice=cordon-lacking.slice\n");
        assert_refuses("cgroup", &format!("cgroup.controllers lacks {controller};"), "Delegate=yes");
        host.amend("cordon-lacking.slice", "[Slice]\nDisableControllers=\n");
        ok("systemctl stop cordon.slice");
        assert_starts();
    }
    drop(slice);
    // With every controller, and nobody who says that they are its own.
    let all = "CPUWeight=90\nMemoryAccounting=yes\nTasksAccounting=yes";
    host.amend("cordon-executor.service", &format!("[Service]\nDelegate=no\nDelegateSubgroup=\n{all}\n"));
    assert_refuses("cgroup", "is not delegated to the executor", "Delegate=yes");
    host.amend("cordon-executor.service", "[Service]\n");
    assert_starts();
}

#[test]
fn without_landlock_seccomp_or_a_capability_it_does_not_start() {
    let host = Host::with_package();
    let cases = [
        (
            "namespaces",
            "CapabilityBoundingSet=~CAP_NET_ADMIN",
            "loopback interface of a network namespace could not be brought up",
            "CAP_NET_ADMIN",
        ),
        ("landlock", "SystemCallFilter=~landlock_create_ruleset", "no Landlock", "lsm= boot parameter"),
        (
            "seccomp",
            "SystemCallFilter=~seccomp",
            "could not be loaded",
            "do not start the executor behind a filter",
        ),
    ];
    for (layer, setting, found, remedy) in cases {
        host.amend("cordon-executor.service", &format!("[Service]\n{setting}\n"));
        assert_refuses(layer, found, remedy);
        host.amend("cordon-executor.service", "[Service]\n");
        assert_starts();
    }
    // What privileges are given up with is asked for before any layer is tried.
    host.amend("cordon-executor.service", "[Service]\nCapabilityBoundingSet=~CAP_SETPCAP\n");
    let said = refusal();
    assert!(said.contains("CAP_SETPCAP is missing: start it with this capability"), "{said}");
    host.amend("cordon-executor.service", "[Service]\n");
    assert_starts();
}
