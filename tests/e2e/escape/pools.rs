//! What the kernel counts for each user, and all commands are one: how far one command's use reaches.
//!
//! Rows 19 and 29, as far as they remain: `docs/escape.md` says so.

use super::{
    Probe,
    acts::{Neighbour, inside, outside},
    probe,
};
use crate::harness::{PATIENCE, eventually, shared};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 29,
        test: "escape::pools::posix_queues_are_each_sandbox_s_own_in_number_too",
        tried: "opening as many POSIX queues as can be had, so that another command gets none",
        control: "the command itself gets no more",
        closed_by: "namespaces: ipc, whose own limit stands in the place of the user's",
    },
    Probe {
        row: 29,
        test: "escape::pools::what_is_used_up_of_the_user_s_pools_is_missed_by_no_other_user_and_comes_back",
        tried: "taking every inotify instance and a lock on a file that all may read",
        control: "another command does miss them while they are held",
        closed_by: "identity: no user but the commands' own is touched, and all comes back with the end; among commands it remains, see below",
    },
];

#[test]
fn posix_queues_are_each_sandbox_s_own_in_number_too() {
    let _verdict = probe!();
    let take = "n = 0\nwhile l.mq_open(b'/q%d' % n, os.O_CREAT | os.O_RDWR, 0o600, None) >= 0: n += 1\nprint(n, \
                call(l.mq_open, b'/one-more', os.O_CREAT | os.O_RDWR, 0o600, None))";
    let neighbour = Neighbour::start(shared(), take);
    let (taken, errno) = neighbour.said.trim().split_once(' ').unwrap();
    assert!(taken != "0" && errno != "0", "the control: {}", neighbour.said);
    assert_eq!(inside(take), neighbour.said, "as many as the other");
}

#[test]
fn what_is_used_up_of_the_user_s_pools_is_missed_by_no_other_user_and_comes_back() {
    let _verdict = probe!();
    let take = "import fcntl\nn = 0\nwhile l.inotify_init1(0) >= 0: n += 1\n\
                print(n, t(fcntl.flock, os.open('/usr/bin/true', os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB))";
    let neighbour = Neighbour::start(shared(), take);
    assert!(neighbour.said.ends_with(" 0\n") && !neighbour.said.starts_with("0 "), "{}", neighbour.said);
    let look = "import fcntl\nprint(call(l.inotify_init1, 0), t(fcntl.flock, os.open('/usr/bin/true', os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB))";
    assert_eq!(inside(look), "24 11\n", "the control, and what remains: EMFILE, EAGAIN");
    assert_eq!(outside("print(call(l.inotify_init1, 0))"), "0\n");
    drop(neighbour);
    eventually("both are there again", PATIENCE, || inside(look) == "0 0\n");
}
