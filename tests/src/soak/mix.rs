//! Kinds of runs through the executor's socket: each once to its end, which must be the one it is for.

use super::doors::{Doors, ended, expect};
use crate::Failure;
use cordon_protocol::{
    Action, EndedBy, Event, FileIn, LimitRequest, RunRequest,
    client::{ClientError, blocking},
};
use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
};

/// A kind of runs.
pub(super) struct Kind {
    /// Its name in the table.
    pub(super) name: &'static str,
    /// How many of it there are beside the others.
    pub(super) share: usize,
    /// Runs it once. The number is the run's own.
    pub(super) run: fn(&Doors, usize) -> Result<(), Failure>,
}

/// Named workspaces that runs share.
const SHARED_WORKSPACES: usize = 4;

/// Those of this file.
pub(super) const KINDS: &[Kind] = &[
    Kind { name: "fast", share: 40, run: |doors, _| doors.exits(&argv(&["true"]), 0) },
    Kind { name: "shell", share: 8, run: |doors, _| doors.exits(&line("echo hello; ls >&2; exit 3"), 3) },
    Kind { name: "standard input", share: 4, run: standard_input },
    Kind {
        name: "leaves a process",
        share: 6,
        run: |doors, _| doors.exits(&line("(setsid sleep 600 &); exit 3"), 3),
    },
    Kind { name: "killed", share: 5, run: |doors, _| doors.ends(&line("kill -KILL $$"), EndedBy::Signal) },
    Kind { name: "timed out", share: 5, run: timed_out },
    Kind { name: "hog", share: 1, run: hog },
    Kind { name: "fork bomb", share: 1, run: fork_bomb },
    Kind { name: "output flood", share: 3, run: |doors, _| doors.ends(&flood(), EndedBy::OutputLimit) },
    Kind { name: "output flood, streamed", share: 2, run: streamed_flood },
    Kind { name: "cancelled", share: 4, run: cancelled },
    Kind { name: "connection closed", share: 4, run: closed },
    Kind { name: "closed at once", share: 4, run: closed_at_once },
    Kind { name: "closed in a flood", share: 2, run: closed_in_flood },
    Kind { name: "ended by its id", share: 3, run: ended_by_id },
    Kind {
        name: "no such program",
        share: 4,
        run: |doors, _| doors.ends(&argv(&["/no/such/program"]), EndedBy::LaunchFailed),
    },
    Kind { name: "no such directory", share: 2, run: no_directory },
    Kind { name: "refused", share: 3, run: refused },
    Kind { name: "stores in memory", share: 6, run: stores },
    Kind { name: "named workspace", share: 5, run: named_workspace },
    Kind { name: "workspace deleted", share: 2, run: deleted_workspace },
    Kind { name: "files in and out", share: 5, run: files },
    Kind { name: "files of a process that stays", share: 1, run: files_of_what_stays },
    Kind { name: "services", share: 5, run: services },
    Kind { name: "service in use at the end", share: 2, run: service_in_use },
    Kind { name: "no request", share: 2, run: no_request },
    Kind { name: "questions", share: 2, run: questions },
];

fn argv(arguments: &[&str]) -> RunRequest {
    RunRequest::new(Action::Argv(arguments.iter().map(|a| (*a).to_owned()).collect()))
}

fn line(text: &str) -> RunRequest {
    RunRequest::new(Action::Line(text.to_owned()))
}

fn limited(mut request: RunRequest, limits: LimitRequest) -> RunRequest {
    request.limits = limits;
    request
}

fn streamed(mut request: RunRequest) -> RunRequest {
    request.stream = true;
    request
}

fn flood() -> RunRequest {
    limited(argv(&["yes"]), LimitRequest { output_bytes: Some(1 << 20), ..LimitRequest::default() })
}

fn standard_input(doors: &Doors, _: usize) -> Result<(), Failure> {
    let mut request = argv(&["wc", "-c"]);
    request.stdin = true;
    let (mut connection, mut stdin) = blocking::run(&doors.socket, "soak", request)?;
    stdin.send(&[b'x'; 200_000])?;
    stdin.end()?;
    expect("200000\n", ended(&mut connection)?.stdout.as_deref().unwrap_or_default())
}

