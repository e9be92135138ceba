//! Connections: silent ones, kept ones, too many of them, and the end of the gateway.

use crate::{
    client::{SOON, TOKEN, gateway, get, post},
    executor::{self, report, streamed},
};
use std::time::{Duration, Instant};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{mpsc, watch},
    time::timeout,
};

#[tokio::test]
async fn silent_and_half_headed_connections_are_closed_in_time() {
    let gateway = gateway("header_timeout = \"300ms\"");
    for begin in [&b""[..], b"GET /healthz HTTP/1.1\r\nHost: local"] {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        client.write_all(begin).await.unwrap();
        let mut rest = Vec::new();
        timeout(SOON, client.read_to_end(&mut rest)).await.expect("closed").unwrap();
    }
}

#[tokio::test]
async fn silent_connections_leave_room_for_others() {
    let gateway = gateway("");
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(gateway.address).await.unwrap());
    }
    assert_eq!(gateway.send(&get("/healthz", "Host: localhost\r\n")).await.status, 200);
}

#[tokio::test]
async fn beyond_the_most_connections_clients_wait_their_turn() {
    let gateway = gateway("connections_max = 1\nheader_timeout = \"500ms\"");
    let _silent = TcpStream::connect(gateway.address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let begin = Instant::now();
    assert_eq!(gateway.send(&get("/healthz", "Host: localhost\r\n")).await.status, 200);
    assert!(begin.elapsed() > Duration::from_millis(300), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answers_makes_room_for_others() {
    let gateway = gateway("connections_max = 1\nheader_timeout = \"500ms\"");
    // No token: the answers are refusals, and it asks for more of them than its connection can hold.
    let client = TcpStream::connect(gateway.address).await.unwrap();
    let requests = "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    while let Ok(writable) = timeout(Duration::from_millis(300), client.writable()).await {
        writable.unwrap();
        match client.try_write(requests.as_bytes()) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // Let go already.
            Err(_) => break,
        }
    }
    let answer = timeout(SOON, gateway.send(&get("/healthz", "Host: localhost\r\n"))).await;
    assert_eq!(answer.expect("the place is free again").status, 200);
    drop(client);
}

#[tokio::test]
async fn one_connection_carries_several_requests() {
    let gateway = gateway("");
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let request = format!("GET /nothing HTTP/1.1\r\nHost: localhost\r\nx-api-key: {TOKEN}\r\n\r\n");
    for _ in 0..3 {
        client.write_all(request.as_bytes()).await.unwrap();
        let mut buffer = [0; 4096];
        let length = timeout(SOON, client.read(&mut buffer)).await.unwrap().unwrap();
        assert!(buffer[..length].starts_with(b"HTTP/1.1 404"));
    }
}

#[tokio::test]
async fn a_running_request_may_end_after_the_word_to_stop() {
    let mut gateway = gateway("");
    let (seen, mut events) = mpsc::unbounded_channel();
    let (go_on, may_end) = watch::channel(false);
    executor::start(&gateway.executor(), move |mut c| {
        let (seen, mut may_end) = (seen.clone(), may_end.clone());
        async move {
            c.run().await;
            seen.send(()).unwrap();
            may_end.wait_for(|may| *may).await.unwrap();
            c.exit(report(0, "finished")).await;
        }
    });
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    // A connection that keeps quiet does not hold the end up.
    let _silent = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(&post(r#"{"command":"x"}"#, "")).await.unwrap();
    events.recv().await.unwrap();
    let stopped = gateway.stop();
    // Nobody is let in any more, nor kept waiting at the door.
    let closed = async { while TcpStream::connect(gateway.address).await.is_ok() {} };
    timeout(SOON, closed).await.expect("closed to others while one is still served");
    go_on.send(true).unwrap();
    let mut answer = String::new();
    timeout(SOON, client.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.contains("finished"), "{answer}");
    let begin = Instant::now();
    timeout(SOON, stopped).await.unwrap().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(4));
}

#[tokio::test]
async fn what_does_not_end_within_the_grace_is_cut_and_its_command_with_it() {
    let mut gateway = gateway("shutdown_grace = \"300ms\"");
    let (seen, mut events) = mpsc::unbounded_channel();
    executor::start(&gateway.executor(), move |mut c| {
        let seen = seen.clone();
        async move {
            c.run().await;
            c.started().await;
            seen.send("running").unwrap();
            assert!(c.next().await.is_none());
            seen.send("closed").unwrap();
            c.exit(streamed(0)).await;
        }
    });
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(&post(r#"{"command":"x"}"#, "Accept: text/event-stream\r\n")).await.unwrap();
    assert_eq!(events.recv().await, Some("running"));
    let begin = Instant::now();
    timeout(SOON, gateway.stop()).await.unwrap().unwrap();
    assert!((300..4000).contains(&begin.elapsed().as_millis()));
    assert_eq!(timeout(SOON, events.recv()).await.unwrap(), Some("closed"));
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    // Cut, and recognisable as such: the last chunk of the body is missing.
    assert!(!rest.ends_with(b"0\r\n\r\n"));
}

#[tokio::test]
async fn what_is_no_request_is_answered_like_every_other_failure() {
    let gateway = gateway("");
    let long = "a".repeat(200_000);
    let many: String = (0..200).map(|n| format!("X-{n}: a\r\n")).collect();
    for (request, status, code) in [
        ("garbage\r\n\r\n".to_owned(), 400, "bad_request"),
        ("GET / HTTP/2.0\r\nHost: localhost\r\n\r\n".to_owned(), 400, "bad_request"),
        ("GET / HTTP/1.1\r\nHost : localhost\r\n\r\n".to_owned(), 400, "bad_request"),
        ("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n".to_owned(), 400, "bad_request"),
        (format!("GET / HTTP/1.1\r\nX: {long}\r\n\r\n"), 431, "head_too_large"),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), 431, "head_too_large"),
    ] {
        let answer = gateway.send(request.as_bytes()).await;
        answer.failed(status, code);
        assert!(answer.head.contains("connection: close"), "{}", answer.head);
        assert!(answer.head.contains("x-content-type-options: nosniff"), "{}", answer.head);
        gateway.send_unix(request.as_bytes()).await.failed(status, code);
    }
    // Which of the two it is depends on the pieces in which it arrives.
    let answer = gateway.send(format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await;
    answer.failed(answer.status, if answer.status == 414 { "uri_too_long" } else { "head_too_large" });
}

#[tokio::test]
async fn what_follows_a_body_in_chunks_is_no_request() {
    let gateway = gateway("");
    for (length, status) in [("", 405), ("Content-Length: 4\r\n", 400)] {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        let request = format!(
            "POST /healthz HTTP/1.1\r\nHost: localhost\r\n{length}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
             GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answers = String::new();
        timeout(SOON, client.read_to_string(&mut answers)).await.expect("the end").unwrap();
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
        assert!(answers.starts_with(&format!("HTTP/1.1 {status} ")), "{answers}");
        assert!(answers.to_ascii_lowercase().contains("connection: close"), "{answers}");
    }
}

#[tokio::test]
async fn nonsense_after_a_request_leaves_its_answer_whole() {
    let gateway = gateway("");
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nnonsense\r\n\r\n";
    client.write_all(request).await.unwrap();
    let mut both = String::new();
    timeout(SOON, client.read_to_string(&mut both)).await.unwrap().unwrap();
    let (first, second) = both.split_at(both.rfind("HTTP/1.1 400 ").unwrap());
    assert!(first.starts_with("HTTP/1.1 200") && first.ends_with("}\n"), "{first}");
    assert!(second.starts_with("HTTP/1.1 400") && second.ends_with("}\n"), "{second}");
}
