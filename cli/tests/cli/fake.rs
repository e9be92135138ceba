//! An executor that does what a test tells it, and the `cordon` binary pointed at it.

use cordon_protocol::{
    CgroupMode, Encoding, EndedBy, Enforced, Event, ExitReport, NetworkMode, Request, RunRequest,
    codec::{encode_frame, read_frame},
    limits,
};
use std::{
    io::Write,
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread::{self, JoinHandle},
};
use tempfile::TempDir;

/// Listens on a socket of its own and serves one connection.
pub(crate) struct Fake<T> {
    directory: TempDir,
    served: JoinHandle<T>,
}

/// The connection, after its hello.
pub(crate) struct Peer {
    stream: UnixStream,
    /// What the client asked for.
    pub(crate) request: Request,
}

impl<T: Send + 'static> Fake<T> {
    /// Serves one connection with `serve`.
    pub(crate) fn start(serve: impl FnOnce(Peer) -> T + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let served = thread::spawn(move || serve(greet(listener.accept().unwrap().0).unwrap()));
        Self { directory, served }
    }

    /// Whether nobody has connected; the executor is not waited for.
    pub(crate) fn is_unasked(&self) -> bool {
        !self.served.is_finished()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// `cordon` with these arguments and this executor.
    pub(crate) fn cordon(&self, arguments: &[&str]) -> Command {
        let mut command = cordon(arguments);
        command.env("CORDON_SOCKET", self.socket());
        command
    }

    /// Its outcome, and what the executor saw.
    pub(crate) fn output(self, arguments: &[&str]) -> (Output, T) {
        let output = self.cordon(arguments).output().unwrap();
        (output, self.finish())
    }

    /// What the executor saw.
    pub(crate) fn finish(self) -> T {
        self.served.join().unwrap()
    }
}

impl<T: Send + 'static> Fake<Vec<T>> {
    /// Serves one connection after the other, each with `serve`, until [`Fake::finish_row`].
    pub(crate) fn start_row(mut serve: impl FnMut(Peer) -> T + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let served = thread::spawn(move || {
            let peers = std::iter::from_fn(|| greet(listener.accept().unwrap().0));
            peers.map(&mut serve).collect()
        });
        Self { directory, served }
    }

    /// What the executor saw of each connection.
    pub(crate) fn finish_row(self) -> Vec<T> {
        drop(UnixStream::connect(self.socket()).unwrap());
        self.finish()
    }

    /// The command's outcome, and what the executor saw.
    pub(crate) fn outputs(self, arguments: &[&str]) -> (Output, Vec<T>) {
        let output = self.cordon(arguments).output().unwrap();
        (output, self.finish_row())
    }
}

/// Takes the hello and the request; none of a connection that says nothing.
fn greet(mut stream: UnixStream) -> Option<Peer> {
    let hello = read_frame(&mut stream, limits::REQUEST_FRAME_MAX).unwrap()?;
    let Request::Hello(hello) = hello else { panic!("{hello:?}") };
    assert_eq!(hello.version, limits::PROTOCOL_VERSION);
    let request = read_frame(&mut stream, limits::REQUEST_FRAME_MAX).unwrap().unwrap();
    Some(Peer { stream, request })
}

impl Peer {
    pub(crate) fn run(&self) -> RunRequest {
        match &self.request {
            Request::Run(run) => (**run).clone(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn send(&mut self, event: &Event) {
        self.try_send(event).unwrap();
    }

    pub(crate) fn try_send(&mut self, event: &Event) -> std::io::Result<()> {
        self.stream.write_all(&encode_frame(event, limits::EVENT_FRAME_MAX).unwrap())
    }

    /// The next frame; none when the client has closed its side.
    pub(crate) fn next(&mut self) -> Option<Request> {
        read_frame(&mut self.stream, limits::REQUEST_FRAME_MAX).ok().flatten()
    }

    /// Reads standard input to its end; its bytes, and whether it was ended in order.
    pub(crate) fn stdin(&mut self) -> (Vec<u8>, bool) {
        let mut data = Vec::new();
        loop {
            match self.next() {
                Some(Request::Stdin(chunk)) => {
                    assert!(chunk.len() <= limits::CHUNK_MAX);
                    data.extend(chunk);
                }
                Some(Request::StdinEnd) => return (data, true),
                None => return (data, false),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The binary under test, with nothing on its standard input.
pub(crate) fn cordon(arguments: &[&str]) -> Command {
    // What files come to be depends on it.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    // The tests may have been started with signals ignored (nohup, a background job), which it would inherit.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT,TERM", env!("CARGO_BIN_EXE_cordon")]);
    command.args(arguments).env_remove("CORDON_SOCKET").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the child; its exit status.
pub(crate) fn status(child: &mut Child) -> Option<i32> {
    child.wait().unwrap().code()
}

/// What standard output has of a failure: one line of JSON with an error and nothing else.
pub(crate) fn error(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.ends_with('\n') && text.lines().count() == 1, "{output:?}");
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value.as_object().unwrap().len(), 1, "{value}");
    value["error"].take()
}

/// The text of standard error.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn exited(report: ExitReport) -> Event {
    Event::Exited(Box::new(report))
}

/// The report of a command that ended so.
pub(crate) fn report(ended_by: EndedBy, exit_code: Option<i32>) -> ExitReport {
    ExitReport {
        id: "run-1".into(),
        ended_by,
        exit_code,
        signal: None,
        step: None,
        stdout: None,
        stderr: None,
        stdout_encoding: Encoding::Utf8,
        stderr_encoding: Encoding::Utf8,
        stdout_bytes: 0,
        stderr_bytes: 0,
        stdout_truncated: false,
        stderr_truncated: false,
        wall_ms: 1000.0,
        cpu_ms: 20.0,
        peak_memory_bytes: None,
        limits_hit: vec![],
        enforced: Enforced {
            uid: 999,
            cgroup: CgroupMode::V2,
            landlock_abi: 6,
            seccomp: true,
            namespaces: vec![],
            network: NetworkMode::None,
            capabilities: vec![],
        },
        services: vec![],
        hint: None,
    }
}
