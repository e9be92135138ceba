//! The root half against a server half that has been taken over: what it must not do is refused, not obeyed.
//!
//! The build with faults takes a descriptor of the test's as its link instead of forking a server half.

use crate::harness::{
    PATIENCE,
    build::{fault_executor, programs},
    daemon::{NotifySocket, ensure_users, open_directory, write_configuration},
    eventually, host,
    lab::{STRANGER, profiles, writable},
    marker,
    process::{self, Process, sandboxed},
};
use cordon_executor::{
    monitor::link::{AskedLimits, LaunchRefusal, LimitField, MESSAGE_LEN, Outcome, ToMonitor, ToServer},
    sealed::SealedRequest,
    sys::{memfd, scm},
};
use cordon_protocol::{EndedBy, limits};
use nix::{
    errno::Errno,
    sys::{
        memfd::{MFdFlags, memfd_create},
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
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
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
        ensure_users();
        // `CLOEXEC` here; the shell makes the copy that the executor inherits.
        let (link, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let directory = open_directory();
        let file = write_configuration(directory.path(), "available", &profiles());
        let notify = NotifySocket::bind(directory.path());
        // The link arrives as standard input; the daemon finds it as descriptor 3.
        let mut command = process::tied("/bin/sh".as_ref());
        command.args(["-c", "exec 3<&0 </dev/null; exec \"$0\" --config \"$1\""]);
        command.arg(fault_executor()).arg(file);
        command.env("CORDON_TEST_LINK", "3").env("NOTIFY_SOCKET", &notify.path);
        let process = Process::start_with_stdin(command, Stdio::from(theirs));
        setsockopt(&link, ReceiveTimeout, &TimeVal::new(0, 100_000)).unwrap();
        let hostile = Self { link, process, directory };
        let start = Instant::now();
        while !notify.ready() {
            assert!(start.elapsed() < PATIENCE, "never ready:\n{}", hostile.process.log());
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
            assert!(start.elapsed() < PATIENCE, "no message:\n{}", self.process.log());
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
        let profile = profile.to_owned();
        self.send(&ToMonitor::Launch { connection, profile, stdin: false, limits: asked }, &[request]);
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

/// A sealed request for a shell line.
fn shell(script: &str) -> OwnedFd {
    let argv = ["/bin/bash", "-c", script].map(str::to_owned).to_vec();
    memfd::sealed(&SealedRequest { argv, env: Vec::new(), cwd: None }.encode().unwrap()).unwrap()
}

#[test]
fn an_honest_server_is_served() {
    let hostile = Hostile::start();
    hostile.assert_works();
    hostile.assert_works();
}

#[test]
fn a_launch_for_a_connection_that_is_not_there_is_refused() {
    let hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    for other in [0, connection + 1, u64::MAX - 1] {
        hostile.launch(other, "default", AskedLimits::default(), shell("true").as_fd());
        assert_eq!(hostile.refusal(other), LaunchRefusal::OutOfOrder);
    }
    hostile.assert_works();
}

#[test]
fn a_peer_is_who_the_kernel_says() {
    let hostile = Hostile::start();
    let (root, _stream) = hostile.peer();
    let (stranger, mut child) = hostile.stranger();
    hostile.launch(stranger, "rootonly", AskedLimits::default(), shell("true").as_fd());
    assert_eq!(hostile.refusal(stranger), LaunchRefusal::UnknownProfile);
    hostile.launch(root, "strangeronly", AskedLimits::default(), shell("true").as_fd());
    assert_eq!(hostile.refusal(root), LaunchRefusal::UnknownProfile);
    // The control: each may use its own.
    hostile.launched(root, "rootonly", "true");
    hostile.ended(root);
    hostile.launched(stranger, "strangeronly", "true");
    hostile.ended(stranger);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_job_of_another_uid_is_not_killed() {
    let hostile = Hostile::start();
    let (root, _stream) = hostile.peer();
    let (stranger, mut child) = hostile.stranger();
    let marker = marker();
    let (job, _output) = hostile.launched(root, "default", &format!("sleep {marker}; :"));
    let answer = |found| ToServer::KillAnswer { connection: stranger, found };
    hostile.send(&ToMonitor::KillJob { connection: stranger, job }, &[]);
    assert_eq!(hostile.next().0, answer(false));
    hostile.send(&ToMonitor::KillJob { connection: stranger, job: job + 1 }, &[]);
    assert_eq!(hostile.next().0, answer(false));
    eventually("sleep runs", PATIENCE, || !sandboxed(&marker).is_empty());
    // The control: root's own second connection may.
    let (second, _stream) = hostile.peer();
    hostile.send(&ToMonitor::KillJob { connection: second, job }, &[]);
    let mut seen = vec![hostile.next().0, hostile.next().0];
    seen.retain(|m| *m != ToServer::KillAnswer { connection: second, found: true });
    assert!(
        matches!(&seen[..], [ToServer::Ended { connection, outcome }]
            if *connection == root && outcome.ended_by == EndedBy::Cancelled),
        "{seen:?}"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_profile_that_is_not_there_is_refused() {
    let hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    for name in ["nope", "", "../default", "default\u{1}"] {
        hostile.launch(connection, name, AskedLimits::default(), shell("true").as_fd());
        assert_eq!(hostile.refusal(connection), LaunchRefusal::UnknownProfile, "{name:?}");
    }
    hostile.assert_works();
}

#[test]
fn limits_above_the_ceiling_and_below_the_floor_are_refused_by_the_monitor_itself() {
    let hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    let ask = |field, value: u64| {
        let value = Some(value);
        let mut asked = AskedLimits::default();
        match field {
            LimitField::Wall => asked.wall_ms = value,
            LimitField::CpuTime => asked.cpu_time_ms = value,
            LimitField::Memory => asked.memory_bytes = value,
            LimitField::Pids => asked.pids = value,
            LimitField::Cpu => asked.cpu_percent = value,
            LimitField::Capture => asked.capture_bytes = value,
            LimitField::Output => asked.output_bytes = value,
        }
        hostile.launch(connection, "default", asked, shell("true").as_fd());
        hostile.refusal(connection)
    };
    for (field, ceiling) in [
        (LimitField::Wall, 3_600_000),
        (LimitField::CpuTime, 3_600_000),
        (LimitField::Memory, 2 << 30),
        (LimitField::Pids, 1024),
        (LimitField::Cpu, 200),
        (LimitField::Capture, 8 << 20),
        (LimitField::Output, 16 << 30),
    ] {
        for value in [ceiling + 1, u64::MAX - 1] {
            let expected = LaunchRefusal::AboveCeiling { limit: field, value, ceiling };
            assert_eq!(ask(field, value), expected);
        }
    }
    for field in
        [LimitField::Wall, LimitField::CpuTime, LimitField::Memory, LimitField::Pids, LimitField::Cpu]
    {
        let refusal = ask(field, 0);
        assert!(
            matches!(refusal, LaunchRefusal::BelowFloor { limit, value: 0, .. } if limit == field),
            "{refusal:?}"
        );
    }
    hostile.assert_works();
}

#[test]
fn a_request_file_that_is_no_sealed_memory_file_is_refused() {
    let hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    let unsealed = memfd_create("open", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    let file: OwnedFd = File::open("/etc/passwd").unwrap().into();
    let secret: OwnedFd = File::open("/etc/shadow").unwrap().into();
    let directory: OwnedFd = File::open("/").unwrap().into();
    let (pipe, _writer) = nix::unistd::pipe().unwrap();
    let length = usize::try_from(limits::SEALED_REQUEST_MAX).unwrap() + 1;
    let oversize = memfd::sealed(&vec![0; length]).unwrap();
    for (what, fd) in [
        ("unsealed", unsealed),
        ("file", file),
        ("secret", secret),
        ("directory", directory),
        ("pipe", pipe),
        ("oversize", oversize),
    ] {
        hostile.launch(connection, "default", AskedLimits::default(), fd.as_fd());
        assert_eq!(hostile.refusal(connection), LaunchRefusal::BadRequestFile, "{what}");
    }
    hostile.assert_works();
}

#[test]
fn no_descriptor_and_too_many_are_refused() {
    let hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    let launch = ToMonitor::Launch {
        connection,
        profile: "default".into(),
        stdin: false,
        limits: AskedLimits::default(),
    };
    let request = shell("true");
    for count in [0, 2, scm::DESCRIPTORS_MAX, 64] {
        hostile.send(&launch, &vec![request.as_fd(); count]);
        // Refused, or ignored where the message cannot be believed at all.
        if let Some((message, _)) = hostile.receive() {
            let refused =
                matches!(message, ToServer::LaunchRefused { connection: of, .. } if of == connection);
            assert!(refused, "{count}: {message:?}");
        }
        hostile.assert_quiet();
    }
    let open = process::descriptors(hostile.process.pid()).len();
    for _ in 0..20 {
        hostile.send(&launch, &vec![request.as_fd(); 64]);
        hostile.receive();
    }
    hostile.assert_quiet();
    assert!(process::descriptors(hostile.process.pid()).len() < open + 20, "descriptors are kept");
    hostile.assert_works();
}

#[test]
fn what_is_no_message_is_not_obeyed() {
    let hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    let marker = marker();
    let (_job, _output) = hostile.launched(connection, "default", &format!("sleep {marker}; :"));
    let mut trailing = ToMonitor::Cancel(connection).encode();
    trailing[MESSAGE_LEN - 1] = 1;
    let whole = ToMonitor::Cancel(connection).encode();
    let longer = [&whole[..], &[0]].concat();
    let garbage = [0xa5; MESSAGE_LEN];
    for bytes in [&b"x"[..], &garbage, &trailing, &whole[..MESSAGE_LEN - 1], &longer, &[0; 100_000]] {
        scm::send(hostile.link.as_fd(), bytes, &[]).unwrap();
    }
    hostile.assert_quiet();
    assert!(!sandboxed(&marker).is_empty(), "a message that is not one cancelled the command");
    hostile.assert_works();
}

#[test]
fn messages_out_of_order_change_nothing() {
    let hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    for message in [
        ToMonitor::Drained(connection),
        ToMonitor::Cancel(connection),
        ToMonitor::OutputExceeded(connection),
        ToMonitor::Cancel(u64::MAX - 1),
        ToMonitor::Closed(u64::MAX - 1),
        ToMonitor::Drained(0),
        ToMonitor::Pong,
    ] {
        hostile.send(&message, &[]);
    }
    hostile.assert_quiet();
    let marker = marker();
    hostile.launched(connection, "default", &format!("sleep {marker}; :"));
    // A second launch on the same connection, and an end that has not come.
    hostile.launch(connection, "default", AskedLimits::default(), shell("true").as_fd());
    assert_eq!(hostile.refusal(connection), LaunchRefusal::OutOfOrder);
    hostile.send(&ToMonitor::Drained(connection), &[]);
    hostile.assert_quiet();
    assert!(!sandboxed(&marker).is_empty(), "the command still runs");
    // The control: a cancel in its place is obeyed.
    hostile.send(&ToMonitor::Cancel(connection), &[]);
    assert_eq!(hostile.ended(connection).ended_by, EndedBy::Cancelled);
    hostile.assert_works();
}

#[test]
fn a_forged_request_gives_no_more_than_the_profile() {
    let hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    let file = writable().join(format!("forged-{}", marker()));
    // Whatever the bytes are: read by the locked-down process, with no more rights than the command's.
    let garbage = memfd::sealed(&[0xff; 4096]).unwrap();
    hostile.launch(connection, "writer", AskedLimits::default(), garbage.as_fd());
    let mut last = hostile.next().0;
    if matches!(last, ToServer::Launched { .. }) {
        last = hostile.next().0;
    }
    assert!(
        matches!(&last, ToServer::Ended { outcome, .. } if outcome.ended_by == EndedBy::LaunchFailed),
        "{last:?}"
    );
    assert!(!file.exists());
    hostile.assert_works();
}

#[test]
fn a_server_that_hangs_up_ends_the_monitor_and_every_command() {
    let mut hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    let marker = marker();
    let (_job, output) = hostile.launched(connection, "default", &format!("sleep {marker}; :"));
    drop(output);
    let Hostile { link, process, directory } = &mut hostile;
    let (other, _end) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    drop(std::mem::replace(link, other));
    assert!(!process.wait(Duration::from_secs(20)).success());
    eventually("the command is dead", Duration::from_secs(10), || sandboxed(&marker).is_empty());
    assert!(directory.path().exists());
}

#[test]
fn the_normal_build_takes_no_link_from_its_environment() {
    ensure_users();
    let (_ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "available", "");
    let notify = NotifySocket::bind(directory.path());
    let mut command: Command = process::tied("/bin/sh".as_ref());
    command.args(["-c", "exec 3<&0 </dev/null; exec \"$0\" --config \"$1\""]);
    command.arg(&programs().executor).arg(file);
    command.env("CORDON_TEST_LINK", "3").env("NOTIFY_SOCKET", &notify.path);
    let process = Process::start_with_stdin(command, Stdio::from(theirs));
    eventually("it is ready", PATIENCE, || notify.ready());
    crate::harness::daemon::server_of(process.pid());
}
