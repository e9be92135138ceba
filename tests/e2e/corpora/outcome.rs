//! Running a line, in the sandbox or unconfined, and judging what came of it.

use super::{
    executor,
    line::{Control, Line},
    place::Place,
};
use crate::harness::{
    Executor, PATIENCE, client, daemon, host,
    lab::STRANGER,
    marker, process, stretched,
    table::{is_like, summary},
};
use cordon_protocol::EndedBy;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

/// Name of the variable by which a command's processes are known.
const CASE: &str = "CORDON_CASE";
/// What stands in the executor's own environment.
const SECRET: &str = "known-to-this-executor-alone";
/// Output of an unconfined command that is read; past this it is called endless, bytes.
const OUTPUT_MAX: u64 = 1 << 20;

/// How a run of a line ended.
struct Outcome {
    /// None where nothing but the line itself could end it.
    ended_by: Option<EndedBy>,
    exit: Option<i32>,
    stdout: String,
    stderr: String,
    /// It had to be ended from outside.
    endless: bool,
    shown: String,
}

/// What is wrong after the line has run in the sandbox.
pub(super) fn confined(line: &Line, place: &Place) -> Vec<String> {
    let mark = marker();
    let run = |text: &str| {
        let mut request = client::line(&fill(text, place, &mark));
        request.limits = line.limits(u64::try_from(stretched(PATIENCE).as_millis()).unwrap());
        request.env = vec![(CASE.to_owned(), mark.clone())];
        let report = executor().events(request).report;
        Outcome {
            ended_by: Some(report.ended_by),
            exit: report.exit_code,
            shown: summary(&report),
            stdout: report.stdout.unwrap_or_default(),
            stderr: report.stderr.unwrap_or_default(),
            endless: false,
        }
    };
    let first = run(&line.line);
    // The end of the rest is not waited for by the report.
    let start = Instant::now();
    while !left_over(&mark).is_empty() && start.elapsed() < stretched(Duration::from_secs(20)) {
        thread::sleep(Duration::from_millis(5));
    }
    let second = line.next.as_deref().map(run);
    let mut wrong = judge(line, place, &mark, &first, second.as_ref());
    if !wrong.is_empty() {
        wrong.push(first.shown);
        wrong.extend(second.map(|second| format!("  the second:\n{}", second.shown)));
    }
    wrong
}

/// What a run of the same line without Cordon shows on canaries of its own.
pub(super) fn unconfined(line: &Line, control: Control, below: &Path) -> Vec<String> {
    let place = Place::make(below);
    let mark = marker();
    let run = |text: &str| bare(&fill(text, &place, &mark), control, line.is_endless(), &place, &mark);
    let first = run(&line.line);
    let second = line.next.as_deref().map(run);
    let mut wrong = judge(line, &place, &mark, &first, second.as_ref());
    if first.endless {
        wrong.push("  it had to be ended".to_owned());
    }
    for pid in left_over(&mark) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    for path in &line.absent {
        let _ = fs::remove_file(fill(path, &place, &mark));
    }
    wrong
}

/// Runs a line with no more around it than the control asks for.
fn bare(text: &str, control: Control, endless: bool, place: &Place, mark: &str) -> Outcome {
    let mut command = match control {
        Control::Host => Command::new("env"),
        Control::Apart => {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--uts", "--ipc", "--pid", "--net", "--fork", "--kill-child"]);
            command.args(["--mount-proc", "--", "env"]);
            command
        }
        Control::Nobody => host::as_user(STRANGER, STRANGER, &[], "env"),
    };
    let seconds = stretched(Duration::from_secs(if endless { 1 } else { 20 })).as_secs();
    command.args(["timeout", "--signal=KILL", &seconds.to_string(), "bash", "-c", text]);
    command.env(CASE, mark).env("HOME", place.home()).current_dir(place.home());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let pipes = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let readers = [read(pipes.0), read(pipes.1)];
    let status = child.wait().unwrap();
    // Not to the pipes' end: what the line leaves behind keeps them open.
    let [stdout, stderr] = readers.map(|pieces| {
        let next = || pieces.recv_timeout(stretched(Duration::from_millis(100))).ok();
        std::iter::from_fn(next).flatten().collect::<Vec<u8>>()
    });
    let killed = status.code() == Some(137) || status.code().is_none();
    let much = [&stdout, &stderr].iter().any(|bytes| bytes.len() as u64 >= OUTPUT_MAX);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Outcome {
        ended_by: None,
        exit: status.code(),
        stdout: text(stdout),
        stderr: text(stderr),
        endless: endless && (killed || much),
        shown: String::new(),
    }
}

