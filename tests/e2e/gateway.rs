//! The gateway: commands over HTTP as JSON and as an event stream, its doors, its timeouts and its end.

use crate::harness::{
    Executor, PATIENCE,
    build::programs,
    client::public_copy,
    daemon::{self, free_port, open_directory, write_configuration},
    eventually, host, http,
    http::{Answer, events, request_bytes, send},
    marker,
    process::{self, Process, sandboxed},
    shared,
};
use cordon_protocol::{EndedBy, ExitReport};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};
use tempfile::TempDir;

fn stream(body: &Value) -> Vec<(String, Value)> {
    let request = shared().request("POST", "/v1/exec").json(body).header("Accept", "text/event-stream");
    let answer = send(request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.head.contains("content-type: text/event-stream"), "{}", answer.head);
    events(&answer.text())
}

#[test]
fn a_command_s_report_comes_back_with_status_200_whatever_ended_it() {
    let report = shared().exec(&json!({"command": "echo out; echo err >&2; exit 3"}));
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(3)));
    assert_eq!((report.stdout.as_deref(), report.stderr.as_deref()), (Some("out\n"), Some("err\n")));
    let report = shared().exec(&json!({"argv": ["echo", "a b", "$HOME"]}));
    assert_eq!(report.stdout.as_deref(), Some("a b $HOME\n"));
    let report = shared().exec(&json!({"command": "sleep 30", "timeout_ms": 300}));
    assert_eq!(report.ended_by, EndedBy::WallTimeout);
    let report = shared().exec(&json!({"argv": ["/no/such"]}));
    assert_eq!(
        (report.ended_by, report.exit_code, report.step.as_deref()),
        (EndedBy::LaunchFailed, Some(127), Some("exec"))
    );
    let report = shared().exec(&json!({"command": "yes", "output_bytes": 100_000}));
    assert_eq!(report.ended_by, EndedBy::OutputLimit);
}

#[test]
fn every_field_of_a_body_reaches_the_command() {
    let body = json!({
        "command": "pwd; echo $A; cat; ulimit -u >/dev/null",
        "profile": "default", "cwd": "/tmp", "env": {"A": "1 2"}, "stdin": "given\n",
        "timeout_ms": 20_000, "memory_bytes": 100 << 20, "pids": 50, "output_bytes": 1 << 20, "capture_bytes": 1 << 16,
    });
    assert_eq!(shared().exec(&body).stdout.as_deref(), Some("/tmp\n1 2\ngiven\n"));
    let report = shared().exec(&json!({"argv": ["od", "-An", "-tx1"], "stdin": {"base64": "AP/+"}}));
    assert_eq!(report.stdout.as_deref(), Some(" 00 ff fe\n"));
    let report = shared().exec(&json!({"argv": ["cat"]}));
    assert_eq!((report.stdout_bytes, report.exit_code), (0, Some(0)), "without stdin it is empty");
    let report = shared().exec(&json!({"argv": ["seq", "1000"], "capture_bytes": 100}));
    assert!(report.stdout_truncated && report.stdout_bytes == 3893);
}

#[test]
fn an_event_stream_has_started_then_output_then_the_report() {
    let seen = stream(&json!({"command": "echo a; sleep 0.2; echo b >&2; exit 4"}));
    let names: Vec<_> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["started", "stdout", "stderr", "exit"]);
    assert_eq!(seen[1].1, json!({"data": "a\n", "encoding": "utf-8"}));
    assert_eq!(seen[2].1, json!({"data": "b\n", "encoding": "utf-8"}));
    let report: ExitReport = serde_json::from_value(seen[3].1.clone()).unwrap();
    assert_eq!((report.exit_code, report.stdout, report.stdout_bytes), (Some(4), None, 2));
    assert_eq!(seen[0].1["id"], json!(report.id));
}

