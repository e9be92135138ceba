//! Commands that cannot be run, and limits and directories that cannot be had.

use super::*;
use crate::harness::{
    client::{argv, line},
    http::send,
    lab::{self, lab},
    process::run,
    shared,
    wire::{Wire, frame},
};
use cordon_protocol::{
    EndedBy, LimitRequest, RefusalCode, Request,
    codec::encode_payload,
    limits::{self, ARGUMENT_MAX_BYTES},
};
use serde_json::json;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

#[test]
fn empty_commands_are_refused_at_every_door() {
    assert_says(&shared().refusal(argv(&[])), &["bad_request", "argv"]);
    assert_says(&shared().refusal(argv(&[""])), &["bad_request", "argv"]);
    assert_says(&shared().refusal(line("")), &["bad_request", "command"]);
    for arguments in [&["--"][..], &[], &["-c", ""], &["--", ""]] {
        let ran = shared().run(arguments);
        assert_eq!(ran.status, 125, "{arguments:?}: {ran:?}");
        assert!(!ran.stderr.is_empty() && ran.stdout.is_empty());
    }
    for body in [json!({"argv": []}), json!({"argv": [""]}), json!({"command": ""}), json!({})] {
        shared().post(&body).error(400);
    }
}

#[test]
fn nul_bytes_are_refused_where_a_program_would_lose_them() {
    assert_says(&shared().refusal(argv(&["echo", "a\0b"])), &["bad_request", "argv[1]", "NUL"]);
    assert_says(&shared().refusal(line("echo a\0b")), &["bad_request", "command", "NUL"]);
    for (name, value) in [("A", "x\0y"), ("A\0B", "x"), ("A=B", "x"), ("", "x")] {
        let mut request = argv(&["env"]);
        request.env = vec![(name.to_owned(), value.to_owned())];
        assert_says(&shared().refusal(request), &["bad_request", "env"]);
    }
    let mut request = argv(&["pwd"]);
    request.cwd = Some("/tmp\0/x".to_owned());
    assert_says(&shared().refusal(request), &["bad_request", "cwd"]);
    let (code, message) = shared().post(&json!({"argv": ["echo", "a\0b"]})).error(400);
    assert_eq!(code, "bad_request");
    assert_says(&message, &["argv[1]", "NUL"]);
}

#[test]
fn invalid_utf8_is_refused() {
    let mut command = shared().cordon(&["run", "--", "echo"]);
    command.arg(OsStr::from_bytes(b"a\xffb"));
    let ran = run(command, &[]);
    assert_eq!((ran.status, ran.stdout.len()), (125, 0), "{ran:?}");
    assert_says(&ran.stderr, &["ARG 1: `a\\xffb` is not UTF-8", "next: send text"]);
    // The same text in a frame: replace a letter of a valid one.
    let mut payload = encode_payload(&Request::Run(Box::new(argv(&["echo", "QQQ"])))).unwrap();
    let at = payload.windows(3).position(|w| w == b"QQQ").unwrap();
    payload[at] = 0xff;
    let mut wire = Wire::greeted(&shared().socket);
    wire.send_bytes(&frame(&payload));
    let refusal = wire.refusal();
    assert_eq!(refusal.code, RefusalCode::BadRequest);
    assert_says(&refusal.message, &["argv[1]: is not UTF-8: byte 0 of ", "is 0xff"]);
    assert_says(refusal.hint.as_deref().unwrap(), &["standard input"]);
    let body = send(
        shared()
            .request("POST", "/v1/exec")
            .header("Content-Type", "application/json")
            .body(&b"{\"command\":\"\xff\"}"[..]),
    );
    body.error(400);
    shared().assert_works();
}

#[test]
fn arguments_are_taken_up_to_what_a_program_can_get_and_no_further() {
    let longest = "x".repeat(ARGUMENT_MAX_BYTES - 1);
    let report = shared().events(argv(&["printf", "%s", &longest])).report;
    assert_eq!((report.stdout_bytes, report.exit_code), ((ARGUMENT_MAX_BYTES - 1) as u64, Some(0)));
    let longer = "x".repeat(ARGUMENT_MAX_BYTES);
    assert_says(&shared().refusal(argv(&["printf", "%s", &longer])), &["bad_request", "argv[2]", "limit"]);
    let mut request = argv(&["env"]);
    request.env = vec![("A".to_owned(), longer.clone())];
    assert_says(&shared().refusal(request), &["bad_request", "env", "limit"]);
    // All together: more than execve(2) takes, none of them too long.
    let piece = "x".repeat(100_000);
    let mut many = vec!["true"];
    many.resize(22, &piece);
    assert_says(&shared().refusal(argv(&many)), &["bad_request", "limit"]);
    many.truncate(19);
    assert_eq!(shared().events(argv(&many)).report.exit_code, Some(0));
    shared().post(&json!({"argv": ["true", longer]})).error(400);
}