/// Reads a pipe in a thread of its own, and closes it after so much that only an endless program writes it.
fn read(pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut pipe = pipe.take(OUTPUT_MAX);
        let mut buffer = [0; 65536];
        while let Ok(n @ 1..) = pipe.read(&mut buffer) {
            if sender.send(buffer[..n].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn fill(text: &str, place: &Place, mark: &str) -> String {
    let at = executor().directory().display().to_string();
    let monitor = executor().pid();
    let named = [
        ("@mark@", mark.to_owned()),
        ("@socket@", format!("{at}/executor.sock")),
        ("@audit@", format!("{at}/audit.jsonl")),
        ("@state@", format!("{at}/state")),
        ("@monitor@", monitor.to_string()),
        ("@server@", daemon::server_of(monitor).to_string()),
    ];
    named.iter().fold(place.fill(text), |text, (name, value)| text.replace(name, value))
}

/// Everything that must be true and is not.
fn judge(line: &Line, place: &Place, mark: &str, first: &Outcome, second: Option<&Outcome>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |holds: bool, what: String| {
        if !holds {
            wrong.push(format!("  {what}"));
        }
    };
    let both = format!("{}{}", first.stdout, first.stderr);
    check(line.exit.is_none_or(|exit| first.exit == Some(exit)), format!("expected exit {:?}", line.exit));
    check(!line.fails || first.exit != Some(0), "it succeeded".to_owned());
    let expected = line.out.as_deref();
    check(expected.is_none_or(|out| out == first.stdout), format!("expected {expected:?}"));
    let pattern = line.like.as_deref();
    check(pattern.is_none_or(|pattern| is_like(&both, pattern)), format!("expected like {pattern:?}"));
    for pattern in &line.lacks {
        check(!is_like(&both, pattern), format!("there is {pattern:?}"));
    }
    if let Some(ended_by) = first.ended_by {
        let among = [EndedBy::Exit, EndedBy::Signal];
        let allowed = match (line.ended_by.is_empty(), line.fails) {
            (false, _) => line.ended_by.contains(&ended_by),
            // A line that must fail may be ended by any limit, but must have been started.
            (true, true) => ended_by != EndedBy::LaunchFailed,
            (true, false) => among.contains(&ended_by),
        };
        check(allowed, format!("ended by {ended_by:?}"));
    }
    if let Some(second) = second {
        let expected = line.next_out.as_deref();
        check(expected.is_none_or(|out| out == second.stdout), format!("the second: expected {expected:?}"));
        check(second.exit == Some(line.next_exit), format!("the second: expected exit {}", line.next_exit));
    }
    for secret in [place.secret.as_str(), SECRET, daemon::SECRET] {
        check(!both.contains(secret), "a secret is in the output".to_owned());
    }
    for path in line.absent.iter().map(|path| fill(path, place, mark)) {
        check(fs::symlink_metadata(&path).is_err(), format!("{path} was made"));
    }
    let left = left_over(mark);
    check(left.is_empty(), format!("still running: {left:?}"));
    wrong.extend(place.harm());
    wrong
}

/// Starts the executor of the corpora with the secret in its environment.
pub(super) fn start(configuration: &str) -> Executor {
    Executor::start_with_environment(configuration, &[("CORDON_TEST_SECRET", SECRET)])
}

/// Processes of the command with this mark.
fn left_over(mark: &str) -> Vec<i32> {
    let entry = format!("{CASE}={mark}");
    let own = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
    };
    process::all().into_iter().filter(own).collect()
}
