//! What is put into a workspace at once gets together no more room than is left, each in its turn and in its own time.

use super::{directory, file, inside};
use crate::harness::{Executor, PATIENCE, client::collect, daemon::server_of, eventually, process};
use cordon_protocol::{
    Action, EndedBy, Event, LimitName, RunRequest,
    client::{
        ClientError,
        blocking::{self, Connection, Stdin},
    },
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{ffi::OsString, fs, os::unix::fs::MetadataExt, thread, time::Duration};

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

#[test]
fn a_client_that_leaves_while_its_launch_waits_gives_its_place_back() {
    let executor = Executor::start(&format!("[profiles.default]\nconcurrency = 4\n{SMALL}"));
    let (connection, stdin) = begun(&executor);
    let states = || -> Vec<String> {
        let jobs = blocking::ps(&executor.socket, "test").unwrap();
        jobs.into_iter().map(|job| job.state).collect()
    };
    let count = |state: &str| states().iter().filter(|other| *other == state).count();
    let put = |number: usize| {
        let request = RunRequest { stream: true, ..write(&format!("put{number}")) };
        blocking::run(&executor.socket, "test", request).unwrap()
    };
    let all: Vec<_> = (0..8).map(put).collect();
    eventually("all wait", PATIENCE, || (count("launching"), count("queued")) == (3, 5));
    drop(all);
    eventually("nobody waits", PATIENCE, || states() == ["running"]);
    // One that only stops sending is told.
    let (waiting, _stdin) = put(8);
    eventually("it waits", PATIENCE, || count("launching") == 1);
    waiting.canceller().unwrap().cancel();
    let report = collect(waiting).unwrap().report;
    assert_eq!((report.ended_by, report.exit_code, report.step), (EndedBy::Cancelled, None, None));
    assert_eq!(states(), ["running"]);
    // And the room is nobody else's.
    stdin.end().unwrap();
    assert_eq!(collect(connection).unwrap().report.exit_code, Some(0));
    assert_eq!(inside(&executor, "work", "ls"), "slow\n");
    let trail = fs::read_to_string(executor.directory().join("audit.jsonl")).unwrap();
    // Also those that got a place that way before their own close was seen.
    assert!(trail.matches("\"ended_by\":\"cancelled\"").count() >= 4, "{trail}");
}

/// The process below this one that has so much in a file without a name.
fn writer(monitor: i32, bytes: u64) -> Option<i32> {
    let writes = |pid: &i32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut open = open.filter_map(|descriptor| fs::metadata(descriptor.path()).ok());
        open.any(|file| file.is_file() && (file.nlink(), file.len()) == (0, bytes))
    };
    process::descendants(monitor).into_iter().find(writes)
}

#[test]
fn the_death_of_the_server_half_is_no_end_of_what_is_put_in() {
    let mut executor = Executor::start(SMALL);
    for name in ["slow", "new"] {
        inside(&executor, "work", "echo old > slow; rm -f new");
        let (mut connection, mut stdin) = blocking::run(&executor.socket, "test", write(name)).unwrap();
        assert!(matches!(connection.next_event().unwrap(), Event::Started { .. }));
        stdin.send(b"only half").unwrap();
        let monitor = executor.pid();
        eventually("half of it is there", PATIENCE, || writer(monitor, 9).is_some());
        let writer = writer(monitor, 9).unwrap();
        // The monitor would end it, now and then before it has seen the end of its pipe.
        executor.process().signal(Signal::SIGSTOP);
        kill(Pid::from_raw(server_of(monitor)), Signal::SIGKILL).unwrap();
        let works = || fs::read_dir(format!("/proc/{writer}/fd")).is_ok_and(|mut all| all.next().is_some());
        eventually("it has ended by itself", PATIENCE, || !works());
        let entries = fs::read_dir(directory(&executor, "work")).unwrap().flatten();
        let names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        assert_eq!(names, [OsString::from("slow")]);
        assert_eq!(fs::read(directory(&executor, "work").join("slow")).unwrap(), b"old\n");
        executor.process().signal(Signal::SIGCONT);
        assert!(!executor.process().wait(Duration::from_secs(20)).success());
        executor = executor.again();
    }
}
