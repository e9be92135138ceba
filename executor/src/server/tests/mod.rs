//! The server with a test in the monitor's place: a real link, real sockets, real pipes.

mod collect;
mod ends;
mod handshake;
mod lockdown;
mod questions;
mod queue;
mod services;
mod streams;

use super::{ServerError, fixture};
use crate::{
    config::Config,
    monitor::link::{ConnectionId, Denial, JobId, MESSAGE_LEN, Outcome, ToMonitor, ToServer},
    sealed::SealedRequest,
    sys::{memfd::sealed_length, scm},
};
use cordon_protocol::audit::Text;
use cordon_protocol::{
    Action, EndedBy, Event, ExitReport, Health, Hello, LayerReport, Refusal, Request, RunRequest,
    codec::{encode_frame, read_frame},
    limits,
};
use nix::sys::{
    socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt::ReceiveTimeout},
    time::TimeVal,
};
use std::{
    cell::Cell,
    fs::File,
    io::{Read, Seek, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    thread::JoinHandle,
    time::Duration,
};

/// Everything that is awaited here comes at once; only a fault waits so long.
const PATIENCE: Duration = Duration::from_secs(10);
const UID: u32 = 1000;

/// The monitor's end of a running server.
struct Monitor {
    link: OwnedFd,
    next: Cell<u64>,
    server: JoinHandle<Result<(), ServerError>>,
}

/// A connected client.
struct Client {
    stream: UnixStream,
    connection: ConnectionId,
}

/// A command as the monitor sees it: the far ends of the pipes.
struct Command {
    connection: ConnectionId,
    stdout: File,
    stderr: File,
    stdin: Option<File>,
    request: SealedRequest,
    launch: ToMonitor,
}

fn link_pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap()
}

fn layers() -> Vec<LayerReport> {
    vec![LayerReport { layer: "cgroup".into(), health: Health::Ok, detail: "v2".into(), remedy: None }]
}

impl Monitor {
    fn start() -> Self {
        Self::start_with(fixture::config(), || {})
    }

    fn start_with(config: Config, before: impl FnOnce() + Send + 'static) -> Self {
        Self::start_relaying(config, 64, before)
    }

    /// With room for so many connections to services.
    fn start_relaying(config: Config, relayed: usize, before: impl FnOnce() + Send + 'static) -> Self {
        let (link, theirs) = link_pair();
        setsockopt(&link, ReceiveTimeout, &TimeVal::new(10, 0)).unwrap();
        let server = std::thread::spawn(move || {
            before();
            super::run(theirs, config, layers(), relayed, super::Landmarks::default())
        });
        Self { link, next: Cell::new(1), server }
    }

