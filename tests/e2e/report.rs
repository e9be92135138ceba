//! The exit report: every field, and every cause of an end with its evidence.

use crate::harness::{
    client::{argv, line},
    eventually, host, lab, marker,
    process::sandboxed,
    shared,
};
use cordon_protocol::{
    CgroupMode, Encoding, EndedBy, ExitReport, LimitName, LimitRequest, NamespaceName, NetworkMode,
};
use std::{collections::BTreeSet, thread, time::Duration};

/// Fails unless the tree that has this marker is gone; it may be on its way when the report comes.
fn assert_gone(marker: &str) {
    eventually("the command's tree is gone", Duration::from_secs(5), || sandboxed(marker).is_empty());
}

fn assert_ended(report: &ExitReport, cause: EndedBy, limit: LimitName) {
    assert_eq!(report.ended_by, cause, "{report:?}");
    assert!(report.limits_hit.contains(&limit), "{report:?}");
    assert_eq!(report.exit_code, None, "an end that Cordon made has no exit code: {report:?}");
}

/// A hog had at least half of its limit; where the kernel holds it, the peak is known and never above it.
fn assert_peak(report: &ExitReport, limit: u64, hog: &str) {
    let peak = report.peak_memory_bytes;
    assert!(peak.is_none_or(|peak| peak >= limit / 2), "{hog}: {report:?}");
    if host::cgroup_mode() == CgroupMode::V2 {
        assert!(peak.is_some_and(|peak| peak <= limit), "{hog}: {report:?}");
    }
}

