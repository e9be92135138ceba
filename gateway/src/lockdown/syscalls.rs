//! System calls that the gateway never makes and that would serve whoever has taken it over.
//!
//! A list of what is refused, not of what is allowed: the boundary around the gateway is its uid, its empty
//! capability sets and the executor's own checks; this takes away the tools for getting past them.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};
use std::{collections::BTreeMap, error::Error};

/// Refused with EPERM whatever the arguments, each with the reason.
const REFUSED: &[(libc::c_long, &str)] = &[
    (libc::SYS_execve, "the gateway starts no program: that is the executor's part"),
    (libc::SYS_execveat, "as execve"),
    (libc::SYS_ptrace, "reaches into other processes of the same uid"),
    (libc::SYS_process_vm_readv, "reads other processes of the same uid"),
    (libc::SYS_process_vm_writev, "writes other processes of the same uid"),
    (libc::SYS_process_madvise, "acts on other processes"),
    (libc::SYS_pidfd_getfd, "takes descriptors out of other processes"),
    (libc::SYS_kcmp, "compares kernel pointers of processes"),
    (libc::SYS_unshare, "a user namespace opens much of the kernel"),
    (libc::SYS_setns, "joins namespaces"),
    (libc::SYS_mount, "changes the file system"),
    (libc::SYS_umount2, "changes the file system"),
    (libc::SYS_pivot_root, "changes the file system"),
    (libc::SYS_chroot, "changes the file system"),
    (libc::SYS_move_mount, "changes the file system"),
    (libc::SYS_open_tree, "changes the file system"),
    (libc::SYS_mount_setattr, "changes the file system"),
    (libc::SYS_fsopen, "changes the file system"),
    (libc::SYS_fsconfig, "changes the file system"),
    (libc::SYS_fsmount, "changes the file system"),
    (libc::SYS_fspick, "changes the file system"),
    (libc::SYS_open_by_handle_at, "opens files without a path"),
    (libc::SYS_name_to_handle_at, "prepares opening without a path"),
    (libc::SYS_bpf, "programs in the kernel"),
    (libc::SYS_perf_event_open, "a long history of kernel holes"),
    (libc::SYS_userfaultfd, "stops the kernel in the middle of a copy; used to win races"),
    (libc::SYS_io_uring_setup, "does what a filter forbids, unseen by it"),
    (libc::SYS_io_uring_enter, "as io_uring_setup"),
    (libc::SYS_io_uring_register, "as io_uring_setup"),
    (libc::SYS_keyctl, "keyrings outlive the process and are shared"),
    (libc::SYS_add_key, "as keyctl"),
    (libc::SYS_request_key, "as keyctl; starts a helper as root"),
    (libc::SYS_personality, "switches address randomisation off"),
    (libc::SYS_modify_ldt, "16-bit segments: kernel holes, no use"),
    (libc::SYS_vmsplice, "pages shared with the kernel while they change"),
    (libc::SYS_init_module, "code in the kernel"),
    (libc::SYS_finit_module, "code in the kernel"),
    (libc::SYS_delete_module, "code in the kernel"),
    (libc::SYS_kexec_load, "another kernel"),
    (libc::SYS_kexec_file_load, "another kernel"),
    (libc::SYS_reboot, "not the gateway's affair"),
    (libc::SYS_swapon, "not the gateway's affair"),
    (libc::SYS_swapoff, "not the gateway's affair"),
    (libc::SYS_acct, "not the gateway's affair"),
    (libc::SYS_quotactl, "not the gateway's affair"),
    (libc::SYS_syslog, "kernel addresses in the log"),
    (libc::SYS_settimeofday, "not the gateway's affair"),
    (libc::SYS_clock_settime, "not the gateway's affair"),
    (libc::SYS_sethostname, "not the gateway's affair"),
    (libc::SYS_setdomainname, "not the gateway's affair"),
    (libc::SYS_iopl, "hardware ports"),
    (libc::SYS_ioperm, "hardware ports"),
];

/// Flags of clone(2) that make namespaces.
const NAMESPACE_FLAGS: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Socket families that are used; with any other, socket(2) and socketpair(2) are refused.
const FAMILIES: [libc::c_int; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];

/// Numbers from here on are x32's (asm/unistd.h, `__X32_SYSCALL_BIT`): the same calls under other numbers.
const X32_BIT: u32 = 0x4000_0000;

type Failure = Box<dyn Error + Send + Sync>;

/// Refuses the calls above for this thread and those that it starts.
pub(super) fn refuse() -> Result<(), Failure> {
    // Two filters, because one has one answer. clone3 hides its flags from filters; ENOSYS makes libc fall
    // back to clone, EPERM would make it give up.
    let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    apply_filter(&program(unknown, errno(libc::ENOSYS)?)?)?;
    apply_filter(&program(refused()?, errno(libc::EPERM)?)?)?;
    Ok(())
}

fn errno(number: libc::c_int) -> Result<SeccompAction, Failure> {
    Ok(SeccompAction::Errno(u32::try_from(number)?))
}