    fn say(&self, message: &ToServer, descriptors: &[BorrowedFd<'_>]) {
        scm::send(self.link.as_fd(), &message.encode(), descriptors).unwrap();
    }

    fn hear_with(&self) -> (ToMonitor, Vec<OwnedFd>) {
        let mut buffer = [0; MESSAGE_LEN];
        let received = scm::receive(self.link.as_fd(), &mut buffer).expect("a message in time");
        (ToMonitor::decode(&buffer[..received.length]).unwrap(), received.descriptors)
    }

    fn hear(&self) -> ToMonitor {
        self.hear_with().0
    }

    /// Nothing more comes: the answer to a ping is the next message.
    fn hear_nothing(&self) {
        self.say(&ToServer::Ping, &[]);
        assert_eq!(self.hear(), ToMonitor::Pong);
    }

    fn connect_as(&self, uid: u32, profiles: u64) -> Client {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let connection = self.next.replace(self.next.get() + 1);
        self.say(&ToServer::Connection { connection, uid, profiles }, &[theirs.as_fd()]);
        Client { stream: ours, connection }
    }

    fn connect(&self) -> Client {
        self.connect_as(UID, u64::MAX)
    }

    /// A client that has sent this request.
    fn ask(&self, request: &Request) -> Client {
        let mut client = self.connect();
        client.open(request);
        client
    }

    /// Accepts the next launch.
    fn launch(&self, job: JobId, output_bytes: u64, capture_bytes: u64) -> Command {
        let (launch, descriptors) = self.hear_with();
        let ToMonitor::Launch { connection, stdin, .. } = launch else { panic!("{launch:?}") };
        let [sealed, text] = <[OwnedFd; 2]>::try_from(descriptors).unwrap();
        let content = |sealed: OwnedFd| {
            assert!(sealed_length(sealed.as_fd()).is_some());
            let mut bytes = Vec::new();
            let mut sealed = File::from(sealed);
            sealed.rewind().unwrap();
            sealed.read_to_end(&mut bytes).unwrap();
            bytes
        };
        let (bytes, text) = (content(sealed), content(text));
        let text: Text = serde_json::from_slice(&text).unwrap();
        let request = SealedRequest::decode(&bytes).unwrap();
        // What the trail's readers see is what the command gets.
        let SealedRequest { work, env, cwd, files } = request.clone();
        assert!(text.cut || (text.work, text.env, text.cwd, text.files) == (work, env, cwd, files));
        let pipe = || nix::unistd::pipe().unwrap();
        let (stdout, stderr, input) = (pipe(), pipe(), pipe());
        let mut near = vec![stdout.0.as_fd(), stderr.0.as_fd()];
        if stdin {
            near.push(input.1.as_fd());
        }
        self.say(&ToServer::Launched { connection, job, output_bytes, capture_bytes }, &near);
        Command {
            connection,
            stdout: stdout.1.into(),
            stderr: stderr.1.into(),
            stdin: stdin.then(|| input.0.into()),
            request,
            launch,
        }
    }

    /// A client whose command has been executed.
    fn running(&self, request: RunRequest, job: JobId) -> (Client, Command) {
        let client = self.ask(&Request::Run(Box::new(request)));
        let command = self.launch(job, 64 << 20, 1 << 20);
        self.say(&ToServer::Executed(command.connection), &[]);
        (client, command)
    }

    fn ended(&self, connection: ConnectionId, outcome: Outcome) {
        self.say(&ToServer::Ended { connection, outcome }, &[]);
    }

    /// The command exits with 0 and its pipes close.
    fn exit(&self, command: Command) {
        let connection = command.connection;
        drop(command);
        self.ended(connection, exited());
        assert_eq!(self.hear(), ToMonitor::Drained(connection));
    }

    /// Ends the link, and with it the server.
    fn stop(self) {
        drop(self.link);
        self.server.join().unwrap().unwrap();
    }
}

impl Client {
    fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn send(&mut self, request: &Request) {
        let frame = encode_frame(request, limits::REQUEST_FRAME_MAX).unwrap();
        self.send_bytes(&frame);
    }

    fn open(&mut self, request: &Request) {
        self.send(&hello(limits::PROTOCOL_VERSION));
        self.send(request);
    }

    fn event(&mut self) -> Option<Event> {
        read_frame(&mut self.stream, limits::EVENT_FRAME_MAX).unwrap()
    }

    fn started(&mut self, id: &str) {
        assert_eq!(self.event(), Some(Event::Started { id: id.into() }));
    }

    /// The report, after which the connection ends.
    fn report(&mut self) -> ExitReport {
        let Some(Event::Exited(report)) = self.event() else { panic!("no report") };
        assert_eq!(self.event(), None);
        *report
    }

    /// The refusal, after which the connection ends.
    fn refusal(&mut self) -> Refusal {
        match self.event() {
            Some(Event::Refused(refusal)) => {
                assert!(refusal.hint.is_some() && self.event().is_none());
                refusal
            }
            other => panic!("{other:?}"),
        }
    }

    /// The monitor hears, once, that it was refused.
    fn denied(&self, monitor: &Monitor, profile: &str, denial: Denial) {
        let profile = profile.to_owned();
        assert_eq!(monitor.hear(), ToMonitor::Refused { connection: self.connection, profile, denial });
    }

    /// Closes, and the monitor hears of it.
    fn close(self, monitor: &Monitor) {
        drop(self.stream);
        assert_eq!(monitor.hear(), ToMonitor::Closed(self.connection));
    }
}

fn hello(version: u32) -> Request {
    Request::Hello(Hello { version, client: "test".into() })
}

fn line(line: &str) -> RunRequest {
    RunRequest::new(Action::Line(line.into()))
}

fn exited() -> Outcome {
    Outcome { exit_code: Some(0), ..fixture::outcome(EndedBy::Exit) }
}

/// Shuts a client's sending side.
fn half_close(client: &Client) {
    client.stream.shutdown(Shutdown::Write).unwrap();
}
