//! The rules of the command's policy that depend on arguments.
//!
//! Numbers that libc does not name as `u32` stand here as the kernel's headers have them; a test compares
//! those that libc knows.

use super::rule::{Case, Rule, Test, Verdict};
use nix::errno::Errno;

const ALLOW: Verdict = Verdict::Allow;

/// Every flag of clone(2) that makes a namespace. `CLONE_NEWTIME` lies in the byte that clone(2), other than
/// clone3, takes for the exit signal, and is not looked at there; as no signal has a number above 64,
/// refusing it costs nothing and does not depend on that.
const NEW_NAMESPACES: u32 = libc::CLONE_NEWNS.cast_unsigned()
    | libc::CLONE_NEWCGROUP.cast_unsigned()
    | libc::CLONE_NEWUTS.cast_unsigned()
    | libc::CLONE_NEWIPC.cast_unsigned()
    | libc::CLONE_NEWUSER.cast_unsigned()
    | libc::CLONE_NEWPID.cast_unsigned()
    | libc::CLONE_NEWNET.cast_unsigned()
    | libc::CLONE_NEWTIME.cast_unsigned();

/// `CLONE_PARENT` would give the child the caller's parent: for the command that is the monitor, outside the
/// sandbox, which would collect children it knows nothing of.
pub(super) const CLONE: Rule = Rule::Cases {
    cases: &[refuse(
        &[Test::AnyBit { argument: 0, mask: NEW_NAMESPACES | libc::CLONE_PARENT.cast_unsigned() }],
        Errno::EPERM,
    )],
    otherwise: ALLOW,
};

const UNIX: u32 = libc::AF_UNIX.cast_unsigned();
const INTERNET: Test = Test::among(0, &[libc::AF_INET.cast_unsigned(), libc::AF_INET6.cast_unsigned()]);
const STREAM: u32 = libc::SOCK_STREAM.cast_unsigned();
const DATAGRAM: u32 = libc::SOCK_DGRAM.cast_unsigned();
const RAW: u32 = libc::SOCK_RAW.cast_unsigned();
/// `SOCK_PACKET`: the obsolete door to AF_PACKET through AF_INET (linux/net.h).
const PACKET: u32 = 10;
/// The upper bits of a socket's type are `SOCK_CLOEXEC` and `SOCK_NONBLOCK` (linux/net.h, SOCK_TYPE_MASK).
const fn kind(values: &'static [u32]) -> Test {
    Test::Among { argument: 1, mask: 0xf, values }
}

/// Protocols are an allow-list: Landlock's TCP rules see neither MPTCP nor SCTP nor SMC, which all are
/// `SOCK_STREAM` of an internet family. The errno is the one of a kernel without the protocol, on which
/// runtimes that prefer MPTCP fall back to TCP (Go does for listeners).
pub(super) const SOCKET: Rule = Rule::Cases {
    cases: &[
        Case { tests: &[Test::among(0, &[UNIX])], verdict: ALLOW },
        Case {
            tests: &[
                Test::among(0, &[libc::AF_NETLINK.cast_unsigned()]),
                Test::among(2, &[libc::NETLINK_ROUTE.cast_unsigned()]),
            ],
            verdict: ALLOW,
        },
        Case {
            tests: &[
                INTERNET,
                kind(&[STREAM]),
                Test::among(2, &[libc::IPPROTO_IP.cast_unsigned(), libc::IPPROTO_TCP.cast_unsigned()]),
            ],
            verdict: ALLOW,
        },
        Case {
            tests: &[
                INTERNET,
                kind(&[DATAGRAM]),
                Test::among(
                    2,
                    &[
                        libc::IPPROTO_IP.cast_unsigned(),
                        libc::IPPROTO_UDP.cast_unsigned(),
                        libc::IPPROTO_ICMP.cast_unsigned(),
                        libc::IPPROTO_ICMPV6.cast_unsigned(),
                    ],
                ),
            ],
            verdict: ALLOW,
        },
        refuse(&[INTERNET, kind(&[RAW, PACKET])], Errno::EPERM),
        refuse(&[INTERNET, kind(&[STREAM, DATAGRAM])], Errno::EPROTONOSUPPORT),
        refuse(&[INTERNET], Errno::ESOCKTNOSUPPORT),
    ],
    otherwise: Verdict::Errno(Errno::EAFNOSUPPORT),
};

pub(super) const SOCKETPAIR: Rule = Rule::Cases {
    cases: &[Case { tests: &[Test::among(0, &[UNIX])], verdict: ALLOW }],
    otherwise: Verdict::Errno(Errno::EAFNOSUPPORT),
};

/// `MSG_FASTOPEN` connects inside a send, where no Landlock rule about TCP is asked. The errno is the one of
/// a host with fast open switched off; the socket option `TCP_FASTOPEN_CONNECT` goes through connect(2).
const FAST_OPEN: u32 = libc::MSG_FASTOPEN.cast_unsigned();
/// sendto(2) and sendmmsg(2).
pub(super) const SENDTO: Rule = Rule::Cases {
    cases: &[refuse(&[Test::AnyBit { argument: 3, mask: FAST_OPEN }], Errno::EOPNOTSUPP)],
    otherwise: ALLOW,
};
pub(super) const SENDMSG: Rule = Rule::Cases {
    cases: &[refuse(&[Test::AnyBit { argument: 2, mask: FAST_OPEN }], Errno::EOPNOTSUPP)],
    otherwise: ALLOW,
};

