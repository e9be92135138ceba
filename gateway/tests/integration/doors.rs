//! Who may come in: token, Host and Origin, over TCP and the Unix socket.

use crate::{
    client::{TOKEN, gateway, gateway_with, get, post},
    executor::report,
};
use serde_json::json;

#[tokio::test]
async fn without_the_token_everything_but_healthz_is_401() {
    let gateway = gateway("token_file = \"/run/there/token\"");
    let wrong = "x".repeat(TOKEN.len());
    for path in ["/openapi.json", "/v1/exec", "/no/such/path", "/healthz/", "/healthz/../openapi.json"] {
        for header in [
            String::new(),
            format!("Authorization: Bearer {wrong}\r\n"),
            format!("Authorization: Bearer {TOKEN}x\r\n"),
            format!("Authorization: Basic {TOKEN}\r\n"),
            format!("x-api-key: {wrong}\r\n"),
            format!("Cookie: token={TOKEN}\r\n"),
        ] {
            let answer = gateway.send(&get(path, &format!("Host: localhost\r\n{header}"))).await;
            let message = answer.failed(401, "unauthorized");
            assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
            assert!(!message.contains(TOKEN));
            assert!(answer.hint().ends_with("the token is in /run/there/token"), "{}", answer.hint());
        }
    }
    let body = r#"{"command":"x"}"#;
    let request = format!(
        "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    gateway.send(request.as_bytes()).await.failed(401, "unauthorized");
}

#[tokio::test]
async fn either_header_opens() {
    let gateway = gateway("");
    for header in [format!("Authorization: Bearer {TOKEN}\r\n"), format!("X-Api-Key: {TOKEN}\r\n")] {
        let answer = gateway.send(&get("/openapi.json", &format!("Host: localhost\r\n{header}"))).await;
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_403_on_every_path_even_with_the_token() {
    let gateway = gateway("allowed_hosts = [\"box.example\"]\nallowed_origins = [\"https://box.example\"]");
    let port = gateway.address.port();
    let key = format!("x-api-key: {TOKEN}\r\n");
    for path in ["/healthz", "/openapi.json", "/v1/exec", "/nothing"] {
        let send = async |headers: String| gateway.send(&get(path, &format!("{headers}{key}"))).await;
        for host in ["evil.example", "localhost.evil.example", ""] {
            send(format!("Host: {host}\r\n")).await.failed(403, "host_not_allowed");
        }
        for origin in ["http://evil.example", "null", "http://localhost", "https://box.example:1"] {
            let headers = format!("Host: localhost\r\nOrigin: {origin}\r\n");
            send(headers).await.failed(403, "origin_not_allowed");
        }
        send(String::new()).await.failed(400, "bad_request");
        for host in ["localhost", "127.0.0.1:1234", "[::1]:3800", "box.example"] {
            for origin in ["https://box.example".to_owned(), format!("http://localhost:{port}")] {
                let status = send(format!("Host: {host}\r\nOrigin: {origin}\r\n")).await.status;
                assert!(matches!(status, 200 | 404 | 405), "{path} {host} {origin}: {status}");
            }
        }
    }
    // The order is Host, Origin, token: a foreign page does not learn whether its guess was right.
    let answer =
        gateway.send(&get("/openapi.json", "Host: localhost\r\nOrigin: http://evil.example\r\n")).await;
    answer.failed(403, "origin_not_allowed");
}

#[tokio::test]
async fn the_unix_socket_asks_for_no_token_and_no_host_but_minds_the_origin() {
    let gateway = gateway_with(|mut c| async move {
        c.run().await;
        c.exit(report(0, "hi")).await;
    });
    let body = r#"{"command":"echo hi"}"#;
    for host in ["Host: evil.example\r\n", ""] {
        let request = format!(
            "POST /v1/exec HTTP/1.1\r\n{host}Content-Type: application/json\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = gateway.send_unix(request.as_bytes()).await;
        assert_eq!((answer.status, &answer.json()["stdout"]), (200, &json!("hi")));
    }
    let answer = gateway.send_unix(&get("/openapi.json", "Host: x\r\nOrigin: http://evil.example\r\n")).await;
    answer.failed(403, "origin_not_allowed");
    assert_eq!(gateway.send_unix(&get("/openapi.json", "Host: x\r\n")).await.status, 200);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_errors_of_the_same_form() {
    let gateway = gateway("");
    let headers = format!("Host: localhost\r\nx-api-key: {TOKEN}\r\n");
    gateway.send(&get("/nothing", &headers)).await.failed(404, "not_found");
    let answer = gateway.send(&get("/v1/exec", &headers)).await;
    answer.failed(405, "method_not_allowed");
    assert!(answer.head.contains("allow: post"), "{}", answer.head);
    let mut wrong = post("{}", "");
    wrong.splice(..b"POST /v1/exec".len(), *b"POST /healthz");
    let answer = gateway.send(&wrong).await;
    answer.failed(405, "method_not_allowed");
    assert!(answer.head.contains("allow: get"), "{}", answer.head);
}
