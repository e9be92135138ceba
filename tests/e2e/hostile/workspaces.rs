//! Workspaces and collecting, asked for by a server that means no good.

use super::*;
use crate::harness::{
    PATIENCE, eventually, marker,
    process::{self, sandboxed},
};
use cordon_executor::monitor::link::Deletion;

/// What asks for a launch whose workspace may be collected from.
fn collectable(connection: u64) -> ToMonitor {
    launch_message(connection, |launch| launch.collect = true)
}

/// What asks for a launch in a named workspace.
fn within(connection: u64, name: &str) -> ToMonitor {
    launch_message(connection, |launch| launch.workspace = name.to_owned())
}

#[test]
fn a_sandbox_is_collected_from_once_after_its_end_and_only_where_that_was_announced() {
    let hostile = Hostile::start();
    let patterns = || sealed(Work::Collect(vec!["*".to_owned()]));
    let collecting = |connection: u64| match hostile.next() {
        (ToServer::Collecting(of), descriptors) if of == connection => descriptors.len(),
        other => panic!("no answer to Collect: {other:?}"),
    };
    // Not announced; and before the end.
    let (plain, _stream) = hostile.peer();
    hostile.launched(plain, "default", "sleep 60");
    hostile.send(&ToMonitor::Collect(plain), &[patterns().as_fd()]);
    assert_eq!(collecting(plain), 0);
    hostile.send(&ToMonitor::Cancel(plain), &[]);
    hostile.ended(plain);
    hostile.send(&ToMonitor::Collect(plain), &[patterns().as_fd()]);
    assert_eq!(collecting(plain), 0);
    hostile.send(&ToMonitor::Drained(plain), &[]);

    let (connection, _second) = hostile.peer();
    hostile.send(&collectable(connection), &[shell("echo kept > file").as_fd(), text().as_fd()]);
    let (ToServer::Launched { .. }, _pipes) = hostile.next() else { panic!("not launched") };
    assert_eq!(hostile.next().0, ToServer::Executed(connection));
    hostile.ended(connection);
    // Without a request, with what is none, or with more than patterns can be, there is nothing to do.
    let long = sealed(Work::Collect(vec!["a".repeat(512 << 10)]));
    for wrong in [vec![], vec![File::open("/etc/passwd").unwrap().into()], vec![long]] {
        let descriptors: Vec<_> = wrong.iter().map(AsFd::as_fd).collect();
        hostile.send(&ToMonitor::Collect(connection), &descriptors);
        assert_eq!(collecting(connection), 0);
    }
    hostile.send(&ToMonitor::Collect(connection), &[patterns().as_fd()]);
    let (ToServer::Collecting(_), mut descriptors) = hostile.next() else { panic!("not collecting") };
    let mut bytes = Vec::new();
    File::from(descriptors.remove(0)).read_to_end(&mut bytes).unwrap();
    assert!(bytes.windows(5).any(|w| w == b"kept\n"), "{bytes:?}");
    hostile.send(&ToMonitor::Collect(connection), &[patterns().as_fd()]);
    assert_eq!(collecting(connection), 0, "once");
    hostile.send(&ToMonitor::Drained(connection), &[]);
    hostile.send(&ToMonitor::Closed(connection), &[]);
    hostile.assert_works();
}

#[test]
fn a_server_that_collects_for_ever_fills_neither_trail_nor_log() {
    let hostile = Hostile::start();
    let patterns = sealed(Work::Collect(vec!["*".to_owned()]));
    let (plain, _stream) = hostile.peer();
    hostile.launched(plain, "default", "true");
    hostile.ended(plain);
    let (once, _second) = hostile.peer();
    hostile.send(&collectable(once), &[shell("true").as_fd(), text().as_fd()]);
    let (ToServer::Launched { .. }, _pipes) = hostile.next() else { panic!("not launched") };
    assert_eq!(hostile.next().0, ToServer::Executed(once));
    hostile.ended(once);
    for connection in [plain, once] {
        for _ in 0..300 {
            hostile.send(&ToMonitor::Collect(connection), &[patterns.as_fd()]);
            let (ToServer::Collecting(of), _) = hostile.next() else { panic!("no answer to Collect") };
            assert_eq!(of, connection);
        }
    }
    let trail = std::fs::read_to_string(hostile.directory.path().join("audit.jsonl")).unwrap();
    assert_eq!(trail.matches("\"event\":\"collected\"").count(), 1, "{trail}");
    hostile.process.wait_for("nothing is to be collected, or not again");
    let log = hostile.process.log();
    assert!((1..=100).contains(&log.matches("collect").count()), "{log}");
    hostile.send(&ToMonitor::Drained(plain), &[]);
    hostile.send(&ToMonitor::Drained(once), &[]);
    hostile.assert_works();
}