#[test]
fn a_report_has_exactly_the_fields_of_the_contract() {
    let ran = shared().run(&["--json", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!(ran.status, 3);
    let json: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let keys =
        |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let expected = |names: &str| names.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
    let fields = "id ended_by exit_code signal step stdout stderr stdout_encoding stderr_encoding stdout_bytes \
                  stderr_bytes stdout_truncated stderr_truncated wall_ms cpu_ms peak_memory_bytes limits_hit \
                  enforced hint";
    assert_eq!(keys(&json), expected(fields));
    let layers = "uid cgroup landlock_abi seccomp namespaces network capabilities";
    assert_eq!(keys(&json["enforced"]), expected(layers));
    for (field, value) in [
        ("ended_by", serde_json::json!("exit")),
        ("exit_code", 3.into()),
        ("signal", serde_json::Value::Null),
        ("step", serde_json::Value::Null),
        ("stdout", "out\n".into()),
        ("stderr", "err\n".into()),
        ("stdout_encoding", "utf-8".into()),
        ("stderr_encoding", "utf-8".into()),
        ("stdout_bytes", 4.into()),
        ("stderr_bytes", 4.into()),
        ("stdout_truncated", false.into()),
        ("stderr_truncated", false.into()),
        ("limits_hit", serde_json::json!([])),
        ("hint", serde_json::Value::Null),
    ] {
        assert_eq!(json[field], value, "{field}");
    }
    assert!(json["wall_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn enforced_says_what_this_host_can_hold() {
    let enforced = shared().report(&["--", "true"]).enforced;
    assert_eq!(enforced.uid, host::uid_of("execuser"));
    assert_eq!(enforced.cgroup, host::cgroup_mode());
    // The landlock crate knows the ABIs up to 10.
    assert_eq!(enforced.landlock_abi, host::landlock_abi().min(10));
    assert!(enforced.seccomp);
    let all = [
        NamespaceName::Pid,
        NamespaceName::Mount,
        NamespaceName::Ipc,
        NamespaceName::Uts,
        NamespaceName::Net,
    ];
    assert!(all.iter().all(|n| enforced.namespaces.contains(n)), "{:?}", enforced.namespaces);
    assert_eq!((enforced.network, enforced.capabilities), (NetworkMode::None, Vec::new()));
}

#[test]
fn every_run_has_an_id_of_its_own_and_the_started_event_has_the_same() {
    // Often, since the shortest commands end before anybody has looked.
    let events: Vec<_> = (0..100).map(|_| shared().events(argv(&["true"]))).collect();
    for events in &events {
        assert_eq!(events.started.as_ref(), Some(&events.report.id));
    }
    let ids: BTreeSet<_> = events.iter().map(|e| &e.report.id).collect();
    assert_eq!(ids.len(), events.len());
}

#[test]
fn a_signal_from_elsewhere_is_named() {
    for (signal, name) in [("TERM", "SIGTERM"), ("KILL", "SIGKILL"), ("SEGV", "SIGSEGV"), ("USR1", "SIGUSR1")]
    {
        let report = shared().report(&["-c", &format!("kill -{signal} $$")]);
        let seen = (report.ended_by, report.exit_code, report.signal.as_deref());
        assert_eq!(seen, (EndedBy::Signal, None, Some(name)));
    }
}

#[test]
fn a_tree_that_ignores_sigterm_ends_at_its_wall_time() {
    let marker = marker();
    let script = format!(
        "trap '' TERM HUP INT; (setsid bash -c \"trap '' TERM HUP; sleep {marker} & sleep {marker} & wait\" &) ; \
         sleep {marker} & wait"
    );
    let report = shared().report(&["--timeout", "1s", "-c", &script]);
    assert_ended(&report, EndedBy::WallTimeout, LimitName::Wall);
    assert!((1000.0..30_000.0).contains(&report.wall_ms), "{}", report.wall_ms);
    assert_gone(&marker);
}

#[test]
fn a_stopped_command_ends_at_its_wall_time() {
    let report = shared().report(&["--timeout", "500ms", "-c", "kill -STOP $$; sleep 1"]);
    assert_ended(&report, EndedBy::WallTimeout, LimitName::Wall);
}

#[test]
fn processor_time_counts_over_the_whole_tree() {
    let mut request = line("while :; do :; done & while :; do :; done & wait");
    request.limits =
        LimitRequest { cpu_time_ms: Some(600), wall_ms: Some(60_000), ..LimitRequest::default() };
    let report = shared().events(request).report;
    assert_ended(&report, EndedBy::CpuTimeout, LimitName::CpuTime);
    assert!((600.0..20_000.0).contains(&report.cpu_ms), "{}", report.cpu_ms);
}

#[test]
fn a_hog_ends_out_of_memory_whatever_it_is_written_in() {
    for hog in [
        "exec tail /dev/zero",
        "exec perl -e '$x .= \"a\" x 1048576 while 1'",
        "exec python3 -c 'x = []\nwhile True: x.append(bytearray(1 << 20))'",
        "a=xxxxxxxx; while :; do a=$a$a; done",
        // A file in /tmp is memory too.
        "head -c 200M /dev/zero > /tmp/file; sleep 20",
        // So is what is shared and lies in no file that has a name.
        "exec python3 -c 'import mmap, time\nm = mmap.mmap(-1, 200 << 20)\n[m.write(b\"x\" * (1 << 20)) for i in range(200)]\ntime.sleep(20)'",
    ] {
        let report = shared().report(&["--memory", "64M", "--timeout", "40s", "-c", hog]);
        assert_ended(&report, EndedBy::OutOfMemory, LimitName::Memory);
        assert_peak(&report, 64 << 20, hog);
    }
}

#[test]
fn a_hog_s_parent_does_not_survive_it() {
    let marker = marker();
    let script = format!("sleep {marker} & tail /dev/zero; echo survived; sleep 20");
    let report = shared().report(&["--memory", "64M", "--timeout", "40s", "-c", &script]);
    assert_ended(&report, EndedBy::OutOfMemory, LimitName::Memory);
    assert_eq!(report.stdout.as_deref(), Some(""));
    assert_gone(&marker);
}

#[test]
fn many_small_processes_are_counted_together() {
    let child = "python3 -c 'x = bytearray(12 << 20); import time; time.sleep(30)'";
    let script = format!("for i in 1 2 3 4 5 6 7 8; do {child} & done; wait");
    let report = shared().report(&["--memory", "64M", "--timeout", "40s", "-c", &script]);
    assert_ended(&report, EndedBy::OutOfMemory, LimitName::Memory);
}

#[test]
fn memory_is_counted_whatever_a_process_calls_itself() {
    // A name of bytes that are no text (prctl(2), PR_SET_NAME), which stands in its files in /proc.
    let hog = "import ctypes, time\nctypes.CDLL(None).prctl(15, b'\\xff\\xfe)\\n', 0, 0, 0)\n\
               x = bytearray(b'x') * (150 << 20)\ntime.sleep(20)";
    let report = shared().report(&["--memory", "64M", "--timeout", "40s", "--", "python3", "-c", hog]);
    assert_ended(&report, EndedBy::OutOfMemory, LimitName::Memory);
}

#[test]
fn memory_that_processes_share_counts_once() {
    let code = "import os, time\nx = bytearray(b'x') * (40 << 20)\n\
        for i in range(5):\n    if os.fork() == 0: time.sleep(1); os._exit(0)\n\
        for i in range(5): os.wait()\nprint(len(x))";
    let report = shared().report(&["--memory", "128M", "--timeout", "40s", "--", "python3", "-c", code]);
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(0)), "{report:?}");
}

#[test]
fn memory_below_the_limit_is_left_alone_and_its_peak_is_seen() {
    let code = "x = bytearray(b'x') * (60 << 20); import time; time.sleep(0.5); print(len(x))";
    let report = shared().report(&["--memory", "256M", "--", "python3", "-c", code]);
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(0)), "{report:?}");
    let peak = report.peak_memory_bytes.expect("known here");
    assert!((60 << 20..256 << 20).contains(&peak), "{peak}");
}