pub(super) const TIOCSTI: u32 = 0x5412;
pub(super) const TIOCLINUX: u32 = 0x541c;
pub(super) const TIOCCONS: u32 = 0x541d;
pub(super) const TIOCSETD: u32 = 0x5423;
const KDSKBENT: u32 = 0x4b47;
const KDSKBSENT: u32 = 0x4b49;
const KDSKBDIACR: u32 = 0x4b4b;
const KDSETKEYCODE: u32 = 0x4b4d;
const KDSKBDIACRUC: u32 = 0x4bfb;
pub(super) const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FS_IOC_ADD_ENCRYPTION_KEY: u32 = 0xc050_6617;

/// First those that put input into a terminal or rewrite a console's keys or line discipline. Then what
/// reaches past the command in a file system: a file's owner may change or stop inheriting its project, which
/// leaves the quota it is counted under, and an encryption key outlives the command.
pub(super) const IOCTL: Rule = Rule::Cases {
    cases: &[
        refuse(
            &[Test::among(
                1,
                &[
                    TIOCSTI,
                    TIOCLINUX,
                    TIOCCONS,
                    TIOCSETD,
                    KDSKBENT,
                    KDSKBSENT,
                    KDSKBDIACR,
                    KDSETKEYCODE,
                    KDSKBDIACRUC,
                ],
            )],
            Errno::EPERM,
        ),
        refuse(
            &[Test::among(1, &[FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_ADD_ENCRYPTION_KEY])],
            Errno::EOPNOTSUPP,
        ),
    ],
    otherwise: ALLOW,
};

/// Options that a program uses on itself and that give it nothing. What must not happen is refused by name;
/// any other option is answered like one the kernel does not have, which is what programs probe for.
pub(super) const PRCTL: Rule = Rule::Cases {
    cases: &[
        Case {
            tests: &[Test::among(
                0,
                &[
                    libc::PR_SET_NAME.cast_unsigned(),
                    libc::PR_GET_NAME.cast_unsigned(),
                    libc::PR_SET_VMA.cast_unsigned(),
                    libc::PR_SET_PDEATHSIG.cast_unsigned(),
                    libc::PR_GET_PDEATHSIG.cast_unsigned(),
                    libc::PR_SET_DUMPABLE.cast_unsigned(),
                    libc::PR_GET_DUMPABLE.cast_unsigned(),
                    libc::PR_SET_NO_NEW_PRIVS.cast_unsigned(),
                    libc::PR_GET_NO_NEW_PRIVS.cast_unsigned(),
                    libc::PR_GET_SECCOMP.cast_unsigned(),
                    libc::PR_SET_CHILD_SUBREAPER.cast_unsigned(),
                    libc::PR_GET_CHILD_SUBREAPER.cast_unsigned(),
                    libc::PR_SET_KEEPCAPS.cast_unsigned(),
                    libc::PR_GET_KEEPCAPS.cast_unsigned(),
                    libc::PR_CAPBSET_READ.cast_unsigned(),
                    libc::PR_CAP_AMBIENT.cast_unsigned(),
                    libc::PR_GET_SECUREBITS.cast_unsigned(),
                    libc::PR_SET_TIMERSLACK.cast_unsigned(),
                    libc::PR_GET_TIMERSLACK.cast_unsigned(),
                    libc::PR_SET_THP_DISABLE.cast_unsigned(),
                    libc::PR_GET_THP_DISABLE.cast_unsigned(),
                    libc::PR_GET_TSC.cast_unsigned(),
                    libc::PR_GET_SPECULATION_CTRL.cast_unsigned(),
                    libc::PR_SET_MDWE.cast_unsigned(),
                    libc::PR_GET_MDWE.cast_unsigned(),
                    PR_GET_AUXV,
                ],
            )],
            verdict: ALLOW,
        },
        refuse(
            &[Test::among(
                0,
                &[
                    libc::PR_SET_SECCOMP.cast_unsigned(),
                    libc::PR_CAPBSET_DROP.cast_unsigned(),
                    libc::PR_SET_SECUREBITS.cast_unsigned(),
                    libc::PR_SET_MM.cast_unsigned(),
                    libc::PR_SET_SPECULATION_CTRL.cast_unsigned(),
                ],
            )],
            Errno::EPERM,
        ),
    ],
    otherwise: Verdict::Errno(Errno::EINVAL),
};
/// Reads the auxiliary vector, Linux 6.4 (linux/prctl.h).
const PR_GET_AUXV: u32 = 0x4155_5856;

