//! Launches that a taken-over server must not get.

use super::*;
use crate::harness::{
    PATIENCE, eventually,
    lab::writable,
    marker,
    process::{self, sandboxed},
};
use cordon_executor::{
    monitor::link::{AskedLimits, LaunchRefusal, LimitField, ToServer},
    sys::{memfd, scm},
};
use cordon_protocol::{EndedBy, limits};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::{
    fs::File,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

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
    let _verdict = crate::escape::probe!();
    let hostile = Hostile::start();
    let (root, _stream) = hostile.peer();
    let (stranger, mut child) = hostile.stranger();
    hostile.launch(stranger, "rootonly", AskedLimits::default(), shell("true").as_fd());
    assert_eq!(hostile.refusal(stranger), LaunchRefusal::UnknownProfile);
    hostile.launch(root, "strangeronly", AskedLimits::default(), shell("true").as_fd());
    assert_eq!(hostile.refusal(root), LaunchRefusal::UnknownProfile);
    // The control: each may use its own.
    let (root, _second_stream) = hostile.peer();
    let (stranger, mut second_child) = hostile.stranger();
    hostile.launched(root, "rootonly", "true");
    hostile.ended(root);
    hostile.launched(stranger, "strangeronly", "true");
    hostile.ended(stranger);
    for child in [&mut child, &mut second_child] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_profile_that_is_not_there_is_refused() {
    let hostile = Hostile::start();
    for name in ["nope", "", "../default", "default\u{1}"] {
        let (connection, _stream) = hostile.peer();
        hostile.launch(connection, name, AskedLimits::default(), shell("true").as_fd());
        assert_eq!(hostile.refusal(connection), LaunchRefusal::UnknownProfile, "{name:?}");
    }
    // The monitor's own trail has them, with the peer that the kernel named.
    let trail = std::fs::read_to_string(hostile.directory.path().join("audit.jsonl")).unwrap();
    let refused = trail.lines().filter(|l| l.contains("\"event\":\"refused\",\"uid\":0,")).count();
    assert_eq!(refused, 4, "{trail}");
    hostile.assert_works();
}

#[test]
fn limits_above_the_ceiling_and_below_the_floor_are_refused_by_the_monitor_itself() {
    let hostile = Hostile::start();
    let ask = |field, value: u64| {
        let (connection, _stream) = hostile.peer();
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
fn more_commands_at_once_than_may_be_are_refused_by_the_monitor_itself() {
    let hostile = Hostile::start_with("max_commands = 2");
    let peers = [hostile.peer(), hostile.peer(), hostile.peer(), hostile.peer()];
    let launch = |at: usize| hostile.launched(peers[at].0, "default", "sleep 600");
    let _outputs = [launch(0), launch(1)];
    hostile.launch(peers[2].0, "default", AskedLimits::default(), shell("true").as_fd());
    assert_eq!(hostile.refusal(peers[2].0), LaunchRefusal::Full { commands: 2 });
    // One that has ended counts until what it left is torn down.
    hostile.send(&ToMonitor::Cancel(peers[0].0), &[]);
    hostile.ended(peers[0].0);
    hostile.send(&ToMonitor::Drained(peers[0].0), &[]);
    launch(3);
}

#[test]
fn a_server_that_lies_about_what_ran_is_found_and_one_that_says_nothing_gets_nothing() {
    let hostile = Hostile::start();
    let lie = cordon_protocol::audit::Text {
        work: Work::Program(["/bin/true".to_owned()].into()),
        env: Vec::new(),
        cwd: None,
        workspace: None,
        files: Vec::new(),
        collect: Vec::new(),
        cut: false,
    };
    // As if the whole had been longer than a text may be, so that nobody could compare it.
    let cut = cordon_protocol::audit::Text { cut: true, ..lie.clone() }.to_json().unwrap();
    let lie = lie.to_json().unwrap();
    let mut jobs = Vec::new();
    for text in [lie.as_str(), "{}", "{}},\"uid\":7,{\"text\":{", cut.as_str()] {
        let (connection, _stream) = hostile.peer();
        let text = memfd::sealed(text.as_bytes()).unwrap();
        let launch = launch_message(connection, |_| {});
        hostile.send(&launch, &[shell("echo ran").as_fd(), text.as_fd()]);
        let ToServer::Launched { job, .. } = hostile.next().0 else { panic!("not launched") };
        jobs.push(format!("{job:016x}"));
        assert_eq!(hostile.next().0, ToServer::Executed(connection));
        hostile.ended(connection);
        hostile.send(&ToMonitor::Drained(connection), &[]);
    }
    // More than one line would be a line of its own; then nothing runs.
    let (connection, _stream) = hostile.peer();
    let text = memfd::sealed(b"{}\n{}").unwrap();
    let launch = launch_message(connection, |_| {});
    hostile.send(&launch, &[shell("echo ran").as_fd(), text.as_fd()]);
    assert!(matches!(hostile.next().0, ToServer::Launched { .. }));
    let outcome = hostile.ended(connection);
    assert_eq!((outcome.ended_by, outcome.step.as_deref()), (EndedBy::LaunchFailed, Some("audit")));
    // Without one, and with one that is too long.
    let long = memfd::sealed(&vec![b'x'; cordon_protocol::audit::TEXT_MAX + 1]).unwrap();
    let request = shell("echo ran");
    for descriptors in [vec![request.as_fd()], vec![request.as_fd(), long.as_fd()]] {
        let (connection, _stream) = hostile.peer();
        hostile.send(&launch_message(connection, |_| {}), &descriptors);
        assert_eq!(hostile.refusal(connection), LaunchRefusal::BadRequestFile);
    }
    let mut verify = std::process::Command::new(&crate::harness::build::programs().cordon);
    let directory = hostile.directory.path();
    verify.args(["audit", "verify", "--file"]).arg(directory.join("audit.jsonl"));
    verify.arg("--head").arg(directory.join("state/audit.head"));
    let verified = process::run(verify, &[]);
    assert_eq!(verified.status, 1);
    let says = [
        "what ran was not what its text says",
        "its text is not one",
        "its text is not one",
        "its text says that it was cut, and is too short for that",
    ];
    assert_eq!(jobs.len(), says.len());
    for (job, says) in jobs.iter().zip(says) {
        assert!(verified.stderr.contains(&format!("command {job}: {says}")), "{verified:?}");
    }
}

#[test]
fn a_request_file_that_is_no_sealed_memory_file_is_refused() {
    let _verdict = crate::escape::probe!();
    let hostile = Hostile::start();
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
        let (connection, _stream) = hostile.peer();
        hostile.launch(connection, "default", AskedLimits::default(), fd.as_fd());
        assert_eq!(hostile.refusal(connection), LaunchRefusal::BadRequestFile, "{what}");
    }
    hostile.assert_works();
}

#[test]
fn no_descriptor_and_too_many_are_refused() {
    let hostile = Hostile::start();
    let request = shell("true");
    // The request and its text, and no files: two.
    for count in [0, 1, 3, scm::DESCRIPTORS_MAX] {
        // A connection of its own for each: one that was refused has no second try.
        let (connection, _stream) = hostile.peer();
        hostile.send(&launch_message(connection, |_| {}), &vec![request.as_fd(); count]);
        assert_eq!(hostile.refusal(connection), LaunchRefusal::BadRequestFile, "{count}");
    }
    // More than fit: the message cannot be believed at all, and is as if it had never come.
    let (connection, _stream) = hostile.peer();
    let open = process::descriptors(hostile.process.pid()).len();
    for _ in 0..20 {
        hostile.send(&launch_message(connection, |_| {}), &vec![request.as_fd(); 64]);
    }
    hostile.assert_quiet();
    hostile.launched(connection, "default", "true");
    hostile.ended(connection);
    assert!(process::descriptors(hostile.process.pid()).len() < open + 20, "descriptors are kept");
    hostile.assert_works();
}

#[test]
fn a_profile_s_concurrency_holds_whatever_the_server_s_queue_lets_through() {
    let hostile = Hostile::start();
    let (first, _stream) = hostile.peer();
    let (_job, _output) = hostile.launched(first, "single", "sleep 60");
    let (second, _stream) = hostile.peer();
    hostile.launch(second, "single", AskedLimits::default(), shell("true").as_fd());
    assert_eq!(hostile.refusal(second), LaunchRefusal::Busy { concurrency: 1 });
    // The control: it is the profile's, and the peer's, and ends with the command.
    let (other, _stream) = hostile.peer();
    hostile.launched(other, "default", "true");
    hostile.ended(other);
    hostile.send(&ToMonitor::Cancel(first), &[]);
    assert_eq!(hostile.ended(first).ended_by, EndedBy::Cancelled);
    hostile.send(&ToMonitor::Drained(first), &[]);
    let (third, _stream) = hostile.peer();
    hostile.launched(third, "single", "true");
}

#[test]
fn a_forged_request_gives_no_more_than_the_profile() {
    let _verdict = crate::escape::probe!();
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
fn what_is_no_request_is_kept_since_closing_it_could_take_for_ever() {
    let hostile = Hostile::start();
    let ((first, _stream), (second, _other)) = (hostile.peer(), hostile.peer());
    // Seen with TCP sockets that linger (socket(7)): the monitor stood still until their other ends had read.
    let sockets: Vec<_> = (0..6).map(|_| UnixStream::pair().unwrap()).collect();
    let socket = |number: usize| sockets[number].0.as_fd();
    let send = |bytes: &[u8], descriptors: &[BorrowedFd<'_>]| {
        scm::send(hostile.link.as_fd(), bytes, descriptors).unwrap();
    };
    // As a request, beside one, out of order, where none belongs, with what is no message, too many at once.
    send(&launch_message(first, |_| {}).encode(), &[socket(0)]);
    assert_eq!(hostile.refusal(first), LaunchRefusal::BadRequestFile);
    send(&launch_message(second, |_| {}).encode(), &[shell("true").as_fd(), socket(1)]);
    assert_eq!(hostile.refusal(second), LaunchRefusal::BadRequestFile);
    send(&launch_message(first, |_| {}).encode(), &[socket(2)]);
    assert_eq!(hostile.refusal(first), LaunchRefusal::OutOfOrder);
    send(&ToMonitor::Pong.encode(), &[socket(3)]);
    send(b"garbage", &[socket(4)]);
    send(&ToMonitor::Pong.encode(), &[socket(5); 20]);
    hostile.assert_works();
    let kept = process::descriptors(hostile.process.pid());
    for number in 0..sockets.len() {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", socket(number).as_raw_fd())).unwrap();
        assert!(kept.contains(&link.to_string_lossy().into_owned()), "socket {number} was closed");
    }
}

#[test]
fn a_server_that_sends_one_after_the_other_is_given_up() {
    let mut hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    let marker = marker();
    let (_job, _output) = hostile.launched(connection, "default", &format!("sleep {marker}; :"));
    let file = File::open("/dev/null").unwrap();
    for _ in 0..100 {
        // It may be gone already.
        let _ = scm::send(hostile.link.as_fd(), &ToMonitor::Pong.encode(), &[file.as_fd()]);
    }
    assert!(!hostile.process.wait(Duration::from_secs(20)).success());
    assert!(hostile.process.log().contains("no requests"), "{}", hostile.process.log());
    eventually("the command is dead", PATIENCE, || sandboxed(&marker).is_empty());
}
