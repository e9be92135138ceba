//! Bodies that are wrong: each has a clear answer, and nothing is asked of the executor.

use crate::{
    client::{Gateway, SOON, TOKEN, gateway, post},
    executor::{self, report},
};
use cordon_protocol::Request;
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    task::JoinSet,
    time::timeout,
};

/// A gateway whose executor's socket must not be connected to.
fn alone(more: &str) -> (Gateway, std::os::unix::net::UnixListener) {
    let gateway = gateway(more);
    let listener = std::os::unix::net::UnixListener::bind(gateway.executor()).unwrap();
    listener.set_nonblocking(true).unwrap();
    (gateway, listener)
}

fn nobody_came(listener: &std::os::unix::net::UnixListener) {
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn malformed_bodies_are_400_and_name_the_field() {
    let (gateway, executor) = alone("");
    for (body, word) in [
        ("", "EOF"),
        ("not json", "line 1"),
        ("[]", "a JSON object"),
        (r#"["echo 1",null,null,null,null,null,null,null,null,null,null]"#, "a JSON object"),
        ("null", "a JSON object"),
        ("{", "EOF"),
        ("{}", "command or argv"),
        (r#"{"command":"x","argv":["x"]}"#, "only one"),
        (r#"{"command":"x","workspce":"w"}"#, "`workspce`"),
        (r#"{"command":1}"#, "command: invalid type"),
        (r#"{"argv":"x"}"#, "argv: invalid type"),
        (r#"{"argv":["x",1]}"#, "argv[1]: invalid type"),
        (r#"{"command":"x","env":["A=1"]}"#, "env: invalid type"),
        (r#"{"command":"x","env":{"A":1}}"#, "env.A: invalid type"),
        (
            r#"{"command":"x","timeout_ms":-1}"#,
            "timeout_ms: invalid value: integer `-1`, expected a whole number from 0 on",
        ),
        (r#"{"command":"x","timeout_ms":"1s"}"#, "timeout_ms: invalid type"),
        (r#"{"command":"x","pids":1.5}"#, "pids: invalid type"),
        (r#"{"command":"x","memory_bytes":99999999999999999999}"#, "memory_bytes: invalid"),
        (r#"{"command":"x","files":[1]}"#, "files[0]: invalid type: integer `1`, expected a JSON object"),
        (r#"{"command":"x","files":[{"path":1}]}"#, "files[0].path: invalid type"),
        (r#"{"command":"x","files":[{"path":"a","content":"","mode":644}]}"#, "files[0].mode: invalid type"),
        (r#"{"command":"x","files":[{"path":"a","text":""}]}"#, "files[0].text: unknown field"),
        (r#"{"command":"x","collect":["a",1]}"#, "collect[1]: invalid type"),
        (r#"{"command":"x","cwd":["a"]}"#, "cwd: invalid type"),
        (r#"{"command":"x","stdin":1}"#, "stdin: expected text"),
        (r#"{"command":"x","stdin":{"base64":"x","more":1}}"#, "stdin: expected text"),
        (r#"{"command":"x","stdin":{"base64":"*"}}"#, "stdin.base64"),
        (r#"{"command":"x","stdin":["eA=="]}"#, "stdin: expected text"),
        (r#"{"command":"x","stdin":{"base64":"eA==","base64":"eQ=="}}"#, "stdin: expected text"),
        (r#"{"command":"x","command":"y"}"#, "duplicate field `command`"),
        (r#"{"command":"x","env":{"A":"1","B":"2","A":"3"}}"#, "env: `A` is given twice"),
        (r#"{"command":"x"} trailing"#, "trailing"),
        ("{\"command\":\"\u{1}\"}", "control character"),
    ] {
        let message = gateway.exec(body).await.failed(400, "bad_request");
        assert!(message.contains(word), "{body}: {message}");
    }
    // What has no field to name names none.
    let message = gateway.exec("{'command':'x'}").await.failed(400, "bad_request");
    assert!(message.starts_with("key must be a string"), "{message}");
    let mut invalid = post("{\"command\":\"xx\"}", "");
    let last = invalid.len() - 3;
    invalid[last] = 0xff;
    let message = gateway.send(&invalid).await.failed(400, "bad_request");
    assert!(message.starts_with("command: invalid unicode"), "{message}");
    nobody_came(&executor);
}

#[tokio::test]
async fn another_content_type_is_415() {
    let (gateway, executor) = alone("");
    for line in ["", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"] {
        let request = format!(
            "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nx-api-key: {TOKEN}\r\n{line}Connection: close\r\n\
             Content-Length: 15\r\n\r\n{{\"command\":\"x\"}}"
        );
        gateway.send(request.as_bytes()).await.failed(415, "unsupported_media_type");
    }
    nobody_came(&executor);
}

#[tokio::test]
async fn a_body_over_the_cap_is_413_announced_or_in_chunks() {
    let (gateway, executor) = alone("body_max = \"1M\"");
    let large = json!({ "command": "x", "stdin": "y".repeat(3 << 20) }).to_string();
    let message = gateway.exec(&large).await.failed(413, "too_large");
    assert!(message.contains("1048576"), "{message}");
    let mut chunked = format!(
        "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nx-api-key: {TOKEN}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    for piece in large.as_bytes().chunks(100_000) {
        chunked += &format!("{:x}\r\n{}\r\n", piece.len(), std::str::from_utf8(piece).unwrap());
    }
    chunked += "0\r\n\r\n";
    gateway.send(chunked.as_bytes()).await.failed(413, "too_large");
    nobody_came(&executor);
}

#[tokio::test]
async fn a_length_over_the_cap_is_413_before_any_of_it_has_come() {
    let (gateway, executor) = alone("body_max = \"1M\"");
    let head = format!(
        "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nx-api-key: {TOKEN}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        (1 << 20) + 1
    );
    gateway.send(head.as_bytes()).await.failed(413, "too_large");
    nobody_came(&executor);
}

#[tokio::test]
async fn a_client_that_sends_all_before_it_reads_still_sees_its_413() {
    let gateway = gateway("body_max = \"1M\"");
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let request = post(&json!({ "command": "x".repeat(6 << 20) }).to_string(), "");
    timeout(SOON, client.write_all(&request)).await.unwrap().unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn a_body_that_stops_half_way_is_408() {
    let (gateway, executor) = alone("read_timeout = \"300ms\"");
    let whole = post(r#"{"command":"x"}"#, "");
    let begin = Instant::now();
    gateway.send(&whole[..whole.len() - 4]).await.failed(408, "timeout");
    assert!(begin.elapsed() >= Duration::from_millis(300));
    let drip = format!(
        "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nx-api-key: {TOKEN}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n"
    );
    gateway.send(drip.as_bytes()).await.failed(408, "timeout");
    nobody_came(&executor);
}

#[tokio::test]
async fn what_nobody_takes_keeps_its_memory_and_what_is_done_gives_it_back() {
    let gateway = gateway("body_max = \"1M\"");
    let (reads, go_on) = watch::channel(false);
    executor::start(&gateway.executor(), move |mut c| {
        let mut go_on = go_on.clone();
        async move {
            c.run().await;
            // Till then its input does not fit into the socket.
            go_on.wait_for(|go_on| *go_on).await.unwrap();
            while !matches!(c.next().await, Some(Request::StdinEnd) | None) {}
            c.exit(report(0, "")).await;
        }
    });
    let gateway = Arc::new(gateway);
    let large = json!({ "command": "x", "stdin": "y".repeat(1_000_000) });
    let mut asked = JoinSet::new();
    for _ in 0..24 {
        let (gateway, large) = (Arc::clone(&gateway), large.clone());
        asked.spawn(async move { gateway.exec(large).await });
    }
    // Eight fit in; of the others each is told before anything of it has run.
    for _ in 8..24 {
        let answer = timeout(SOON, asked.join_next()).await.expect("an answer").unwrap().unwrap();
        answer.failed(429, "busy");
    }
    reads.send(true).unwrap();
    while let Some(answer) = asked.join_next().await {
        let status = answer.unwrap().status;
        assert!(status == 200 || status == 429, "{status}");
    }
    // More than the memory there is, one after the other.
    for _ in 0..20 {
        assert_eq!(gateway.exec(&large).await.status, 200);
    }
}

#[tokio::test]
async fn a_body_that_is_broken_off_runs_nothing() {
    let (gateway, executor) = alone("");
    let whole = post(r#"{"command":"x"}"#, "");
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(&whole[..whole.len() - 4]).await.unwrap();
    client.shutdown().await.unwrap();
    let mut rest = Vec::new();
    timeout(SOON, client.read_to_end(&mut rest)).await.unwrap().unwrap();
    nobody_came(&executor);
}

#[tokio::test]
async fn a_command_too_long_for_execve_is_refused_at_the_door() {
    let (gateway, executor) = alone("");
    let message = gateway.exec(json!({ "command": "x".repeat(3 << 20) })).await.failed(400, "bad_request");
    assert!(message.contains("command") && message.contains("limit"), "{message}");
    nobody_came(&executor);
}

#[tokio::test]
async fn chunks_that_make_no_sense_are_400_and_not_called_an_early_end() {
    let (gateway, executor) = alone("");
    let body = r#"{"command":"x"}"#;
    for chunks in [format!("zz\r\n{body}\r\n0\r\n\r\n"), format!("f\r\n{body}XX0\r\n\r\n")] {
        let request = format!(
            "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nx-api-key: {TOKEN}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
        );
        let message = gateway.send(request.as_bytes()).await.failed(400, "bad_request");
        assert!(message.contains("malformed"), "{message}");
    }
    nobody_came(&executor);
}
