//! Bad input: a clear error, nothing run, and the next command works.

use crate::harness::{
    Executor, PATIENCE, Up,
    client::{argv, line, public_copy},
    daemon::open_directory,
    eventually, host,
    http::{request_bytes, send},
    lab::{self, STRANGER, lab},
    process::run,
    shared,
    wire::{Wire, frame, hello},
};
use cordon_protocol::{
    EndedBy, Event, LimitRequest, RefusalCode, Request,
    codec::encode_payload,
    limits::{self, ARGUMENT_MAX_BYTES, PROTOCOL_VERSION},
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;
use std::{
    ffi::OsStr,
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::{ffi::OsStrExt, net::UnixStream},
    time::Duration,
};

fn assert_says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

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
    assert_says(&ran.stderr, &["UTF-8"]);
    // The same text in a frame: replace a letter of a valid one.
    let mut payload = encode_payload(&Request::Run(Box::new(argv(&["echo", "QQQ"])))).unwrap();
    let at = payload.windows(3).position(|w| w == b"QQQ").unwrap();
    payload[at] = 0xff;
    let mut wire = Wire::greeted(&shared().socket);
    wire.send_bytes(&frame(&payload));
    assert_eq!(wire.refusal().code, RefusalCode::BadFrame);
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
fn what_a_body_may_not_say_is_refused() {
    for (body, words) in [
        (json!({"command": "true", "argv": ["true"]}), &["command", "argv"][..]),
        (json!({"command": "true", "comand": "true"}), &["comand"]),
        (json!({"command": "true", "profile": "nope"}), &["nope"]),
        (json!({"command": 5}), &["command"]),
        (json!({"argv": "true"}), &["argv"]),
        (json!({"argv": [1]}), &["argv"]),
        (json!({"command": "true", "memory_bytes": -1}), &["memory_bytes"]),
        (json!({"command": "true", "memory_bytes": 1.5}), &["memory_bytes"]),
        (json!({"command": "true", "timeout_ms": "1s"}), &["timeout_ms"]),
        (json!({"command": "true", "timeout_ms": 0}), &["wall"]),
        (json!({"command": "true", "pids": 0}), &["pids"]),
        (json!({"command": "true", "memory_bytes": 0}), &["memory"]),
        (json!({"command": "true", "memory_bytes": u64::MAX}), &["memory", "2G"]),
        (json!({"command": "true", "memory_bytes": 3_221_225_472_u64}), &["memory", "3G", "2G"]),
        (json!({"command": "true", "capture_bytes": 16 << 20}), &["capture", "16M", "8M"]),
        (json!({"command": "true", "stdin": {"base64": "***"}}), &["base64"]),
        (json!({"command": "true", "stdin": {"hex": "00"}}), &["stdin"]),
        (json!({"command": "true", "env": {"A=B": "x"}}), &["env"]),
        (json!(["true"]), &[]),
        (json!("true"), &[]),
        (json!(null), &[]),
    ] {
        let (code, message) = shared().post(&body).error(400);
        assert!(["bad_request", "limit_refused", "unknown_profile"].contains(&code.as_str()), "{code}");
        assert_says(&message, words);
    }
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
    for arguments in [
        ["--memory", "900G"],
        ["--memory", "-5"],
        ["--memory", "0"],
        ["--memory", "1T"],
        ["--memory", ""],
        ["--timeout", "0s"],
        ["--timeout", "2h"],
        ["--timeout", "60"],
        ["--timeout", "-1s"],
        ["--pids", "0"],
        ["--pids", "5000"],
        ["--pids", "-1"],
        ["--pids", "many"],
        ["--output", "17G"],
        ["--capture", "9M"],
    ] {
        let ran = shared().run(&[&arguments[..], &["--", "echo", "ran"]].concat());
        assert_eq!((ran.status, ran.stdout.len()), (125, 0), "{arguments:?}: {ran:?}");
        assert_says(&ran.stderr, &[arguments[0].trim_start_matches('-').replace("timeout", "").as_str()]);
    }
    let ran = shared().run(&["--memory", "900G", "--", "true"]);
    assert_says(&ran.stderr, &["memory", "900G", "2G"]);
}

#[test]
fn a_working_directory_outside_the_profile_runs_nothing() {
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
        assert_says(&ran.stderr, &["cwd"]);
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

#[test]
fn frames_that_break_the_rules_are_refused_by_name() {
    let connect = || Wire::connect(&shared().socket);
    let greeted = || Wire::greeted(&shared().socket);
    let mut wire = connect();
    wire.send_bytes(&u32::MAX.to_le_bytes());
    assert_eq!(wire.refusal().code, RefusalCode::BadFrame, "oversize");
    let mut wire = greeted();
    wire.send_bytes(&(limits::REQUEST_FRAME_MAX as u32 + 1).to_le_bytes());
    let refusal = wire.refusal();
    assert_eq!(refusal.code, RefusalCode::BadFrame);
    assert_says(&refusal.message, &[&(limits::REQUEST_FRAME_MAX + 1).to_string()]);
    for garbage in [&[0xff; 64][..], &[], &[9, 0, 0, 0], b"GET / HTTP/1.1\r\n\r\n"] {
        let mut wire = greeted();
        wire.send_bytes(&frame(garbage));
        assert_eq!(wire.refusal().code, RefusalCode::BadFrame, "{garbage:?}");
    }
    let mut payload = encode_payload(&Request::Ps).unwrap();
    payload.push(0);
    let mut wire = greeted();
    wire.send_bytes(&frame(&payload));
    assert_eq!(wire.refusal().code, RefusalCode::BadFrame, "a byte left over");
    let mut wire = greeted();
    wire.send_bytes(&[100, 0, 0, 0, 1, 2, 3]);
    wire.stream.shutdown(Shutdown::Write).unwrap();
    let answer = wire.next();
    let fine = match &answer {
        Ok(Some(Event::Refused(refusal))) => refusal.code == RefusalCode::BadFrame,
        other => matches!(other, Ok(None)),
    };
    assert!(fine, "truncated: {answer:?}");
    for version in [0, PROTOCOL_VERSION + 1, u32::MAX] {
        let mut wire = connect();
        wire.send(&hello(version));
        let refusal = wire.refusal();
        assert_eq!(refusal.code, RefusalCode::BadVersion);
        assert_says(&refusal.message, &[&version.to_string(), &PROTOCOL_VERSION.to_string()]);
    }
    shared().assert_works();
}

#[test]
fn frames_out_of_order_are_refused() {
    let run = || Request::Run(Box::new(argv(&["sleep", "30"])));
    let cases: [&[Request]; 6] = [
        &[run()],
        &[Request::Ps],
        &[hello(PROTOCOL_VERSION), hello(PROTOCOL_VERSION)],
        &[hello(PROTOCOL_VERSION), Request::Stdin(vec![1])],
        &[hello(PROTOCOL_VERSION), Request::StdinEnd],
        &[hello(PROTOCOL_VERSION), Request::Kill { id: "x".repeat(10_000) }],
    ];
    for frames in cases {
        let mut wire = Wire::connect(&shared().socket);
        frames.iter().for_each(|f| wire.send(f));
        let code = wire.refusal().code;
        let expected = [RefusalCode::OutOfOrder, RefusalCode::NotFound, RefusalCode::BadRequest];
        let is_kill = matches!(frames.last(), Some(Request::Kill { .. }));
        assert!(
            if is_kill { expected[1..].contains(&code) } else { code == RefusalCode::OutOfOrder },
            "{frames:?}: {code:?}"
        );
    }
    // While a command runs: it ends, and the connection too.
    let marker = crate::harness::marker();
    let with_stdin = |stdin| {
        let mut request = argv(&["sleep", &marker]);
        request.stdin = stdin;
        Request::Run(Box::new(request))
    };
    let cases: [(bool, &[Request]); 3] = [
        (false, &[Request::Stdin(vec![1])]),
        (true, &[run()]),
        (true, &[Request::StdinEnd, Request::Stdin(vec![1])]),
    ];
    for (stdin, frames) in cases {
        let mut wire = Wire::greeted(&shared().socket);
        wire.send(&with_stdin(stdin));
        assert!(matches!(wire.next().unwrap(), Some(Event::Started { .. })));
        frames.iter().for_each(|f| wire.send(f));
        let last = loop {
            match wire.next() {
                Ok(Some(Event::Refused(refusal))) => break Some(refusal.code),
                Ok(Some(_)) => {}
                _ => break None,
            }
        };
        assert_eq!(last, Some(RefusalCode::OutOfOrder), "{frames:?}");
        eventually("the command ended", PATIENCE, || crate::harness::process::sandboxed(&marker).is_empty());
    }
}

#[test]
fn a_piece_of_input_that_is_too_large_is_refused() {
    let mut request = argv(&["cat"]);
    request.stdin = true;
    let mut wire = Wire::greeted(&shared().socket);
    wire.send(&Request::Run(Box::new(request)));
    assert!(matches!(wire.next().unwrap(), Some(Event::Started { .. })));
    wire.send(&Request::Stdin(vec![b'x'; limits::CHUNK_MAX + 1]));
    let refused = loop {
        match wire.next() {
            Ok(Some(Event::Refused(refusal))) => break refusal,
            Ok(Some(Event::Exited(report))) => panic!("{report:?}"),
            Ok(Some(_)) => {}
            end => panic!("{end:?}"),
        }
    };
    assert_eq!(refused.code, RefusalCode::BadFrame);
}

#[test]
fn a_thousand_silent_connections_keep_nobody_else_out() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(4096).min(hard), hard).unwrap();
    let executor = Executor::start("");
    let silent: Vec<_> = (0..1000).filter_map(|_| UnixStream::connect(&executor.socket).ok()).collect();
    assert!(silent.len() > 500, "{}", silent.len());
    // Another peer has its own share.
    let directory = open_directory();
    let cordon = public_copy(&crate::harness::build::programs().cordon, directory.path());
    let mut command = host::as_user(STRANGER, STRANGER, &[host::gid_of("cordon")], &cordon.to_string_lossy());
    command.args(["run", "--", "echo", "served"]).env("CORDON_SOCKET", &executor.socket);
    let ran = run(command, &[]);
    assert_eq!((ran.status, ran.text().as_str()), (0, "served\n"), "{ran:?}");
    // Who says nothing is told so and let go; so is who had no room.
    for mut stream in silent {
        stream.set_read_timeout(Some(limits::HELLO_TIMEOUT + Duration::from_secs(20))).unwrap();
        let mut rest = Vec::new();
        let end = stream.read_to_end(&mut rest);
        assert!(end.is_ok() || end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
    }
    executor.assert_works();
}

#[test]
fn a_client_that_says_hello_and_nothing_more_is_let_go() {
    let mut wire = Wire::greeted(&shared().socket);
    assert_eq!(wire.refusal().code, RefusalCode::Timeout);
}

#[test]
fn bodies_that_are_no_request_are_refused() {
    let post = |body: Vec<u8>| {
        send(shared().request("POST", "/v1/exec").header("Content-Type", "application/json").body(body))
    };
    for body in ["", "{", "not json", "{\"command\":\"true\"", "{\"command\":\"true\"}x", "[[[[[[[["] {
        post(body.into()).error(400);
    }
    post(format!("{{\"command\":\"{}\"}}", "x".repeat(limits::HTTP_BODY_MAX)).into_bytes()).error(413);
    let deep = format!("{{\"argv\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    post(deep.into()).error(400);
    shared().assert_works();
}

#[test]
fn a_body_that_stops_half_way_runs_nothing_and_holds_up_nobody() {
    let up = shared();
    let body = b"{\"command\": \"echo ran\"}";
    let host = format!("127.0.0.1:{}", up.port);
    let authorization = format!("Bearer {}", up.token);
    let headers =
        [("Host", host.as_str()), ("Authorization", &authorization), ("Content-Type", "application/json")];
    let bytes = request_bytes("POST /v1/exec", &headers, body);
    let half = &bytes[..bytes.len() - 5];
    let mut closed = TcpStream::connect(("127.0.0.1", up.port)).unwrap();
    closed.write_all(half).unwrap();
    closed.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    closed.read_to_string(&mut answer).unwrap();
    assert!(!answer.contains(" 200 ") && !answer.contains("ran"), "{answer}");
    let stalled: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", up.port)).unwrap();
            stream.write_all(half).unwrap();
            stream
        })
        .collect();
    assert_eq!(up.exec(&json!({"command": "echo works"})).stdout.as_deref(), Some("works\n"));
    drop(stalled);
}