fn refused() -> Result<BTreeMap<i64, Vec<SeccompRule>>, Failure> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|(number, _)| (*number, Vec::new())).collect();
    let mut clone = Vec::new();
    for flag in NAMESPACE_FLAGS {
        let flag = u64::try_from(flag)?;
        let set = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
        clone.push(SeccompRule::new(vec![set])?);
    }
    rules.insert(libc::SYS_clone, clone);
    // The kernel takes the family as an int: the upper half does not count for it, nor here.
    let others = FAMILIES.iter().map(|family| {
        let family = u64::try_from(*family)?;
        Ok(SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)?)
    });
    let others = SeccompRule::new(others.collect::<Result<_, Failure>>()?)?;
    rules.insert(libc::SYS_socket, vec![others.clone()]);
    rules.insert(libc::SYS_socketpair, vec![others]);
    Ok(rules)
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, answer: SeccompAction) -> Result<BpfProgram, Failure> {
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, TargetArch::x86_64)?;
    let mut program = x32_is_unknown(u32::try_from(libc::ENOSYS)?);
    program.extend(BpfProgram::try_from(filter)?);
    Ok(program)
}

/// Three instructions in front (linux/filter.h): seccompiler does not look at the x32 bit.
fn x32_is_unknown(errno: u32) -> BpfProgram {
    let (load_word, jump_if_at_least, answer) = (0x20, 0x35, 0x06);
    vec![
        // The number of the call is the first word of `struct seccomp_data`.
        sock_filter { code: load_word, jt: 0, jf: 0, k: 0 },
        sock_filter { code: jump_if_at_least, jt: 0, jf: 1, k: X32_BIT },
        sock_filter { code: answer, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | errno },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The architectures of linux/audit.h.
    const X86_64: u32 = 0xc000_003e;
    const I386: u32 = 0x4000_0003;
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const NO: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();

    /// What the kernel would answer (networking/filter.rst), for the instructions that occur.
    fn interpret(program: &BpfProgram, arch: u32, number: u32, args: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend([number, arch, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
        data.extend(args.iter().flat_map(|arg| arg.to_le_bytes()));
        let (mut accumulator, mut at) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let jump = |taken: bool| usize::from(if taken { jt } else { jf });
            match code {
                0x20 => {
                    let offset = usize::try_from(k).unwrap();
                    accumulator = u32::from_le_bytes(data[offset..offset + 4].try_into().unwrap());
                }
                0x54 => accumulator &= k,
                0x15 => at += jump(accumulator == k),
                0x25 => at += jump(accumulator > k),
                0x35 => at += jump(accumulator >= k),
                0x05 => at += usize::try_from(k).unwrap(),
                0x06 => return k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    fn number(number: libc::c_long) -> u32 {
        u32::try_from(number).unwrap()
    }

    #[test]
    fn every_row_is_there_once_and_has_its_reason() {
        let numbers: BTreeSet<_> = REFUSED.iter().map(|(number, _)| number).collect();
        assert_eq!(numbers.len(), REFUSED.len());
        assert!(REFUSED.iter().all(|(_, reason)| reason.len() > 8));
    }

    #[test]
    fn the_program_answers_as_the_table_says_for_every_number() {
        let program = program(refused().unwrap(), errno(libc::EPERM).unwrap()).unwrap();
        let listed: BTreeSet<_> = REFUSED.iter().map(|(row, _)| number(*row)).collect();
        for nr in 0..600 {
            // Arguments as of clone without flags, and of a Unix socket.
            let wanted = if listed.contains(&nr) { NO } else { ALLOW };
            assert_eq!(interpret(&program, X86_64, nr, [1; 6]), wanted, "{nr}");
            assert_eq!(interpret(&program, X86_64, nr | X32_BIT, [1; 6]), UNKNOWN, "{nr}");
            let foreign = interpret(&program, I386, nr, [1; 6]);
            assert_eq!(foreign, libc::SECCOMP_RET_KILL_PROCESS, "{nr}");
        }
    }

    #[test]
    fn namespaces_and_other_socket_families_are_refused_by_their_arguments() {
        let program = program(refused().unwrap(), errno(libc::EPERM).unwrap()).unwrap();
        let ask = |nr, arg| interpret(&program, X86_64, number(nr), [arg, 0, 0, 0, 0, 0]);
        let thread = u64::from((libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_THREAD).unsigned_abs());
        assert_eq!(ask(libc::SYS_clone, thread), ALLOW);
        for flag in NAMESPACE_FLAGS {
            assert_eq!(ask(libc::SYS_clone, thread | u64::from(flag.unsigned_abs())), NO, "{flag:#x}");
        }
        let dirty = 1 << 32;
        for nr in [libc::SYS_socket, libc::SYS_socketpair] {
            for family in 0..64 {
                let used = FAMILIES.iter().any(|one| u64::from(one.unsigned_abs()) == family);
                let wanted = if used { ALLOW } else { NO };
                assert_eq!(ask(nr, family), wanted, "{family}");
                assert_eq!(ask(nr, family | dirty), wanted, "{family} with its upper half set");
            }
        }
    }
}
