//! Requests to the gateway that are none, or not allowed.

use super::*;
use crate::harness::{
    http::{request_bytes, send},
    shared,
};
use cordon_protocol::limits::{self};
use serde_json::json;
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
};

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
        (json!({"command": "true", "timeout_ms": 0}), &["timeout_ms"]),
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
fn what_is_refused_says_what_to_do() {
    let up = shared();
    let post = |body: &str| {
        let request = up.request("POST", "/v1/exec").header("Content-Type", "application/json");
        send(request.body(body.to_owned()))
    };
    let host = format!("Host: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\n", up.port, up.token);
    let chunked = format!(
        "POST /v1/exec HTTP/1.1\r\n{host}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n"
    );
    for (answer, words) in [
        (post(r#"{"command":"true","stdin":{"base64":"***"}}"#), "RFC 4648"),
        (post(r#"{"command":"true"}x"#), "one JSON object"),
        (up.raw(chunked.as_bytes()), "Content-Length"),
        (up.raw(b"GET /v1/workspaces HTTP/1.1\r\nConnection: close\r\n\r\n"), "Host: localhost"),
    ] {
        assert_eq!(answer.status, 400);
        let answer = answer.json();
        let hint = answer["error"]["hint"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(hint.contains(words), "{words}: {hint}");
    }
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
        // As every other failure has it: code, message and hint.
        shared().raw(bytes).error(400);
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