#[test]
fn endless_output_ends_at_its_limit() {
    let report = shared().report(&["--output", "1M", "--", "yes"]);
    assert_ended(&report, EndedBy::OutputLimit, LimitName::Output);
    assert!(report.stdout_bytes >= 1 << 20, "{}", report.stdout_bytes);
    // Both streams count together.
    let report = shared().report(&["--output", "1M", "-c", "head -c 700K /dev/zero; yes >&2"]);
    assert_ended(&report, EndedBy::OutputLimit, LimitName::Output);
    assert_eq!(report.stdout_bytes, 700 << 10);
    // Exactly the limit is allowed.
    let report = shared().report(&["--output", "1M", "--", "head", "-c", "1M", "/dev/zero"]);
    assert_eq!((report.ended_by, report.stdout_bytes), (EndedBy::Exit, 1 << 20));
}

#[test]
fn a_killed_command_reports_that_it_was_cancelled() {
    let marker = marker();
    let script = format!("sleep {marker} & sleep {marker}");
    let waiting = thread::spawn(move || shared().report(&["-c", &script]));
    eventually("the command runs", Duration::from_secs(20), || sandboxed(&marker).len() == 3);
    let jobs = cordon_protocol::client::blocking::ps(&shared().socket, "test").unwrap();
    let job = jobs.iter().find(|j| j.command.contains(&marker)).expect("it is listed");
    cordon_protocol::client::blocking::kill(&shared().socket, "test", &job.id).unwrap();
    let report = waiting.join().unwrap();
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Cancelled, None));
    assert_eq!(report.id, job.id);
    assert_gone(&marker);
}

