//! What an administrator does with the services: reload, stop under load, set the clock.

use crate::guest::{
    Host, MEMBER, Running, WITH_TOKEN, cursor, eventually, journal_since, main_pid, member, ok, post,
    processes, property, sandboxed, sh, state,
};
use serde_json::Value;

#[test]
fn a_reload_takes_over_profiles_and_disturbs_nothing() {
    let _host = Host::with_package();
    let pid = main_pid("cordon-executor");
    let running = Running::start("cordon run --timeout 1h -c 'sleep 86403 & wait; exit 3'");
    eventually("it runs", || sandboxed("sleep 86403"));
    ok(
        "printf '\\n[profiles.mine]\\nenv = { A = \"1\" }\\n' >>/etc/cordon/executor.toml; systemctl reload cordon-executor",
    );
    eventually("it is taken over", || property("cordon-executor", "StatusText").contains("2 profiles"));
    assert_eq!(member("cordon run --profile mine -c 'echo $A'"), "1");
    // A mistake changes nothing, and is told.
    ok("echo 'sokcet = 1' >>/etc/cordon/executor.toml; systemctl reload cordon-executor");
    eventually("it is told", || property("cordon-executor", "StatusText").contains("stays as it was"));
    assert_eq!(member("cordon run --profile mine -c 'echo $A'"), "1");
    assert_eq!((main_pid("cordon-executor"), state("cordon-executor")), (pid, "active".to_owned()));
    ok("pkill -u execuser -x -f 'sleep 86403'");
    assert_eq!(running.end().status, 3);
}

#[test]
fn stopped_under_load_it_ends_every_command_in_order_and_leaves_nothing() {
    let _host = Host::with_package();
    let running: Vec<_> = (0..6)
        .map(|_| Running::start("cordon run --timeout 1h --json -c 'echo began; sleep 86404'"))
        .collect();
    let body = r#"{"command": "sleep 86405", "timeout_ms": 3600000}"#;
    let over_http = std::thread::spawn(move || post(MEMBER, WITH_TOKEN, body));
    eventually("all run", || {
        sh("pgrep -u execuser -c -x -f 'sleep 86404'").stdout.trim() == "6" && sandboxed("sleep 86405")
    });
    let since = cursor();
    ok("systemctl stop cordon-executor.socket cordon-executor");
    for client in running {
        let ran = client.end();
        let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
        assert_eq!(
            (ran.status, &report["ended_by"], &report["stdout"]),
            (130, &"cancelled".into(), &"began\n".into())
        );
    }
    let (status, report) = over_http.join().unwrap();
    assert_eq!((status, &report["ended_by"]), (200, &"cancelled".into()), "{report}");
    // Of itself: systemd had nothing left to kill.
    assert_eq!(property("cordon-executor", "Result"), "success");
    let said = journal_since(&since, "-u cordon-executor");
    assert!(said.contains("running: 7 commands") && !said.contains("SIGKILL"), "{said}");
    assert_eq!(
        sh("ps -o pid,args -u execuser,cordon-init,cordon-exec").stdout.lines().skip(1).count(),
        0,
        "{}",
        processes()
    );
    assert_eq!(ok("find /sys/fs/cgroup -name 'cordon-executor.service'"), "");
    // The gateway is there, and says what is missing and how to start it.
    let (status, error) = post(MEMBER, WITH_TOKEN, r#"{"command": "true"}"#);
    assert_eq!(status, 503, "{error}");
    assert!(error["error"]["hint"].to_string().contains("systemctl start cordon-executor"), "{error}");
    ok("systemctl start cordon-executor");
    assert_eq!(post(MEMBER, WITH_TOKEN, r#"{"command": "true"}"#).0, 200);
    ok("cordon audit verify");
}

#[test]
fn a_clock_that_jumps_ends_nothing_early_and_nothing_late() {
    let _host = Host::with_package();
    let running = Running::start("cordon run --json --timeout 30m -- sleep 86406");
    eventually("it runs", || sandboxed("sleep 86406"));
    let pid = main_pid("cordon-executor");
    ok("date -s '+2 days'");
    // One that is to end soon does so by its own time, and the other goes on.
    let report: Value = serde_json::from_str(
        &crate::guest::run_as(MEMBER, "cordon run --json --timeout 3s -- sleep 86407").stdout,
    )
    .unwrap();
    assert_eq!(report["ended_by"], "wall_timeout", "{report}");
    assert!(sandboxed("sleep 86406"), "two days have passed, but not for it");
    ok("date -s '-2 days'");
    let report: Value = serde_json::from_str(
        &crate::guest::run_as(MEMBER, "cordon run --json --timeout 3s -- sleep 86407").stdout,
    )
    .unwrap();
    assert_eq!(report["ended_by"], "wall_timeout", "{report}");
    assert!(report["wall_ms"].as_f64().unwrap() >= 3000.0, "{report}");
    ok("pkill -u execuser -x -f 'sleep 86406'");
    let ran = running.end();
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&report["ended_by"], &report["signal"]), (&"signal".into(), &"SIGTERM".into()), "{report}");
    assert!(report["wall_ms"].as_f64().unwrap() < 86_400_000.0, "{report}");
    assert_eq!(main_pid("cordon-executor"), pid);
    ok("cordon audit verify");
}
