//! What is put into a workspace at once gets together no more room than is left, each in its turn and in its own time.

use super::{directory, file, inside};
use crate::harness::{Executor, PATIENCE, client::collect, eventually};
use cordon_protocol::{
    Action, EndedBy, Event, LimitName, RunRequest,
    client::{
        ClientError,
        blocking::{self, Connection, Stdin},
    },
};
use nix::sys::signal::Signal;
use std::{fs, os::unix::fs::MetadataExt, thread};

const SMALL: &str = "[profiles.default.limits]\nnamed_workspace = \"4M\"\nnamed_workspace_files = 50";

/// A file that is put into the workspace from standard input.
fn write(path: &str) -> RunRequest {
    RunRequest {
        workspace: Some("work".to_owned()),
        stdin: true,
        ..RunRequest::new(Action::Write { path: path.to_owned(), mode: None })
    }
}

/// A program that brings a file, and goes on.
fn bring(path: &str, content: &[u8], program: &str) -> RunRequest {
    RunRequest {
        workspace: Some("work".to_owned()),
        files: vec![file(path, content, None)],
        ..RunRequest::new(Action::Line(program.to_owned()))
    }
}

/// A put that has all the room there is, and has put in nothing yet.
fn begun(executor: &Executor) -> (Connection, Stdin) {
    let (mut connection, stdin) = blocking::run(&executor.socket, "test", write("slow")).unwrap();
    assert!(matches!(connection.next_event().unwrap(), Event::Started { .. }));
    (connection, stdin)
}

fn held(executor: &Executor) -> u64 {
    let entries = fs::read_dir(directory(executor, "work")).unwrap().flatten();
    entries.map(|entry| entry.metadata().unwrap().blocks() * 512).sum()
}

#[test]
fn what_is_put_in_at_once_gets_no_room_twice() {
    let executor = Executor::start(SMALL);
    inside(&executor, "work", "true");
    let content = vec![1; 3 << 20];
    let put = |number: usize| {
        let (connection, mut stdin) =
            blocking::run(&executor.socket, "test", write(&format!("put{number}"))).unwrap();
        // It need not take all of it.
        let _ = stdin.send(&content).and_then(|()| stdin.end());
        collect(connection).unwrap().report
    };
    let brought =
        |number: usize| executor.events(bring(&format!("brought{number}"), &content, "sleep 0.3")).report;
    thread::scope(|scope| {
        let puts: Vec<_> = (0..3).map(|number| scope.spawn(move || put(number))).collect();
        let brought: Vec<_> = (0..3).map(|number| scope.spawn(move || brought(number))).collect();
        let all: Vec<_> = puts.into_iter().chain(brought).map(|one| one.join().unwrap()).collect();
        let good =
            all.iter().filter(|report| (report.ended_by, report.exit_code) == (EndedBy::Exit, Some(0)));
        assert_eq!(good.count(), 1, "{all:?}");
    });
    let held = held(&executor);
    assert!((3 << 20..=4 << 20).contains(&held), "{held}");
    // What one has not used is there for the next ones.
    for number in 0..4 {
        let report = executor.events(bring(&format!("small{number}"), b"x", "true")).report;
        assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(0)), "{report:?}");
    }
}

#[test]
fn the_time_of_a_launch_begins_when_it_is_taken_and_is_over_while_it_waits() {
    let executor = Executor::start(SMALL);
    let (connection, mut stdin) = begun(&executor);
    let mut late = bring("late", b"x", "true");
    late.limits.wall_ms = Some(200);
    let events = executor.events(late.clone());
    let report = &events.report;
    assert_eq!(
        (report.ended_by, report.exit_code, &report.step),
        (EndedBy::WallTimeout, None, &None),
        "{report:?}"
    );
    assert_eq!((&report.limits_hit[..], &events.started), (&[LimitName::Wall][..], &None));
    assert!(report.wall_ms >= 200.0, "{report:?}");
    let hint = report.hint.as_ref().unwrap();
    assert!(hint.what.contains("could not start within 200ms (wall): what is in its workspace"), "{hint:?}");
    // Others than those that put something in wait for none of it.
    assert_eq!(inside(&executor, "work", "ls"), "");
    stdin.send(b"slow").and_then(|()| stdin.end()).unwrap();
    assert_eq!(collect(connection).unwrap().report.exit_code, Some(0));
    late.limits.wall_ms = None;
    assert_eq!(executor.events(late).report.exit_code, Some(0));
    assert_eq!(inside(&executor, "work", "ls"), "late\nslow\n");
    let trail = fs::read_to_string(executor.directory().join("audit.jsonl")).unwrap();
    assert_eq!(trail.matches("\"ended_by\":\"wall_timeout\"").count(), 1, "{trail}");
}

#[test]
fn whoever_waits_when_the_executor_ends_is_told_before_others_have_ended() {
    let mut executor = Executor::start(SMALL);
    let (connection, mut stdin) = begun(&executor);
    let (waiting, _stdin) = blocking::run(&executor.socket, "test", bring("late", b"x", "true")).unwrap();
    eventually("it waits", PATIENCE, || {
        let jobs = blocking::ps(&executor.socket, "test").unwrap();
        jobs.iter().any(|job| job.state == "launching")
    });
    executor.process().signal(Signal::SIGTERM);
    let Err(ClientError::Refused(refusal)) = collect(waiting) else { panic!("not refused") };
    assert_eq!(refusal.code.as_str(), "shutting_down");
    // The other one has its time to end in order.
    stdin.send(b"slow").and_then(|()| stdin.end()).unwrap();
    assert_eq!(collect(connection).unwrap().report.exit_code, Some(0));
}