#[test]
fn the_second_process_runs_no_program_and_has_its_time() {
    let hostile = Hostile::start();
    let collected = |request: OwnedFd| {
        let (connection, stream) = hostile.peer();
        hostile
            .send(&collectable(connection), &[shell("head -c 3M /dev/zero > large").as_fd(), text().as_fd()]);
        let (ToServer::Launched { .. }, _pipes) = hostile.next() else { panic!("not launched") };
        assert_eq!(hostile.next().0, ToServer::Executed(connection));
        hostile.ended(connection);
        hostile.send(&ToMonitor::Collect(connection), &[request.as_fd()]);
        let (ToServer::Collecting(_), mut descriptors) = hostile.next() else { panic!("not collecting") };
        (descriptors.remove(0), stream)
    };
    let marker = marker();
    let (output, _stream) = collected(shell(&format!("echo ran; exec sleep {marker}")));
    let mut text = String::new();
    File::from(output).read_to_string(&mut text).unwrap();
    assert_eq!(text, "", "a program ran in place of an errand");
    assert!(sandboxed(&marker).is_empty());
    // Nobody reads what it writes: it ends all the same, and so does its sandbox.
    let (output, _stream) = collected(sealed(Work::Collect(vec!["large".to_owned()])));
    let user = host::uid_of("execuser");
    let left = || {
        process::descendants(hostile.process.pid())
            .into_iter()
            .any(|p| process::uids(p).first() == Some(&user))
    };
    eventually("it has taken its user's name", PATIENCE, left);
    eventually("it has ended", PATIENCE, || !left());
    drop(output);
    hostile.assert_works();
}

#[test]
fn a_workspace_is_the_peer_s_own_whatever_the_server_says() {
    let _verdict = crate::escape::probe!();
    let hostile = Hostile::start();
    let (connection, _stream) = hostile.peer();
    for name in ["..", "../0", "a/b", ".deleted-1", "A"] {
        let (other, _other_stream) = hostile.peer();
        hostile.send(&within(other, name), &[shell("true").as_fd(), text().as_fd()]);
        assert_eq!(hostile.refusal(other), LaunchRefusal::BadWorkspace, "{name}");
        hostile.send(&ToMonitor::DeleteWorkspace { connection, name: name.to_owned() }, &[]);
        let deletion = Deletion::NotFound;
        assert_eq!(hostile.next().0, ToServer::WorkspaceDeleted { connection, deletion });
    }
    let (stranger, mut child) = hostile.stranger();
    hostile.send(&within(connection, "work"), &[shell("true").as_fd(), text().as_fd()]);
    let (ToServer::Launched { .. }, _pipes) = hostile.next() else { panic!("not launched") };
    assert_eq!(hostile.next().0, ToServer::Executed(connection));
    hostile.ended(connection);
    hostile.send(&ToMonitor::Drained(connection), &[]);
    // The stranger's list is empty, and it cannot delete root's.
    hostile.send(&ToMonitor::ListWorkspaces(stranger), &[]);
    let (ToServer::Workspaces(_), mut list) = hostile.next() else { panic!("no list") };
    let mut text = String::new();
    File::from(list.remove(0)).read_to_string(&mut text).unwrap();
    assert_eq!(text, "");
    let name = "work".to_owned();
    hostile.send(&ToMonitor::DeleteWorkspace { connection: stranger, name }, &[]);
    let (ToServer::WorkspaceDeleted { deletion, .. }, _) = hostile.next() else { panic!("no answer") };
    assert_eq!(deletion, Deletion::NotFound);
    // Nothing is done for a connection that is not there.
    hostile.send(&ToMonitor::ListWorkspaces(9_999), &[]);
    hostile.send(&ToMonitor::DeleteWorkspace { connection: 9_999, name: "work".to_owned() }, &[]);
    hostile.assert_quiet();
    child.kill().unwrap();
    child.wait().unwrap();
}
