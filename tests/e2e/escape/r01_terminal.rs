//! Row 1: putting input into a terminal, one's own or the caller's.

use super::{
    Probe,
    acts::{inside, numbers, outside},
    probe,
};
use crate::harness::{
    Executor,
    build::{fault_executor, programs},
    daemon::{ensure_users, in_scope, open_directory, write_configuration},
    shared,
};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 1,
        test: "escape::r01_terminal::a_terminal_cannot_be_fed",
        tried: "`ioctl` on a pseudo-terminal with TIOCSTI, TIOCLINUX, TIOCCONS and TIOCSETD, each also with bits above the 32 that the kernel looks at",
        control: "TIOCSTI outside, plain and dirty; an ordinary request of the same device inside",
        closed_by: "seccomp",
    },
    Probe {
        row: 1,
        test: "escape::r01_terminal::the_caller_s_terminal_is_not_the_command_s",
        tried: "`/dev/tty` in a command whose client runs in a terminal",
        control: "the same shell line without Cordon in the same terminal",
        closed_by: "a session of its own, and descriptors 0, 1 and 2 that are pipes",
    },
    Probe {
        row: 1,
        test: "escape::r01_terminal::the_executor_s_terminal_is_not_the_command_s",
        tried: "`/dev/tty` below an executor that was started in a terminal",
        control: "with the step left out that makes a session",
        closed_by: "a session of its own",
    },
];

#[test]
fn a_terminal_cannot_be_fed() {
    let _verdict = probe!();
    let feed = |requests: &str| {
        format!(
            "import pty\nm, s = pty.openpty()\nc = ctypes.c_char(b'x')\nprint(*(call(l.ioctl, s, \
             ctypes.c_ulong(n + up), ctypes.byref(c)) for n in ({requests},) for up in (0, 1 << 32, 1 << 63)))"
        )
    };
    const EPERM: i64 = 1;
    let requests = "0x5412, 0x541c, 0x541d, 0x5423";
    assert_eq!(numbers(&inside(&feed(requests))), [EPERM; 12]);
    // The control; not with those that would change the host's console.
    assert_eq!(numbers(&outside(&feed("0x5412"))), [0; 3]);
    assert!(numbers(&outside(&feed("0x541c"))).iter().all(|e| *e != EPERM), "TIOCLINUX: no such device");
    let size = "import pty\nm, s = pty.openpty()\nb = ctypes.create_string_buffer(8)\nprint(call(l.ioctl, s, 0x5413, b))";
    assert_eq!(inside(size), "0\n");
}

#[test]
fn the_caller_s_terminal_is_not_the_command_s() {
    let _verdict = probe!();
    let within = |prefix: &str| {
        let words = "['sh', '-c', '(: < /dev/tty) 2> /dev/null && echo has one || echo has none; test -t 0 || echo no input']";
        outside(&format!(
            "import pty\npid, fd = pty.fork()\nif pid == 0:\n  command = [{prefix}] + {words}\n  \
             os.execvpe(command[0], command, dict(os.environ, CORDON_SOCKET={:?}))\nseen = b''\ntry:\n  \
             while piece := os.read(fd, 4096): seen += piece\nexcept OSError: pass\nos.waitpid(pid, 0)\n\
             print(seen.decode().replace('\\r', ''), end='')",
            shared().socket
        ))
    };
    assert_eq!(within(""), "has one\n", "the control");
    let cordon = programs().cordon.display();
    assert_eq!(within(&format!("'{cordon}', 'run', '--'")), "has none\nno input\n");
}

/// Starts the program in a terminal of its own, and ends with it.
const IN_TERMINAL: &str = "import os, pty, signal, sys
pid, fd = pty.fork()
if pid == 0: os.execv(sys.argv[1], sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
try:
  while os.read(fd, 4096): pass
except OSError: pass
os.waitpid(pid, 0)";

#[test]
fn the_executor_s_terminal_is_not_the_command_s() {
    let _verdict = probe!();
    ensure_users();
    for (omitted, expected) in [("", "none\n"), ("session", "a terminal\n")] {
        let directory = open_directory();
        let file = write_configuration(directory.path(), "available", "");
        let mut command = in_scope("/usr/bin/python3".as_ref());
        command.args(["-c", IN_TERMINAL]).arg(fault_executor()).arg("--config").arg(file);
        command.env("CORDON_OMIT", omitted);
        let executor = Executor::wait_ready(command, directory);
        let seen = executor.inside("(: < /dev/tty) 2> /dev/null && echo a terminal || echo none");
        assert_eq!(seen, expected, "without {omitted:?}");
    }
}
