//! Row 3: arguments of which the kernel takes the low half alone.

use super::{
    Probe,
    acts::{inside, inside_of, numbers, without},
    probe,
};

pub(super) const PROBES: &[Probe] = &[Probe {
    row: 3,
    test: "escape::r03_halves::arguments_with_dirty_upper_halves_are_refused_alike",
    tried: "a refused socket protocol, personality, `prctl` option and file flag, clean and with dirty upper halves",
    control: "the same calls with the filter left out; a socket that is allowed",
    closed_by: "seccomp, which looks at what the kernel looks at",
}];

#[test]
fn arguments_with_dirty_upper_halves_are_refused_alike() {
    let _verdict = probe!();
    // NETLINK_KOBJECT_UEVENT, READ_IMPLIES_EXEC, PR_GET_TID_ADDRESS, FS_IOC_SETFLAGS.
    let code = "f = os.open('own', os.O_RDWR | os.O_CREAT)\nflags = ctypes.byref(ctypes.c_ulong(0))\nb = ctypes.create_string_buffer(64)\n\
                for up in (0, 1 << 32, 1 << 62):\n  \
                print(sys_(41, 16 + up, 3, 15), sys_(135, 0x400000 + up), sys_(157, 40 + up, b, 0, 0, 0), sys_(16, f, 0x40086602 + up, flags))";
    assert_eq!(numbers(&inside_of(without("seccomp"), "default", code)), [0; 12], "the control");
    let seen = numbers(&inside(code));
    assert!(seen.iter().all(|errno| *errno != 0), "{seen:?}");
    assert!(seen[..4] == seen[4..8] && seen[..4] == seen[8..], "{seen:?}");
    let allowed = "print(*(sys_(41, 1 + up, 1, 0) for up in (0, 1 << 32)))";
    assert_eq!(inside(allowed), "0 0\n");
}
