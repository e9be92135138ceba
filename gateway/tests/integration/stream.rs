//! `POST /v1/exec` as a stream of events.

use crate::{
    client::{Gateway, SOON, gateway, gateway_with, post},
    executor::{self, Conversation, streamed},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use cordon_protocol::{Event, RefusalCode, Request};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    time::timeout,
};

fn command() -> Value {
    json!({ "command": "x" })
}

/// A gateway whose executor sends these events and then the report.
fn sending(events: Vec<Event>) -> Gateway {
    gateway_with(move |mut c: Conversation| {
        let events = events.clone();
        async move {
            assert!(c.run().await.stream);
            c.started().await;
            for event in events {
                c.send(event).await;
            }
            c.exit(streamed(0)).await;
        }
    })
}

#[tokio::test]
async fn events_come_in_order_and_the_report_is_last() {
    let gateway = sending(vec![Event::Stdout(b"a\n\n".to_vec()), Event::Stderr(b"b".to_vec())]);
    let answer = gateway.exec_stream(command()).await;
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-type: text/event-stream"), "{}", answer.head);
    assert!(answer.head.contains("x-accel-buffering: no"));
    let wanted = [
        ("started", json!({ "id": "run-1" })),
        ("stdout", json!({ "data": "a\n\n", "encoding": "utf-8" })),
        ("stderr", json!({ "data": "b", "encoding": "utf-8" })),
        ("exit", serde_json::to_value(streamed(0)).unwrap()),
    ];
    assert_eq!(answer.events(), wanted.map(|(name, data)| (name.to_owned(), data)));
    assert!(answer.events()[3].1["stdout"].is_null());
}

