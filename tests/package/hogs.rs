//! Ten commands at once that take all they can get, and what the host's own services and other users notice of it.
//!
//! How long each answer takes is measured before and meanwhile and printed, as it is; no time is judged. What is judged
//! is that everything was answered, that nothing but the hogs was ended, and that these ended by their own limits.

use crate::guest::{
    Host, LOCAL, MEMBER, cursor, eventually, journal_since, main_pid, member, ok, processes, property,
    run_as, sh, state, tell,
};
use serde_json::Value;
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Another member of the group, who has nothing to do with the hogs.
const NEIGHBOUR: &str = "neighbour";
/// Of each kind this many run at once.
const OF_EACH: usize = 2;
/// Each service is asked at least so often, before and meanwhile.
const ROUNDS: usize = 10;

/// Something that takes all it can get, until a limit ends it.
struct Hog {
    name: &'static str,
    /// Options of `cordon run`.
    options: &'static str,
    line: &'static str,
    ended_by: &'static str,
    /// What `limits_hit` has to name.
    hit: &'static str,
}

/// Each ends after so much of something, however slow the host is: by the clock none of them would.
const HOGS: [Hog; 5] = [
    Hog {
        name: "cpu",
        options: "--profile timed",
        line: "for n in 1 2 3 4; do (while :; do :; done) & done; wait",
        ended_by: "cpu_timeout",
        hit: "cpu_time",
    },
    Hog {
        name: "memory",
        options: "--profile hog --memory 64M",
        line: "exec tail /dev/zero",
        ended_by: "out_of_memory",
        hit: "memory",
    },
    Hog {
        name: "fork",
        options: "--profile timed --pids 16",
        line: "f() { f & f & wait; }; f 2>/dev/null; while :; do :; done",
        ended_by: "cpu_timeout",
        hit: "pids",
    },
    Hog {
        name: "disk",
        options: "--profile hog",
        line: "while head -c 4M /dev/zero >>filling && sync filling; do :; done; sleep 86420",
        ended_by: "disk_limit",
        hit: "disk",
    },
    Hog {
        name: "output",
        options: "--profile hog --output 16M",
        line: "exec yes",
        ended_by: "output_limit",
        hit: "output",
    },
];