#[test]
fn an_event_stream_carries_every_byte() {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let seen =
        stream(&json!({"command": "for i in $(seq 3000); do printf 'ä€😀'; done; printf '\\377\\000'"}));
    let mut bytes = Vec::new();
    for (_, data) in seen.iter().filter(|(name, _)| name == "stdout") {
        let text = data["data"].as_str().unwrap();
        match data["encoding"].as_str().unwrap() {
            "utf-8" => bytes.extend(text.as_bytes()),
            "base64" => bytes.extend(STANDARD.decode(text).unwrap()),
            other => panic!("{other}"),
        }
    }
    let expected = [&"ä€😀".repeat(3000).into_bytes()[..], &[0xff, 0]].concat();
    assert!(bytes == expected, "{} bytes", bytes.len());
}

#[test]
fn an_event_stream_of_a_failed_launch_has_the_report_alone() {
    let seen = stream(&json!({"argv": ["/no/such"]}));
    let names: Vec<_> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["exit"]);
    assert_eq!(seen[0].1["step"], "exec");
}

#[test]
fn events_come_while_the_command_runs() {
    let marker = marker();
    let body = json!({"command": format!("echo first; sleep {marker}")});
    let request = shared().request("POST", "/v1/exec").json(&body).header("Accept", "text/event-stream");
    let mut lines = BufReader::new(request.send().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap().contains("first")));
    assert!(!sandboxed(&marker).is_empty(), "it runs");
    drop(lines);
    eventually("a dropped stream ends the command", PATIENCE, || sandboxed(&marker).is_empty());
}

#[test]
fn a_refusal_is_an_error_with_code_message_and_hint_also_for_a_stream() {
    let body = json!({"command": "true", "memory_bytes": 900_u64 << 30});
    let request = shared().request("POST", "/v1/exec").json(&body);
    let (code, message) = send(request).error(400);
    assert_eq!(code, "limit_refused");
    assert!(["memory", "900G", "2G"].iter().all(|w| message.contains(w)), "{message}");
    let request = shared().request("POST", "/v1/exec").json(&body).header("Accept", "text/event-stream");
    assert_eq!(send(request).error(400).0, "limit_refused");
}

#[test]
fn health_needs_no_token_and_the_description_names_the_door() {
    assert_eq!(send(shared().anonymous("GET", "/healthz")).status, 200);
    let answer = send(shared().request("GET", "/openapi.json"));
    let document = answer.json();
    assert_eq!(answer.status, 200);
    assert!(document["openapi"].as_str().is_some_and(|v| v.starts_with("3.")));
    assert!(document["paths"]["/v1/exec"]["post"].is_object());
    for field in ["ended_by", "limits_hit", "enforced", "capture_bytes", "stdout_encoding"] {
        assert!(answer.text().contains(field), "{field}");
    }
}

#[test]
fn what_is_not_there_is_404_and_a_wrong_method_405() {
    send(shared().request("GET", "/no/such")).error(404);
    let answer = send(shared().request("GET", "/v1/exec"));
    assert_eq!(answer.status, 405, "{}", answer.text());
    send(shared().anonymous("GET", "/no/such")).error(401);
}

#[test]
fn the_unix_socket_needs_no_token_but_its_group() {
    let body = br#"{"command": "echo through the socket"}"#;
    let bytes =
        request_bytes("POST /v1/exec", &[("Host", "localhost"), ("Content-Type", "application/json")], body);
    let answer = shared().raw_unix(&bytes);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["stdout"], "through the socket\n");
    let code = format!(
        "import socket\ntry: socket.socket(1).connect('{}/gateway.sock'); print('open')\nexcept OSError as e: print(e.errno)",
        shared().directory().display()
    );
    let connect = |groups: &[u32]| {
        let uid = crate::harness::lab::STRANGER;
        let mut command = host::as_user(uid, uid, groups, "/usr/bin/python3");
        command.args(["-c", &code]);
        process::run(command, &[]).text()
    };
    assert_eq!(connect(&[]), "13\n");
    assert_eq!(connect(&[host::gid_of("cordon")]), "open\n", "the control");
}

