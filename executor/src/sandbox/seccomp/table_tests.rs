//! Is the table complete, and does it say what was meant? Written without looking at its groups.

use super::{
    Policy, Verdict,
    policy::{ARCH_X86_64, X32_BIT},
    table::{COMMAND, Group},
};
use nix::errno::Errno;
use std::{collections::BTreeMap, fs};

const UPPER: u64 = 0xffff_ffff_0000_0000;

/// Where distributions keep the numbers of the running machine.
const HEADERS: [&str; 2] = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"];

fn number(policy: &Policy, name: &str) -> u32 {
    policy.rows().iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row {name}")).number
}

#[test]
fn every_call_has_a_row_and_every_row_a_reason() {
    let policy = Policy::command().unwrap();
    let numbers: Vec<u32> = policy.rows().iter().map(|row| row.number).collect();
    // Between the two there is nothing: numbers were aligned over all architectures at 424.
    let expected: Vec<u32> = (0..=336).chain(424..=470).collect();
    assert_eq!(numbers, expected);
    for row in policy.rows() {
        assert!(row.reason.split_whitespace().count() >= 3, "{}: `{}` is no reason", row.name, row.reason);
    }
}

#[test]
fn a_row_without_a_reason_or_twice_is_refused() {
    let group = Group { reason: " ", ..COMMAND[0] };
    let error = Policy::from_groups(&[group], Verdict::Allow).unwrap_err();
    assert_eq!(error.to_string(), "system-call policy: read has no reason; give it one");
    let error = Policy::from_groups(&[COMMAND[0], COMMAND[0]], Verdict::Allow).unwrap_err();
    assert!(error.to_string().contains("is there twice"), "{error}");
}

#[test]
fn names_and_numbers_are_those_of_the_header() {
    let text = HEADERS.iter().find_map(|path| fs::read_to_string(path).ok());
    let text = text.expect("asm/unistd_64.h is missing; install linux-libc-dev or kernel-headers");
    let header: BTreeMap<u32, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '))
        .filter_map(|(name, number)| Some((number.trim().parse().ok()?, name)))
        .collect();
    assert!(header.len() > 350, "only {} calls in the header", header.len());
    let policy = Policy::command().unwrap();
    for (number, name) in header.into_iter().filter(|(number, _)| *number <= 470) {
        assert_eq!(policy.row(number).map(|row| row.name), Some(name));
    }
}

