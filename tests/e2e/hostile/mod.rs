//! The root half against a server half that has been taken over: what it must not do is refused, not obeyed.
//!
//! The build with faults takes a descriptor of the test's as its link instead of forking a server half.

mod arriving;
mod files;
mod launches;
mod messages;
mod refusals;
mod storm;
mod workspaces;

use crate::harness::{
    PATIENCE,
    build::fault_executor,
    daemon::{NotifySocket, ensure_users, in_scope, open_directory, write_configuration},
    host,
    lab::{STRANGER, profiles},
    process::{self, Process},
    stretched,
};
use cordon_executor::{
    monitor::link::{AskedLimits, LaunchRefusal, MESSAGE_LEN, Outcome, ToMonitor, ToServer},
    sealed::{SealedRequest, Work},
    sys::{memfd, scm},
};
use cordon_protocol::EndedBy;
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::{
        socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt::ReceiveTimeout},
        time::TimeVal,
    },
};
use std::{
    fs::File,
    io::Read,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    process::{Child, Stdio},
    time::Instant,
};
use tempfile::TempDir;

/// A monitor whose server half is this test.
struct Hostile {
    // Dropped first: the end of the link ends the monitor.
    link: OwnedFd,
    process: Process,
    directory: TempDir,
}

/// A message with the descriptors that came with it.
type Received = (ToServer, Vec<OwnedFd>);

impl Hostile {
    fn start() -> Self {
        Self::start_with(&profiles())
    }

    fn start_with(configuration: &str) -> Self {
        Self::start_after("", configuration)
    }

