//! Row 16: programs by another name. A name is never what decides: whatever runs is confined alike.

use super::{Probe, acts::program, probe};
use crate::harness::{
    lab::{compile, lab},
    shared,
};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 16,
        test: "escape::r16_strings::a_program_by_another_name_may_do_no_more",
        tried: "the same program by its path, /proc/self/root, /proc/self/cwd, a link, a copy, ld.so, a memory file and env",
        control: "each of them does run",
        closed_by: "no list of commands is a boundary: the layers hold the process, not the name",
    },
    Probe {
        row: 16,
        test: "escape::r16_strings::what_may_be_read_and_not_executed_gains_nothing_by_ld_so",
        tried: "a program of a directory that may only be read, started by ld.so and from memory",
        control: "it runs, for execute rules are a courtesy",
        closed_by: "the same layers as around any program",
    },
    Probe {
        row: 16,
        test: "escape::r16_strings::arguments_are_never_a_shell_s_words",
        tried: "arguments with everything that a shell would act on",
        control: "a shell line that acts on it",
        closed_by: "arguments go to execve as they are",
    },
];

/// Facts of a process that must not depend on how it was started, and acts that must fail.
const CONFINED: &str = "s = dict(line.split(':', 1) for line in open('/proc/self/status') if ':' in line)\n\
     print(*(s[k].strip() for k in ('NoNewPrivs', 'Seccomp', 'CapBnd', 'CapEff')), t(os.open, '/root', 0) != 0, \
     t(open, '/etc/x', 'w') != 0, sys_(165, 0, 0, 0, 0, 0), sys_(248, b'user', b'x', b'x', 1, -3), t(os.mknod, 'n', 0o020600, 0x103) != 0)";
const HELD: &str = "1 2 0000000000000000 0000000000000000 True True 1 1 True\n";

#[test]
fn a_program_by_another_name_may_do_no_more() {
    let _verdict = probe!();
    let setup = "cp /usr/bin/python3 ./ls; ln -s /usr/bin/python3 echo; mkdir -p a; ";
    let memory = "python3 -c 'import os, sys; f = os.memfd_create(\"x\"); os.write(f, open(\"/usr/bin/python3\", \"rb\").read()); \
                  os.execv(f\"/proc/self/fd/{f}\", [\"ls\", *sys.argv[1:]])'";
    for way in [
        "/usr/bin/python3",
        "/proc/self/root/usr/bin/python3",
        "/proc/self/cwd/ls",
        "./ls",
        "./echo",
        "/usr/bin/../bin/./python3",
        "/lib64/ld-linux-x86-64.so.2 /usr/bin/python3",
        "/lib64/ld-linux-x86-64.so.2 ./ls",
        "env -i /usr/bin/python3",
        memory,
    ] {
        let mut request = crate::harness::client::line(&format!("{setup}{way} -c \"$CODE\""));
        request.env = vec![("CODE".to_owned(), program(CONFINED))];
        let report = shared().events(request).report;
        assert_eq!(report.stdout.as_deref(), Some(HELD), "{way}: {report:?}");
    }
}

#[test]
fn what_may_be_read_and_not_executed_gains_nothing_by_ld_so() {
    let _verdict = probe!();
    let source = "#include <fcntl.h>\n#include <stdio.h>\n#include <unistd.h>\n#include <sys/mount.h>\n\
                  int main(void) { printf(\"ran %d %d %d\\n\", open(\"/root\", 0), open(\"/etc/x\", O_WRONLY | O_CREAT, 0600), \
                  mount(0, \"/tmp\", \"tmpfs\", 0, 0)); }";
    let program = compile("by-loader", source, &[]);
    let path = program.display();
    let plain = lab().report(&["--profile", "reading", "--", &path.to_string()]);
    assert_eq!(plain.step.as_deref(), Some("exec"));
    for way in [format!("/lib64/ld-linux-x86-64.so.2 {path}"), format!("cp {path} x && ./x")] {
        assert_eq!(lab().inside_profile("reading", &way), "ran -1 -1 -1\n", "{way}");
    }
}

#[test]
fn arguments_are_never_a_shell_s_words() {
    let _verdict = probe!();
    let words = [
        "$(touch made)",
        "`touch made`",
        "; touch made",
        "&& touch made",
        "| sh",
        "$HOME",
        "*",
        "~",
        "\"'\\",
        "-n\n",
        "",
    ];
    let shown = "import os, sys; print(sys.argv[1:], os.listdir('.'))";
    let report = shared().report(&[&["--", "/usr/bin/python3", "-c", shown], &words[..]].concat());
    let quoted = crate::harness::process::run(
        {
            let mut command = std::process::Command::new("/usr/bin/python3");
            command.args(["-c", "import sys; print(sys.argv[1:], [])"]).args(words);
            command
        },
        &[],
    );
    assert_eq!(report.stdout, Some(quoted.text()));
    assert_eq!(shared().inside("echo $(touch made) > /dev/null; ls"), "made\n", "the control");
}
