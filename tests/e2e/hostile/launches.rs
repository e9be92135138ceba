//! Launches that a taken-over server must not get.

use super::*;
use crate::harness::{
    lab::writable,
    marker,
    process::{self},
};
use cordon_executor::{
    monitor::link::{AskedLimits, LaunchRefusal, LimitField, ToMonitor, ToServer},
    sys::{memfd, scm},
};
use cordon_protocol::{EndedBy, limits};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
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
fn a_request_file_that_is_no_sealed_memory_file_is_refused() {
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
    let launch = |connection| ToMonitor::Launch {
        connection,
        profile: "default".into(),
        stdin: false,
        limits: AskedLimits::default(),
    };
    let request = shell("true");
    for count in [0, 2, scm::DESCRIPTORS_MAX] {
        // A connection of its own for each: one that was refused has no second try.
        let (connection, _stream) = hostile.peer();
        hostile.send(&launch(connection), &vec![request.as_fd(); count]);
        assert_eq!(hostile.refusal(connection), LaunchRefusal::BadRequestFile, "{count}");
    }
    // More than fit: the message cannot be believed at all, and is as if it had never come.
    let (connection, _stream) = hostile.peer();
    let open = process::descriptors(hostile.process.pid()).len();
    for _ in 0..20 {
        hostile.send(&launch(connection), &vec![request.as_fd(); 64]);
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
    let (third, _stream) = hostile.peer();
    hostile.launched(third, "single", "true");
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