#[test]
fn lines_that_are_not_http_get_an_error_and_no_more() {
    for bytes in [
        &b"GARBAGE\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/exec HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        &[0; 1000],
    ] {
        let answer = shared().raw(bytes);
        assert!((400..600).contains(&answer.status), "{}", answer.status);
    }
    shared().assert_works();
}

#[test]
fn a_missing_or_wrong_token_is_refused() {
    let body = json!({"command": "echo ran"});
    let up = shared();
    let mut wrong = up.token.clone();
    wrong.replace_range(0..1, if wrong.starts_with('a') { "b" } else { "a" });
    let basic = format!("Basic {}", up.token);
    let bearers = [wrong.clone(), String::new(), up.token[1..].to_owned(), format!("{} x", up.token)];
    send(up.anonymous("POST", "/v1/exec").json(&body)).error(401);
    for bearer in bearers {
        send(
            up.anonymous("POST", "/v1/exec").json(&body).header("Authorization", format!("Bearer {bearer}")),
        )
        .error(401);
    }
    send(up.anonymous("POST", "/v1/exec").json(&body).header("Authorization", basic)).error(401);
    send(up.anonymous("POST", "/v1/exec").json(&body).header("x-api-key", wrong)).error(401);
    send(up.anonymous("POST", &format!("/v1/exec?token={}", up.token)).json(&body)).error(401);
    // The right one works in both headers.
    assert_eq!(send(up.request("POST", "/v1/exec").json(&body)).status, 200);
    assert_eq!(send(up.anonymous("POST", "/v1/exec").json(&body).header("x-api-key", &up.token)).status, 200);
}

