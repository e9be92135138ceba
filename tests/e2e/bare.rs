//! Executors that can make no namespace, and that have no cgroup v2: what one command leaves is found by its
//! uid, and the next one must not pay for it.

use crate::harness::{
    Executor,
    build::programs,
    client::line,
    daemon::{ensure_users, open_directory, write_configuration},
    lesser_host::{LesserHost, WHOLE},
    process,
};
use cordon_protocol::{CgroupMode, EndedBy};
use std::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

/// An executor without CAP_SYS_ADMIN that can look into other users' processes all the same.
fn without_namespaces() -> Executor {
    ensure_users();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "available", "");
    let mut command = process::tied("setpriv".as_ref());
    command.args(["--bounding-set", "-sys_admin", "--"]).arg(&programs().executor).arg("--config").arg(file);
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
    let executor = LesserHost { cgroup: false, admin: false, ..WHOLE }.start("");
    let script = "touch ~/left; (setsid sleep 600 &); sleep 0.02; echo works";
    // Others wait in the queue, so that each is launched as soon as the one before has ended.
    let done = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) < 40 {
                    let report = executor.events(line(script)).report;
                    let enforced = &report.enforced;
                    assert!(enforced.namespaces.is_empty() && enforced.cgroup == CgroupMode::None);
                    let seen = (report.ended_by, report.stdout.as_deref());
                    assert_eq!(seen, (EndedBy::Exit, Some("works\n")), "{report:?}");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
}
