//! What this host has, asked without Cordon: what reports and doctor say is compared with it.

use super::process;
use cordon_protocol::CgroupMode;
pub(crate) use cordon_tests::host::{cgroup2, cgroups};
use nix::unistd::{Group, User};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Uid of a user that `cordon up` has made.
pub(crate) fn uid_of(name: &str) -> u32 {
    User::from_name(name).unwrap().unwrap_or_else(|| panic!("no user {name}")).uid.as_raw()
}

/// Gid of a group that `cordon up` has made.
pub(crate) fn gid_of(name: &str) -> u32 {
    Group::from_name(name).unwrap().unwrap_or_else(|| panic!("no group {name}")).gid.as_raw()
}

/// Whether cgroup v2 can limit memory, processes and processor share here.
pub(crate) fn has_controllers() -> bool {
    let list = cgroup2().and_then(|root| fs::read_to_string(root.join("cgroup.controllers")).ok());
    let list = list.unwrap_or_default();
    ["memory", "pids", "cpu"].iter().all(|c| list.split_whitespace().any(|have| have == *c))
}

/// The mode in which the executor has to bound a command's tree here; `CORDON_TEST_CGROUP` says which one it
/// must be, where that is known, so that a host that has become a lesser one is noticed.
pub(crate) fn cgroup_mode() -> CgroupMode {
    let mode = match (cgroup2(), has_controllers()) {
        (None, _) => CgroupMode::None,
        (Some(_), false) => CgroupMode::Sampled,
        (Some(_), true) => CgroupMode::V2,
    };
    if let Ok(known) = std::env::var("CORDON_TEST_CGROUP") {
        assert_eq!(serde_json::json!(mode), known, "the cgroups of this host are not what they were");
    }
    mode
}

/// Whether this host is there for the tests alone, so that they may change what is the kernel's: `CORDON_TEST_OWN_KERNEL`.
pub(crate) fn is_for_tests() -> bool {
    std::env::var_os("CORDON_TEST_OWN_KERNEL").is_some()
}

/// Whether systemd runs this host (sd_booted(3)).
pub(crate) fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// The kernel's Landlock ABI, by landlock_create_ruleset(2) with LANDLOCK_CREATE_RULESET_VERSION. Where
/// `CORDON_TEST_LANDLOCK_ABI` says what it must be, another one is a failure.
pub(crate) fn landlock_abi() -> u32 {
    let code = "import ctypes; print(max(0, ctypes.CDLL(None).syscall(444, None, 0, 1)))";
    let abi = python(code).trim().parse().unwrap();
    if let Ok(known) = std::env::var("CORDON_TEST_LANDLOCK_ABI") {
        assert_eq!(known.parse(), Ok(abi), "the Landlock of this kernel is not what it was");
    }
    abi
}

/// Runs Python on the host, as root and unconfined: the positive control of a probe.
pub(crate) fn python(code: &str) -> String {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", code]);
    let ran = process::run(command, &[]);
    assert_eq!(ran.status, 0, "{code}\n{}", ran.stderr);
    ran.text()
}

/// A program run as another user on the host, without capabilities.
pub(crate) fn as_user(uid: u32, gid: u32, groups: &[u32], program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--reuid", &uid.to_string(), "--regid", &gid.to_string()]);
    let list: Vec<_> = groups.iter().map(u32::to_string).collect();
    match list.is_empty() {
        true => command.arg("--clear-groups"),
        false => command.args(["--groups", &list.join(",")]),
    };
    command.arg("--").arg(program).current_dir("/");
    command
}

/// Directory of the cgroup v2 group a process is in.
pub(crate) fn cgroup_of(pid: i32) -> Option<PathBuf> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|l| l.strip_prefix("0::/"))?.to_owned();
    Some(cgroup2()?.join(path))
}

/// Lines of this process's mountinfo with this text.
pub(crate) fn mounts_with(text: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|l| l.contains(text)).map(str::to_owned).collect()
}
