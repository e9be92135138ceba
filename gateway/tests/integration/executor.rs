//! An executor in the test's own process: the real frames, and a script for what it answers.

use cordon_protocol::{
    CgroupMode, Encoding, EndedBy, Enforced, Event, ExitReport, NamespaceName, NetworkMode, Refusal,
    RefusalCode, Request, RunRequest,
    codec::{encode_frame, read_frame_async},
    limits,
};
use std::{future::Future, path::Path};
use tokio::{
    io::{AsyncWriteExt, BufReader},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
};

/// One connection, hello done.
pub(crate) struct Conversation {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Conversation {
    /// The next request; none when the gateway has closed.
    pub(crate) async fn next(&mut self) -> Option<Request> {
        read_frame_async(&mut self.reader, limits::REQUEST_FRAME_MAX).await.unwrap_or(None)
    }

    /// The run request, which must be the next.
    pub(crate) async fn run(&mut self) -> RunRequest {
        match self.next().await {
            Some(Request::Run(run)) => *run,
            other => panic!("a run was awaited, not {other:?}"),
        }
    }

    /// Sends an event; false when nobody is there any more.
    pub(crate) async fn send(&mut self, event: Event) -> bool {
        let frame = encode_frame(&event, limits::EVENT_FRAME_MAX).unwrap();
        self.writer.write_all(&frame).await.is_ok()
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).await.unwrap();
    }

    pub(crate) async fn started(&mut self) {
        assert!(self.send(Event::Started { id: "run-1".into() }).await);
    }

    pub(crate) async fn exit(&mut self, report: ExitReport) {
        self.send(Event::Exited(Box::new(report))).await;
    }

    pub(crate) async fn refuse(&mut self, code: RefusalCode, message: &str) {
        let refusal = Refusal { code, message: message.into(), hint: Some("a remedy".into()) };
        self.send(Event::Refused(refusal)).await;
    }
}

/// Answers each connection with `script` until it is aborted or dropped.
pub(crate) fn start<F>(socket: &Path, script: impl Fn(Conversation) -> F + Send + 'static) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let conversation = greet(stream).await;
            tokio::spawn(script(conversation));
        }
    })
}

async fn greet(stream: UnixStream) -> Conversation {
    let (reader, writer) = stream.into_split();
    let mut conversation = Conversation { reader: BufReader::new(reader), writer };
    let hello = conversation.next().await;
    assert!(matches!(hello, Some(Request::Hello(ref hello)) if hello.version == limits::PROTOCOL_VERSION));
    conversation
}

/// A report as of a command that exited, with captured text.
pub(crate) fn report(exit_code: i32, stdout: &str) -> ExitReport {
    ExitReport {
        id: "run-1".into(),
        ended_by: EndedBy::Exit,
        exit_code: Some(exit_code),
        signal: None,
        step: None,
        stdout: Some(stdout.into()),
        stderr: Some(String::new()),
        stdout_encoding: Encoding::Utf8,
        stderr_encoding: Encoding::Utf8,
        stdout_bytes: stdout.len() as u64,
        stderr_bytes: 0,
        stdout_truncated: false,
        stderr_truncated: false,
        wall_ms: 1.5,
        cpu_ms: 0.5,
        peak_memory_bytes: Some(4096),
        limits_hit: Vec::new(),
        enforced: Enforced {
            uid: 999,
            cgroup: CgroupMode::V2,
            landlock_abi: 7,
            seccomp: true,
            namespaces: vec![NamespaceName::Pid, NamespaceName::Net],
            network: NetworkMode::None,
            capabilities: Vec::new(),
        },
        services: vec![],
        hint: None,
    }
}

/// As [`report`], of a command whose output was streamed.
pub(crate) fn streamed(exit_code: i32) -> ExitReport {
    ExitReport { stdout: None, stderr: None, ..report(exit_code, "") }
}