#[test]
fn foreign_hosts_and_origins_are_refused() {
    let body = json!({"command": "echo ran"});
    let up = shared();
    let own = format!("127.0.0.1:{}", up.port);
    for (header, value) in [
        ("Host", "evil.example"),
        ("Host", "127.0.0.1.evil.example"),
        ("Host", "localhost.evil.example:3800"),
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", "http://127.0.0.1.evil.example"),
        ("Origin", "file://"),
    ] {
        send(up.request("POST", "/v1/exec").json(&body).header(header, value)).error(403);
    }
    let local = format!("localhost:{}", up.port);
    for host in [&own, &local] {
        assert_eq!(
            send(up.request("POST", "/v1/exec").json(&body).header("Host", host)).status,
            200,
            "{host}"
        );
    }
    let origin = format!("http://{own}");
    assert_eq!(send(up.request("POST", "/v1/exec").json(&body).header("Origin", origin)).status, 200);
}

#[test]
fn a_peer_that_is_not_allowed_runs_nothing() {
    let directory = open_directory();
    let cordon = public_copy(&crate::harness::build::programs().cordon, directory.path());
    let executor = Executor::start("[profiles.default]\npeers = ['root']\n");
    let attempt = |uid: u32, groups: &[u32]| {
        let mut command = host::as_user(uid, uid, groups, &cordon.to_string_lossy());
        command.args(["run", "--", "echo", "ran"]).env("CORDON_SOCKET", &executor.socket);
        run(command, &[])
    };
    let group = host::gid_of("cordon");
    // Not in the group: the socket does not open. In it: no profile is theirs. Nobody is never a peer.
    let cases: [(u32, &[u32], &str); 3] =
        [(STRANGER, &[], "ermission denied"), (STRANGER, &[group], ""), (65534, &[group], "")];
    for (uid, groups, word) in cases {
        let ran = attempt(uid, groups);
        assert_eq!((ran.status, ran.stdout.len()), (125, 0), "{uid}: {ran:?}");
        assert!(ran.stderr.len() > 20 && ran.stderr.contains(word), "{uid}: {ran:?}");
    }
    executor.assert_works();
    // Nobody is refused even where a profile would have it.
    let open = Executor::start("[profiles.default]\npeers = ['root', '@cordon', 'uid:65534']\n");
    let mut command = host::as_user(65534, 65534, &[group], &cordon.to_string_lossy());
    command.args(["run", "--", "echo", "ran"]).env("CORDON_SOCKET", &open.socket);
    assert_eq!(run(command, &[]).status, 125);
    let mut command = host::as_user(STRANGER, STRANGER, &[group], &cordon.to_string_lossy());
    command.args(["run", "--", "echo", "ran"]).env("CORDON_SOCKET", &open.socket);
    assert_eq!(run(command, &[]).text(), "ran\n", "the control");
}

