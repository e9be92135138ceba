//! What the server half gives up beside its uid and its capabilities: files, network, system calls.
//!
//! The executor's start applies both before [`run`](super::run), so before there is a runtime: Landlock
//! first, because loading the filter takes away the calls that Landlock needs.

use crate::sandbox::seccomp::{
    BpfProgram, FilterError, Policy, Verdict, compile,
    rule::{Case, Rule, Test},
};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, NetPort, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use nix::errno::Errno;
use std::collections::BTreeSet;

/// Newest Landlock ABI that is asked for; what an older kernel lacks is left out.
const ABI_ASKED: ABI = ABI::V6;

/// Why the server could not be restricted.
#[derive(Debug, thiserror::Error)]
#[error("lock-down of the server failed: landlock: {0}")]
pub struct LockdownError(#[from] RulesetError);

/// Takes from the calling thread, and all that come from it, every path, TCP but for connecting to `ports`, and
/// signals and abstract sockets to others; sets no_new_privs. Gives the ABI in force, 0 on a kernel without Landlock: whether
/// that will do is the caller's to say.
///
/// # Errors
/// When the kernel has Landlock and refuses the rules.
pub fn restrict(ports: &BTreeSet<u16>) -> Result<u32, LockdownError> {
    let connect = ports.iter().map(|port| Ok::<_, RulesetError>(NetPort::new(*port, AccessNet::ConnectTcp)));
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI_ASKED))?
        .handle_access(AccessNet::from_all(ABI_ASKED))?
        .scope(Scope::from_all(ABI_ASKED))?
        .create()?
        .add_rules(connect)?
        .restrict_self()?;
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if status.ruleset != RulesetStatus::NotEnforced => {
            u32::try_from(effective_abi.min(ABI_ASKED) as i32).unwrap_or(0)
        }
        _ => 0,
    })
}

/// Every system call that the server makes, with what makes it. Anything else is a fault or an attack.
pub const SYSCALLS: &[(libc::c_long, &str)] = &[
    (libc::SYS_prctl, "reads back that this filter is in force"),
    (libc::SYS_recvmsg, "messages and descriptors from the monitor"),
    (libc::SYS_sendmsg, "messages and sealed requests to the monitor"),
    (libc::SYS_recvfrom, "frames from clients"),
    (libc::SYS_sendto, "events to clients"),
    (libc::SYS_shutdown, "the end of a connection whose last event must arrive"),
    (libc::SYS_read, "output of commands; the runtime's eventfd"),
    (
        libc::SYS_write,
        "input of commands, the sealed request, the runtime's eventfd, the last words on stderr",
    ),
    (libc::SYS_close, "descriptors that are done with"),
    (libc::SYS_fcntl, "non-blocking descriptors, seals of the request, size of a pipe"),
    (libc::SYS_fstat, "whether a descriptor is a pipe (musl, newer glibc)"),
    (libc::SYS_newfstatat, "the same (glibc 2.33 and later, with an empty path)"),
    (libc::SYS_memfd_create, "the sealed request"),
    (libc::SYS_epoll_create1, "the runtime"),
    (libc::SYS_epoll_ctl, "the runtime: descriptors come and go"),
    (libc::SYS_epoll_wait, "the runtime: waiting (glibc)"),
    (libc::SYS_epoll_pwait, "the runtime: waiting (musl)"),
    (libc::SYS_eventfd2, "the runtime: waking itself"),
    (
        libc::SYS_socketpair,
        "the runtime: waking itself, when the build has tokio's signals for another program",
    ),
    (libc::SYS_clock_gettime, "time, where the vDSO has no clock"),
    (libc::SYS_getrandom, "keys of hash tables, fairness of select"),
    (libc::SYS_brk, "allocator: heap"),
    (libc::SYS_mmap, "allocator: large blocks and new arenas"),
    (libc::SYS_munmap, "allocator: the same, given back"),
    (libc::SYS_mremap, "allocator: large blocks that grow"),
    (libc::SYS_mprotect, "allocator: arenas that grow"),
    (libc::SYS_madvise, "allocator: memory given back"),
    (libc::SYS_futex, "locks of the runtime and the standard library"),
    (libc::SYS_sched_yield, "locks that are waited for a moment"),
    (libc::SYS_restart_syscall, "waiting that a stop and a continue have interrupted"),
    (libc::SYS_rt_sigreturn, "return from a signal's handler"),
    (libc::SYS_rt_sigprocmask, "abort: signal mask"),
    (libc::SYS_rt_sigaction, "abort: default disposition"),
    (libc::SYS_getpid, "abort: who"),
    (libc::SYS_gettid, "abort: which thread"),
    (libc::SYS_tgkill, "abort: SIGABRT to itself"),
    (libc::SYS_sigaltstack, "exit: the standard library takes its signal stack down"),
    (libc::SYS_exit, "the end of the thread"),
    (libc::SYS_exit_group, "the end of the process"),
];

