//! Row 29: signals, priorities and limits of others that run as the same user, and of process 1.

use super::{
    Probe,
    acts::{Neighbour, in_namespaces_of, inside, numbers, outside, without},
    probe,
};
use crate::harness::{
    PATIENCE, eventually, host,
    process::{self, exe},
    shared,
};
use cordon_protocol::EndedBy;

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 29,
        test: "escape::r29_signals::signals_to_everybody_reach_nobody_else",
        tried: "`kill` of 0, of -1, of every group and of process 1, and `pidfd_send_signal`, beside another command",
        control: "0 without a session of its own and Landlock; -1 by one of two processes of the user in one pid namespace",
        closed_by: "namespaces: pid; a session of its own; Landlock (ABI 6); another user for init",
    },
    Probe {
        row: 29,
        test: "escape::r29_signals::priorities_and_limits_of_others_stay_as_they_are",
        tried: "`setpriority` and `ioprio_set` of a process, group and user, `sched_setscheduler`, `sched_setattr`, `sched_setaffinity`, `prlimit` and oom_score_adj of another command, of its init and of the daemons",
        control: "two processes of the user in one pid namespace: all of it takes effect",
        closed_by: "namespaces: pid, also for what is meant for all of a user's processes",
    },
    Probe {
        row: 29,
        test: "escape::r29_signals::process_one_cannot_be_signalled_slowed_or_limited",
        tried: "the same on process 1 of the sandbox, and tracing it",
        control: "root in the same namespaces may",
        closed_by: "identity: init is another user's",
    },
];

#[test]
fn signals_to_everybody_reach_nobody_else() {
    let _verdict = probe!();
    let neighbour = Neighbour::start(shared(), "print()");
    let daemons = [shared().monitor(), shared().server(), shared().gateway()];
    let script = "trap '' TERM; kill -TERM 0; kill -9 1; for g in 1 2 3 4 5; do kill -TERM -$g; done; \
                  python3 -c 'import os; os.kill(-1, 0)'; kill -TERM -1; echo alive";
    let report = shared().report(&["-c", script]);
    assert_eq!(report.ended_by, EndedBy::Exit, "{report:?}");
    assert!(report.stdout.unwrap().ends_with("alive\n"));
    assert!(neighbour.lives() && daemons.iter().all(|pid| exe(*pid).is_some()));
    shared().assert_works();
    // A group that is shared crosses pid namespaces: kill(2).
    let executor = without("landlock,session");
    let neighbour = Neighbour::start(executor, "print()");
    executor.report(&["-c", "kill -KILL 0"]);
    eventually("the neighbour is ended", PATIENCE, || !neighbour.lives());
    let end = "os.kill(-1, 15)";
    assert_eq!(
        beside_another(end, "print(os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1]))"),
        "-15\n",
        "the control"
    );
}

/// Acts as the sandbox's user in a pid namespace of its own, beside a `victim` of the same user; then looks, as
/// root. Nobody else of this user is touched.
fn beside_another(act: &str, look: &str) -> String {
    let (uid, gid) = (host::uid_of("execuser"), host::gid_of("execuser"));
    outside(&format!(
        "def drop(): os.setgroups([]); os.setgid({gid}); os.setuid({uid})\n\
         if call(l.unshare, 0x20020000): sys.exit('unshare')\n\
         call(l.mount, b'none', b'/', 0, 0x44000, 0)\n\
         if os.fork() == 0:\n  call(l.mount, b'proc', b'/proc', b'proc', 0, 0)\n  r, w = os.pipe()\n  victim = os.fork()\n  \
         if victim == 0: drop(); l.prctl(4, 1); os.write(w, b'x'); time.sleep(1000)\n  os.read(r, 1)\n  \
         if os.fork() == 0:\n    drop(); p = victim\n    {}\n    os._exit(0)\n  time.sleep(0); os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)\n  {}\n  \
         sys.stdout.flush(); os._exit(0)\nos.wait()",
        act.replace('\n', "\n    "),
        look.replace('\n', "\n  ")
    ))
}