/// asm/prctl.h: the two segment bases, what the processor's extended state may be (AMX), and the shadow
/// stack, which only protects. Unlocking a shadow stack, address tagging and the 32-bit vDSO are not there.
pub(super) const ARCH_PRCTL: Rule = Rule::Cases {
    cases: &[Case {
        tests: &[Test::among(
            0,
            &[
                0x1001, 0x1002, 0x1003, 0x1004, // SET_GS, SET_FS, GET_FS, GET_GS
                0x1011, // GET_CPUID
                0x1021, 0x1022, 0x1023, // GET_XCOMP_SUPP, GET_XCOMP_PERM, REQ_XCOMP_PERM
                0x5001, 0x5002, 0x5003, 0x5005, // SHSTK_ENABLE, _DISABLE, _LOCK, _STATUS
            ],
        )],
        verdict: ALLOW,
    }],
    otherwise: Verdict::Errno(Errno::EINVAL),
};

/// The question (all bits), plain Linux, `linux32` (another machine name in uname, nothing else) and no
/// randomised addresses (`setarch -R`, thread sanitizer). Not READ_IMPLIES_EXEC nor foreign systems.
pub(super) const PERSONALITY: Rule = Rule::Cases {
    cases: &[Case {
        tests: &[Test::among(
            0,
            &[
                u32::MAX,
                0, // PER_LINUX
                8, // PER_LINUX32
                libc::ADDR_NO_RANDOMIZE.cast_unsigned(),
            ],
        )],
        verdict: ALLOW,
    }],
    otherwise: Verdict::Errno(Errno::EPERM),
};

/// Device nodes need CAP_MKNOD, but a character device 0:0 (an overlay's whiteout) does not.
const DEVICE_KINDS: &[u32] = &[libc::S_IFCHR, libc::S_IFBLK];
pub(super) const MKNOD: Rule = Rule::Cases {
    cases: &[refuse(&[Test::Among { argument: 1, mask: libc::S_IFMT, values: DEVICE_KINDS }], Errno::EPERM)],
    otherwise: ALLOW,
};
pub(super) const MKNODAT: Rule = Rule::Cases {
    cases: &[refuse(&[Test::Among { argument: 2, mask: libc::S_IFMT, values: DEVICE_KINDS }], Errno::EPERM)],
    otherwise: ALLOW,
};

/// Huge pages of the host's reserved pool are not counted by memory.max. ENOMEM is what an empty pool says.
const fn huge(test: &'static [Test]) -> Case {
    refuse(test, Errno::ENOMEM)
}
pub(super) const MMAP: Rule = Rule::Cases {
    cases: &[huge(&[Test::AnyBit { argument: 3, mask: libc::MAP_HUGETLB.cast_unsigned() }])],
    otherwise: ALLOW,
};
pub(super) const SHMGET: Rule = Rule::Cases {
    cases: &[huge(&[Test::AnyBit { argument: 2, mask: libc::SHM_HUGETLB.cast_unsigned() }])],
    otherwise: ALLOW,
};
pub(super) const MEMFD_CREATE: Rule = Rule::Cases {
    cases: &[huge(&[Test::AnyBit { argument: 1, mask: libc::MFD_HUGETLB }])],
    otherwise: ALLOW,
};

/// Merging equal pages tells one sandbox what another one holds. EINVAL is what a kernel without KSM says.
pub(super) const MADVISE: Rule = Rule::Cases {
    cases: &[refuse(&[Test::among(2, &[libc::MADV_MERGEABLE.cast_unsigned()])], Errno::EINVAL)],
    otherwise: ALLOW,
};

/// Which limit, and where it stands: getting one is another matter.
const CORE: &[u32] = &[libc::RLIMIT_CORE];
const ALL_BITS: u32 = u32::MAX;
const SETS: Test = Test::Pointer { argument: 2 };

/// A core dump that goes to a program or a socket of the host (core_pattern(5)) is bounded by no limit but one: 1,
/// which is what a command has. 0 would have the host start that program, as root, for whatever crashes. No program
/// that forbids itself core dumps is to fail of that: there are none anyway.
pub(super) const SETRLIMIT: Rule = Rule::Cases {
    cases: &[Case { tests: &[Test::among(0, CORE)], verdict: Verdict::Ignore }],
    otherwise: ALLOW,
};
/// One that asks for the old value as well would be told none.
pub(super) const PRLIMIT64: Rule = Rule::Cases {
    cases: &[
        refuse(&[Test::among(1, CORE), SETS, Test::AnyBit { argument: 3, mask: ALL_BITS }], Errno::EPERM),
        Case { tests: &[Test::among(1, CORE), SETS], verdict: Verdict::Ignore },
    ],
    otherwise: ALLOW,
};

const fn refuse(tests: &'static [Test], errno: Errno) -> Case {
    Case { tests, verdict: Verdict::Errno(errno) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_written_out_are_those_of_the_headers() {
        for (ours, header) in [
            (TIOCSTI, libc::TIOCSTI),
            (TIOCLINUX, libc::TIOCLINUX),
            (TIOCCONS, libc::TIOCCONS),
            (FS_IOC_SETFLAGS, libc::FS_IOC_SETFLAGS),
        ] {
            assert_eq!(libc::c_ulong::from(ours), header);
        }
        assert_eq!(NEW_NAMESPACES, 0x7e02_0080);
        assert_eq!(RAW, 3);
    }
}