const PROFILES: &str = "
[profiles.hog.limits]
wall = { default = \"1h\" }
named_workspace = \"32M\"
[profiles.timed.limits]
wall = { default = \"1h\" }
cpu_time = { default = \"8s\" }
";

/// Runs a hog once more as long as it is to go on. `place` tells those of a kind apart.
fn run_again_and_again(hog: &Hog, place: usize, go_on: &AtomicBool, ended: &AtomicUsize) {
    while go_on.load(Ordering::Relaxed) {
        let workspace = format!("hog-{place}-{}", ended.load(Ordering::Relaxed));
        let named = if hog.name == "disk" { format!("--workspace {workspace}") } else { String::new() };
        let ran = run_as(
            MEMBER,
            &format!("exec cordon run --json -n --capture 0 {} {named} -c '{}'", hog.options, hog.line),
        );
        let report: Value =
            serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{}: {e}: {ran:?}", hog.name));
        assert_eq!(report["ended_by"], hog.ended_by, "{}: {report}", hog.name);
        let hit = report["limits_hit"].as_array().unwrap();
        assert!(hit.contains(&hog.hit.into()), "{}: {report}", hog.name);
        if hog.name == "disk" {
            member(&format!("cordon workspace delete {workspace}"));
        }
        ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends the going on when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Commands of the member that run.
fn running() -> usize {
    let list: Value = serde_json::from_str(&member("cordon ps --json")).unwrap();
    list.as_array().unwrap().len()
}

/// A service of the host, or of Cordon to somebody else: what asks it, and as whom.
const SERVICES: [(&str, &str, &str); 5] = [
    (
        "systemd over D-Bus",
        "root",
        "busctl --timeout=120 get-property org.freedesktop.systemd1 \
      /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager Version",
    ),
    (
        "ssh, its key exchange",
        "root",
        "ssh-keyscan -T 120 -t ed25519 127.0.0.1 2>/dev/null | grep -q ssh-ed25519",
    ),
    ("an HTTP server", "root", "curl -sSf -m 120 -o /dev/null http://127.0.0.1:3900/hostname"),
    ("Cordon's gateway", MEMBER, ""),
    ("cordon run, another user", NEIGHBOUR, "cordon run -n -- true"),
];

/// Asks each service so many times and longer while `more`; the times of each, sorted.
fn ask(rounds: usize, more: impl Fn() -> bool) -> [Vec<Duration>; SERVICES.len()] {
    let mut times = [const { Vec::new() }; SERVICES.len()];
    let health = format!("curl -sSf -m 120 -o /dev/null {LOCAL}/healthz");
    let mut round = 0;
    while round < rounds || more() {
        for ((name, user, line), times) in SERVICES.iter().zip(&mut times) {
            let line = if line.is_empty() { &health } else { *line };
            let start = Instant::now();
            let ran = run_as(user, line);
            times.push(start.elapsed());
            assert_eq!(ran.status, 0, "{name} did not answer: {ran:?}");
        }
        round += 1;
    }
    times.iter_mut().for_each(|times| times.sort());
    times
}

fn compare(before: &[Vec<Duration>], meanwhile: &[Vec<Duration>]) {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    tell("ten hogs at once: how long an answer takes, in ms");
    tell(&format!("{:26}{:>17}{:>17}{:>16}", "", "before (median,", "meanwhile (the", "ratio of the"));
    tell(&format!("{:26}{:>17}{:>17}{:>16}", "", "longest)", "same)", "medians"));
    for (((name, ..), before), meanwhile) in SERVICES.iter().zip(before).zip(meanwhile) {
        let of = |times: &[Duration]| (ms(times[times.len() / 2]), ms(times[times.len() - 1]));
        let ((median, longest), (slower, worst)) = (of(before), of(meanwhile));
        tell(&format!("{name:26}{median:8.0}{longest:9.0}{slower:8.0}{worst:9.0}{:16.1}", slower / median));
    }
}

/// What must go on as the same process.
const UNHARMED: [&str; 6] =
    ["cordon-executor", "cordon-gateway", "ssh", "dbus", "systemd-journald", "package-test-service"];

fn pids() -> Vec<i32> {
    UNHARMED.iter().map(|unit| main_pid(unit)).collect()
}

#[test]
fn ten_hogs_at_once_leave_services_and_other_users_their_answers() {
    let _host = Host::with_package();
    ok(&format!("id {NEIGHBOUR} >/dev/null 2>&1 || useradd -m {NEIGHBOUR}; usermod -aG cordon {NEIGHBOUR}"));
    ok(&format!(
        "cat >>/etc/cordon/executor.toml <<'END'\n{PROFILES}\nEND\nsystemctl restart cordon-executor"
    ));
    ok("systemctl start ssh; systemctl stop package-test-service 2>/dev/null; \
        systemctl reset-failed package-test-service 2>/dev/null; \
        systemd-run -q --unit=package-test-service python3 -m http.server 3900 --bind 127.0.0.1 --directory /etc");
    eventually("the HTTP server answers", || sh("curl -sf http://127.0.0.1:3900/hostname").status == 0);
    member("cordon run -n -- true");
    let (services, since) = (pids(), cursor());
    assert!(services.iter().all(|pid| *pid != 0), "{services:?}");

    let before = ask(ROUNDS, || false);
    let go_on = AtomicBool::new(true);
    let counts: Vec<_> = (0..HOGS.len() * OF_EACH).map(|_| AtomicUsize::new(0)).collect();
    let meanwhile = thread::scope(|scope| {
        // Also where this thread fails, so that those end which the scope waits for.
        let stop = Stop(&go_on);
        for (place, ended) in counts.iter().enumerate() {
            let (hog, go_on) = (&HOGS[place / OF_EACH], &go_on);
            scope.spawn(move || {
                let _all = Stop(go_on);
                run_again_and_again(hog, place, go_on, ended);
            });
        }
        let busy = || counts.iter().all(|ended| ended.load(Ordering::Relaxed) > 0);
        // Under load from the first question to the last: those that run for their time are there.
        eventually("those that last are under way", || running() >= 2 * OF_EACH);
        let times = ask(ROUNDS, || go_on.load(Ordering::Relaxed) && !busy());
        drop(stop);
        times
    });
    compare(&before, &meanwhile);
    let ended: Vec<_> = counts.iter().map(|ended| ended.load(Ordering::Relaxed)).collect();
    tell(&format!(
        "ended by their limits meanwhile (cpu, memory, fork, disk, output, two of each): {ended:?}"
    ));
    assert!(ended.iter().all(|ended| *ended > 0), "{ended:?}");

    // Nothing else was ended: no service, and by the kernel only what was in a command's own cgroup.
    assert_eq!(pids(), services, "{UNHARMED:?}");
    for unit in UNHARMED {
        assert_eq!(
            (state(unit), property(unit, "NRestarts")),
            ("active".to_owned(), "0".to_owned()),
            "{unit}"
        );
    }
    let said = journal_since(&since, "-k");
    let kills: Vec<_> = said.lines().filter(|line| line.contains("oom-kill:")).collect();
    assert!(!kills.is_empty(), "the memory hogs were not ended by the kernel: {said}");
    let in_a_command = |line: &&&str| {
        line.contains("constraint=CONSTRAINT_MEMCG")
            && line.contains("oom_memcg=/system.slice/cordon-executor.service/")
    };
    assert!(kills.iter().all(|line| in_a_command(&line)), "{kills:#?}");

    assert_eq!(member("cordon ps --json"), "[]");
    eventually("nothing of them is left", || sh("pgrep -u execuser").stdout.is_empty());
    assert_eq!(member("cordon run -- echo again"), "again", "{}", processes());
    ok("cordon audit verify; systemctl stop package-test-service");
}
