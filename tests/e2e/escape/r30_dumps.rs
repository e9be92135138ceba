//! Row 30: a crash, whose core may be written somewhere or handed to a program that runs as root outside.

use super::{
    Probe,
    acts::{inside, inside_of, without},
    probe,
};
use crate::harness::{PATIENCE, eventually, host, shared};
use cordon_protocol::EndedBy;
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 30,
        test: "escape::r30_dumps::a_crash_feeds_no_core_dump_program",
        tried: "crashing after lowering and raising RLIMIT_CORE with `setrlimit`, `prlimit` and `ulimit`, the new value also at an address whose low half is zero; in the guests under a `core_pattern` that is a pipe",
        control: "with limits and filter left out a core is written, where the host's pattern names a file; with the filter left out a lowered limit feeds a pipe",
        closed_by: "RLIMIT_CORE of 1, hard: too little for a file, and the one value that feeds no pipe; seccomp: it stays so",
    },
    Probe {
        row: 30,
        test: "escape::r30_dumps::the_pattern_is_not_the_command_s_to_write",
        tried: "writing core_pattern, core_pipe_limit and suid_dumpable, also through /proc/1/root and as a file of a new procfs",
        control: "root opens them outside",
        closed_by: "namespaces: /proc/sys is read-only; Landlock; owners",
    },
];

/// Prints the limit after each attempt to set it, `OLD` where it has not changed, and how a crash after all of them ended.
const SET: &str = "import glob, mmap, resource as r, signal
C, INF = r.RLIMIT_CORE, r.RLIM_INFINITY
class Pair(ctypes.Structure): _fields_ = [('soft', ctypes.c_ulong), ('hard', ctypes.c_ulong)]
l.mmap.restype, l.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
def at_low_zero(v):
  a = l.mmap(1 << 32, 4096, 3, 0x100022, -1, 0); assert a == 1 << 32, a
  ctypes.memmove(a, ctypes.byref(v), 16); return ctypes.c_void_p(a)
low, tried = at_low_zero(Pair(0, 1)), []
for f in (lambda v: r.setrlimit(C, v), lambda v: r.prlimit(0, C, v), lambda v: sys_(160, C, ctypes.byref(Pair(*v))),
          lambda v: sys_(302, 0, C, ctypes.byref(Pair(*v)), None), lambda v: sys_(302, 0, C, low, None),
          lambda v: sys_(302, os.getpid(), C, low, None), lambda v: sys_(160, (7 << 32) | C, ctypes.byref(Pair(*v)))):
  for v in ((0, 1), (0, 0), (INF, INF)):
    try: f(v)
    except (OSError, ValueError): pass
  tried.append(r.getrlimit(C))
print('OLD' if set(tried) == {(1, 1)} else tried)
if os.fork() == 0: l.prctl(15, b'cordon-r30', 0, 0, 0); os.kill(os.getpid(), signal.SIGSEGV)
status = os.wait()[1]
print(os.WTERMSIG(status), os.WCOREDUMP(status), glob.glob('core*'))
";

#[test]
fn a_crash_feeds_no_core_dump_program() {
    let mut verdict = probe!();
    let report = shared()
        .report(&["-c", "ulimit -S -c 0; ulimit -c 0 && ulimit -c unlimited && ulimit -c; kill -SEGV $$"]);
    assert_eq!((report.ended_by, report.signal.as_deref()), (EndedBy::Signal, Some("SIGSEGV")));
    // Whoever forbids himself dumps does not fail of it.
    assert_eq!(report.stderr.as_deref(), Some(""), "{report:?}");
    let limits = shared().report(&["--", "cat", "/proc/self/limits"]).stdout.unwrap();
    let core = limits.lines().find(|l| l.starts_with("Max core")).unwrap();
    assert!(core.split_whitespace().filter(|w| *w == "1").count() == 2, "{core}");
    assert_eq!(inside(SET), "OLD\n11 False []\n");
    let pattern = fs::read_to_string(PATTERN).unwrap();
    if pattern.starts_with(['|', '/', '@']) {
        verdict.closed_by("RLIMIT_CORE of 1, hard, and seccomp; the host's pattern is no file here");
    } else {
        let raise = SET
            .replace("((0, 1), (0, 0), (INF, INF))", "((INF, INF),)")
            .replace("Pair(0, 1)", "Pair(INF, INF)");
        let control = inside_of(without("rlimits,seccomp"), "default", &raise);
        assert!(control.contains("11 True ['core"), "the control: {control}");
    }
    if host::is_for_tests() {
        feeds_no_pipe(&pattern);
    }
}

const PATTERN: &str = "/proc/sys/kernel/core_pattern";

/// As on hosts where a crash starts a program: root outside, with what crashed at its standard input.
fn feeds_no_pipe(before: &str) {
    let directory = tempfile::tempdir_in("/srv").unwrap();
    let (program, caught) = (directory.path().join("catch"), directory.path().join("caught"));
    let text = format!("#!/bin/sh\n[ \"$1\" != cordon-r30 ] || echo \"$(id -u)\" >>{}\n", caught.display());
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    fs::write(PATTERN, format!("|{} %e", program.display())).unwrap();
    // The kernel lets whoever crashes wait for the program.
    let dumped = inside(SET);
    let (is_caught, control) = (caught.exists(), inside_of(without("seccomp"), "default", SET));
    fs::write(PATTERN, before).unwrap();
    assert!(dumped == "OLD\n11 False []\n" && !is_caught, "{dumped}");
    let caught = || fs::read_to_string(&caught).is_ok_and(|text| text == "0\n");
    eventually(&format!("the control: {control}"), PATIENCE, caught);
}

#[test]
fn the_pattern_is_not_the_command_s_to_write() {
    let _verdict = probe!();
    let names = "('core_pattern', 'core_pipe_limit', 'core_uses_pid', 'hotplug', 'modprobe', 'poweroff_cmd')";
    let open = format!(
        "print(*(t(os.open, d + '/proc/sys/kernel/' + n, os.O_WRONLY) != 0 for n in {names} for d in ('', '/proc/1/root', '/proc/self/root')))"
    );
    assert_eq!(inside(&open), format!("{}\n", ["True"; 18].join(" ")));
    assert_eq!(
        super::acts::outside("print(t(os.open, '/proc/sys/kernel/core_pattern', os.O_WRONLY))"),
        "0\n",
        "the control"
    );
}