fn timed_out(doors: &Doors, _: usize) -> Result<(), Failure> {
    let limits = LimitRequest { wall_ms: Some(60), ..LimitRequest::default() };
    let request = limited(line("trap '' TERM; (setsid sleep 600 &); sleep 600; :"), limits);
    doors.ends(&request, EndedBy::WallTimeout)
}

/// As large as it may get before it is noticed where no controller counts: one at a time.
fn hog(doors: &Doors, _: usize) -> Result<(), Failure> {
    let _alone = doors.alone();
    let limits = LimitRequest { memory_bytes: Some(64 << 20), ..LimitRequest::default() };
    doors.ends(&limited(argv(&["tail", "/dev/zero"]), limits), EndedBy::OutOfMemory)
}

fn fork_bomb(doors: &Doors, _: usize) -> Result<(), Failure> {
    let _alone = doors.alone();
    let limits = LimitRequest { pids: Some(32), wall_ms: Some(300), ..LimitRequest::default() };
    let request = limited(line("f() { f & f & wait; }; f 2> /dev/null; sleep 600; :"), limits);
    doors.ends(&request, EndedBy::WallTimeout)
}

fn streamed_flood(doors: &Doors, _: usize) -> Result<(), Failure> {
    doors.ends(&streamed(flood()), EndedBy::OutputLimit)
}

/// A command that runs until it is ended, once it has been executed.
fn running(doors: &Doors, request: RunRequest) -> Result<(blocking::Connection, String), Failure> {
    let (mut connection, _stdin) = blocking::run(&doors.socket, "soak", streamed(request))?;
    loop {
        match connection.next_event()? {
            Event::Started { id } => return Ok((connection, id)),
            Event::Queued { .. } => {}
            other => return Err(format!("instead of its start: {other:?}").into()),
        }
    }
}

fn stays() -> RunRequest {
    line("(setsid sleep 600 &); sleep 600; :")
}

fn cancelled(doors: &Doors, _: usize) -> Result<(), Failure> {
    let (mut connection, _) = running(doors, stays())?;
    connection.canceller()?.cancel();
    expect(EndedBy::Cancelled, ended(&mut connection)?.ended_by)
}

fn closed(doors: &Doors, _: usize) -> Result<(), Failure> {
    running(doors, stays())?.0.close();
    Ok(())
}

fn closed_at_once(doors: &Doors, _: usize) -> Result<(), Failure> {
    let (connection, _stdin) = blocking::run(&doors.socket, "soak", stays())?;
    connection.close();
    Ok(())
}

fn closed_in_flood(doors: &Doors, _: usize) -> Result<(), Failure> {
    let (mut connection, _) = running(doors, argv(&["yes"]))?;
    for _ in 0..4 {
        connection.next_event()?;
    }
    connection.close();
    Ok(())
}

fn ended_by_id(doors: &Doors, _: usize) -> Result<(), Failure> {
    let (mut connection, id) = running(doors, stays())?;
    blocking::kill(&doors.socket, "soak", &id)?;
    expect(EndedBy::Cancelled, ended(&mut connection)?.ended_by)
}

fn no_directory(doors: &Doors, _: usize) -> Result<(), Failure> {
    let mut request = argv(&["true"]);
    request.cwd = Some("/usr/no/such/directory".to_owned());
    doors.ends(&request, EndedBy::LaunchFailed)
}

fn refused(doors: &Doors, number: usize) -> Result<(), Failure> {
    let mut request = argv(&["true"]);
    match number % 3 {
        0 => request.profile = Some("nobody-has-it".to_owned()),
        1 => request.limits.memory_bytes = Some(1 << 50),
        _ => request.env = vec![("=".to_owned(), String::new())],
    }
    match blocking::run(&doors.socket, "soak", request).map(|(mut connection, _)| connection.next_event()) {
        Ok(Err(ClientError::Refused(_))) | Err(ClientError::Refused(_)) => Ok(()),
        other => Err(format!("not refused: {other:?}").into()),
    }
}

