//! `POST /v1/exec` as JSON: what the executor is asked, and what its answers become.

use crate::{
    client::{SOON, gateway, gateway_with, post},
    executor::{self, report},
};
use cordon_protocol::{Action, EndedBy, Event, ExitReport, RefusalCode, Request};
use serde_json::json;
use std::time::Duration;
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::mpsc, time::timeout};

#[tokio::test]
async fn the_report_comes_back_with_every_field() {
    let gateway = gateway_with(|mut c| async move {
        let run = c.run().await;
        assert_eq!(run.action, Action::Line("echo out; exit 3".into()));
        assert!(!run.stream && !run.stdin);
        c.started().await;
        c.exit(report(3, "out\n")).await;
    });
    let answer = gateway.exec(json!({ "command": "echo out; exit 3" })).await;
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-type: application/json") && answer.head.contains("nosniff"));
    assert_eq!(answer.json(), serde_json::to_value(report(3, "out\n")).unwrap());
}

#[tokio::test]
async fn argv_and_every_limit_reach_the_executor() {
    let (seen, mut requests) = mpsc::unbounded_channel();
    let gateway = gateway_with(move |mut c| {
        let seen = seen.clone();
        async move {
            seen.send(c.run().await).unwrap();
            c.exit(report(0, "")).await;
        }
    });
    let body = json!({
        "argv": ["echo", "a b"], "profile": "p", "cwd": "/tmp", "env": { "A": "ä" },
        "timeout_ms": 1, "memory_bytes": 2, "pids": 3, "output_bytes": 4, "capture_bytes": 5,
    });
    assert_eq!(gateway.exec(body).await.status, 200);
    let run = requests.recv().await.unwrap();
    assert_eq!(run.action, Action::Argv(vec!["echo".into(), "a b".into()]));
    assert_eq!((run.profile.as_deref(), run.cwd.as_deref()), (Some("p"), Some("/tmp")));
    assert_eq!(run.env, [("A".to_owned(), "ä".to_owned())]);
    let limits = run.limits;
    assert_eq!((limits.wall_ms, limits.memory_bytes, limits.pids), (Some(1), Some(2), Some(3)));
    assert_eq!((limits.output_bytes, limits.capture_bytes), (Some(4), Some(5)));
}

#[tokio::test]
async fn a_failed_launch_is_a_report_and_not_an_error() {
    let gateway = gateway_with(|mut c| async move {
        c.run().await;
        let failed = ExitReport {
            ended_by: EndedBy::LaunchFailed,
            exit_code: Some(127),
            step: Some("exec".into()),
            ..report(127, "")
        };
        c.exit(failed).await;
    });
    let answer = gateway.exec(json!({ "argv": ["/no/such"] })).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        (&answer.json()["ended_by"], &answer.json()["step"]),
        (&json!("launch_failed"), &json!("exec"))
    );
}

