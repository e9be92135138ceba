//! Row 22: control groups, through which root outside can be made to run a program, and limits lifted.

use super::{
    Probe,
    acts::{Neighbour, inside, numbers, outside, outside_as_user},
    probe,
};
use crate::harness::{host, shared};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 22,
        test: "escape::r22_groups::control_groups_cannot_be_reached",
        tried: "looking for files of any hierarchy, opening those of the command's own group by their path on the host and through /proc/1/root, mounting cgroup2 and cgroup (with release_agent)",
        control: "outside root opens the group's files and mounts cgroup2",
        closed_by: "namespaces: mount; seccomp: mounting",
    },
    Probe {
        row: 22,
        test: "escape::r22_groups::a_command_s_group_is_not_its_user_s_to_write",
        tried: "opening the files of a running command's group for writing, outside, as the sandbox's user",
        control: "root opens them",
        closed_by: "owners: the groups are root's",
    },
];

#[test]
fn control_groups_cannot_be_reached() {
    let mut verdict = probe!();
    let mounts = "os.makedirs('cg', exist_ok=True)\nprint(*(sys_(165, b'none', b'cg', k, 0, d) for k, d in ((b'cgroup2', 0), (b'cgroup', b'memory'), (b'cgroup', b'rdma'))))";
    let walk = "print([os.path.join(d, f) for d, _, fs in os.walk('/sys') for f in fs if f.startswith('cgroup.') or f == 'release_agent'])";
    assert_eq!(inside(walk), "[]\n");
    assert_eq!(inside(mounts), "1 1 1\n");
    let Some(root) = host::cgroup2() else {
        verdict.closed_by("there being no cgroup v2 on this host");
        return;
    };
    let neighbour = Neighbour::start(shared(), "print(open('/proc/self/cgroup').read().replace('\\n', ' '))");
    let leaf = host::cgroup_of(neighbour.pid).unwrap();
    let files = ["cgroup.procs", "cgroup.kill", "cgroup.subtree_control"];
    let open = |prefix: &str| {
        let paths = files.map(|file| format!("{prefix}{}", leaf.join(file).display()));
        format!("print(*(t(os.open, f, os.O_WRONLY) for f in {paths:?}))")
    };
    assert_eq!(inside(&open("")), "2 2 2\n");
    assert!(numbers(&inside(&open("/proc/1/root"))).iter().all(|errno| *errno != 0));
    assert_eq!(outside(&open("")), "0 0 0\n", "the control");
    let mount = "import tempfile\nd = tempfile.mkdtemp().encode()\nprint(call(l.unshare, 0x20000), call(l.mount, b'none', b'/', 0, 0x44000, 0), \
         call(l.mount, b'none', d, b'cgroup2', 0, 0), os.path.exists(d + b'/cgroup.procs'))\nl.umount2(d, 2); os.rmdir(d)";
    assert_eq!(outside(mount), "0 0 0 True\n", "the control");
    assert!(root.is_dir());
}

#[test]
fn a_command_s_group_is_not_its_user_s_to_write() {
    let mut verdict = probe!();
    if host::cgroup2().is_none() {
        verdict.closed_by("there being no cgroup v2 on this host");
        return;
    }
    let neighbour = Neighbour::start(shared(), "print()");
    let leaf = host::cgroup_of(neighbour.pid).unwrap();
    let code = format!(
        "r = []\nfor d in ({leaf:?}, {:?}):\n  for f in sorted(os.listdir(d)):\n    p = os.path.join(d, f)\n    \
         if os.path.isfile(p) and os.stat(p).st_mode & 0o200: r.append(t(os.open, p, os.O_WRONLY))\nprint(*r)",
        leaf.parent().unwrap()
    );
    let make = format!("{code}\nprint(t(os.mkdir, {leaf:?} + '/own'))");
    let as_user = numbers(&outside_as_user(&make));
    assert!(as_user.len() > 10 && as_user.iter().all(|errno| *errno == 13), "EACCES: {as_user:?}");
    let as_root = numbers(&outside(&code));
    assert!(as_root.iter().filter(|errno| **errno == 0).count() > 8, "the control: {as_root:?}");
}
