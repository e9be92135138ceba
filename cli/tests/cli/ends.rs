//! Every way a command can end has its exit status, in plain mode and as JSON.

use crate::fake::{Fake, error, exited, report, stderr};
use cordon_protocol::{EndedBy, Event, ExitReport, Hint, Refusal, RefusalCode};
use std::time::{Duration, Instant};

fn ends_with(report: ExitReport, arguments: &[&str]) -> (Option<i32>, String, String) {
    let fake = Fake::start(move |mut peer| peer.send(&exited(report)));
    let (output, ()) = fake.output(arguments);
    (output.status.code(), String::from_utf8(output.stdout.clone()).unwrap(), stderr(&output))
}

fn named(mut report: ExitReport, signal: Option<&str>, step: Option<&str>) -> ExitReport {
    report.signal = signal.map(str::to_owned);
    report.step = step.map(str::to_owned);
    report
}

#[test]
fn each_end_has_its_status_and_only_the_unplain_ones_a_line() {
    use EndedBy as E;
    let table = [
        (named(report(E::Exit, Some(0)), None, None), 0, ""),
        (named(report(E::Exit, Some(7)), None, None), 7, ""),
        (named(report(E::Signal, None), Some("SIGTERM"), None), 143, ""),
        (named(report(E::Signal, None), Some("SIGSEGV"), None), 139, ""),
        (named(report(E::WallTimeout, None), Some("SIGKILL"), None), 124, "wall_timeout after 1000 ms"),
        (named(report(E::CpuTimeout, None), Some("SIGKILL"), None), 124, "cpu_timeout after 20 ms"),
        (named(report(E::OutOfMemory, None), Some("SIGKILL"), None), 137, "out_of_memory"),
        (named(report(E::OutputLimit, None), Some("SIGKILL"), None), 141, "output_limit"),
        (named(report(E::DiskLimit, None), Some("SIGKILL"), None), 122, "disk_limit"),
        (named(report(E::Cancelled, None), Some("SIGKILL"), None), 130, "cancelled"),
        (named(report(E::LaunchFailed, Some(127)), None, Some("exec")), 127, "step exec"),
        (named(report(E::LaunchFailed, Some(126)), None, Some("exec")), 126, "step exec"),
        (named(report(E::LaunchFailed, None), None, Some("landlock")), 125, "step landlock"),
    ];
    for (report, status, says) in table {
        let (code, stdout, stderr) = ends_with(report.clone(), &["run", "-n", "--", "x"]);
        assert_eq!((code, stdout.as_str()), (Some(status), ""), "{report:?}");
        assert!(stderr.contains(says) && stderr.is_empty() == says.is_empty(), "{stderr}");
        assert!(stderr.lines().count() <= 1, "{stderr}");

        let (code, stdout, stderr) = ends_with(report.clone(), &["run", "--json", "-n", "--", "x"]);
        assert_eq!((code, stderr.as_str()), (Some(status), ""));
        assert_eq!(stdout.lines().count(), 1);
        assert_eq!(serde_json::from_str::<ExitReport>(&stdout).unwrap(), report);
    }
}

#[test]
fn the_executors_hint_is_the_remedy_and_cannot_steer_the_terminal() {
    let mut failed = named(report(EndedBy::LaunchFailed, Some(127)), None, Some("exec"));
    failed.hint =
        Some(Hint { layer: "exec".into(), what: "/no\x1b[2J: not found".into(), remedy: "fix it".into() });
    let (_, _, stderr) = ends_with(failed, &["run", "-n", "--", "x"]);
    assert_eq!(stderr, "cordon: launch failed at step exec: /no\\u{1b}[2J: not found; fix it\n");
}

#[test]
fn a_refusal_is_125_with_its_reason_and_remedy() {
    for arguments in [&["run", "--memory", "900G", "--", "x"][..], &["run", "--json", "-c", "x"]] {
        let fake = Fake::start(|mut peer| {
            let code = RefusalCode::LimitRefused;
            let message = "memory: 900G is above the ceiling of 2G".into();
            peer.send(&Event::Refused(Refusal { code, message, hint: Some("ask for 2G".into()) }));
        });
        let (output, ()) = fake.output(arguments);
        assert_eq!(output.status.code(), Some(125));
        let line = concat!(
            r#"{"error":{"code":"limit_refused","message":"memory: 900G is above the ceiling of 2G","hint":"ask for 2G"}}"#,
            "\n"
        );
        let json = arguments.contains(&"--json");
        assert_eq!(String::from_utf8_lossy(&output.stdout), if json { line } else { "" });
        let expected = "cordon: run refused (limit_refused): memory: 900G is above the ceiling of 2G\n  \
                        next: ask for 2G\n";
        assert_eq!(stderr(&output), expected);
    }
}

