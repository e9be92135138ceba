//! Requests of which it is unclear where they end: a proxy in front could take their bytes for other requests than the
//! gateway does (RFC 9112, 11.2). None of them is served, and nothing that follows on the connection.

use crate::harness::{shared, stretched};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

/// What is sent after each request, and must be taken for a request where the one before is clear.
const SECOND: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// What comes back for these bytes until the connection ends, which it must.
fn answers(bytes: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", shared().port)).unwrap();
    stream.set_read_timeout(Some(stretched(Duration::from_secs(20)))).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).expect("the connection ends");
    answers
}

#[test]
fn a_request_whose_end_is_unclear_is_refused_and_ends_the_connection() {
    // Fields of a request, its body, and what is said of it.
    for (fields, body, says) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n", "not both"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\n", "not both"),
        ("Transfer-Encoding: chunked\r\nContent-Length: five", "0\r\n\r\n", "not both"),
        ("content-length:0\r\nX: y\r\ntransfer-encoding:\tChunked", "0\r\n\r\n", "not both"),
        ("Content-Length: 0\r\nContent-Length: 5", "12345", "HTTP/1.1"),
        ("Content-Length: 0, 0", "", "HTTP/1.1"),
        ("Content-Length: +5", "12345", "HTTP/1.1"),
        ("Content-Length: 0x5", "12345", "HTTP/1.1"),
        ("Content-Length:", "", "HTTP/1.1"),
        ("Content-Length: 18446744073709551617", "1", "HTTP/1.1"),
        ("Transfer-Encoding: chunked, chunked", "0\r\n\r\n", "`chunked`, once"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "0\r\n\r\n", "`chunked`, once"),
        ("Transfer-Encoding: gzip, chunked", "0\r\n\r\n", "`chunked`, once"),
        ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", "0\r\n\r\n", "`chunked`, once"),
        ("Transfer-Encoding: identity", "", "HTTP/1.1"),
        ("Transfer-Encoding: xchunked", "0\r\n\r\n", "HTTP/1.1"),
        ("Transfer-Encoding: chunked, identity", "0\r\n\r\n", "HTTP/1.1"),
        ("Transfer-Encoding: \"chunked\"", "0\r\n\r\n", "HTTP/1.1"),
        ("Transfer-Encoding: \x0bchunked", "0\r\n\r\n", "HTTP/1.1"),
        ("Transfer-Encoding:", "", "HTTP/1.1"),
        ("X: a\r\n b", "", "HTTP/1.1"),
        ("X: a\r\n Transfer-Encoding: chunked", "", "HTTP/1.1"),
        ("Transfer-Encoding:\r\n chunked", "0\r\n\r\n", "HTTP/1.1"),
        ("X: a\nContent-Length: 5", "12345", "CR and LF"),
        ("X: a\nTransfer-Encoding: chunked", "0\r\n\r\n", "CR and LF"),
        ("X: a\n", "", "CR and LF"),
        ("X: a\rContent-Length: 5", "12345", "HTTP/1.1"),
        ("X: a\0b", "", "HTTP/1.1"),
        ("X\0: a", "", "HTTP/1.1"),
        ("Content-Length : 0", "", "HTTP/1.1"),
        ("Transfer-Encoding : chunked", "0\r\n\r\n", "HTTP/1.1"),
        ("Content-Length\t: 0", "", "HTTP/1.1"),
        (": a", "", "HTTP/1.1"),
        ("Content-Length", "", "HTTP/1.1"),
    ] {
        let request = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n{body}");
        assert_refused(&request, 400, says);
    }
    shared().assert_works();
}

#[test]
fn a_request_line_that_a_proxy_could_read_otherwise_is_refused() {
    let host = "Host: localhost\r\n";
    let chunks = "Transfer-Encoding: chunked\r\n";
    for (head, status, says) in [
        (format!("GET /healthz HTTP/1.0\r\n{host}{chunks}"), 400, "HTTP/1.1"),
        (format!("GET /healthz HTTP/1.1\n{host}"), 400, "CR and LF"),
        (format!("GET  /healthz HTTP/1.1\r\n{host}"), 400, "HTTP/1.1"),
        (format!("GET /healthz\tHTTP/1.1\r\n{host}"), 400, "HTTP/1.1"),
        (format!("GET /healthz HTTP/1.1 \r\n{host}"), 400, "HTTP/1.1"),
        (format!("GET /healthz\r\n{host}"), 400, "HTTP/1.1"),
        (format!("GET /healthz HTTP/2.0\r\n{host}"), 400, "HTTP/1.1"),
        (format!(" GET /healthz HTTP/1.1\r\n{host}"), 400, "HTTP/1.1"),
        ("GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n".into(), 400, "exactly one Host"),
        // The target's host counts, and the header's as well.
        (format!("GET http://evil.example/healthz HTTP/1.1\r\n{host}"), 403, "evil.example"),
        ("GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\n".into(), 403, "evil.example"),
        (format!("GET http://localhost@evil.example/healthz HTTP/1.1\r\n{host}"), 403, "evil.example"),
    ] {
        // Those that are read as a request and then refused need not end the connection: they end where they say.
        let close = if status == 403 || says.contains("Host") { "Connection: close\r\n" } else { "" };
        assert_refused(&format!("{head}{close}\r\n"), status, says);
    }
    shared().assert_works();
}

fn assert_refused(request: &str, status: u16, says: &str) {
    let answers = answers(&format!("{request}{SECOND}"));
    assert!(answers.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answers}");
    assert!(answers.contains("\"error\":{\"code\"") && answers.contains(says), "{request:?}: {answers}");
    let count = answers.lines().filter(|line| line.starts_with("HTTP/1.1 ")).count();
    assert_eq!(count, 1, "{request:?}: {answers}");
    assert!(answers.to_ascii_lowercase().contains("connection: close"), "{request:?}: {answers}");
}

#[test]
fn a_request_whose_end_is_clear_is_served_and_so_is_the_next_one() {
    let host = "Host: localhost\r\n";
    for (request, count) in [
        (format!("GET /healthz HTTP/1.1\r\n{host}\r\n"), 2),
        (format!("\r\n\r\nGET /healthz HTTP/1.1\r\n{host}\r\n"), 2),
        (format!("GET /healthz HTTP/1.1\r\n{host}Content-Length: 5\r\n\r\n12345"), 2),
        // What looks like a request is none in a body.
        (format!("GET /healthz HTTP/1.1\r\n{host}Content-Length: {}\r\n\r\n{SECOND}", SECOND.len()), 2),
        (format!("GET http://localhost/healthz HTTP/1.1\r\n{host}\r\n"), 2),
        // Allowed, and the last one all the same.
        (format!("GET /healthz HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 1),
    ] {
        let answers = answers(&format!("{request}{SECOND}"));
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), count, "{request:?}: {answers}");
    }
}