/// The program for a server that relays to services or does not.
///
/// # Errors
/// Never for the lists as they are; see [`FilterError`].
pub fn filter(relays: bool) -> Result<BpfProgram, FilterError> {
    compile(&policy(relays)?)
}

/// What [`filter`] is made of.
///
/// # Errors
/// As for it.
pub fn policy(relays: bool) -> Result<Policy, FilterError> {
    let services = if relays { SERVICE_SYSCALLS } else { &[] };
    let plain = SYSCALLS.iter().filter(|(number, _)| services.iter().all(|(other, ..)| other != number));
    let plain = plain.map(|(number, reason)| (*number, Rule::Always(Verdict::Allow), *reason));
    Policy::of_rules(plain.chain(services.iter().copied()))
}

/// System calls of a server that relays to services: more of them, and two that it can no longer make in every way.
pub const SERVICE_SYSCALLS: &[(libc::c_long, Rule, &str)] = &[
    (
        libc::SYS_socket,
        only(&[allow(&[
            Test::among(0, &[libc::AF_INET.cast_unsigned(), libc::AF_INET6.cast_unsigned()]),
            // The upper bits are SOCK_CLOEXEC and SOCK_NONBLOCK (linux/net.h, SOCK_TYPE_MASK).
            Test::Among { argument: 1, mask: 0xf, values: &[libc::SOCK_STREAM.cast_unsigned()] },
            Test::among(2, &[libc::IPPROTO_TCP.cast_unsigned()]),
        ])]),
        "TCP to a service; Landlock sees neither UDP nor the other protocols that are streams (MPTCP, SCTP, SMC)",
    ),
    (libc::SYS_connect, Rule::Always(Verdict::Allow), "to a service; Landlock says to which ports"),
    (libc::SYS_accept4, Rule::Always(Verdict::Allow), "what connects to a service inside a sandbox"),
    (
        libc::SYS_getsockopt,
        only(&[allow(&[
            Test::among(1, &[libc::SOL_SOCKET.cast_unsigned()]),
            Test::among(2, &[libc::SO_ERROR.cast_unsigned()]),
        ])]),
        "whether a service took the connection",
    ),
    (
        libc::SYS_setsockopt,
        only(&[
            allow(&[
                Test::among(1, &[libc::SOL_SOCKET.cast_unsigned()]),
                Test::among(
                    2,
                    &[
                        libc::SO_SNDBUF.cast_unsigned(),
                        libc::SO_RCVBUF.cast_unsigned(),
                        libc::SO_LINGER.cast_unsigned(),
                    ],
                ),
            ]),
            allow(&[
                Test::among(1, &[libc::IPPROTO_TCP.cast_unsigned()]),
                Test::among(2, &[libc::TCP_NODELAY.cast_unsigned()]),
            ]),
        ]),
        "bounded buffers, no waiting for more to send, a reset in place of an end",
    ),
    (
        libc::SYS_sendto,
        but_for(&[refuse(&[Test::AnyBit { argument: 3, mask: FAST_OPEN }])]),
        "events to clients, pieces to either side; not so that it connects, which Landlock does not see",
    ),
    (
        libc::SYS_sendmsg,
        but_for(&[refuse(&[Test::AnyBit { argument: 2, mask: FAST_OPEN }])]),
        "messages and sealed requests to the monitor; not so that it connects",
    ),
];

const REFUSED: Verdict = Verdict::Errno(Errno::EPERM);
const FAST_OPEN: u32 = libc::MSG_FASTOPEN.cast_unsigned();

const fn allow(tests: &'static [Test]) -> Case {
    Case { tests, verdict: Verdict::Allow }
}

const fn refuse(tests: &'static [Test]) -> Case {
    Case { tests, verdict: REFUSED }
}

const fn only(cases: &'static [Case]) -> Rule {
    Rule::Cases { cases, otherwise: REFUSED }
}

const fn but_for(cases: &'static [Case]) -> Rule {
    Rule::Cases { cases, otherwise: Verdict::Allow }
}
