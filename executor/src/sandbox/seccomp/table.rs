//! The policy of a sandboxed command: every system call of x86_64 up to Linux 6.19, by name, with a reason.
//!
//! Three answers mean "no". `EPERM` for what must not happen, so that people see a refusal. `ENOSYS` for what
//! is obsolete, newer than this table or has an older sibling: programs fall back. And for arguments whatever
//! a kernel without the feature would say. The order of groups and names is for readers only.

use super::{arguments as by, rule::Rule, rule::Verdict};
use libc::c_long;
use nix::errno::Errno;

/// Calls that share a rule and the reason for it.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// Why the rule is as it is.
    pub reason: &'static str,
    /// What happens.
    pub rule: Rule,
    /// Numbers and names.
    pub calls: &'static [(c_long, &'static str)],
}

/// Numbers of the calls: libc's, and those that it does not have (asm/unistd_64.h of Linux 6.19).
#[allow(non_upper_case_globals, reason = "named as in libc and the kernel")]
mod numbers {
    use libc::c_long;
    pub(super) use libc::*;
    pub(super) const SYS_create_module: c_long = 174;
    pub(super) const SYS_get_kernel_syms: c_long = 177;
    pub(super) const SYS_query_module: c_long = 178;
    pub(super) const SYS_io_pgetevents: c_long = 333;
    pub(super) const SYS_uretprobe: c_long = 335;
    pub(super) const SYS_uprobe: c_long = 336;
    pub(super) const SYS_cachestat: c_long = 451;
    pub(super) const SYS_map_shadow_stack: c_long = 453;
    pub(super) const SYS_futex_wake: c_long = 454;
    pub(super) const SYS_futex_wait: c_long = 455;
    pub(super) const SYS_futex_requeue: c_long = 456;
    pub(super) const SYS_statmount: c_long = 457;
    pub(super) const SYS_listmount: c_long = 458;
    pub(super) const SYS_lsm_get_self_attr: c_long = 459;
    pub(super) const SYS_lsm_set_self_attr: c_long = 460;
    pub(super) const SYS_lsm_list_modules: c_long = 461;
    pub(super) const SYS_setxattrat: c_long = 463;
    pub(super) const SYS_getxattrat: c_long = 464;
    pub(super) const SYS_listxattrat: c_long = 465;
    pub(super) const SYS_removexattrat: c_long = 466;
    pub(super) const SYS_open_tree_attr: c_long = 467;
    pub(super) const SYS_file_getattr: c_long = 468;
    pub(super) const SYS_file_setattr: c_long = 469;
    pub(super) const SYS_listns: c_long = 470;
}

const ALLOW: Rule = Rule::Always(Verdict::Allow);
const EPERM: Rule = Rule::Always(Verdict::Errno(Errno::EPERM));
const ENOSYS: Rule = Rule::Always(Verdict::Errno(Errno::ENOSYS));