#[test]
fn a_connection_serves_many_requests() {
    let up = shared();
    let mut stream = TcpStream::connect(("127.0.0.1", up.port)).unwrap();
    for i in 0..5 {
        let body = format!("{{\"command\":\"echo {i}\"}}");
        write!(
            stream,
            "POST /v1/exec HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            up.port,
            up.token,
            body.len()
        )
        .unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
        }
        let length = head.to_lowercase();
        let length = length.lines().find_map(|l| l.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        let report: ExitReport = serde_json::from_slice(&body).unwrap();
        assert_eq!(report.stdout, Some(format!("{i}\n")));
    }
}

#[test]
fn many_requests_at_once_are_all_answered() {
    thread::scope(|scope| {
        let run = |i: u32| shared().exec(&json!({"command": format!("echo {i}")})).stdout;
        let threads: Vec<_> = (0..40).map(|i| scope.spawn(move || (i, run(i)))).collect();
        for thread in threads {
            let (i, stdout) = thread.join().unwrap();
            assert_eq!(stdout, Some(format!("{i}\n")));
        }
    });
}

/// A gateway of its own, as its unprivileged user.
struct Gateway {
    process: Process,
    port: u16,
    _directory: TempDir,
}

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

impl Gateway {
    fn start(executor: &Path, more: &str) -> Self {
        daemon::ensure_users();
        let directory = open_directory();
        let at = directory.path();
        let port = free_port();
        let (uid, gid) = (host::uid_of("cordon"), host::gid_of("cordon"));
        let token = at.join("token");
        fs::write(&token, TOKEN).unwrap();
        chown(&token, None, Some(gid)).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o640)).unwrap();
        let text = format!(
            "listen = \"127.0.0.1:{port}\"\nexecutor = \"{}\"\ntoken_file = \"{}\"\n{more}\n",
            executor.display(),
            token.display()
        );
        fs::write(at.join("gateway.toml"), text).unwrap();
        let program = public_copy(&programs().gateway, at);
        let mut command: Command = host::as_user(uid, gid, &[], &program.to_string_lossy());
        command.arg("--config").arg(at.join("gateway.toml"));
        let process = Process::start(command);
        let gateway = Self { process, port, _directory: directory };
        eventually("the gateway answers", PATIENCE, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        gateway
    }

    fn bytes(&self, body: &Value) -> Vec<u8> {
        let host = format!("127.0.0.1:{}", self.port);
        let authorization = format!("Bearer {TOKEN}");
        let headers = [
            ("Host", host.as_str()),
            ("Authorization", &authorization),
            ("Content-Type", "application/json"),
        ];
        request_bytes("POST /v1/exec", &headers, body.to_string().as_bytes())
    }

    fn exec(&self, body: &Value) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(&self.bytes(body)).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        http::parse(&answer)
    }
}

#[test]
fn without_an_executor_the_gateway_says_so_and_recovers_by_itself() {
    daemon::ensure_users();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "available", "");
    let gateway = Gateway::start(&directory.path().join("executor.sock"), "");
    let body = json!({"command": "echo there"});
    let assert_away = || {
        let answer = gateway.exec(&body);
        let (_, message) = answer.error(503);
        assert!(message.contains("executor"), "{message}");
        assert!(answer.json()["error"]["hint"].is_string());
    };
    assert_away();
    let mut command = process::tied(&programs().executor);
    command.arg("--config").arg(file);
    let mut executor = Executor::wait_ready(command, directory);
    assert_eq!(gateway.exec(&body).json()["stdout"], "there\n");
    executor.process().signal(Signal::SIGTERM);
    executor.process().wait(PATIENCE);
    assert_away();
    let _executor = executor.again();
    assert_eq!(gateway.exec(&body).json()["stdout"], "there\n");
}

#[test]
fn an_executor_that_dies_during_a_command_is_no_success() {
    let executor = Executor::start("");
    let gateway = Gateway::start(&executor.socket, "");
    let marker = marker();
    let mut stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
    stream.write_all(&gateway.bytes(&json!({"argv": ["sleep", marker]}))).unwrap();
    eventually("it runs", PATIENCE, || !sandboxed(&marker).is_empty());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(executor.pid()), Signal::SIGKILL).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    http::parse(&answer).error(503);
}