fn stores(doors: &Doors, _: usize) -> Result<(), Failure> {
    doors.exits(&line("head -c 512K /dev/zero > /tmp/x && cp /tmp/x ~ && cp /tmp/x /dev/shm"), 0)
}

fn named_workspace(doors: &Doors, number: usize) -> Result<(), Failure> {
    let mut request = line("mkdir -p a/b && echo x > a/b/c && ln -sfn / all && cat a/b/c");
    request.workspace = Some(format!("shared-{}", number % SHARED_WORKSPACES));
    doors.exits(&request, 0)
}

fn deleted_workspace(doors: &Doors, number: usize) -> Result<(), Failure> {
    let name = format!("own-{number}");
    let mut request = RunRequest::new(Action::Write { path: "a/b/c".to_owned(), mode: None });
    request.workspace = Some(name.clone());
    request.stdin = true;
    let (mut connection, mut stdin) = blocking::run(&doors.socket, "soak", request)?;
    stdin.send(b"content")?;
    stdin.end()?;
    expect(Some(0), ended(&mut connection)?.exit_code)?;
    let mut request = RunRequest::new(Action::Read { path: "a/b/c".to_owned() });
    request.workspace = Some(name.clone());
    expect("content", doors.report(&request)?.stdout.as_deref().unwrap_or_default())?;
    doors.delete_workspace(&name)
}

fn files(doors: &Doors, _: usize) -> Result<(), Failure> {
    let mut request = line("mkdir out && cp in/a out && head -c 20000 /dev/zero > out/b");
    request.files = vec![FileIn { path: "in/a".to_owned(), content: vec![b'x'; 10_000], mode: None }];
    request.collect = vec!["out/*".to_owned()];
    expect(2, doors.collected(request)?)
}

fn files_of_what_stays(doors: &Doors, _: usize) -> Result<(), Failure> {
    let mut request = line("(while :; do date > x; done > /dev/null 2>&1 &); echo y > y");
    request.collect = vec!["y".to_owned()];
    expect(1, doors.collected(request)?)
}

fn to_service(doors: &Doors, rest: &str) -> RunRequest {
    let mut request = line(&format!("exec 3<> /dev/tcp/127.0.0.1/{}; {rest}", doors.service));
    request.profile = Some(super::SERVICES.to_owned());
    request
}

fn services(doors: &Doors, _: usize) -> Result<(), Failure> {
    let request = to_service(doors, "echo word >&3; read -u 3 answer; echo $answer");
    expect("word\n", doors.report(&request)?.stdout.as_deref().unwrap_or_default())
}

fn service_in_use(doors: &Doors, _: usize) -> Result<(), Failure> {
    let request = to_service(doors, "echo word >&3; read -u 3 answer; echo $answer; sleep 600 <&3; :");
    let (mut connection, _) = running(doors, request)?;
    while !matches!(connection.next_event()?, Event::Stdout(_)) {}
    connection.close();
    Ok(())
}

fn no_request(doors: &Doors, number: usize) -> Result<(), Failure> {
    let mut stream = UnixStream::connect(&doors.socket)?;
    match number % 3 {
        0 => return Ok(()),
        1 => stream.write_all(&[0xff; 1000])?,
        _ => stream.write_all(&[8, 0, 0, 0, 1])?,
    }
    stream.shutdown(Shutdown::Write)?;
    // What is said to it is for other tests; the connection ends.
    let _ = stream.read_to_end(&mut Vec::new());
    Ok(())
}

fn questions(doors: &Doors, _: usize) -> Result<(), Failure> {
    blocking::ps(&doors.socket, "soak")?;
    blocking::profiles(&doors.socket, "soak")?;
    blocking::doctor(&doors.socket, "soak")?;
    blocking::workspaces(&doors.socket, "soak")?;
    Ok(())
}