#[test]
fn refusals_are_the_intended_ones() {
    use Errno::{EAFNOSUPPORT, EINVAL, ENOMEM, ENOSYS, EOPNOTSUPP, EPERM, EPROTONOSUPPORT, ESOCKTNOSUPPORT};
    let policy = Policy::command().unwrap();
    let refused: &[(&str, Errno, &[u64])] = &[
        ("clone3", ENOSYS, &[]),
        ("unshare", EPERM, &[0x1000_0000]),
        ("setns", EPERM, &[]),
        ("ptrace", EPERM, &[]),
        ("io_uring_setup", EPERM, &[]),
        ("bpf", EPERM, &[]),
        ("keyctl", EPERM, &[]),
        ("seccomp", EPERM, &[]),
        ("mount_setattr", EPERM, &[]),
        ("open_tree_attr", EPERM, &[]),
        ("statmount", ENOSYS, &[]),
        ("clone", EPERM, &[0x1000_0011]),
        ("clone", EPERM, &[0x0002_0000]),
        ("clone", EPERM, &[0x91]),
        ("clone", EPERM, &[0x8011]),
        ("socket", EAFNOSUPPORT, &[40, 1, 0]),
        ("socket", EAFNOSUPPORT, &[38, 5, 0]),
        ("socket", EAFNOSUPPORT, &[17, 3, 0]),
        ("socket", EAFNOSUPPORT, &[16, 3, 12]),
        ("socket", EPROTONOSUPPORT, &[2, 1, 262]),
        ("socket", EPROTONOSUPPORT, &[10, 0x8_0801, 262]),
        ("socket", EPROTONOSUPPORT, &[2, 1, 132]),
        ("socket", EPERM, &[2, 3, 1]),
        ("socket", EPERM, &[2, 0x8_000a, 0]),
        ("socket", ESOCKTNOSUPPORT, &[2, 5, 0]),
        ("socketpair", EAFNOSUPPORT, &[30, 1, 0]),
        ("ioctl", EPERM, &[0, 0x5412]),
        ("ioctl", EPERM, &[0, 0x541c]),
        ("ioctl", EPERM, &[0, 0x5423]),
        ("ioctl", EOPNOTSUPP, &[0, 0x401c_5820]),
        ("prctl", EPERM, &[22, 2]),
        ("prctl", EPERM, &[28, 0]),
        ("prctl", EINVAL, &[0x5961_6d61]),
        ("arch_prctl", EINVAL, &[0x2001]),
        ("personality", EPERM, &[0x0040_0000]),
        ("mknod", EPERM, &[0, 0o020_644]),
        ("mknodat", EPERM, &[0, 0, 0o060_600]),
        ("mmap", ENOMEM, &[0, 4096, 3, 0x4_0022]),
        ("memfd_create", ENOMEM, &[0, 4]),
        ("shmget", ENOMEM, &[0, 4096, 0o4600]),
        ("madvise", EINVAL, &[0, 4096, 12]),
        ("sendto", EOPNOTSUPP, &[3, 0, 0, 0x2000_4000]),
        ("sendmsg", EOPNOTSUPP, &[3, 0, 0x2000_0000]),
        ("sendmmsg", EOPNOTSUPP, &[3, 0, 1, 0x2000_0000]),
    ];
    let allowed: &[(&str, &[u64])] = &[
        ("clone", &[0x003d_0f00]),
        ("clone", &[0x0120_0011]),
        ("clone", &[0x4111]),
        ("socket", &[1, 0x8_0005, 0]),
        ("socket", &[2, 0x8_0801, 6]),
        ("socket", &[10, 2, 0]),
        ("socket", &[2, 2, 1]),
        ("socket", &[16, 0x8_0003, 0]),
        ("socketpair", &[1, 1, 0]),
        ("ioctl", &[0, 0x5401]),
        ("ioctl", &[0, 0x5413]),
        ("prctl", &[15]),
        ("prctl", &[38, 1]),
        ("prctl", &[21]),
        ("arch_prctl", &[0x1002]),
        ("personality", &[0xffff_ffff]),
        ("mknodat", &[0, 0, 0o010_644]),
        ("mknod", &[0, 0o140_644]),
        ("mmap", &[0, 4096, 3, 0x22]),
        ("memfd_create", &[0, 3]),
        ("madvise", &[0, 4096, 4]),
        ("sendto", &[3, 0, 0, 0x4000]),
        ("rseq", &[]),
        ("flock", &[]),
        ("fchmodat2", &[]),
        ("landlock_restrict_self", &[]),
        ("pidfd_send_signal", &[]),
        ("execveat", &[]),
    ];
    let cases = refused.iter().map(|(name, errno, arguments)| (name, Verdict::Errno(*errno), arguments));
    for (name, verdict, given) in cases.chain(allowed.iter().map(|(n, a)| (n, Verdict::Allow, a))) {
        let mut arguments = [0; 6];
        arguments[..given.len()].copy_from_slice(given);
        let number = number(&policy, name);
        for dirt in [0, UPPER, 1 << 32, 1 << 63] {
            let arguments = arguments.map(|value| value | dirt);
            assert_eq!(policy.verdict(ARCH_X86_64, number, &arguments), verdict, "{name} {arguments:x?}");
        }
        assert_eq!(policy.verdict(0x4000_0003, number, &arguments), Verdict::KillProcess);
        assert_eq!(policy.verdict(ARCH_X86_64, number | X32_BIT, &arguments), Verdict::Errno(ENOSYS));
    }
    assert_eq!(super::verdict_of(9999, &[0; 6]).unwrap(), Verdict::Errno(ENOSYS));
}

/// Written out a second time, so that none of them becomes allowed by a slip in the table.
#[test]
fn what_must_not_happen_is_refused_whatever_its_arguments() {
    let never = "mount umount2 open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr \
        pivot_root chroot unshare setns ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp \
        bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register add_key request_key keyctl \
        seccomp open_by_handle_at name_to_handle_at fanotify_init fanotify_mark lsm_get_self_attr \
        lsm_set_self_attr lsm_list_modules kexec_load kexec_file_load init_module finit_module delete_module reboot \
        swapon swapoff quotactl quotactl_fd acct syslog vhangup nfsservctl settimeofday clock_settime adjtimex \
        clock_adjtime iopl ioperm modify_ldt sethostname setdomainname";
    let policy = Policy::command().unwrap();
    for name in never.split_whitespace() {
        let number = number(&policy, name);
        for argument in [0, 1, 1 << 31, u64::MAX] {
            let verdict = policy.verdict(ARCH_X86_64, number, &[argument; 6]);
            assert!(matches!(verdict, Verdict::Errno(Errno::EPERM)), "{name}: {verdict:?}");
        }
    }
}
