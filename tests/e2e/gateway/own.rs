//! A gateway with its own configuration: without an executor, at its end, and what it refuses to start with.

use crate::harness::{
    Executor, PATIENCE,
    build::programs,
    client::public_copy,
    daemon::{self, free_port, open_directory, write_configuration},
    eventually, host, http,
    http::{Answer, request_bytes},
    marker,
    process::{self, Process, sandboxed},
    stretched,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Command,
    time::Duration,
};
use tempfile::TempDir;

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
    let mut command = daemon::in_scope(&programs().executor);
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
    // The next start sweeps what the killed one left.
    executor.again().assert_works();
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
fn one_client_of_the_gateway_can_have_every_place_of_it_and_none_of_another_user_s() {
    let executor = Executor::start("[profiles.default]\nconcurrency = 1\nqueue = 0\n");
    let gateway = Gateway::start(&executor.socket, "");
    let mut holding = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
    let marker = marker();
    holding.write_all(&gateway.bytes(&json!({"argv": ["sleep", marker]}))).unwrap();
    eventually("it runs", PATIENCE, || !sandboxed(&marker).is_empty());
    let (code, _) = gateway.exec(&json!({"command": "echo ran"})).error(429);
    assert_eq!(code, "busy");
    executor.assert_works();
    drop(holding);
}

#[test]
fn slow_heads_and_bodies_are_cut_off() {
    let executor = Executor::start("");
    let gateway = Gateway::start(&executor.socket, "header_timeout = \"300ms\"\nread_timeout = \"300ms\"");
    let whole = gateway.bytes(&json!({"command": "echo ran"}));
    for part in [0, 10, whole.len() - 3] {
        let mut stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
        stream.set_read_timeout(Some(stretched(Duration::from_secs(20)))).unwrap();
        stream.write_all(&whole[..part]).unwrap();
        let mut answer = String::new();
        let end = stream.read_to_string(&mut answer);
        let closed = end.is_ok() || end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset);
        assert!(closed, "it still waits after {part} bytes");
        assert!(!answer.contains(" 200 ") && !answer.contains("ran"), "{answer}");
    }
    assert_eq!(gateway.exec(&json!({"command": "sleep 1; echo works"})).json()["stdout"], "works\n");
}

/// Asks for a stream of events, and takes no more of it once it has seen these words.
fn stalled(gateway: &Gateway, body: &Value, words: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
    stream.set_read_timeout(Some(stretched(PATIENCE))).unwrap();
    let bytes = String::from_utf8(gateway.bytes(body)).unwrap();
    stream.write_all(bytes.replacen("\r\n", "\r\nAccept: text/event-stream\r\n", 1).as_bytes()).unwrap();
    let (mut seen, mut buffer) = (String::new(), [0; 512]);
    while !seen.contains(words) {
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    (stream, seen)
}

#[test]
fn who_pauses_within_a_large_file_has_no_leisure_and_within_output_it_has() {
    let executor = Executor::start("");
    let gateway = Gateway::start(&executor.socket, "header_timeout = \"3s\"\nconnections_max = 2");
    let rest = |(mut stream, seen): (TcpStream, String)| {
        let mut bytes = seen.into_bytes();
        // One that was cut may be reset as well.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8(bytes).unwrap()
    };
    // Each is more than the kernel keeps of a connection whose client does not read (tcp(7): tcp_wmem, tcp_rmem).
    let files =
        json!({"command": "for n in 1 2 3 4; do head -c 4M /dev/urandom >$n; done", "collect": ["*"]});
    let output = json!({"command": "yes | head -c 24M"});
    let in_output = stalled(&gateway, &output, "event: stdout");
    let in_file = stalled(&gateway, &files, "event: file");
    // Both places are taken: this one waits until one of the two is let go.
    let answer = gateway.exec(&json!({"command": "echo there is room"}));
    assert_eq!(answer.json()["stdout"], "there is room\n");
    let seen = rest(in_output);
    assert!(seen.contains("event: exit") && seen.ends_with("0\r\n\r\n"), "{}", seen.len());
    let seen = rest(in_file);
    assert!(!seen.contains("event: exit"), "{}", seen.len());
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
    let _verdict = crate::escape::probe!();
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
