//! Row 4: io_uring, which makes calls that no filter sees, and families of sockets beside those of the network.

use super::{
    Probe,
    acts::{inside, inside_of, numbers, without},
    probe,
};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 4,
        test: "escape::r04_families::no_ring_can_be_made",
        tried: "`io_uring_setup`, `io_uring_enter`, `io_uring_register`",
        control: "`io_uring_setup` with the filter left out",
        closed_by: "seccomp",
    },
    Probe {
        row: 4,
        test: "escape::r04_families::only_sockets_of_the_list_open",
        tried: "`socket` with every family up to 63, seven types and twelve protocols, VSOCK, ALG, PACKET, MPTCP and SCTP among them",
        control: "with the filter left out others open too",
        closed_by: "seccomp",
    },
];

#[test]
fn no_ring_can_be_made() {
    let mut verdict = probe!();
    let code = "b = ctypes.create_string_buffer(256)\nprint(sys_(425, 4, b), sys_(426, 0, 0, 0, 0, 0, 0), sys_(427, 0, 0, 0, 0))";
    assert_eq!(inside(code), "1 1 1\n");
    let control = numbers(&inside_of(without("seccomp"), "default", code))[0];
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    match disabled.trim() {
        "1" | "2" => verdict.closed_by("seccomp, and the kernel has it switched off"),
        _ => assert_eq!(control, 0, "the control"),
    }
}

#[test]
fn only_sockets_of_the_list_open() {
    let _verdict = probe!();
    let code = "for f in FAMILIES:\n  for k in (1, 2, 3, 4, 5, 6, 10):\n    \
                for p in (0, 1, 2, 6, 9, 15, 16, 17, 58, 132, 256, 262):\n      \
                fd = l.socket(f, k, p)\n      if fd >= 0: print(f, k, p); os.close(fd)";
    // Family, types, protocols: Unix with any, TCP, UDP and ping, and the netlink family that lists interfaces.
    let listed = |socket: &[i64]| match *socket {
        [1, ..] => true,
        [2 | 10, 1, protocol] => [0, 6].contains(&protocol),
        [2 | 10, 2, protocol] => [0, 1, 17, 58].contains(&protocol),
        [16, _, protocol] => protocol == 0,
        _ => false,
    };
    let opened = |text: &str| text.lines().map(numbers).collect::<Vec<_>>();
    let inside = opened(&inside(&code.replace("FAMILIES", "range(64)")));
    for wanted in [[1, 1, 0], [2, 1, 0], [2, 2, 0], [16, 3, 0]] {
        assert!(inside.iter().any(|socket| *socket == wanted), "{wanted:?}");
    }
    let others: Vec<_> = inside.iter().filter(|socket| !listed(socket)).collect();
    assert!(others.is_empty(), "{others:?}");
    // Netlink alone: for each family that it does not have the kernel looks for a module.
    let without = opened(&inside_of(without("seccomp"), "default", &code.replace("FAMILIES", "(16,)")));
    assert!(without.iter().any(|socket| !listed(socket)), "the control: {without:?}");
}
