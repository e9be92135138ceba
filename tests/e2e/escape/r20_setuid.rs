//! Row 20: programs that give whoever runs them another user's rights, or capabilities.

use super::{
    Probe,
    acts::{inside, user},
    probe,
};
use crate::harness::{
    build::scratch,
    lab::{compile, lab},
    process, shared,
};
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 20,
        test: "escape::r20_setuid::setuid_programs_gain_nothing",
        tried: "su, and passwd while it runs: which user it is",
        control: "outside passwd runs as root",
        closed_by: "no_new_privs; nosuid mounts; an empty bounding set",
    },
    Probe {
        row: 20,
        test: "escape::r20_setuid::a_profile_s_own_setuid_program_and_file_capabilities_gain_nothing",
        tried: "a program of root's with mode 4755, and one with a capability in its attributes, both in a directory that the profile lets be executed",
        control: "outside, as the sandbox's user, one is root and the other has the capability",
        closed_by: "no_new_privs; nosuid mounts; an empty bounding set",
    },
];

#[test]
fn setuid_programs_gain_nothing() {
    let _verdict = probe!();
    let programs = "find /usr/bin /usr/sbin -perm -4000 2>/dev/null | wc -l";
    let there: u32 = shared().inside(programs).trim().parse().unwrap();
    assert!(there > 0, "the control: the host has setuid programs");
    let code = "import subprocess\nr = subprocess.run(['/usr/bin/su', '-c', 'id -u'], stdin=subprocess.DEVNULL, \
                capture_output=True, text=True)\nprint(r.returncode != 0, r.stdout == '')";
    assert_eq!(inside(code), "True True\n");
    // Read when it has ended: its rights are those of the program only some time after its descriptors were closed.
    let effective = "
started, starts = os.pipe()
waits, go = os.pipe()
p = os.fork()
if p == 0:
  os.read(waits, 1)
  for fd in (0, 1, 2): os.dup2(os.open('/dev/null', os.O_RDWR), fd)
  try: os.execv('/usr/bin/passwd', ['passwd'])
  except OSError: os.write(starts, b'!'); os._exit(1)
status = open(f'/proc/{p}/status')
os.write(go, b'x'); os.close(starts)
failed = os.read(started, 1)
os.waitid(os.P_PID, p, os.WEXITED | os.WNOWAIT)
print(failed, set(status.read().split('Uid:')[1].split('\\n')[0].split()) == {str(os.getuid())})";
    assert_eq!(inside(effective), "b'' True\n");
    assert_eq!(super::acts::outside_as_user(effective), "b'' False\n", "the control");
}

const WHO: &str = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "CapEff:", 7)) printf("%d %d\n", geteuid() == 0, !!strpbrk(line + 7, "123456789abcdef"));
}"#;

#[test]
fn a_profile_s_own_setuid_program_and_file_capabilities_gain_nothing() {
    let _verdict = probe!();
    let (setuid, capable) = (compile("who-setuid", WHO, &[]), compile("who-capable", WHO, &[]));
    fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).unwrap();
    // CAP_NET_RAW, permitted and effective (linux/capability.h, VFS_CAP_REVISION_2).
    super::acts::outside(&format!(
        "import struct; os.setxattr('{}', 'security.capability', struct.pack('<5I', 0x02000001, 1 << 13, 0, 0, 0))",
        capable.display()
    ));
    let run = |program: &Path| {
        let report = lab().report(&["--profile", "probe", "--", &program.to_string_lossy()]);
        report.stdout.unwrap_or_else(|| panic!("{:?} {:?}", report.ended_by, report.step))
    };
    assert_eq!((run(&setuid).as_str(), run(&capable).as_str()), ("0 0\n", "0 0\n"));
    assert!(setuid.starts_with(scratch()));
    let outside = |program: &Path| process::run(user(&program.to_string_lossy()), &[]).text();
    assert_eq!((outside(&setuid).as_str(), outside(&capable).as_str()), ("1 1\n", "0 1\n"), "the control");
}
