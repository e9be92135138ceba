//! What the kernel counts for each user, and all commands are one: how far one command's use reaches.
//!
//! Rows 19 and 29, as far as they remain: `docs/escape.md` says so.

use super::{
    Probe,
    acts::{Neighbour, inside, inside_of, outside, without},
    probe,
};
use crate::harness::{Executor, PATIENCE, eventually, lab::probes, marker};
use std::fs;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 19,
        test: "escape::pools::no_posix_queue_can_be_made",
        tried: "making POSIX queues, which carry messages, and of which all commands together may have so many bytes",
        control: "with the limits left out they are made, and without Landlock opened, until there is no room",
        closed_by: "RLIMIT_MSGQUEUE of 0; Landlock, which lets none be opened; namespaces: ipc",
    },
    Probe {
        row: 29,
        test: "escape::pools::what_is_used_up_of_the_user_s_pools_is_missed_by_no_other_user_and_comes_back",
        tried: "taking every inotify instance, every queued signal and a lock on a file that all may read",
        control: "another command does miss them while they are held",
        closed_by: "identity: no user but the commands' own is touched, and all comes back with the end; among commands it remains, see below",
    },
];

/// Opens as many POSIX queues as can be had; prints the errors on the way, and how many were opened.
const TAKE_QUEUES: &str = "seen = []\nopened = 0\nfor n in range(1000):\n  \
    e = call(l.mq_open, b'/q%d' % n, os.O_CREAT | os.O_RDWR, 0o600, None)\n  opened += e == 0\n  \
    if e not in seen: seen.append(e)\nprint(seen, opened)";

#[test]
fn no_posix_queue_can_be_made() {
    let _verdict = probe!();
    // EMFILE, the first time: nothing was made. Landlock alone would make the queue, refuse to open it and leave it.
    const NONE: &str = "[24] 0\n";
    assert_eq!(inside(TAKE_QUEUES), NONE);
    assert_eq!(inside_of(without("landlock"), "default", TAKE_QUEUES), NONE);
    let control = inside_of(without("landlock,rlimits"), "default", TAKE_QUEUES);
    assert!(control.starts_with("[0, 24] "), "the control: {control}");
    let left = inside_of(without("rlimits"), "default", TAKE_QUEUES);
    assert_eq!(left, "[13, 24] 0\n", "the control: made, and of no use");
}

#[test]
fn what_is_used_up_of_the_user_s_pools_is_missed_by_no_other_user_and_comes_back() {
    let _verdict = probe!();
    // Another user than the one that other tests' commands have meanwhile.
    let file = probes().join(format!("pool-{}", marker()));
    fs::write(&file, "").unwrap();
    let executor = Executor::start(&format!(
        "[users]\ncommand = 'games'\n[profiles.default]\nread = ['/usr', '/etc', '{}']\n",
        probes().display()
    ));
    let lock = format!(
        "import fcntl\nlocked = t(fcntl.flock, os.open('{}', os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        file.display()
    );
    let take = format!(
        "{lock}n = m = 0\nwhile l.inotify_init1(0) >= 0: n += 1\nimport signal; signal.pthread_sigmask(signal.SIG_BLOCK, [40])\n\
         while l.sigqueue(os.getpid(), 40, ctypes.c_void_p(0)) == 0: m += 1\nprint(n > 0, m > 0, locked)"
    );
    let neighbour = Neighbour::start(&executor, &take);
    assert_eq!(neighbour.said, "True True 0\n");
    let count = "timer = ctypes.c_void_p()\nprint(call(l.inotify_init1, 0), call(l.timer_create, 0, None, ctypes.byref(timer)))\n";
    let look = format!("{count}{lock}print(locked)");
    let beside = || inside_of(&executor, "default", &look);
    assert_eq!(beside(), "24 11\n11\n", "the control, and what remains: EMFILE, EAGAIN");
    assert_eq!((inside(count).as_str(), outside(count).as_str()), ("0 0\n", "0 0\n"));
    drop(neighbour);
    eventually("all is there again", PATIENCE, || beside() == "0 0\n0\n");
    fs::remove_file(file).unwrap();
}