#[tokio::test]
async fn refusals_keep_code_and_words_and_get_their_status() {
    for (code, status) in [
        (RefusalCode::LimitRefused, 400),
        (RefusalCode::UnknownProfile, 400),
        (RefusalCode::NotAllowed, 403),
        (RefusalCode::Busy, 429),
        (RefusalCode::ShuttingDown, 503),
        (RefusalCode::Internal, 500),
    ] {
        let gateway = gateway_with(move |mut c| async move {
            c.run().await;
            c.refuse(code, "the words").await;
        });
        for stream in ["", "Accept: text/event-stream\r\n"] {
            let answer = gateway.send(&post(r#"{"command":"x"}"#, stream)).await;
            assert_eq!(answer.failed(status, code.as_str()), "the words");
            assert_eq!(answer.json()["error"]["hint"], "a remedy");
            assert_eq!(answer.head.contains("retry-after: 1"), status == 429 || status == 503);
        }
    }
}

#[tokio::test]
async fn an_executor_that_is_away_is_503_until_it_is_back() {
    let gateway = gateway("");
    let answer = gateway.exec(json!({ "command": "true" })).await;
    answer.failed(503, "executor_unavailable");
    assert!(answer.json()["error"]["hint"].as_str().unwrap().contains("cordon-executor"));
    let back = executor::start(&gateway.executor(), |mut c| async move {
        c.run().await;
        c.exit(report(0, "")).await;
    });
    assert_eq!(gateway.exec(json!({ "command": "true" })).await.status, 200);
    // The socket's file is still there, but nobody listens.
    back.abort();
    let _ = back.await;
    gateway.exec(json!({ "command": "true" })).await.failed(503, "executor_unavailable");
}

#[tokio::test]
async fn an_executor_that_breaks_off_or_talks_nonsense_is_not_a_result() {
    let gone = gateway_with(|mut c| async move {
        c.run().await;
        c.started().await;
    });
    gone.exec(json!({ "command": "true" })).await.failed(503, "executor_unavailable");
    let half = gateway_with(|mut c| async move {
        c.run().await;
        c.send_bytes(&[200, 0, 0, 0, 1, 2]).await;
    });
    half.exec(json!({ "command": "true" })).await.failed(503, "executor_unavailable");
    let nonsense = gateway_with(|mut c| async move {
        c.run().await;
        c.send_bytes(&[4, 0, 0, 0, 255, 255, 255, 255]).await;
    });
    nonsense.exec(json!({ "command": "true" })).await.failed(500, "internal");
    let wrong = gateway_with(|mut c| async move {
        c.run().await;
        c.send(Event::Stdout(b"not asked for".to_vec())).await;
    });
    wrong.exec(json!({ "command": "true" })).await.failed(500, "internal");
}

#[tokio::test]
async fn a_client_that_leaves_closes_the_executors_connection() {
    let (seen, mut events) = mpsc::unbounded_channel();
    let gateway = gateway_with(move |mut c| {
        let seen = seen.clone();
        async move {
            c.run().await;
            c.started().await;
            seen.send("running").unwrap();
            assert!(c.next().await.is_none());
            seen.send("closed").unwrap();
        }
    });
    for stream in ["", "Accept: text/event-stream\r\n"] {
        let mut client = TcpStream::connect(gateway.address).await.unwrap();
        client.write_all(&post(r#"{"command":"sleep 99"}"#, stream)).await.unwrap();
        assert_eq!(timeout(SOON, events.recv()).await.unwrap(), Some("running"));
        // It stays open as long as the client does.
        let early = timeout(Duration::from_millis(200), events.recv()).await;
        assert!(early.is_err(), "{early:?}");
        drop(client);
        assert_eq!(timeout(SOON, events.recv()).await.expect("closed"), Some("closed"));
    }
}

#[tokio::test]
async fn a_client_that_leaves_with_more_already_sent_closes_it_too() {
    let (seen, mut events) = mpsc::unbounded_channel();
    let gateway = gateway_with(move |mut c| {
        let seen = seen.clone();
        async move {
            c.run().await;
            c.started().await;
            seen.send("running").unwrap();
            assert!(c.next().await.is_none());
            seen.send("closed").unwrap();
        }
    });
    // A further request, or a stray line after the body, lies unread before the end of the connection.
    for more in ["GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "\n"] {
        for stream in ["", "Accept: text/event-stream\r\n"] {
            let mut client = TcpStream::connect(gateway.address).await.unwrap();
            let request = [post(r#"{"command":"sleep 99"}"#, stream), more.into()].concat();
            client.write_all(&request).await.unwrap();
            assert_eq!(timeout(SOON, events.recv()).await.unwrap(), Some("running"));
            let early = timeout(Duration::from_millis(200), events.recv()).await;
            assert!(early.is_err(), "{early:?}");
            drop(client);
            assert_eq!(timeout(SOON, events.recv()).await.expect("closed"), Some("closed"));
        }
    }
}

#[tokio::test]
async fn standard_input_arrives_and_the_connection_stays_open_after_its_end() {
    let gateway = gateway_with(|mut c| async move {
        assert!(c.run().await.stdin);
        let mut input = Vec::new();
        while let Some(Request::Stdin(piece)) = c.next().await {
            input.extend(piece);
        }
        c.started().await;
        // Long enough for a connection that was closed by mistake to show.
        let more = timeout(Duration::from_millis(300), c.next()).await;
        assert!(more.is_err(), "closed after standard input");
        c.exit(report(0, &format!("{input:?}"))).await;
    });
    let answer = gateway.exec(json!({ "command": "cat", "stdin": "hé" })).await;
    assert_eq!(answer.json()["stdout"], format!("{:?}", "hé".as_bytes()));
    let answer = gateway.exec(json!({ "command": "cat", "stdin": { "base64": "/wA=" } })).await;
    assert_eq!(answer.json()["stdout"], "[255, 0]");
    let answer = gateway.exec(json!({ "command": "cat", "stdin": "" })).await;
    assert_eq!(answer.json()["stdout"], "[]");
}

#[tokio::test]
async fn a_command_that_ends_without_reading_is_still_reported() {
    let gateway = gateway_with(|mut c| async move {
        c.run().await;
        c.exit(report(0, "done")).await;
    });
    let answer = gateway.exec(json!({ "command": "true", "stdin": "x".repeat(8 << 20) })).await;
    assert_eq!((answer.status, &answer.json()["stdout"]), (200, &json!("done")));
}

#[tokio::test]
async fn a_client_that_leaves_while_its_input_is_sent_ends_the_sending_too() {
    let (seen, mut events) = mpsc::unbounded_channel();
    let (left, leaves) = tokio::sync::watch::channel(false);
    let gateway = gateway_with(move |mut c| {
        let (seen, mut leaves) = (seen.clone(), leaves.clone());
        async move {
            c.run().await;
            seen.send(0).unwrap();
            // Reads nothing until the client has left.
            leaves.wait_for(|left| *left).await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
            let mut length = 0;
            while let Some(request) = c.next().await {
                assert!(matches!(request, Request::Stdin(_)), "all of it was sent");
                length += 1;
            }
            seen.send(length).unwrap();
        }
    });
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    let body = json!({ "command": "sleep 99", "stdin": "x".repeat(8 << 20) }).to_string();
    client.write_all(&post(&body, "")).await.unwrap();
    assert_eq!(timeout(SOON, events.recv()).await.unwrap(), Some(0));
    drop(client);
    left.send(true).unwrap();
    let pieces = timeout(SOON, events.recv()).await.unwrap().expect("the connection was closed");
    assert!(pieces < 64, "{pieces}");
}