#[test]
fn a_program_that_cannot_be_executed_is_a_failed_launch_in_step_exec() {
    for (program, code) in
        [("/no/such/program", 127), ("no-such-program", 127), ("/etc", 126), ("/etc/passwd", 126)]
    {
        let report = shared().report(&["--", program]);
        let seen = (report.ended_by, report.exit_code, report.step.as_deref());
        assert_eq!(seen, (EndedBy::LaunchFailed, Some(code), Some("exec")), "{program}");
        assert_eq!((report.stdout.as_deref(), report.stdout_bytes), (Some(""), 0));
        // Often: the word of what failed and the end of the process that said it come at once.
        for _ in 0..50 {
            let events = shared().events(argv(&[program]));
            assert_eq!(events.started, None, "nothing was executed");
            let seen = (events.report.ended_by, events.report.exit_code);
            assert_eq!(seen, (EndedBy::LaunchFailed, Some(code)), "{program}");
        }
    }
}

#[test]
fn a_fork_bomb_hits_pids_and_its_neighbour_does_not_notice() {
    let bomb = thread::spawn(|| {
        shared().report(&["--pids", "32", "--timeout", "4s", "-c", "b() { b | b & }; b; sleep 30"])
    });
    for _ in 0..5 {
        shared().assert_works();
    }
    let report = bomb.join().unwrap();
    assert!(report.limits_hit.contains(&LimitName::Pids), "{report:?}");
}

#[test]
fn processes_up_to_the_limit_are_allowed() {
    let script = "for i in $(seq 20); do sleep 0.3 & done; wait; echo done";
    let report = shared().report(&["--pids", "32", "-c", script]);
    assert_eq!((report.stdout.as_deref(), report.limits_hit.len()), (Some("done\n"), 0), "{report:?}");
}

#[test]
fn a_file_that_grows_too_large_is_reported() {
    let report =
        lab().report(&["--profile", "tiny", "--", "dd", "if=/dev/zero", "of=file", "bs=64K", "count=64"]);
    let seen = (report.ended_by, report.signal.as_deref());
    assert_eq!(seen, (EndedBy::Signal, Some("SIGXFSZ")), "{report:?}");
    assert!(report.limits_hit.contains(&LimitName::FileSize), "{report:?}");
    // The default profile's is there to be reached, where the workspace is no smaller or the file has holes.
    for workspace in [&["--workspace", "large"][..], &[]] {
        let truncate = |size| lab().report(&[workspace, &["--", "truncate", "-s", size, "file"]].concat());
        assert_eq!(truncate("1G").exit_code, Some(0));
        let report = truncate("1025M");
        assert_eq!(report.signal.as_deref(), Some("SIGXFSZ"), "{report:?}");
        assert_eq!(report.limits_hit, [LimitName::FileSize], "{report:?}");
        assert!(report.hint.is_some_and(|hint| hint.what.contains("1G (file_size)")));
    }
    // Of another process the kernel counts nothing; a status that could have any reason does not say that it was.
    for line in ["truncate -s 1025M file; exit $?", "exit 153"] {
        let report = lab().report(&["-c", line]);
        assert_eq!((report.exit_code, report.limits_hit), (Some(153), vec![]), "{line}");
    }
    let within = lab().report(&["--profile", "tiny", "-c", "head -c 1M /dev/zero > file; stat -c %s file"]);
    assert_eq!(within.stdout.as_deref(), Some("1048576\n"));
    assert_eq!(within.limits_hit, []);
}

#[test]
fn head_and_tail_are_kept_and_totals_are_right_to_the_byte() {
    let report = shared().report(&["--capture", "1000", "--", "seq", "100000"]);
    let text = report.stdout.unwrap();
    assert!(report.stdout_truncated && !report.stderr_truncated);
    assert_eq!(report.stdout_bytes, 588_895);
    assert!(text.starts_with("1\n2\n3\n") && text.ends_with("99999\n100000\n"), "{text}");
    assert!((800..1200).contains(&text.len()), "{}", text.len());
    let script = "head -c 1234567 /dev/urandom; head -c 54321 /dev/zero >&2";
    let report = shared().report(&["-c", script]);
    assert_eq!((report.stdout_bytes, report.stderr_bytes), (1_234_567, 54_321));
    assert!(report.stdout_truncated && !report.stderr_truncated);
}