#[tokio::test]
async fn a_split_character_is_put_together_and_binary_is_base64() {
    let crab = "🦀".as_bytes();
    let gateway = sending(vec![
        Event::Stdout([b"x", &crab[..2]].concat()),
        // The other stream in between must not get in the way.
        Event::Stderr(crab[..3].to_vec()),
        Event::Stdout([&crab[2..], b"y"].concat()),
        Event::Stderr(crab[3..].to_vec()),
        Event::Stdout(vec![0xff, 0xfe]),
        Event::Stdout(vec![b'z', 0xe2, 0x82]),
    ]);
    let answer = gateway.exec_stream(command()).await;
    let events = answer.events();
    let chunks: Vec<_> = events
        .iter()
        .filter(|(name, _)| name.starts_with("std"))
        .map(|(name, data)| {
            (name.as_str(), data["data"].as_str().unwrap(), data["encoding"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        chunks,
        [
            ("stdout", "x", "utf-8"),
            ("stdout", "🦀y", "utf-8"),
            ("stderr", "🦀", "utf-8"),
            ("stdout", "//4=", "base64"),
            ("stdout", "z", "utf-8"),
            // Never completed: what was held comes as it is, before the report.
            ("stdout", "4oI=", "base64"),
        ]
    );
    assert_eq!(events.last().unwrap().0, "exit");
}

#[tokio::test]
async fn a_failure_midway_is_an_error_event() {
    let gateway = gateway_with(|mut c| async move {
        c.run().await;
        c.started().await;
        c.send(Event::Stdout(b"half".to_vec())).await;
    });
    let events = gateway.exec_stream(command()).await.events();
    assert_eq!(
        events.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["started", "stdout", "error"]
    );
    assert_eq!(events[2].1["error"]["code"], "executor_unavailable");
    assert!(events[2].1["error"]["hint"].is_string());
    let gateway = gateway_with(|mut c| async move {
        c.run().await;
        c.started().await;
        c.refuse(RefusalCode::Internal, "broke").await;
    });
    let events = gateway.exec_stream(command()).await.events();
    assert_eq!(events[1].1["error"], json!({ "code": "internal", "message": "broke", "hint": "a remedy" }));
}

#[tokio::test]
async fn ten_megabytes_go_in_and_come_out_without_a_deadlock() {
    // Echoes each piece at once and reads no further before that is taken, as `cat` does.
    let gateway = gateway_with(|mut c| async move {
        c.run().await;
        c.started().await;
        while let Some(Request::Stdin(piece)) = c.next().await {
            c.send(Event::Stdout(piece)).await;
        }
        c.exit(streamed(0)).await;
    });
    // Every byte value, in an order that does not repeat with the pieces.
    let data: Vec<u8> =
        (0..10u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
    let body = json!({ "command": "cat", "stdin": { "base64": STANDARD.encode(&data) } });
    let mut back = Vec::new();
    for (name, event) in gateway.exec_stream(body).await.events() {
        if name == "stdout" {
            let text = event["data"].as_str().unwrap();
            match event["encoding"].as_str().unwrap() {
                "utf-8" => back.extend(text.as_bytes()),
                _ => back.extend(STANDARD.decode(text).unwrap()),
            }
        }
    }
    assert!(back == data, "{} bytes of {}", back.len(), data.len());
}

#[tokio::test]
async fn output_arrives_while_the_command_runs() {
    let (go_on, mut wait) = mpsc::unbounded_channel::<()>();
    let gateway = {
        let (hand, mut take) = mpsc::unbounded_channel();
        let gateway = gateway_with(move |mut c| {
            let hand = hand.clone();
            async move {
                c.run().await;
                c.started().await;
                c.send(Event::Stdout(b"early".to_vec())).await;
                hand.send(c).unwrap();
            }
        });
        tokio::spawn(async move {
            let mut c: Conversation = take.recv().await.unwrap();
            wait.recv().await.unwrap();
            c.exit(streamed(0)).await;
        });
        gateway
    };
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(&post(r#"{"command":"x"}"#, "Accept: text/event-stream\r\n")).await.unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while !seen.contains("early") {
        let length = timeout(SOON, client.read(&mut buffer)).await.expect("early output").unwrap();
        assert!(length > 0, "{seen}");
        seen.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    assert!(!seen.contains("event: exit"));
    go_on.send(()).unwrap();
    timeout(SOON, client.read_to_string(&mut seen)).await.unwrap().unwrap();
    assert!(seen.contains("event: exit"));
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_the_executor_back() {
    let (seen, mut counts) = mpsc::unbounded_channel();
    let gateway = gateway_with(move |mut c| {
        let seen = seen.clone();
        async move {
            c.run().await;
            c.started().await;
            while c.send(Event::Stdout(vec![b'x'; 64 << 10])).await {
                if seen.send(64 << 10).is_err() {
                    return;
                }
            }
        }
    });
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(&post(r#"{"command":"yes"}"#, "Accept: text/event-stream\r\n")).await.unwrap();
    let mut sent = 0;
    // Until nothing moves for a while: then socket buffers are full, and the gateway holds no more.
    while let Ok(Some(length)) = timeout(std::time::Duration::from_millis(700), counts.recv()).await {
        sent += length;
        assert!(sent < 64 << 20, "the gateway takes everything in");
    }
    assert!(sent > 0);
    drop(client);
}

#[tokio::test]
async fn a_client_of_an_event_stream_may_take_its_time() {
    const CHUNKS: usize = 256;
    let gateway = gateway("header_timeout = \"200ms\"");
    let (seen, mut sent) = mpsc::unbounded_channel();
    executor::start(&gateway.executor(), move |mut c| {
        let seen = seen.clone();
        async move {
            c.run().await;
            c.started().await;
            for _ in 0..CHUNKS {
                assert!(c.send(Event::Stdout(vec![b'x'; 64 << 10])).await, "cut");
                seen.send(()).unwrap();
            }
            c.exit(streamed(0)).await;
        }
    });
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(&post(r#"{"command":"yes"}"#, "Accept: text/event-stream\r\n")).await.unwrap();
    // Until nothing has moved for much longer than any other client may let its answer lie.
    while timeout(std::time::Duration::from_secs(1), sent.recv()).await.is_ok_and(|sent| sent.is_some()) {}
    let mut all = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    while !all.ends_with(b"0\r\n\r\n") {
        let length = timeout(SOON, client.read(&mut buffer)).await.unwrap().unwrap();
        assert!(length > 0, "cut after {} bytes", all.len());
        all.extend(&buffer[..length]);
    }
    assert!(all.len() > CHUNKS * (64 << 10), "{}", all.len());
}

#[tokio::test(start_paused = true)]
async fn silence_is_filled_with_pings() {
    let gateway = gateway_with(|mut c| async move {
        c.run().await;
        c.started().await;
        assert!(c.next().await.is_none());
    });
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(&post(r#"{"command":"sleep 60"}"#, "Accept: text/event-stream\r\n")).await.unwrap();
    let begin = tokio::time::Instant::now();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while seen.matches(": ping\n\n").count() < 2 {
        let length = client.read(&mut buffer).await.unwrap();
        assert!(length > 0, "{seen}");
        seen.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    // On the test's own clock, which jumps to the next timer when nothing else is to be done.
    let waited = begin.elapsed().as_secs();
    assert!((27..=38).contains(&waited), "{waited}");
}
