//! Row 28: commands that stop, hide from or outlast whoever waits for their end.

use super::{
    Probe,
    acts::{program, user},
    probe,
};
use crate::harness::{
    PATIENCE,
    client::argv,
    eventually, marker,
    process::{all, sandboxed},
    shared, stretched,
    table::assert_each,
};
use cordon_protocol::EndedBy;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    process::Stdio,
    time::Duration,
};

pub(super) const PROBES: &[Probe] = &[Probe {
    row: 28,
    test: "escape::r28_clock::nothing_a_command_does_stops_its_clock_or_outlives_it",
    tried: "stopping oneself, one's group and everything; ignoring every signal; a leader that has ended while its thread goes on; double forks with a session of their own that sleep, stop or hold the pipes; closed streams; a child that waits for its parent in vfork",
    control: "outside a double fork outlives its parent, and what ignores signals is not ended by SIGTERM",
    closed_by: "cgroup.kill (else SIGKILL by pid namespace and subreaper) at a deadline of the monitor's own; a short grace for pipes",
}];

const DETACH: &str = "def detach(f):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: f(); time.sleep(1000)\n    os._exit(0)\n  os.wait()\n";

/// What is done, and how the command ends; its descendants have its marker.
fn cases() -> Vec<(&'static str, &'static str, EndedBy)> {
    use EndedBy::{Exit, WallTimeout};
    vec![
        ("stops itself", "os.kill(os.getpid(), 19)", WallTimeout),
        ("stops its group", "os.fork(); os.kill(0, 19); time.sleep(1000)", WallTimeout),
        (
            "stops all it can",
            "os.fork(); os.kill(-1, 19); os.kill(os.getpid(), 19); time.sleep(1000)",
            WallTimeout,
        ),
        (
            "ignores every signal",
            "import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\nos.fork(); time.sleep(1000)",
            WallTimeout,
        ),
        (
            "a leader that is gone",
            "import threading\nthreading.Thread(target=time.sleep, args=(1000,)).start()\nsys_(60, 0)",
            WallTimeout,
        ),
        ("closed streams", "os.closerange(0, 3); time.sleep(1000)", WallTimeout),
        ("held by vfork", "l.vfork() == 0 and time.sleep(1000)", WallTimeout),
        ("sleeps detached with the pipes", "detach(lambda: 0)", Exit),
        ("stopped detached with the pipes", "detach(lambda: os.kill(os.getpid(), 19))", Exit),
        ("detached and stopped by its parent", "detach(lambda: 0); os.kill(-1, 19)", Exit),
        ("detached without the pipes", "detach(lambda: os.closerange(0, 3))", Exit),
        ("writes detached for ever", "def f():\n  while True: os.write(1, b'x')\ndetach(f)", Exit),
        ("many detached", "for _ in range(40): detach(lambda: 0)", Exit),
    ]
}

#[test]
fn nothing_a_command_does_stops_its_clock_or_outlives_it() {
    let _verdict = probe!();
    assert_each(
        &cases(),
        4,
        |case| case.0.to_owned(),
        |(_, code, expected)| {
            let marker = marker();
            let mut request =
                argv(&["/usr/bin/python3", "-c", &program(&format!("{DETACH}{code}")), &marker]);
            if *expected == EndedBy::WallTimeout {
                let wall = stretched(Duration::from_millis(1500));
                request.limits.wall_ms = Some(wall.as_millis() as u64);
            }
            let report = shared().events(request).report;
            let mut wrong = Vec::new();
            if report.ended_by != *expected {
                wrong.push(format!("{report:?}"));
            }
            eventually("nothing of it is left", PATIENCE, || sandboxed(&marker).is_empty());
            wrong
        },
    );

    let marker = marker();
    let mut outside = user("/usr/bin/python3");
    let stubborn =
        "import signal\nsignal.signal(15, signal.SIG_IGN)\ndetach(lambda: print(os.getpid(), flush=True))";
    outside
        .args(["-c", &program(&format!("{DETACH}{stubborn}")), &marker])
        .stdout(Stdio::piped())
        .process_group(0);
    let mut child = outside.spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let pid: i32 = said.parse().unwrap();
    child.wait().unwrap();
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    assert!(all().contains(&pid) && sandboxed(&marker) == [pid], "the control");
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}
