//! Hosts that have less: an executor that finds no cgroup v2, may make no namespace, or meets an older kernel's
//! Landlock, as in a plain container. All in namespaces of its own; the host itself is not changed.

use super::{
    Executor, build, daemon,
    daemon::{open_directory, write_configuration},
    process,
};
use nix::libc;
use std::process::Command;
use tempfile::TempDir;

/// What such a host has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LesserHost {
    /// cgroup v2 as this host has it; else no hierarchy is mounted.
    pub(crate) cgroup: bool,
    /// CAP_SYS_ADMIN, without which no namespace can be made; and, as a plain container lacks them all,
    /// CAP_SYS_PTRACE and CAP_PERFMON, without which other users' processes cannot be looked into.
    pub(crate) admin: bool,
    /// System calls that a filter refuses, each with the error that it answers.
    pub(crate) refused: &'static [(i64, i32)],
    /// The Landlock ABI that the kernel says it has (0: no such system call); none leaves it alone.
    pub(crate) landlock: Option<u32>,
}

/// As much as this host has.
pub(crate) const WHOLE: LesserHost = LesserHost { cgroup: true, admin: true, refused: &[], landlock: None };

/// Whatever mounts something.
pub(crate) const MOUNTS: &[(i64, i32)] = &[
    (libc::SYS_mount, libc::EPERM),
    (libc::SYS_open_tree, libc::EPERM),
    (libc::SYS_move_mount, libc::EPERM),
    (libc::SYS_fsopen, libc::EPERM),
    (libc::SYS_fsmount, libc::EPERM),
];

/// Takes away what the first argument names, then becomes the program. In a pid namespace of its own, since
/// without cgroup v2 whatever has the command's uid is the command's: other tests' commands shall not be seen.
const TAKE_AWAY: &str = r#"
import ctypes, os, signal, socket, struct, sys, threading
cgroup, admin = [word == "1" for word in sys.argv[1:3]]
refused = [[int(number) for number in call.split("=")] for call in sys.argv[3].split()]
landlock = int(sys.argv[4])
libc = ctypes.CDLL(None, use_errno=True)
def must(result):
    if result < 0: sys.exit("setting up the lesser host failed: " + os.strerror(ctypes.get_errno()))
    return result
def prctl(*values): return must(libc.prctl(*[ctypes.c_ulong(v) for v in values]))

def below(meanwhile=lambda: None):
    "Goes on in a child, whose end is this process's end too."
    child = 0
    signal.signal(signal.SIGTERM, lambda *_: child and os.kill(child, signal.SIGTERM))
    child = os.fork()
    if child:
        meanwhile()
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL

def filtered(action):
    "A seccomp filter with this action for asking landlock_create_ruleset(2) for its version, or for all of it."
    code = [(0x20, 0, 0, 0), (0x15, 0, 3, 444)]
    code += [(0x20, 0, 0, 32), (0x15, 0, 1, 1)] if landlock else [(0x05, 0, 0, 0)] * 2
    code += [(0x06, 0, 0, action), (0x06, 0, 0, 0x7FFF0000)]
    return load(code, 8 if landlock else 0)  # NEW_LISTENER

def load(code, flags):
    rows = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(rows)))
    return must(libc.syscall(317, 1, flags, program))  # SECCOMP_SET_MODE_FILTER

def answer(listener):
    "Says the version, whoever asks (seccomp_unotify(2))."
    while True:
        question = ctypes.create_string_buffer(80)
        if libc.ioctl(listener, ctypes.c_ulong(0xC0502100), question) < 0: continue
        ident = struct.unpack_from("Q", question)[0]
        libc.ioctl(listener, ctypes.c_ulong(0xC0182101), struct.pack("QqiI", ident, landlock, 0, 0))

must(libc.unshare(0x20020000 if not cgroup and not admin else 0x00020000))  # CLONE_NEWPID, CLONE_NEWNS
must(libc.mount(b"none", b"/", None, 0x44000, None))  # private, recursive
if not cgroup and not admin:
    below()
    must(libc.mount(b"proc", b"/proc", b"proc", 0, None))
if not cgroup:
    found = [line.split() for line in open("/proc/self/mountinfo") if " - cgroup2 " in line]
    for mount in reversed(found): must(libc.umount2(mount[4].encode(), 2))
if landlock == 0:
    filtered(0x00050000 | 38)  # ENOSYS
elif landlock > 0:
    ours, theirs = socket.socketpair()
    def supervise():
        listener = socket.recv_fds(ours, 1, 1)[1][0]
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
    below(supervise)
    socket.send_fds(theirs, [b"x"], [filtered(0x7FC00000)])  # USER_NOTIF
    ours.close(); theirs.close()
elif not cgroup and not admin:
    below()
if refused:
    code = [(0x20, 0, 0, 0)]
    for call, errno in refused: code += [(0x15, 0, 1, call), (0x06, 0, 0, 0x00050000 | errno)]
    load(code + [(0x06, 0, 0, 0x7FFF0000)], 0)
for capability in () if admin else (21, 19, 38): prctl(24, capability)  # PR_CAPBSET_DROP
os.execv(sys.argv[5], sys.argv[5:])
"#;

impl LesserHost {
    /// An executor there with this configuration.
    pub(crate) fn command(self, require: &str, configuration: &str) -> (Command, TempDir) {
        daemon::ensure_users();
        let directory = open_directory();
        let file = write_configuration(directory.path(), require, configuration);
        let mut command = daemon::in_scope("/usr/bin/python3".as_ref());
        let landlock = self.landlock.map_or(-1, i64::from).to_string();
        let refused: Vec<_> = self.refused.iter().map(|(call, errno)| format!("{call}={errno}")).collect();
        command.args(["-c", TAKE_AWAY, flag(self.cgroup), flag(self.admin), &refused.join(" "), &landlock]);
        command.arg(&build::programs().executor).arg("--config").arg(file);
        (command, directory)
    }

    /// Starts one that takes what there is.
    pub(crate) fn start(self, configuration: &str) -> Executor {
        let (command, directory) = self.command("available", configuration);
        Executor::wait_ready(command, directory)
    }

    /// What one says that refuses to start, as it is told to where a layer is missing.
    pub(crate) fn refused(self) -> String {
        self.refused_by("strict")
    }

    /// As [`Self::refused`], with this much required.
    pub(crate) fn refused_by(self, require: &str) -> String {
        let (command, _directory) = self.command(require, "");
        let ran = process::run(command, &[]);
        assert_ne!(ran.status, 0, "it started: {ran:?}");
        ran.stderr
    }
}

fn flag(on: bool) -> &'static str {
    if on { "1" } else { "0" }
}