#[test]
fn a_connection_without_a_report_is_a_failure_not_a_success() {
    let fake = Fake::start(|mut peer| peer.send(&Event::Started { id: "1".into() }));
    let (output, ()) = fake.output(&["run", "-n", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("closed the connection without an answer"), "{}", stderr(&output));

    let fake = Fake::start(|mut peer| peer.send(&Event::Started { id: "1".into() }));
    let (output, ()) = fake.output(&["run", "--json", "-n", "--", "true"]);
    assert_eq!(
        (output.status.code(), error(&output)["code"].as_str()),
        (Some(125), Some("executor_unavailable"))
    );

    let fake = Fake::start(|mut peer| peer.send(&Event::Jobs(vec![])));
    let (output, ()) = fake.output(&["run", "-n", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("out of order"), "{}", stderr(&output));
}

#[test]
fn each_signal_closes_the_connection_and_has_its_status() {
    for (signal, expected) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        for answers in [true, false] {
            let fake = Fake::start(move |mut peer| {
                peer.send(&Event::Started { id: "1".into() });
                peer.send(&Event::Stdout(b"ready\n".to_vec()));
                assert_eq!(peer.next(), None, "closing is the only message");
                if answers {
                    peer.send(&exited(report(EndedBy::Cancelled, None)));
                }
            });
            let mut child = fake.cordon(&["run", "-n", "--", "sleep", "100"]).spawn().unwrap();
            wait_for_output(&mut child);
            kill(&child, signal);
            fake.finish();
            assert_eq!(crate::fake::status(&mut child), Some(expected), "{signal}");
        }
    }
}

#[test]
fn an_executor_that_does_not_react_is_not_waited_for_long_and_a_second_signal_ends_at_once() {
    let fake = Fake::start(|mut peer| {
        peer.send(&Event::Stdout(b"ready\n".to_vec()));
        assert_eq!(peer.next(), None);

        // Silent until the other side is gone for good.
        while peer.try_send(&Event::Started { id: "1".into() }).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut child = fake.cordon(&["run", "-n", "--", "sleep", "100"]).spawn().unwrap();
    wait_for_output(&mut child);
    let begin = Instant::now();
    kill(&child, "INT");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(child.try_wait().unwrap(), None, "the report is waited for");
    kill(&child, "INT");
    assert_eq!(crate::fake::status(&mut child), Some(130));
    assert!(begin.elapsed() < Duration::from_millis(1500), "{:?}", begin.elapsed());
    fake.finish();
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let fake = Fake::start(|mut peer| {
        peer.send(&Event::Stdout(b"ready\n".to_vec()));
        let (input, ended) = peer.stdin();
        peer.send(&exited(report(EndedBy::Exit, Some(i32::from(!ended)))));
        input
    });
    let binary = env!("CARGO_BIN_EXE_cordon");
    let mut child = std::process::Command::new("/bin/sh")
        .args(["-c", "trap '' HUP; exec \"$0\" run -- cat", binary])
        .env("CORDON_SOCKET", fake.socket())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_output(&mut child);
    kill(&child, "HUP");
    std::thread::sleep(Duration::from_millis(100));
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"still here").unwrap();
    drop(stdin);
    assert_eq!(crate::fake::status(&mut child), Some(0));
    assert_eq!(fake.finish(), b"still here");
}

/// Reads the line that says that the connection is served.
fn wait_for_output(child: &mut std::process::Child) {
    let mut line = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(&line, b"ready\n");
}

fn kill(child: &std::process::Child, signal: &str) {
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    let signal: nix::sys::signal::Signal = format!("SIG{signal}").parse().unwrap();
    nix::sys::signal::kill(pid, signal).unwrap();
}
