//! Row 21: a user namespace gives every capability in it, and with them most of the kernel's attack surface.

use super::{
    Probe,
    acts::{inside, inside_of, numbers, outside, without},
    probe,
};

pub(super) const PROBES: &[Probe] = &[Probe {
    row: 21,
    test: "escape::r21_users::namespaces_cannot_be_made_or_joined",
    tried: "`unshare` and `clone` for each kind of namespace, also with dirty upper halves; `clone3`; `setns` by file and by pidfd",
    control: "a user namespace with the filter left out; a mount namespace outside",
    closed_by: "seccomp; without a user namespace no capability for the others",
}];

#[test]
fn namespaces_cannot_be_made_or_joined() {
    let _verdict = probe!();
    let kinds = "(0x10000000, 0x20000, 0x20000000, 0x40000000, 0x4000000, 0x8000000, 0x2000000, 0x80)";
    let code = format!(
        "print(*(call(l.unshare, f) for f in {kinds}), *(sys_(272, f | 1 << 32) for f in {kinds}))\n\
         print(*(sys_(56, f | 17 | up, 0, 0, 0, 0) for f in {kinds} if f != 0x80 for up in (0, 1 << 32)))\n\
         a = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)\nprint(sys_(435, a, 88))\n\
         print(*(call(l.setns, os.open(f'/proc/self/ns/{{n}}', 0), 0) for n in ('net', 'user', 'mnt', 'pid', 'ipc', 'uts')), \
         call(l.setns, l.syscall(434, os.getpid(), 0), 0x10000000))"
    );
    let seen = numbers(&inside(&code));
    // EPERM; for clone3 ENOSYS, on which programs fall back to clone.
    assert!(seen.iter().filter(|errno| **errno == 38).count() == 1, "{seen:?}");
    assert!(seen.iter().all(|errno| [1, 38].contains(errno)), "{seen:?}");
    assert_eq!(
        inside_of(without("seccomp"), "default", "print(call(l.unshare, 0x10000000))"),
        "0\n",
        "the control"
    );
    assert_eq!(outside("print(call(l.unshare, 0x20000))"), "0\n", "the control");
}
