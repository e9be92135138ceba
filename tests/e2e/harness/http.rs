//! The gateway as a test talks to it: ordinary requests, and bytes that no client would send.

use super::{Up, stretched};
use cordon_protocol::ExitReport;
use reqwest::blocking::{Client, RequestBuilder};
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    sync::OnceLock,
    time::Duration,
};

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    /// HTTP status.
    pub(crate) status: u16,
    /// Header lines in lower case.
    pub(crate) head: String,
    /// Body.
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{} is not JSON ({e}): {}", self.status, self.text()))
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Code and message of the error in the body, which must have this status.
    pub(crate) fn error(&self, status: u16) -> (String, String) {
        assert_eq!(self.status, status, "{}", self.text());
        let json = self.json();
        let field = |name: &str| json["error"][name].as_str().unwrap_or_default().to_owned();
        assert!(!field("code").is_empty() && !field("message").is_empty(), "{json}");
        (field("code"), field("message"))
    }
}

impl Up {
    /// A request without a token.
    pub(crate) fn anonymous(&self, method: &str, path: &str) -> RequestBuilder {
        static CLIENT: OnceLock<Client> = OnceLock::new();
        let client = CLIENT.get_or_init(|| {
            let patience = stretched(Duration::from_secs(120));
            Client::builder().no_proxy().timeout(patience).build().unwrap()
        });
        client.request(method.parse().unwrap(), format!("http://127.0.0.1:{}{path}", self.port))
    }

    /// A request with the token.
    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        self.anonymous(method, path).bearer_auth(&self.token)
    }

    /// `POST /v1/exec` with this body.
    pub(crate) fn post(&self, body: &Value) -> Answer {
        send(self.request("POST", "/v1/exec").json(body))
    }

    /// The report of `POST /v1/exec`.
    pub(crate) fn exec(&self, body: &Value) -> ExitReport {
        let answer = self.post(body);
        assert_eq!(answer.status, 200, "{body}: {}", answer.text());
        serde_json::from_slice(&answer.body).unwrap_or_else(|e| panic!("{e}: {}", answer.text()))
    }

    /// Sends bytes to the TCP port and reads to the end.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Answer {
        raw(TcpStream::connect(("127.0.0.1", self.port)).unwrap(), bytes)
    }

    /// Sends bytes to the Unix socket and reads to the end.
    pub(crate) fn raw_unix(&self, bytes: &[u8]) -> Answer {
        raw(UnixStream::connect(self.directory().join("gateway.sock")).unwrap(), bytes)
    }
}

/// Sends a request and reads the answer.
pub(crate) fn send(request: RequestBuilder) -> Answer {
    let response = request.send().unwrap();
    let status = response.status().as_u16();
    let line = |(name, value): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
        format!("{name}: {}\n", value.to_str().unwrap_or_default().to_lowercase())
    };
    let head = response.headers().iter().map(line).collect();
    Answer { status, head, body: response.bytes().unwrap().to_vec() }
}

/// A request's bytes; the connection closes after the answer.
pub(crate) fn request_bytes(first_line: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text =
        format!("{first_line} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    [text.as_bytes(), b"\r\n", body].concat()
}

fn raw(mut stream: impl Read + Write, bytes: &[u8]) -> Answer {
    // The answer may come, and the connection close, before everything was taken.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    parse(&answer)
}

/// An answer's bytes, whose body ends with the connection.
pub(crate) fn parse(answer: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(answer);
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("not an answer: {text:?}"));
    let head = text[..end].to_lowercase();
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
    let mut body = answer[end + 4..].to_vec();
    if head.contains("transfer-encoding: chunked") {
        body = unchunk(&body);
    }
    Answer { status: status.unwrap_or_else(|| panic!("no status: {head}")), head, body }
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|w| w == b"\r\n") {
        let length = usize::from_str_radix(String::from_utf8_lossy(&rest[..end]).trim(), 16).unwrap_or(0);
        let Some(piece) = rest.get(end + 2..end + 2 + length).filter(|p| !p.is_empty()) else { break };
        body.extend(piece);
        rest = rest.get(end + 4 + length..).unwrap_or_default();
    }
    body
}

/// One event of an event stream: its name and its data.
pub(crate) fn events(body: &str) -> Vec<(String, Value)> {
    let field = |block: &str, name: &str| {
        let lines =
            block.lines().filter_map(|l| l.strip_prefix(name)).map(|l| l.strip_prefix(' ').unwrap_or(l));
        lines.collect::<Vec<_>>().join("\n")
    };
    let blocks = body.split("\n\n").filter(|b| b.lines().any(|l| l.starts_with("data:")));
    let event = |b: &str| (field(b, "event:"), serde_json::from_str(&field(b, "data:")).unwrap());
    blocks.map(event).collect()
}
