//! Row 30: a crash, whose core may be written somewhere or handed to a program that runs as root outside.

use super::{
    Probe,
    acts::{inside, inside_of, without},
    probe,
};
use crate::harness::shared;
use cordon_protocol::EndedBy;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 30,
        test: "escape::r30_dumps::a_crash_feeds_no_core_dump_program",
        tried: "crashing with the limit as it is, and after trying to raise and to lower it, which would feed a pipe",
        control: "with the limits left out a core is written, where the host's pattern names a file",
        closed_by: "RLIMIT_CORE of 1, hard: too little for a file, and the one value that feeds no pipe",
    },
    Probe {
        row: 30,
        test: "escape::r30_dumps::the_pattern_is_not_the_command_s_to_write",
        tried: "writing core_pattern, core_pipe_limit and suid_dumpable, also through /proc/1/root and as a file of a new procfs",
        control: "root opens them outside",
        closed_by: "namespaces: /proc/sys is read-only; Landlock; owners",
    },
];

#[test]
fn a_crash_feeds_no_core_dump_program() {
    let mut verdict = probe!();
    let report =
        shared().report(&["-c", "ulimit -c unlimited 2>/dev/null; ulimit -c 0 2>/dev/null; kill -SEGV $$"]);
    assert_eq!((report.ended_by, report.signal.as_deref()), (EndedBy::Signal, Some("SIGSEGV")));
    let limits = shared().report(&["--", "cat", "/proc/self/limits"]).stdout.unwrap();
    let core = limits.lines().find(|l| l.starts_with("Max core")).unwrap();
    assert!(core.split_whitespace().filter(|w| *w == "1").count() == 2, "{core}");
    // 0 would be lower than 1, and is what feeds a pipe.
    let code = "import resource, glob, signal\n\
                for v in ((resource.RLIM_INFINITY,) * 2, (1 << 20, 1 << 20)):\n  \
                try: resource.setrlimit(resource.RLIMIT_CORE, v); print('raised')\n  except (ValueError, OSError): pass\n\
                if os.fork() == 0: os.kill(os.getpid(), signal.SIGSEGV)\nstatus = os.wait()[1]\n\
                print(os.WTERMSIG(status), os.WCOREDUMP(status), glob.glob('core*'))";
    assert_eq!(inside(code), "11 False []\n");
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.starts_with(['|', '/', '@']) {
        verdict.closed_by("RLIMIT_CORE of 1, hard; the host's pattern is no file here");
        return;
    }
    let control = inside_of(without("rlimits"), "default", code);
    assert!(control.contains("raised\n") && control.contains("11 True ['core"), "the control: {control}");
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
