//! A gateway under test on sockets of its own, and a client that sends exactly the bytes it is told to.

use crate::executor::{self, Conversation};
use cordon_gateway::{
    app,
    config::Config,
    http::answer::Reports,
    listeners::Listeners,
    server::{Server, Settings},
    token::Token,
};
use serde_json::Value;
use std::{
    future::Future,
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    path::PathBuf,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

pub(crate) const TOKEN: &str = "test-token-0123456789abcdef0123456789";
/// Nothing in these tests takes this long, unless it hangs.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A gateway that runs in the test's process.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) directory: TempDir,
    stop: Option<oneshot::Sender<()>>,
    served: Option<JoinHandle<()>>,
}

/// A gateway without an executor, with `more` in its configuration.
pub(crate) fn gateway(more: &str) -> Gateway {
    gateway_with_reports(more, Reports::default())
}

/// The same, with so much room for reports.
pub(crate) fn gateway_with_reports(more: &str, reports: Reports) -> Gateway {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gateway.toml");
    let socket = directory.path().join("executor.sock");
    std::fs::write(&file, format!("executor = \"{}\"\n{more}", socket.display())).unwrap();
    let config = Config::load(&file).unwrap();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let unix = UnixListener::bind(directory.path().join("gateway.sock")).unwrap();
    let listeners = Listeners { tcp: vec![tcp], unix: vec![unix] };
    let router = app::router(&config, Token::new(TOKEN).unwrap(), reports);
    let server = Server::new(router, listeners, Settings::from(&config)).unwrap();
    let (stop, stopped) = oneshot::channel();
    let served = tokio::spawn(server.serve(async move {
        let _ = stopped.await;
    }));
    Gateway { address, directory, stop: Some(stop), served: Some(served) }
}

/// A gateway in front of an executor that follows `script`.
pub(crate) fn gateway_with<F>(script: impl Fn(Conversation) -> F + Send + 'static) -> Gateway
where
    F: Future<Output = ()> + Send + 'static,
{
    let gateway = gateway("");
    executor::start(&gateway.executor(), script);
    gateway
}

impl Gateway {
    pub(crate) fn executor(&self) -> PathBuf {
        self.directory.path().join("executor.sock")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("gateway.sock")
    }

    /// Posts JSON to `/v1/exec` with the token.
    pub(crate) async fn exec(&self, json: impl ToString) -> Answer {
        self.send(&post(&json.to_string(), "")).await
    }

    /// As [`Gateway::exec`], asking for a stream.
    pub(crate) async fn exec_stream(&self, json: impl ToString) -> Answer {
        self.send(&post(&json.to_string(), "Accept: text/event-stream\r\n")).await
    }

    /// Sends bytes over TCP and reads the answer to the end of the connection.
    pub(crate) async fn send(&self, request: &[u8]) -> Answer {
        exchange(TcpStream::connect(self.address).await.unwrap(), request).await
    }

    /// The same over the Unix socket.
    pub(crate) async fn send_unix(&self, request: &[u8]) -> Answer {
        exchange(UnixStream::connect(self.socket()).await.unwrap(), request).await
    }

    /// Tells the gateway to stop; the handle is ready once it has.
    pub(crate) fn stop(&mut self) -> JoinHandle<()> {
        self.stop.take().unwrap().send(()).unwrap();
        self.served.take().unwrap()
    }
}

/// The bytes of a request with the token; `headers` are whole lines.
pub(crate) fn post(body: &str, headers: &str) -> Vec<u8> {
    format!(
        "POST /v1/exec HTTP/1.1\r\nHost: localhost\r\nx-api-key: {TOKEN}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The bytes of a request without a body; `headers` are whole lines.
pub(crate) fn get(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n").into_bytes()
}

async fn exchange<S: AsyncRead + AsyncWrite>(stream: S, request: &[u8]) -> Answer {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut bytes = Vec::new();
    let send = async {
        // The gateway may answer, and stop reading, before all was sent.
        let _ = writer.write_all(request).await;
    };
    let both = async { tokio::join!(send, reader.read_to_end(&mut bytes)) };
    let ((), read) = timeout(SOON, both).await.expect("an answer in time");
    read.unwrap();
    Answer::parse(&bytes)
}

/// A response, its body out of chunks.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("a whole head");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let rest = &bytes[end + 4..];
        let chunked = head.contains("transfer-encoding: chunked");
        let body = if chunked { dechunk(rest) } else { rest.to_vec() };
        Self { status, head, body }
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        // One line: it must not leave a shell's prompt at its end.
        assert!(self.body.ends_with(b"\n") && !self.body.ends_with(b"\n\n"), "{self:?}");
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Checks status and code of a failure, and returns its message.
    pub(crate) fn failed(&self, status: u16, code: &str) -> String {
        let json = self.json();
        assert_eq!((self.status, json["error"]["code"].as_str()), (status, Some(code)), "{self:?}");
        assert_eq!(json.as_object().unwrap().len(), 1);
        let error = json["error"].as_object().unwrap();
        assert!(error.len() == 3 && error.contains_key("hint"), "{error:?}");
        error["message"].as_str().unwrap().to_owned()
    }

    /// What a failure says to do.
    pub(crate) fn hint(&self) -> String {
        self.json()["error"]["hint"].as_str().unwrap_or_default().to_owned()
    }

    /// The server-sent events, name and data.
    pub(crate) fn events(&self) -> Vec<(String, Value)> {
        let blocks = self.text().split("\n\n").filter(|block| !block.is_empty() && !block.starts_with(':'));
        blocks.map(event).collect()
    }
}

fn event(block: &str) -> (String, Value) {
    let (name, data) = block.split_once('\n').unwrap();
    let name = name.strip_prefix("event: ").unwrap();
    (name.to_owned(), serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap())
}

fn dechunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|w| w == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return body;
        }
        body.extend(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 2 + length + 2..];
    }
    panic!("the stream was cut: {:?}", String::from_utf8_lossy(&body));
}