    /// After a line for the shell that becomes the executor.
    fn start_after(line: &str, configuration: &str) -> Self {
        ensure_users();
        // `CLOEXEC` here; the shell makes the copy that the executor inherits.
        let (link, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        // As the executor makes its own: one that does not read must not stop the monitor.
        fcntl(&theirs, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let directory = open_directory();
        let file = write_configuration(directory.path(), "available", configuration);
        let notify = NotifySocket::bind(directory.path());
        // The link arrives as standard input; the daemon finds it as descriptor 3.
        let mut command = in_scope("/bin/sh".as_ref());
        command.arg("-c").arg(format!("{line}\nexec 3<&0 </dev/null; exec \"$0\" --config \"$1\""));
        command.arg(fault_executor()).arg(file);
        command.env("CORDON_TEST_LINK", "3").env("NOTIFY_SOCKET", &notify.path);
        let process = Process::start_with_stdin(command, Stdio::from(theirs));
        setsockopt(&link, ReceiveTimeout, &TimeVal::new(0, 100_000)).unwrap();
        let hostile = Self { link, process, directory };
        let start = Instant::now();
        while !notify.ready() {
            assert!(start.elapsed() < stretched(PATIENCE), "never ready:\n{}", hostile.process.log());
            // It may want to know first whether somebody is there.
            assert!(hostile.receive().is_none(), "it sent something before any peer came");
        }
        hostile
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("executor.sock")
    }

    /// The next message within a tenth of a second, pings answered.
    fn receive(&self) -> Option<Received> {
        let mut buffer = [0; MESSAGE_LEN + 1];
        match scm::receive(self.link.as_fd(), &mut buffer) {
            Ok(received) if received.length == 0 => panic!("the monitor hung up:\n{}", self.process.log()),
            Ok(received) => match ToServer::decode(&buffer[..received.length]).unwrap() {
                ToServer::Ping => {
                    self.send(&ToMonitor::Pong, &[]);
                    None
                }
                message => Some((message, received.descriptors)),
            },
            Err(Errno::EAGAIN) => None,
            Err(error) => panic!("link: {error}:\n{}", self.process.log()),
        }
    }

    /// The next message, which must come.
    fn next(&self) -> Received {
        let start = Instant::now();
        loop {
            if let Some(received) = self.receive() {
                return received;
            }
            assert!(start.elapsed() < stretched(PATIENCE), "no message:\n{}", self.process.log());
        }
    }

    /// Fails when any message comes within half a second.
    fn assert_quiet(&self) {
        for _ in 0..5 {
            if let Some((message, _)) = self.receive() {
                panic!("not ignored: {message:?}");
            }
        }
    }

    fn send(&self, message: &ToMonitor, descriptors: &[BorrowedFd<'_>]) {
        scm::send(self.link.as_fd(), &message.encode(), descriptors).unwrap();
    }

    /// A peer of root's; its number.
    fn peer(&self) -> (u64, UnixStream) {
        let stream = UnixStream::connect(self.socket()).unwrap();
        (self.accepted(0), stream)
    }

    fn accepted(&self, expected: u32) -> u64 {
        match self.next() {
            (ToServer::Connection { connection, uid, .. }, descriptors) => {
                assert_eq!((uid, descriptors.len()), (expected, 1), "the uid is the kernel's word");
                connection
            }
            other => panic!("no connection: {other:?}"),
        }
    }

    /// A peer of another uid in the group that may connect; it stays as long as the child lives.
    fn stranger(&self) -> (u64, Child) {
        let code = format!(
            "import socket, time; s = socket.socket(1); s.connect('{}'); time.sleep(600)",
            self.socket().display()
        );
        let mut command = host::as_user(STRANGER, STRANGER, &[host::gid_of("cordon")], "/usr/bin/python3");
        let child = command.args(["-c", &code]).spawn().unwrap();
        (self.accepted(STRANGER), child)
    }

    fn launch(&self, connection: u64, profile: &str, asked: AskedLimits, request: BorrowedFd<'_>) {
        let message = launch_message(connection, |launch| {
            (launch.profile, launch.limits) = (profile.to_owned(), asked);
        });
        self.send(&message, &[request, text().as_fd()]);
    }

    fn refusal(&self, of: u64) -> LaunchRefusal {
        match self.next().0 {
            ToServer::LaunchRefused { connection, refusal } if connection == of => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Launches and waits until the program runs; its number and its standard output.
    fn launched(&self, connection: u64, profile: &str, script: &str) -> (u64, OwnedFd) {
        self.launch(connection, profile, AskedLimits::default(), shell(script).as_fd());
        let (job, output) = match self.next() {
            (ToServer::Launched { connection: of, job, .. }, mut descriptors) => {
                assert_eq!((of, descriptors.len()), (connection, 2));
                (job, descriptors.remove(0))
            }
            other => panic!("not launched: {other:?}"),
        };
        assert_eq!(self.next().0, ToServer::Executed(connection));
        (job, output)
    }

    fn ended(&self, of: u64) -> Outcome {
        match self.next().0 {
            ToServer::Ended { connection, outcome } if connection == of => outcome,
            other => panic!("not ended: {other:?}"),
        }
    }

    /// Fails unless a new peer's ordinary command runs from its launch to its end.
    fn assert_works(&self) {
        let (connection, stream) = self.peer();
        let (_, output) = self.launched(connection, "default", "echo works");
        let outcome = self.ended(connection);
        assert_eq!((outcome.ended_by, outcome.exit_code), (EndedBy::Exit, Some(0)));
        let mut text = String::new();
        File::from(output).read_to_string(&mut text).unwrap();
        assert_eq!(text, "works\n");
        self.send(&ToMonitor::Drained(connection), &[]);
        drop(stream);
        self.send(&ToMonitor::Closed(connection), &[]);
    }
}

/// What of a launch is not the same in all.
struct Asking {
    profile: String,
    workspace: String,
    files: bool,
    adds: bool,
    collect: bool,
    limits: AskedLimits,
}

/// What asks for a launch in which this is special.
fn launch_message(connection: u64, special: impl FnOnce(&mut Asking)) -> ToMonitor {
    let mut asking = Asking {
        profile: "default".to_owned(),
        workspace: String::new(),
        files: false,
        adds: false,
        collect: false,
        limits: AskedLimits::default(),
    };
    special(&mut asking);
    let Asking { profile, workspace, files, adds, collect, limits } = asking;
    ToMonitor::Launch { connection, profile, workspace, stdin: false, files, adds, collect, limits }
}

/// A sealed request for a shell line.
fn shell(script: &str) -> OwnedFd {
    let argv = ["/bin/bash", "-c", script].map(str::to_owned).to_vec();
    sealed(Work::Program(argv))
}

/// What is to stand beside the trail.
fn text() -> OwnedFd {
    memfd::sealed(b"{}").unwrap()
}

/// A sealed request for this work.
fn sealed(work: Work) -> OwnedFd {
    memfd::sealed(&SealedRequest::of(work).encode().unwrap()).unwrap()
}