#[test]
fn many_short_arguments_are_refused_rather_than_lost() {
    let many = vec!["x"; 400_000];
    assert_says(&shared().refusal(argv(&[&["true"], &many[..]].concat())), &["bad_request"]);
    shared().assert_works();
}

#[test]
fn limits_that_are_zero_negative_or_absurd_are_refused_with_limit_value_and_ceiling() {
    type Set = fn(&mut LimitRequest, u64);
    let fields: [(&str, Set, bool); 7] = [
        ("wall", |l, v| l.wall_ms = Some(v), true),
        ("cpu_time", |l, v| l.cpu_time_ms = Some(v), true),
        ("memory", |l, v| l.memory_bytes = Some(v), true),
        ("pids", |l, v| l.pids = Some(v), true),
        ("cpu", |l, v| l.cpu_percent = Some(v), true),
        ("output", |l, v| l.output_bytes = Some(v), false),
        ("capture", |l, v| l.capture_bytes = Some(v), false),
    ];
    for (name, set, has_floor) in fields {
        let refusal = |value| {
            let mut request = argv(&["true"]);
            set(&mut request.limits, value);
            shared().refusal(request)
        };
        assert_says(&refusal(u64::MAX), &["limit_refused", name]);
        assert_says(&refusal(u64::MAX / 2), &["limit_refused", name]);
        if has_floor {
            assert_says(&refusal(0), &["limit_refused", name, "0"]);
        }
    }
    for (option, field, values) in [
        ("--memory", "memory", &["900G", "-5", "0", "1T", "", "1.5G", "99999999999999999999"][..]),
        ("--timeout", "timeout", &["0s", "2h", "60", "-1s", "forever"]),
        ("--pids", "pids", &["0", "5000", "-1", "many"]),
        ("--output", "output", &["17G", "-1"]),
        ("--capture", "capture", &["9M", "-1"]),
    ] {
        for value in values {
            let ran = shared().run(&[&format!("{option}={value}"), "--", "echo", "ran"]);
            assert_eq!((ran.status, ran.stdout.len()), (125, 0), "{option}={value}: {ran:?}");
            assert_says(&ran.stderr, &[field]);
        }
    }
    // A value that looks like an option is no value.
    let ran = shared().run(&["--memory", "-5", "--", "echo", "ran"]);
    assert_eq!((ran.status, ran.stdout.len()), (125, 0), "{ran:?}");
    let ran = shared().run(&["--memory", "900G", "--", "true"]);
    assert_says(&ran.stderr, &["memory", "900G", "2G"]);
}

#[test]
fn each_door_names_its_own_field() {
    // The option, the body's field, a value that is too much in either, and as the answer shows it.
    for (option, field, (said, sent), (shown, number)) in [
        ("--timeout", "timeout_ms", ("2h", 7_200_000_u64), ("2h", "7200000 (2h)")),
        ("--memory", "memory_bytes", ("3G", 3 << 30), ("3G", "3221225472 (3G)")),
        ("--pids", "pids", ("5000", 5000), ("5000", "5000")),
        ("--output", "output_bytes", ("17G", 17 << 30), ("17G", "18253611008 (17G)")),
        ("--capture", "capture_bytes", ("9M", 9 << 20), ("9M", "9437184 (9M)")),
    ] {
        let ran = shared().run(&[option, said, "--", "true"]);
        assert_says(&ran.stderr, &[&format!("{option}: {shown} is above the ceiling")]);
        let (code, message) = shared().post(&json!({"argv": ["true"], field: sent})).error(400);
        assert_eq!(code, "limit_refused");
        assert!(message.starts_with(&format!("{field}: {number} is above the ceiling")), "{message}");
    }
    for (arguments, says) in [
        (&["-c", ""][..], "): -c: is empty"),
        (&["--", ""], "): CMD: is empty"),
        (&["--cwd", "work", "--", "true"], "): --cwd: `work` is not"),
        (&["--env", "A=1", "--env", "A=2", "--", "true"], "): --env: `A` is given twice"),
        (&["--profile", "none", "--", "true"], "): --profile: there is no profile `none`"),
    ] {
        assert_says(&shared().run(arguments).stderr, &[says]);
    }
}

