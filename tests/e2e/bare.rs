//! Executors that can make no namespace, and that have no cgroup v2: what one command leaves is found by its
//! uid, and the next one must not pay for it.

use crate::harness::{
    Executor,
    build::programs,
    client::line,
    daemon::{ensure_users, open_directory, write_configuration},
    host, process,
};
use cordon_protocol::{CgroupMode, EndedBy};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

/// `setpriv` before a program takes away what it needs to make namespaces.
const WITHOUT_NAMESPACES: [&str; 2] = ["--bounding-set", "-sys_admin"];

/// An executor without CAP_SYS_ADMIN.
fn without_namespaces() -> Executor {
    let mut command = process::tied("setpriv".as_ref());
    command.args(WITHOUT_NAMESPACES).arg("--").arg(&programs().executor);
    started(command)
}

/// The same in a mount namespace of its own, in which no cgroup v2 is mounted, and in a pid namespace of its
/// own: it ends whatever runs under the commands' uid, also other executors' commands.
struct WithNeither(Executor);

impl WithNeither {
    fn start() -> Self {
        let script = match host::cgroup2() {
            Some(at) => format!("umount -l '{}' && exec \"$@\"", at.display()),
            None => "exec \"$@\"".to_owned(),
        };
        // Not SIGTERM, which unshare ignores while it waits.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "unshare"]);
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
        command.args(["sh", "-c", &script, "sh", "setpriv"]);
        command.args(WITHOUT_NAMESPACES).arg("--").arg(&programs().executor);
        Self(started(command))
    }
}

impl Drop for WithNeither {
    fn drop(&mut self) {
        // unshare waits for it, and passes no signal on.
        let monitor = process::descendants(self.0.pid())[0];
        let _ = kill(Pid::from_raw(monitor), Signal::SIGTERM);
    }
}

fn started(mut command: Command) -> Executor {
    ensure_users();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "available", "");
    command.arg("--config").arg(file);
    let executor = Executor::wait_ready(command, directory);
    let enforced = executor.report(&["--", "true"]).enforced;
    assert!(enforced.namespaces.is_empty(), "{enforced:?}");
    executor
}

#[test]
fn memory_that_processes_share_counts_once_where_the_monitor_adopts_what_is_left() {
    let executor = without_namespaces();
    let code = "import os, time\nx = bytearray(b'x') * (40 << 20)\n\
        for i in range(5):\n    if os.fork() == 0: time.sleep(1); os._exit(0)\n\
        for i in range(5): os.wait()\nprint(len(x))";
    let report = executor.report(&["--memory", "128M", "--timeout", "40s", "--", "python3", "-c", code]);
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(0)), "{report:?}");
}

#[test]
fn what_is_cleaned_up_after_a_command_is_never_the_next_one() {
    let with_neither = WithNeither::start();
    let executor = &with_neither.0;
    let script = "touch ~/left; (setsid sleep 600 &); sleep 0.02; echo works";
    // Others wait in the queue, so that each is launched as soon as the one before has ended.
    let done = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) < 40 {
                    let report = executor.events(line(script)).report;
                    assert_eq!(report.enforced.cgroup, CgroupMode::None);
                    let seen = (report.ended_by, report.stdout.as_deref());
                    assert_eq!(seen, (EndedBy::Exit, Some("works\n")), "{report:?}");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
}
