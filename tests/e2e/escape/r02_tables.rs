//! Row 2: system calls by another table of numbers.

use super::{Probe, acts::without, probe};
use crate::harness::{
    Client,
    lab::{compile, lab},
};
use cordon_protocol::EndedBy;

pub(super) const PROBES: &[Probe] = &[Probe {
    row: 2,
    test: "escape::r02_tables::other_system_call_tables_are_shut_out",
    tried: "`getpid` by its x32 number and through `int 0x80`; the emitted filter for every number and architecture is run in unit tests, `sandbox::seccomp`",
    control: "the same program with the filter left out; the native call",
    closed_by: "seccomp",
}];

#[test]
fn other_system_call_tables_are_shut_out() {
    let mut verdict = probe!();
    let source = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>
int main(int argc, char **argv) {
    long result = -1;
    if (!strcmp(argv[1], "native")) result = syscall(SYS_getpid);
    if (!strcmp(argv[1], "x32")) result = syscall(SYS_getpid | 0x40000000);
    if (!strcmp(argv[1], "i386")) __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
    printf("%d\n", result > 0);
    return 0;
}"#;
    let program = compile("tables", source, &["-O1"]);
    let called = |executor: &Client, table: &str| {
        let report = executor.report(&["--profile", "probe", "--", &program.to_string_lossy(), table]);
        assert!([EndedBy::Exit, EndedBy::Signal].contains(&report.ended_by), "{report:?}");
        report.stdout.as_deref() == Some("1\n")
    };
    assert!(called(lab(), "native") && called(without("seccomp"), "native"));
    let mut unknown = Vec::new();
    for table in ["x32", "i386"] {
        assert!(!called(lab(), table), "{table}");
        if !called(without("seccomp"), table) {
            unknown.push(table);
        }
    }
    if !unknown.is_empty() {
        verdict.closed_by(format!("seccomp, and the kernel does not know {}", unknown.join(" nor ")));
    }
}