#[test]
fn a_slow_client_s_frames_are_put_together() {
    let mut wire = Wire::connect(&shared().socket);
    let bytes: Vec<u8> = [hello(PROTOCOL_VERSION), Request::Run(Box::new(line("echo slow")))]
        .iter()
        .flat_map(|r| cordon_protocol::codec::encode_frame(r, limits::REQUEST_FRAME_MAX).unwrap())
        .collect();
    for byte in bytes {
        wire.send_bytes(&[byte]);
    }
    assert!(matches!(wire.next().unwrap(), Some(Event::Started { .. })));
    let Some(Event::Exited(report)) = wire.next().unwrap() else { panic!("no report") };
    assert_eq!(report.stdout.as_deref(), Some("slow\n"));
}

#[test]
fn an_executor_that_is_full_says_so() {
    let executor = Executor::start("[profiles.default]\nconcurrency = 1\nqueue = 1\n");
    let first = cordon_protocol::client::blocking::run(&executor.socket, "test", line("sleep 60")).unwrap();
    eventually("the first runs", PATIENCE, || {
        let jobs = cordon_protocol::client::blocking::ps(&executor.socket, "test").unwrap();
        jobs.iter().any(|j| j.state == "running")
    });
    let second =
        cordon_protocol::client::blocking::run(&executor.socket, "test", line("echo second")).unwrap();
    eventually("the second waits", PATIENCE, || {
        let jobs = cordon_protocol::client::blocking::ps(&executor.socket, "test").unwrap();
        jobs.iter().any(|j| j.state == "queued")
    });
    assert_says(&executor.refusal(line("echo third")), &["busy"]);
    drop(first);
    let report = crate::harness::client::collect(second.0).unwrap().report;
    assert_eq!(report.stdout.as_deref(), Some("second\n"));
}

#[test]
fn bad_input_to_a_fresh_instance_leaves_it_level() {
    let up = Up::start();
    up.assert_works();
    let count = || {
        crate::harness::process::descriptors(up.server()).len()
            + crate::harness::process::descriptors(up.monitor()).len()
    };
    eventually("the pools are full", PATIENCE, || {
        let before = count();
        std::thread::sleep(Duration::from_millis(300));
        before == count()
    });
    let before = count();
    for i in 0..100_u32 {
        let mut wire = Wire::connect(&up.socket);
        match i % 3 {
            0 => wire.send_bytes(&frame(&[0xff; 32])),
            1 => wire.send(&hello(7)),
            _ => wire.send_bytes(&[1, 2]),
        }
    }
    eventually("every descriptor is closed again", PATIENCE, || count() <= before + 2);
    up.assert_works();
}
