//! The gateway: commands over HTTP as JSON and as an event stream, its doors, its timeouts and its end.

mod own;

use crate::harness::{
    PATIENCE, eventually, host,
    http::{events, request_bytes, send},
    marker,
    process::{self, sandboxed},
    shared,
};
use cordon_protocol::{EndedBy, ExitReport};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    thread,
};

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
    eventually("it runs", PATIENCE, || !sandboxed(&marker).is_empty());
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
