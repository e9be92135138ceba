//! Row 8: a descriptor that was open when the command was started leads past every lock.

use super::{Probe, acts::program, probe};
use crate::harness::{Executor, process::descriptors};
use crate::starts::started_with;

pub(super) const PROBES: &[Probe] = &[Probe {
    row: 8,
    test: "escape::r08_descriptors::what_the_executor_inherited_reaches_no_command",
    tried: "looking for open descriptors beside 0, 1 and 2, and through these, below an executor that was started with the root directory and /etc/shadow open",
    control: "the executor has both",
    closed_by: "closing all others first of all, and on exec",
}];

#[test]
fn what_the_executor_inherited_reaches_no_command() {
    let _verdict = probe!();
    let open = "os.dup2(os.open('/', os.O_RDONLY), 700)\nos.dup2(os.open('/etc/shadow', os.O_RDONLY), 701)";
    let (command, directory) = started_with("", open);
    let executor = Executor::wait_ready(command, directory);
    let held = descriptors(executor.pid());
    assert!(held.iter().any(|open| open == "/etc/shadow") && held.iter().any(|open| open == "/"), "{held:?}");
    let code = program(
        "print([n for n in range(2048) if t(os.fstat, n) == 0])\n\
         print({os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in range(3)} - {'pipe', '/dev/null'})\n\
         print([t(os.open, f'/proc/self/fd/{n}/etc/shadow', 0) == 0 for n in (0, 1, 2, 700, 701)])\n\
         print([t(os.chdir, f'/proc/self/fd/{n}') == 0 for n in (0, 1, 2, 700)])",
    );
    let seen = executor.report(&["--", "/usr/bin/python3", "-c", &code]);
    let expected = "[0, 1, 2]\nset()\n[False, False, False, False, False]\n[False, False, False, False]\n";
    assert_eq!(seen.stdout.as_deref(), Some(expected), "{seen:?}");
}