#[test]
fn what_is_over_the_output_limit_is_never_a_success_however_soon_the_command_ended() {
    for _ in 0..40 {
        let ran = shared().run(&["--output", "2", "--", "echo", "hi"]);
        assert_eq!((ran.status, &ran.stdout[..]), (141, &b"hi"[..]), "{}", ran.stderr);
        let report = shared().report(&["--output", "2", "--", "echo", "hi"]);
        assert_eq!((report.ended_by, report.stdout_bytes), (EndedBy::OutputLimit, 3), "{report:?}");
    }
    assert_eq!(shared().run(&["--output", "3", "--", "echo", "hi"]).status, 0, "not over it");
}

#[test]
fn exactly_what_may_be_captured_is_not_cut() {
    let report = shared().report(&["--capture", "5000", "--", "head", "-c", "5000", "/dev/zero"]);
    assert!(!report.stdout_truncated && report.stdout.unwrap().len() == 5000);
    let report = shared().report(&["--capture", "5000", "--", "head", "-c", "5001", "/dev/zero"]);
    assert!(report.stdout_truncated && report.stdout_bytes == 5001);
}

#[test]
fn a_cut_never_splits_a_character() {
    for capture in ["1000", "1001", "1002", "1003", "1004"] {
        for character in ["ä", "€", "😀"] {
            let script = format!("printf x; for i in $(seq 3000); do printf {character}; done");
            let report = shared().report(&["--capture", capture, "-c", &script]);
            assert!(report.stdout_truncated);
            assert_eq!(report.stdout_encoding, Encoding::Utf8, "{capture} {character}");
            let text = report.stdout.unwrap();
            assert!(!text.contains('\u{fffd}') && text.ends_with(character), "{text}");
            assert!(text.matches(character).count() * character.len() > 900, "{text}");
        }
    }
}

#[test]
fn captured_bytes_are_exact_whatever_they_are() {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 99)";
    let report = shared().report(&["--", "python3", "-c", code]);
    assert_eq!(report.stdout_encoding, Encoding::Base64);
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(STANDARD.decode(report.stdout.unwrap()).unwrap(), all.repeat(99));
    // A NUL is text as well as any.
    let report = shared().report(&["-c", "printf 'a\\0b'"]);
    assert_eq!((report.stdout.as_deref(), report.stdout_encoding), (Some("a\0b"), Encoding::Utf8));
}

#[test]
fn streamed_output_comes_as_events_and_captured_output_in_the_report_only() {
    let mut request = line("echo out; echo err >&2");
    let captured = shared().events(request.clone());
    assert_eq!((captured.stdout.len(), captured.stderr.len()), (0, 0));
    assert_eq!(captured.report.stdout.as_deref(), Some("out\n"));
    request.stream = true;
    let streamed = shared().events(request);
    assert_eq!((&streamed.stdout[..], &streamed.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    let report = streamed.report;
    assert_eq!((report.stdout, report.stderr, report.stdout_bytes, report.stderr_bytes), (None, None, 4, 4));
}

#[test]
fn processor_time_is_that_of_the_tree() {
    let busy = "import time\nwhile time.process_time() < 0.3: pass";
    let script = format!("python3 -c '{busy}'; python3 -c '{busy}'");
    let report = shared().report(&["-c", &script]);
    assert!((600.0..5000.0).contains(&report.cpu_ms), "{}", report.cpu_ms);
}

#[test]
fn a_peak_of_memory_that_nobody_saw_is_unknown_and_never_nothing() {
    let up = shared();
    let peaks: Vec<_> = (0..100).map(|_| up.report(&["--", "true"]).peak_memory_bytes).collect();
    assert!(peaks.iter().all(|peak| *peak != Some(0)), "{peaks:?}");
    // The control: of what is there for a while there is one.
    let peak = up.report(&["-c", "sleep 0.5; :"]).peak_memory_bytes;
    assert!(peak.is_some_and(|peak| peak > 4096), "{peak:?}");
}
