//! Row 9: the sandbox's own program, reached through the process that will become the command.

use super::{
    Probe,
    acts::{inside_of, outside},
    probe,
};
use crate::harness::{
    build::programs,
    lab::{compile, lab, script},
    shared,
};
use cordon_protocol::EndedBy;
use std::fs;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 9,
        test: "escape::r09_runtime::programs_cannot_be_overwritten_through_proc",
        tried: "opening /proc/self/exe, /proc/1/exe and programs of the host for writing",
        control: "outside a program of the host's opens for writing",
        closed_by: "namespaces (read-only mounts), Landlock, owners",
    },
    Probe {
        row: 9,
        test: "escape::r09_runtime::the_runtime_itself_cannot_be_executed",
        tried: "/proc/self/exe, which is the executor until the exec, as the program and as a script's interpreter; /proc/1/exe",
        control: "the same script with another interpreter; /proc/self/exe of a running command",
        closed_by: "Landlock, and modes: the program is root's to write",
    },
];

#[test]
fn programs_cannot_be_overwritten_through_proc() {
    let _verdict = probe!();
    // One that nobody else runs: it cannot be started while it is open for writing.
    let program = compile("overwritten", "int main(void) { return 0; }", &[]);
    let path = program.display();
    let code = format!(
        "print(*(t(os.open, p, os.O_WRONLY) != 0 for p in ('/proc/self/exe', '/proc/1/exe', '/proc/self/root/usr/bin/env', \
         '/usr/bin/env', '/proc/thread-self/exe', os.path.realpath('/proc/self/exe'), '{path}')))"
    );
    assert_eq!(inside_of(lab(), "probe", &code), "True True True True True True True\n");
    assert_eq!(outside(&format!("print(t(os.open, '{path}', os.O_WRONLY))")), "0\n", "the control");
}

#[test]
fn the_runtime_itself_cannot_be_executed() {
    let _verdict = probe!();
    let before = fs::metadata(&programs().executor).unwrap().modified().unwrap();
    for name in ["/proc/self/exe", "/proc/thread-self/exe", "/proc/1/exe"] {
        let report = shared().report(&["--", name, "--version"]);
        assert_eq!(
            (report.ended_by, report.step.as_deref()),
            (EndedBy::LaunchFailed, Some("exec")),
            "{name}"
        );
    }
    let run = |interpreter: &str| {
        let file = script("interpreted", &format!("#!{interpreter}\n"), 0o755);
        lab().report(&["--profile", "probe", "--", &file.to_string_lossy()])
    };
    let report = run("/proc/self/exe");
    assert_eq!(
        (report.ended_by, report.step.as_deref()),
        (EndedBy::LaunchFailed, Some("exec")),
        "{report:?}"
    );
    assert_eq!(
        run("/usr/bin/wc").stdout.map(|text| text.starts_with("0 0 0") || text.contains("1")),
        Some(true)
    );
    assert_eq!(shared().inside("exec /proc/self/exe -c 'echo again'"), "again\n", "the control");
    assert_eq!(fs::metadata(&programs().executor).unwrap().modified().unwrap(), before);
}