/// Tries to change what a process is given; `p` is its number.
fn change() -> String {
    let uid = host::uid_of("execuser");
    format!(
        "import resource, struct\n\
         def write(): open(f'/proc/{{p}}/oom_score_adj', 'w').write('999')\n\
         attr = struct.pack('<IIQiIQQQ', 48, 5, 0, 0, 0, 0, 0, 0)\n\
         own = [call(l.setpriority, 2, {uid}, 18), sys_(251, 3, {uid}, 2 << 13 | 7)]\n\
         results = [call(l.setpriority, 0, p, 19), call(l.setpriority, 1, p, 19), sys_(251, 1, p, 3 << 13), sys_(251, 2, p, 3 << 13), \
         call(l.sched_setscheduler, p, 3, ctypes.byref(ctypes.c_int(0))), sys_(314, p, attr, 0), t(os.sched_setaffinity, p, {{0}}), \
         t(resource.prlimit, p, resource.RLIMIT_NOFILE, (9, 9)), t(write)]"
    )
}

/// What processes are given, seen from outside.
fn given(pids: &[i32]) -> String {
    outside(&format!(
        "for p in {pids:?}: print(os.getpriority(0, p), sorted(os.sched_getaffinity(p)), os.sched_getscheduler(p), \
         l.syscall(252, 1, p), open(f'/proc/{{p}}/limits').read(), open(f'/proc/{{p}}/oom_score_adj').read())"
    ))
}

#[test]
fn priorities_and_limits_of_others_stay_as_they_are() {
    let _verdict = probe!();
    let neighbour = Neighbour::start(shared(), "print()");
    let namespace = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let mut pids: Vec<_> =
        process::all().into_iter().filter(|pid| namespace(*pid) == namespace(neighbour.pid)).collect();
    assert_eq!(pids.len(), 2, "the neighbour and its init: {pids:?}");
    pids.extend([shared().monitor(), shared().server(), shared().gateway()]);
    let before = given(&pids);
    let each = pids.iter().map(|pid| format!("p = {pid}\n{}\nprint(*results)", change()));
    let seen = numbers(&inside(&each.collect::<Vec<_>>().join("\n")));
    assert!(seen.len() == 9 * pids.len() && seen.iter().all(|errno| *errno != 0), "{seen:?}");
    assert_eq!(given(&pids), before);
    let look = "print(os.getpriority(0, victim), os.sched_getscheduler(victim), l.syscall(252, 1, victim) >> 13, \
                sorted(os.sched_getaffinity(victim)), open(f'/proc/{victim}/oom_score_adj').read().strip())\nos.kill(victim, 9)";
    // Of the whole user, and of the process alone.
    let of_user = format!("{}\n", change().split("results = ").next().unwrap());
    assert!(beside_another(&of_user, look).starts_with("18 0 2 "), "the control: PRIO_USER");
    assert_eq!(beside_another(&change(), look), "19 5 3 [0] 999\n", "the control");
}

#[test]
fn process_one_cannot_be_signalled_slowed_or_limited() {
    let _verdict = probe!();
    let code = format!(
        "p = 1\n{}\nresults += [t(os.kill, 1, s) for s in (0, 9, 15, 19)] + [call(l.ptrace, 16, 1, 0, 0)]\nprint(*results)",
        change()
    );
    let seen = numbers(&inside(&code));
    assert!(seen.len() == 14 && seen.iter().all(|errno| *errno != 0), "{seen:?}");
    let neighbour = Neighbour::start(shared(), "print()");
    let allowed = "print(t(os.kill, 1, 0), call(l.setpriority, 0, 1, os.getpriority(0, 1)), t(os.sched_setaffinity, 1, os.sched_getaffinity(1)))";
    assert_eq!(in_namespaces_of(neighbour.pid, allowed), "0 0 0\n", "the control");
}