#[test]
fn a_line_that_is_too_long_is_named_as_it_was_sent() {
    let line = format!("#{}", "x".repeat(ARGUMENT_MAX_BYTES));
    let (code, message) = shared().post(&json!({ "command": line })).error(400);
    assert_eq!(code, "bad_request");
    assert!(message.starts_with("command: has 131074 bytes with its terminator"), "{message}");
    let ran = shared().run(&["--memory", "99999999999999999999G", "--", "true"]);
    assert_eq!(ran.status, 125);
    assert_says(&ran.stderr, &["99999999999999999999G", "is too large, the most that can be said is"]);
}

#[test]
fn what_ended_a_command_can_be_raised_at_the_door_it_came_by() {
    let remedy = |body| shared().post(&body).json()["hint"]["remedy"].as_str().unwrap().to_owned();
    for (body, says) in [
        (json!({"argv": ["sleep", "60"], "timeout_ms": 100}), "timeout_ms, up to 3600000 (1h)"),
        (json!({"argv": ["yes"], "output_bytes": 100}), "output_bytes, up to 17179869184 (16G)"),
    ] {
        assert_eq!(remedy(body), format!("raise it with {says}"));
    }
    let ran = shared().run(&["--timeout", "100ms", "--", "sleep", "60"]);
    assert_says(&ran.stderr, &["raise it with --timeout, up to 1h"]);
}

#[test]
fn a_working_directory_outside_the_profile_runs_nothing() {
    let _verdict = crate::escape::probe!();
    for cwd in [
        "/no/such/directory",
        "/etc/passwd",
        "/root",
        "/var",
        "/proc/self/fd/3",
        "/proc/1/root",
        "/proc/self/cwd",
        "relative",
        "",
        "/tmp/../root",
        "/dev/fd/3",
    ] {
        let ran = shared().run(&["--cwd", cwd, "--", "echo", "ran"]);
        assert_eq!((ran.status, ran.stdout.len()), (125, 0), "{cwd}: {ran:?}");
        let named = ran.stderr.contains("cwd") || (!cwd.is_empty() && ran.stderr.contains(cwd));
        assert!(named, "{cwd}: {}", ran.stderr);
        let mut request = argv(&["echo", "ran"]);
        request.cwd = Some(cwd.to_owned());
        if let Ok(events) = shared().ask(request) {
            let report = events.report;
            assert_eq!((report.ended_by, events.started), (EndedBy::LaunchFailed, None), "{cwd}");
            assert!(
                report.step.as_deref().is_some_and(|s| s != "exec") && report.stdout_bytes == 0,
                "{report:?}"
            );
        }
    }
    let long = format!("/{}", "x/".repeat(limits::CWD_MAX_BYTES));
    let mut request = argv(&["pwd"]);
    request.cwd = Some(long);
    assert_says(&shared().refusal(request), &["bad_request", "cwd"]);
    for cwd in ["/tmp", "/usr/share", "/home/execuser"] {
        assert_eq!(shared().run(&["--cwd", cwd, "--", "pwd"]).text(), format!("{cwd}\n"));
    }
}

#[test]
fn a_link_leads_no_working_directory_out_of_the_profile() {
    let _verdict = crate::escape::probe!();
    let run = |cwd: &std::path::Path| {
        lab().run(&[
            "--profile",
            "probe",
            "--cwd",
            &cwd.to_string_lossy(),
            "--",
            "readlink",
            "/proc/self/cwd",
        ])
    };
    let (within, out) = (lab::link("within", "/usr/share"), lab::link("out", "/dev/shm"));
    assert_eq!(run(&within).text(), "/usr/share\n", "the control");
    let ran = run(&out);
    assert_eq!((ran.status, ran.stdout.len()), (125, 0), "{ran:?}");
    assert_says(&ran.stderr, &["cwd", "/dev/shm", "outside the profile"]);
}

#[test]
fn what_cannot_be_executed_says_why() {
    let plain = lab::script("plain", "#!/bin/sh\necho ran\n", 0o644);
    let orphan = lab::script("orphan", "#!/no/such/interpreter\necho ran\n", 0o755);
    let text = lab::script("text", "\u{1}not a program\n", 0o755);
    let (plain, orphan, text) = (plain.to_string_lossy(), orphan.to_string_lossy(), text.to_string_lossy());
    for (program, status, word) in [
        ("/no/such/program", 127, "not found"),
        ("no-such-program", 127, "not found"),
        ("/usr/bin", 126, "directory"),
        (&*plain, 126, "execut"),
        (&*orphan, 126, "interpreter"),
        (&*text, 126, "program"),
    ] {
        let ran = lab().run(&["--profile", "probe", "--", program]);
        assert_eq!((ran.status, ran.stdout.len()), (status, 0), "{program}: {ran:?}");
        assert_says(&ran.stderr, &[program, word]);
    }
}