/// The name without `SYS_`.
const fn bare(constant: &'static str) -> &'static str {
    constant.split_at(4).1
}

macro_rules! group {
    ($rule:expr, $reason:literal, $($call:ident)+) => {
        Group { reason: $reason, rule: $rule, calls: &[$((numbers::$call, bare(stringify!($call)))),+] }
    };
}

/// The table.
#[rustfmt::skip] // Names in lines, not one a line.
pub static COMMAND: &[Group] = &[
    // Files and descriptors: which of them is decided by mounts, owners and Landlock.
    group!(ALLOW, "reads and writes descriptors the command has",
        SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2
        SYS_pwritev2 SYS_lseek SYS_close SYS_close_range SYS_dup SYS_dup2 SYS_dup3 SYS_fcntl SYS_fsync
        SYS_fdatasync SYS_sync_file_range SYS_fadvise64 SYS_readahead SYS_fallocate SYS_ftruncate),
    group!(ALLOW, "moves bytes between descriptors the command has; cp, tar and web servers use it",
        SYS_sendfile SYS_splice SYS_tee SYS_vmsplice SYS_copy_file_range),
    group!(ALLOW, "opens or names files; mounts, owners and Landlock decide which",
        SYS_open SYS_openat SYS_openat2 SYS_creat SYS_truncate SYS_access SYS_faccessat SYS_faccessat2
        SYS_readlink SYS_readlinkat SYS_getdents SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir),
    group!(ALLOW, "looks at files and file systems the command can reach",
        SYS_stat SYS_fstat SYS_lstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs SYS_cachestat),
    group!(ALLOW, "changes names in directories; owners and Landlock decide where",
        SYS_rename SYS_renameat SYS_renameat2 SYS_mkdir SYS_mkdirat SYS_rmdir SYS_link SYS_linkat SYS_unlink
        SYS_unlinkat SYS_symlink SYS_symlinkat),
    group!(ALLOW, "changes the command's own files; a set-user-id bit means nothing on a nosuid mount, and giving a file away needs CAP_CHOWN",
        SYS_chmod SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_chown SYS_fchown SYS_lchown SYS_fchownat SYS_utime
        SYS_utimes SYS_futimesat SYS_utimensat SYS_umask),
    group!(ALLOW, "extended attributes of files the command may read or write; the trusted and security ones need capabilities",
        SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_setxattrat SYS_getxattr SYS_lgetxattr SYS_fgetxattr
        SYS_getxattrat SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_listxattrat SYS_removexattr
        SYS_lremovexattr SYS_fremovexattr SYS_removexattrat),
    group!(by::MKNOD, "mkfifo and Unix sockets are made with it; device nodes are not for a command",
        SYS_mknod),
    group!(by::MKNODAT, "mkfifo and Unix sockets are made with it; device nodes are not for a command",
        SYS_mknodat),
    group!(ALLOW, "advisory locks; cargo, git and databases rely on them",
        SYS_flock),
    group!(ALLOW, "writes back what is dirty, which the kernel does anyway; sqlite, dpkg and scripts use it",
        SYS_sync SYS_syncfs),
    group!(ALLOW, "watches files the command can read, within the user's inotify limits",
        SYS_inotify_init SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch),
    group!(by::IOCTL, "terminals, sizes of files and sockets use it; what injects input or leaves a quota is refused",
        SYS_ioctl),

    // Waiting for things.
    group!(ALLOW, "waits for descriptors and signals; every event loop uses it",
        SYS_poll SYS_ppoll SYS_select SYS_pselect6 SYS_epoll_create SYS_epoll_create1 SYS_epoll_ctl
        SYS_epoll_wait SYS_epoll_pwait SYS_epoll_pwait2 SYS_pause),
    group!(ALLOW, "descriptors for events, signals and timers of the command's own",
        SYS_eventfd SYS_eventfd2 SYS_signalfd SYS_signalfd4 SYS_timerfd_create SYS_timerfd_settime
        SYS_timerfd_gettime SYS_pipe SYS_pipe2),

    // Memory.
    group!(ALLOW, "the command's own memory, bounded by its cgroup",
        SYS_mprotect SYS_munmap SYS_brk SYS_mremap SYS_msync SYS_mincore SYS_pkey_mprotect
        SYS_pkey_alloc SYS_pkey_free SYS_mseal SYS_map_shadow_stack),
    group!(ALLOW, "pins the command's own memory up to RLIMIT_MEMLOCK; gpg and ssh keep keys in it",
        SYS_mlock SYS_mlock2 SYS_munlock SYS_mlockall SYS_munlockall),
    group!(by::MMAP, "maps memory and files; huge pages are not counted in memory.max",
        SYS_mmap),
    group!(by::MADVISE, "advice about the command's own memory; merging equal pages across sandboxes is a channel",
        SYS_madvise),
    group!(by::MEMFD_CREATE, "anonymous files, counted in memory.max; huge pages are not",
        SYS_memfd_create),
    group!(ALLOW, "placement of the command's own memory on nodes; another process's needs what ptrace needs and is not visible",
        SYS_mbind SYS_set_mempolicy SYS_get_mempolicy SYS_set_mempolicy_home_node SYS_migrate_pages
        SYS_move_pages),

    // Processes, threads, signals: only those of the sandbox's own pid namespace can be named.
    group!(ALLOW, "new processes and programs, bounded by pids.max; no_new_privs holds across exec",
        SYS_fork SYS_vfork SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid),
    group!(by::CLONE, "threads and processes are made with it; namespaces and children of somebody else are not",
        SYS_clone),
    group!(ENOSYS, "its flags lie in memory, which no filter can look at; glibc and others fall back to clone on ENOSYS only",
        SYS_clone3),
    group!(ALLOW, "what a thread sets up and leaves behind; glibc calls it at every start",
        SYS_set_tid_address SYS_set_robust_list SYS_get_robust_list SYS_rseq SYS_gettid SYS_membarrier
        SYS_restart_syscall),
    group!(ALLOW, "locks between threads",
        SYS_futex SYS_futex_waitv),
    group!(ALLOW, "the command's own signal handling",
        SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigtimedwait
        SYS_rt_sigsuspend SYS_sigaltstack),
    group!(ALLOW, "signals reach only processes of the sandbox: its pid namespace, its uid, Landlock's scope",
        SYS_kill SYS_tkill SYS_tgkill SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_pidfd_open
        SYS_pidfd_send_signal),
    group!(ALLOW, "names processes, groups and sessions of the sandbox's own pid namespace",
        SYS_getpid SYS_getppid SYS_getpgid SYS_setpgid SYS_getpgrp SYS_setsid SYS_getsid),
    group!(ALLOW, "priority and processor of the sandbox's own processes; raising it needs CAP_SYS_NICE, and cpu.max bounds the whole",
        SYS_sched_yield SYS_sched_setparam SYS_sched_getparam SYS_sched_setscheduler SYS_sched_getscheduler
        SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_rr_get_interval SYS_sched_setaffinity
        SYS_sched_getaffinity SYS_sched_setattr SYS_sched_getattr SYS_getpriority SYS_setpriority
        SYS_ioprio_set SYS_ioprio_get SYS_getcpu),
    group!(ALLOW, "limits of the command's own processes, never above the hard ones; init has another uid",
        SYS_getrlimit SYS_getrusage SYS_times),
    group!(by::SETRLIMIT, "as above, but for RLIMIT_CORE, which stays 1: lowered to 0 a crash would start the host's core_pattern program",
        SYS_setrlimit),
    group!(by::PRLIMIT64, "as setrlimit, which glibc makes of it; reading any limit is allowed",
        SYS_prlimit64),
    group!(by::PRCTL, "an allow-list of options that a program uses on itself",
        SYS_prctl),
    group!(by::ARCH_PRCTL, "glibc sets the thread pointer with it; the rest is an allow-list",
        SYS_arch_prctl),
    group!(by::PERSONALITY, "setarch and sanitizers switch randomisation off with it; other personalities only widen what the kernel does",
        SYS_personality),

    // Identity.
    group!(ALLOW, "asks who the command is",
        SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getgroups SYS_getresuid SYS_getresgid SYS_capget),
    group!(ALLOW, "sets an identity the command has already; any other needs a capability it lacks, and no set can grow",
        SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setfsuid SYS_setfsgid
        SYS_setgroups SYS_capset),
    group!(ALLOW, "a program may restrict itself further",
        SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self),

    // Time and facts.
    group!(ALLOW, "reads clocks and sleeps",
        SYS_nanosleep SYS_clock_nanosleep SYS_gettimeofday SYS_time SYS_clock_gettime SYS_clock_getres),
    group!(ALLOW, "timers of the command's own",
        SYS_getitimer SYS_setitimer SYS_alarm SYS_timer_create SYS_timer_settime SYS_timer_gettime
        SYS_timer_getoverrun SYS_timer_delete),
    group!(ALLOW, "facts about the machine that programs size themselves by, and random bytes",
        SYS_uname SYS_sysinfo SYS_getrandom),

    // Talking: the network namespace, Landlock and mounts decide to whom.
    group!(by::SOCKET, "an allow-list: Unix, TCP, UDP and ping sockets, and the netlink family that lists interfaces",
        SYS_socket),
    group!(by::SOCKETPAIR, "only Unix sockets come in ordinary pairs; node and terraform need them",
        SYS_socketpair),
    group!(ALLOW, "uses sockets the command could open; whom they reach is decided by namespace, Landlock and mounts",
        SYS_connect SYS_accept SYS_accept4 SYS_bind SYS_listen SYS_shutdown SYS_getsockname SYS_getpeername
        SYS_setsockopt SYS_getsockopt SYS_recvfrom SYS_recvmsg SYS_recvmmsg),
    group!(by::SENDTO, "sends on sockets the command has; a send that connects would pass by Landlock",
        SYS_sendto SYS_sendmmsg),
    group!(by::SENDMSG, "sends on sockets the command has; a send that connects would pass by Landlock",
        SYS_sendmsg),
    group!(by::SHMGET, "System V shared memory of the sandbox's own ipc namespace; huge pages are not counted in memory.max",
        SYS_shmget),
    group!(ALLOW, "System V objects of the sandbox's own ipc namespace",
        SYS_shmat SYS_shmctl SYS_shmdt SYS_semget SYS_semop SYS_semtimedop SYS_semctl SYS_msgget SYS_msgsnd
        SYS_msgrcv SYS_msgctl),
    group!(ALLOW, "POSIX queues of the sandbox's own ipc namespace; RLIMIT_MSGQUEUE lets none be made",
        SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify SYS_mq_getsetattr),
    group!(ALLOW, "called only by code that a tracer outside the sandbox has put there; the kernel refuses it anywhere else",
        SYS_uretprobe SYS_uprobe),

    // What must not happen.
    group!(EPERM, "mounting, old API and new: the file tree is part of the sandbox",
        SYS_mount SYS_umount2 SYS_open_tree SYS_open_tree_attr SYS_move_mount SYS_fsopen SYS_fsconfig
        SYS_fsmount SYS_fspick SYS_mount_setattr SYS_pivot_root SYS_chroot),
    group!(EPERM, "a namespace of one's own brings back capabilities and with them most of the kernel's attack surface",
        SYS_unshare SYS_setns),
    group!(EPERM, "reads, writes or steals from another process",
        SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_pidfd_getfd SYS_kcmp),
    group!(EPERM, "programs inside the kernel and its performance counters: a way to escalate and to listen",
        SYS_bpf SYS_perf_event_open),
    group!(EPERM, "holds the kernel in the middle of a copy for as long as one likes; used to win races against it",
        SYS_userfaultfd),
    group!(EPERM, "does what the filter forbids, past the filter",
        SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register),
    group!(EPERM, "keyrings carry secrets between runs of one uid, and in the kernel they are poorly separated",
        SYS_add_key SYS_request_key SYS_keyctl),
    group!(EPERM, "a filter of one's own floods the host's log or hands calls to a watcher; nothing here needs it",
        SYS_seccomp),
    group!(EPERM, "opens files by number, past every path rule",
        SYS_open_by_handle_at SYS_name_to_handle_at),
    group!(EPERM, "watches whole file systems, also what others do there",
        SYS_fanotify_init SYS_fanotify_mark),
    group!(EPERM, "security modules are the host's to set and to know",
        SYS_lsm_get_self_attr SYS_lsm_set_self_attr SYS_lsm_list_modules),
    group!(EPERM, "replaces, extends or ends the running kernel",
        SYS_kexec_load SYS_kexec_file_load SYS_init_module SYS_finit_module SYS_delete_module SYS_reboot),
    group!(EPERM, "administration of the host: swap, quotas, accounting, log, terminals, exports",
        SYS_swapon SYS_swapoff SYS_quotactl SYS_quotactl_fd SYS_acct SYS_syslog SYS_vhangup SYS_nfsservctl),
    group!(EPERM, "the host's clock",
        SYS_settimeofday SYS_clock_settime SYS_adjtimex SYS_clock_adjtime),
    group!(EPERM, "names of the machine: logs and licences go by them",
        SYS_sethostname SYS_setdomainname),
    group!(EPERM, "ports of the hardware and segments of the processor: only emulators of old systems want them",
        SYS_iopl SYS_ioperm SYS_modify_ldt),

    // What is answered as if the kernel did not have it.
    group!(ENOSYS, "kernel asynchronous I/O takes from a pool shared by the whole host (fs.aio-max-nr); databases fall back to threads",
        SYS_io_setup SYS_io_destroy SYS_io_getevents SYS_io_pgetevents SYS_io_submit SYS_io_cancel),
    group!(ENOSYS, "memory the kernel itself cannot see: it keeps the host from hibernating and no ordinary program asks for it",
        SYS_memfd_secret),
    group!(ENOSYS, "meant for the host's own out-of-memory daemon",
        SYS_process_mrelease),
    group!(ENOSYS, "newer form of futex; runtimes fall back to that one",
        SYS_futex_wake SYS_futex_wait SYS_futex_requeue),
    group!(ENOSYS, "lists mounts and namespaces; programs fall back to the sandbox's own /proc",
        SYS_statmount SYS_listmount SYS_listns),
    group!(ENOSYS, "flags and project of a file, refused as an ioctl too: a file could leave the quota it is counted under",
        SYS_file_getattr SYS_file_setattr),
    group!(ENOSYS, "obsolete: replaced long ago, and no longer looked after in the kernel",
        SYS_uselib SYS_ustat SYS_sysfs SYS__sysctl SYS_remap_file_pages SYS_lookup_dcookie),
    group!(ENOSYS, "never there or gone from x86_64 kernels, which answer the same",
        SYS_create_module SYS_get_kernel_syms SYS_query_module SYS_getpmsg SYS_putpmsg SYS_afs_syscall
        SYS_tuxcall SYS_security SYS_vserver SYS_set_thread_area SYS_get_thread_area SYS_epoll_ctl_old
        SYS_epoll_wait_old),
];

/// The name of a call, without `SYS_`; none for a number that no call has.
pub fn name_of(number: c_long) -> Option<&'static str> {
    COMMAND.iter().flat_map(|group| group.calls).find(|call| call.0 == number).map(|call| call.1)
}
