//! Reports that their clients do not take: what all of them have together is bounded, and they do not stay.

use crate::{
    client::{Gateway, SOON, gateway, gateway_with_reports, post},
    executor::{self, report, streamed},
};
use cordon_gateway::http::answer::Reports;
use cordon_protocol::{CollectedFile, Event};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::mpsc,
    time::timeout,
};

/// More than the kernel keeps of a connection whose client does not read (tcp(7): tcp_wmem).
const LARGE: usize = 8 << 20;

/// A gateway with room for the reports of three such commands in what the clients of one host may have together, behind an executor that gives it nothing else.
fn crowded(more: &str, wait: Duration) -> Gateway {
    let gateway = gateway_with_reports(more, Reports::new(6 * LARGE, wait));
    executor::start(&gateway.executor(), |mut c| async move {
        c.run().await;
        c.started().await;
        c.exit(report(0, &"x".repeat(LARGE))).await;
    });
    gateway
}

/// Clients that have seen the beginning of their report and take no more of it.
async fn three_that_take_nothing(gateway: &Gateway) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = TcpSocket::new_v4().unwrap();
        client.set_recv_buffer_size(4 << 10).unwrap();
        let mut client = client.connect(gateway.address).await.unwrap();
        client.write_all(&post(r#"{"command":"x"}"#, "")).await.unwrap();
        let mut begin = [0; 15];
        timeout(SOON, client.read_exact(&mut begin)).await.expect("a report").unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200 OK");
        clients.push(client);
    }
    clients
}

#[tokio::test]
async fn where_others_have_all_the_room_a_report_is_lost_and_that_is_told() {
    let gateway = crowded("", Duration::from_millis(200));
    let clients = three_that_take_nothing(&gateway).await;
    let lost = gateway.exec(r#"{"command":"x"}"#).await;
    assert_eq!(lost.status, 503);
    let message = lost.failed(503, "report_lost");
    assert!(message.contains("the command has run") && lost.hint().contains("runs it again"), "{lost:?}");
    // Their room is free once they have gone.
    drop(clients);
    let again = async { while gateway.exec(r#"{"command":"x"}"#).await.status != 200 {} };
    timeout(SOON, again).await.expect("there is room again");
}

#[tokio::test]
async fn a_report_waits_for_the_room_of_clients_that_are_let_go() {
    let gateway = crowded("header_timeout = \"300ms\"", SOON);
    let clients = three_that_take_nothing(&gateway).await;
    let answer = gateway.exec(r#"{"command":"x"}"#).await;
    assert_eq!(answer.json()["stdout_bytes"], LARGE);
    drop(clients);
}

/// A gateway with room for one such file on its way, behind an executor that streams one, and a client that has seen
/// its beginning and takes no more.
async fn a_file_that_lies_there(more: &str, wait: Duration) -> (Gateway, TcpStream) {
    let gateway = gateway_with_reports(more, Reports::new(6 * LARGE, wait));
    executor::start(&gateway.executor(), |mut c| async move {
        c.run().await;
        c.started().await;
        let content = vec![1; 4 << 20];
        let size = content.len() as u64;
        if c.send(Event::File(CollectedFile {
            path: "x".into(),
            content,
            size,
            truncated: false,
            mode: 0o644,
            problem: None,
        }))
        .await
        {
            c.exit(streamed(0)).await;
        }
    });
    let client = TcpSocket::new_v4().unwrap();
    client.set_recv_buffer_size(4 << 10).unwrap();
    let mut client = client.connect(gateway.address).await.unwrap();
    client.write_all(&post(r#"{"command":"x"}"#, "Accept: text/event-stream\r\n")).await.unwrap();
    let (mut seen, mut buffer) = (String::new(), [0; 256]);
    while !seen.contains("event: file") {
        let length = timeout(SOON, client.read(&mut buffer)).await.expect("a file").unwrap();
        seen.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    (gateway, client)
}

#[tokio::test]
async fn a_file_in_a_stream_takes_of_what_reports_have_together() {
    let (gateway, client) = a_file_that_lies_there("", Duration::from_millis(200)).await;
    let events = gateway.exec_stream(r#"{"command":"x"}"#).await.events();
    let (name, data) = events.last().unwrap();
    assert_eq!((name.as_str(), data["error"]["code"].as_str()), ("error", Some("report_lost")));
    drop(client);
    let last = || async { gateway.exec_stream(r#"{"command":"x"}"#).await.events().pop().unwrap().0 };
    let again = async { while last().await != "exit" {} };
    timeout(SOON, again).await.expect("there is room again");
}

#[tokio::test]
async fn who_lets_a_file_lie_is_let_go_though_it_is_a_stream() {
    // At leisure it would have longer than the other one waits.
    let (gateway, client) = a_file_that_lies_there("header_timeout = \"3s\"", SOON).await;
    let events = gateway.exec_stream(r#"{"command":"x"}"#).await.events();
    assert_eq!(events.last().unwrap().0, "exit");
    drop(client);
}

#[tokio::test]
async fn the_client_of_a_stream_that_takes_nothing_is_let_go_at_last() {
    let gateway = gateway("header_timeout = \"200ms\"");
    let (seen, mut events) = mpsc::unbounded_channel();
    executor::start(&gateway.executor(), move |mut c| {
        let seen = seen.clone();
        async move {
            c.run().await;
            c.started().await;
            while c.send(Event::Stdout(vec![b'x'; 60_000])).await {}
            seen.send(()).unwrap();
        }
    });
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(&post(r#"{"command":"x"}"#, "Accept: text/event-stream\r\n")).await.unwrap();
    let mut begin = [0; 15];
    timeout(SOON, client.read_exact(&mut begin)).await.unwrap().unwrap();
    // Its command ends with it.
    timeout(SOON, events.recv()).await.expect("it is let go").unwrap();
}