#[test]
fn a_gateway_that_is_told_to_end_finishes_what_runs() {
    let executor = Executor::start("");
    let mut gateway = Gateway::start(&executor.socket, "");
    let marker = marker();
    let mut stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
    let body = json!({"command": format!("echo {marker}; sleep 1; echo finished")});
    stream.write_all(&gateway.bytes(&body)).unwrap();
    eventually("it runs", PATIENCE, || !sandboxed(&marker).is_empty());
    gateway.process.signal(Signal::SIGTERM);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = http::parse(&answer);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().contains("finished"));
    let status = gateway.process.wait(Duration::from_secs(20));
    assert!(status.success(), "{status}");
}

#[test]
fn slow_heads_and_bodies_are_cut_off() {
    let executor = Executor::start("");
    let gateway = Gateway::start(&executor.socket, "header_timeout = \"300ms\"\nread_timeout = \"300ms\"");
    let whole = gateway.bytes(&json!({"command": "echo ran"}));
    for part in [0, 10, whole.len() - 3] {
        let mut stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&whole[..part]).unwrap();
        let mut answer = String::new();
        let end = stream.read_to_string(&mut answer);
        let closed = end.is_ok() || end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset);
        assert!(closed, "it still waits after {part} bytes");
        assert!(!answer.contains(" 200 ") && !answer.contains("ran"), "{answer}");
    }
    assert_eq!(gateway.exec(&json!({"command": "sleep 1; echo works"})).json()["stdout"], "works\n");
}

#[test]
fn configured_hosts_and_origins_are_let_in() {
    let executor = Executor::start("");
    let more = "allowed_hosts = [\"cordon.example\"]\nallowed_origins = [\"https://front.example\"]";
    let gateway = Gateway::start(&executor.socket, more);
    let status = |host: &str, origin: &str| {
        let authorization = format!("Bearer {TOKEN}");
        let headers = [
            ("Host", host),
            ("Origin", origin),
            ("Authorization", authorization.as_str()),
            ("Content-Type", "application/json"),
        ];
        let bytes = request_bytes("POST /v1/exec", &headers, br#"{"command": "true"}"#);
        let mut stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
        stream.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        http::parse(&answer).status
    };
    assert_eq!(status("cordon.example", "https://front.example"), 200);
    assert_eq!(status("other.example", "https://front.example"), 403);
    assert_eq!(status("cordon.example", "http://front.example"), 403);
}

#[test]
fn a_gateway_refuses_to_start_as_root_or_without_a_secret_of_its_own() {
    daemon::ensure_users();
    let directory = open_directory();
    let at = directory.path();
    let start = |token: &str, mode: u32, as_root: bool| {
        let file = at.join("token");
        fs::write(&file, token).unwrap();
        chown(&file, None, Some(host::gid_of("cordon"))).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let text = format!("listen = \"127.0.0.1:{}\"\ntoken_file = \"{}\"\n", free_port(), file.display());
        fs::write(at.join("gateway.toml"), text).unwrap();
        let program = public_copy(&programs().gateway, at);
        let mut command = match as_root {
            true => process::tied(&program),
            false => {
                host::as_user(host::uid_of("cordon"), host::gid_of("cordon"), &[], &program.to_string_lossy())
            }
        };
        command.arg("--config").arg(at.join("gateway.toml"));
        process::run(command, &[])
    };
    for (token, mode, as_root, word) in [
        ("", 0o640, false, "token"),
        ("short", 0o640, false, "token"),
        (TOKEN, 0o644, false, "token"),
        (TOKEN, 0o640, true, "root"),
    ] {
        let ran = start(token, mode, as_root);
        let said = format!("{}{}", ran.text(), ran.stderr);
        assert!(ran.status != 0 && said.contains(word), "{ran:?}");
        assert!(token.len() < 10 || !said.contains(token), "it prints the token");
    }
}
