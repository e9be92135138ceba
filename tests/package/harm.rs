//! What befalls the services: halves killed, hung or out of memory, a disk that is full or read-only.

use crate::guest::{
    Host, MEMBER, Running, WITH_TOKEN, await_other, cursor, eventually, journal, journal_since, main_pid,
    member, ok, page_lines, post, property, run_as, sandboxed, server_pid, sh, state,
};
use serde_json::Value;

/// The executor is another one than before, works, and has nothing left of the command `sleep` that ran.
fn has_come_back(than: i32, running: Running, sleep: &str) {
    await_other("cordon-executor.service", than);
    eventually("the command is gone", || !sandboxed(sleep));
    // Its client is told that there is no report, instead of waiting for one.
    let ran = running.end();
    assert_eq!(ran.status, 125, "{ran:?}\n{}", journal());
    assert_eq!(member("cordon run -- echo again"), "again");
    assert_eq!(post(MEMBER, WITH_TOKEN, r#"{"command": "true"}"#).0, 200);
    // Restarted by systemd, not started by the next client.
    assert_ne!(property("cordon-executor", "NRestarts"), "0");
    ok("cordon audit verify");
}

#[test]
fn either_half_killed_takes_the_commands_along_and_comes_back() {
    for half in ["monitor", "server"] {
        let _host = Host::with_package();
        let running = Running::start("cordon run --timeout 1h -- sleep 86410");
        eventually("it runs", || sandboxed("sleep 86410"));
        let monitor = main_pid("cordon-executor");
        let victim = if half == "monitor" { monitor } else { server_pid() };
        ok(&format!("kill -KILL {victim}"));
        has_come_back(monitor, running, "sleep 86410");
    }
}

#[test]
fn the_gateway_killed_comes_back_and_its_command_ends() {
    let _host = Host::with_package();
    let body = r#"{"command": "sleep 86411", "timeout_ms": 3600000}"#;
    let client = std::thread::spawn(move || post(MEMBER, WITH_TOKEN, body));
    eventually("it runs", || sandboxed("sleep 86411"));
    let gateway = main_pid("cordon-gateway");
    ok(&format!("kill -KILL {gateway}"));
    await_other("cordon-gateway.service", gateway);
    assert_eq!(client.join().unwrap().0, 0, "the connection was cut");
    eventually("the command is gone", || !sandboxed("sleep 86411"));
    assert_eq!(post(MEMBER, WITH_TOKEN, r#"{"command": "true"}"#).0, 200);
    assert_eq!(post(MEMBER, crate::guest::LOCAL, r#"{"command": "true"}"#).0, 200);
}

#[test]
fn a_half_that_hangs_is_noticed_by_the_watchdog() {
    let host = Host::with_package();
    host.amend("cordon-executor.service", "[Service]\nWatchdogSec=15\n");
    ok("systemctl restart cordon-executor");
    let fed = || property("cordon-executor", "WatchdogTimestampMonotonic");
    // One that is well is fed again and again.
    for _ in 0..2 {
        let last = fed();
        eventually("the watchdog is fed", || fed() != last);
    }
    for half in ["monitor", "server"] {
        let running = Running::start("cordon run --timeout 1h -- sleep 86412");
        eventually("it runs", || sandboxed("sleep 86412"));
        let monitor = main_pid("cordon-executor");
        let victim = if half == "monitor" { monitor } else { server_pid() };
        let since = cursor();
        ok(&format!("kill -STOP {victim}"));
        has_come_back(monitor, running, "sleep 86412");
        let said = journal_since(&since, "-u cordon-executor");
        assert!(said.contains("Watchdog timeout"), "{half}: {said}");
    }
}

#[test]
fn the_server_half_out_of_memory_comes_back_and_a_command_out_of_memory_is_its_own_affair() {
    let _host = Host::with_package();
    let monitor = main_pid("cordon-executor");
    let hog = "cordon run --json --memory 32M -- python3 -c 'x = bytearray(b\"x\") * (100 << 20)'";
    let report: Value = serde_json::from_str(&run_as(MEMBER, hog).stdout).unwrap();
    assert_eq!(report["ended_by"], "out_of_memory", "{report}");
    assert_eq!((main_pid("cordon-executor"), state("cordon-executor")), (monitor, "active".to_owned()));

    let running = Running::start("cordon run --timeout 1h -- sleep 86413");
    eventually("it runs", || sandboxed("sleep 86413"));
    let server = server_pid();
    let own = ok(&format!("sed -n 's/^0:://p' /proc/{server}/cgroup"));
    assert!(own.ends_with("/supervisor"), "{own}");
    let since = cursor();
    ok(&format!(
        "echo 1000 >/proc/{server}/oom_score_adj; echo 100K >/sys/fs/cgroup{own}/memory.high; echo 100K >/sys/fs/cgroup{own}/memory.max"
    ));
    has_come_back(monitor, running, "sleep 86413");
    let said = journal_since(&since, "-k");
    assert!(said.contains(&format!("Killed process {server} (cordon-executor)")), "{said}");
}

#[test]
fn on_a_full_disk_nothing_runs_unrecorded() {
    let _host = Host::with_package();
    let monitor = main_pid("cordon-executor");
    // What is left of the trail's last block takes a few lines still.
    let run = || -> Value {
        serde_json::from_str(&run_as(MEMBER, "cordon run --json -- echo ran").stdout).unwrap()
    };
    ok(
        "fallocate -l $(($(stat -f -c '%a * %S' /var/log))) /var/log/filling; cat /dev/zero >/var/log/filling.rest || true",
    );
    let mut report = run();
    eventually("a command is refused", || {
        report = run();
        report["ended_by"] == "launch_failed"
    });
    assert_eq!((&report["step"], &report["stdout"]), (&"audit".into(), &"".into()), "{report}");
    assert_eq!((main_pid("cordon-executor"), state("cordon-executor")), (monitor, "active".to_owned()));
    assert_eq!(member("cordon ps --json"), "[]");
    ok("rm /var/log/filling*");
    assert_eq!(run()["stdout"], "ran\n");
    ok("cordon audit verify");
}

#[test]
fn on_a_disk_that_has_become_read_only_nothing_runs_unrecorded() {
    let _host = Host::with_package();
    let monitor = main_pid("cordon-executor");
    // As the kernel does it after an error of the disk: with files open for writing.
    ok("echo u >/proc/sysrq-trigger");
    eventually("it is read-only", || ok("findmnt -n -o OPTIONS /").starts_with("ro"));
    let ran = run_as(MEMBER, "cordon run --json -- echo ran");
    let writable = sh(
        "mount -o remount,rw / && for at in /mnt/*; do ! mountpoint -q $at || mount -o remount,rw $at; done",
    );
    assert_eq!(writable.status, 0, "{writable:?}");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    assert_eq!(
        (&report["ended_by"], &report["step"]),
        (&"launch_failed".into(), &"audit".into()),
        "{report}"
    );
    assert_eq!(main_pid("cordon-executor"), monitor);
    assert_eq!(member("cordon run -- echo again"), "again");
    ok("cordon audit verify");
}

#[test]
fn with_a_read_only_var_it_does_not_start_and_says_why_and_the_page_has_the_way_back() {
    let host = Host::with_package();
    // Ten tries take more than a minute where the processor is slow.
    host.amend("cordon-executor.service", "[Unit]\nStartLimitIntervalSec=1800\n");
    ok("systemctl stop cordon-executor.socket cordon-executor");
    ok("mount --bind /var /var; mount -o remount,ro,bind /var");
    let since = cursor();
    ok("systemctl start cordon-executor.socket");
    // Its socket is closed after the last try, so that the client is told.
    let refused = run_as(MEMBER, "cordon run -- true");
    eventually("it is given up", || state("cordon-executor.socket") == "failed");
    let again = sh("systemctl start cordon-executor");
    ok("umount /var");
    assert_eq!(refused.status, 125, "{refused:?}");
    assert_ne!(again.status, 0);
    let said = journal_since(&since, "-u cordon-executor");
    assert!(said.contains("/var/") && said.contains("Read-only file system"), "{said}");
    // The cause is mended, and that alone does not do.
    sh("systemctl start cordon-executor.socket");
    assert_ne!(sh("systemctl start cordon-executor").status, 0, "the control");
    ok(&page_lines("reset-failed"));
    assert_eq!(member("cordon run -- echo again"), "again");
}
