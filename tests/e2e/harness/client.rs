//! An executor's socket as a test uses it: through the command-line program and through the protocol.

use super::{PATIENCE, build::programs, process, stretched};
use cordon_protocol::{
    Action, EndedBy, Event, ExitReport, RunRequest,
    client::{ClientError, blocking},
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Where an executor listens.
pub(crate) struct Client {
    /// Its socket.
    pub(crate) socket: PathBuf,
}

/// Everything one command sent.
#[derive(Debug)]
pub(crate) struct Events {
    /// `id` of the `Started` event; none when the program was never executed.
    pub(crate) started: Option<String>,
    /// All of standard output.
    pub(crate) stdout: Vec<u8>,
    /// All of standard error.
    pub(crate) stderr: Vec<u8>,
    /// The last event.
    pub(crate) report: ExitReport,
}

/// The time by the clock of a command that is not about it.
fn patience() -> String {
    format!("{}s", stretched(PATIENCE).as_secs())
}

/// A request for a shell line, report and no events.
pub(crate) fn line(text: &str) -> RunRequest {
    RunRequest::new(Action::Line(text.to_owned()))
}

/// A request for a program with arguments, report and no events.
pub(crate) fn argv(arguments: &[&str]) -> RunRequest {
    RunRequest::new(Action::Argv(arguments.iter().map(|a| (*a).to_owned()).collect()))
}

impl Client {
    /// `cordon` with these arguments, talking to this executor.
    pub(crate) fn cordon(&self, arguments: &[&str]) -> Command {
        // The tests may have been started with signals ignored (nohup, a background job), which it would inherit.
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP,INT,QUIT,TERM").arg(&programs().cordon);
        command.args(arguments).env("CORDON_SOCKET", &self.socket);
        command
    }

    /// `cordon run` with these arguments and an empty standard input.
    pub(crate) fn run(&self, arguments: &[&str]) -> process::Ran {
        self.run_with(arguments, &[])
    }

    /// `cordon run` with these arguments and this standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &[u8]) -> process::Ran {
        process::run(self.cordon(&[&["run"], arguments].concat()), input)
    }

    /// The report of `cordon run --json` with these arguments.
    pub(crate) fn report(&self, arguments: &[&str]) -> ExitReport {
        let ran = self.run(&[&["--json"], arguments].concat());
        serde_json::from_slice(&ran.stdout)
            .unwrap_or_else(|e| panic!("no report for {arguments:?} ({e}): {} {}", ran.text(), ran.stderr))
    }

    /// Standard output of a shell line that must succeed.
    pub(crate) fn inside(&self, script: &str) -> String {
        self.inside_profile("default", script)
    }

    /// As [`Client::inside`], under another profile.
    pub(crate) fn inside_profile(&self, profile: &str, script: &str) -> String {
        let report = self.report(&["--profile", profile, "--timeout", &patience(), "-c", script]);
        assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(0)), "{script}\n{report:?}");
        report.stdout.unwrap()
    }

    /// Standard output of a Python program that must succeed inside.
    pub(crate) fn python(&self, code: &str) -> String {
        let report = self.report(&["--timeout", &patience(), "--", "/usr/bin/python3", "-c", code]);
        assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(0)), "{code}\n{report:?}");
        report.stdout.unwrap()
    }

    /// Sends a request over the socket and collects what comes.
    pub(crate) fn ask(&self, request: RunRequest) -> Result<Events, ClientError> {
        let (connection, stdin) = blocking::run(&self.socket, "test", request)?;
        let events = collect(connection);
        drop(stdin);
        events
    }

    /// As [`Client::ask`], for a request that is accepted.
    pub(crate) fn events(&self, request: RunRequest) -> Events {
        self.ask(request).unwrap_or_else(|e| panic!("refused: {e}"))
    }

    /// The refusal of a request, with its code's name before the text.
    pub(crate) fn refusal(&self, request: RunRequest) -> String {
        match self.ask(request) {
            Err(ClientError::Refused(refusal)) => format!("{}: {refusal}", refusal.code.as_str()),
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Fails unless an ordinary command runs.
    pub(crate) fn assert_works(&self) {
        assert_eq!(self.inside("echo works"), "works\n");
    }
}

/// Reads a command's events to its report.
pub(crate) fn collect(mut connection: blocking::Connection) -> Result<Events, ClientError> {
    let (mut started, mut stdout, mut stderr) = (None, Vec::new(), Vec::new());
    loop {
        match connection.next_event()? {
            Event::Queued { .. } => assert!(started.is_none(), "queued, and had started"),
            Event::Started { id } => assert!(started.replace(id).is_none(), "started twice"),
            Event::Stdout(piece) => stdout.extend(piece),
            Event::Stderr(piece) => stderr.extend(piece),
            Event::Exited(report) => return Ok(Events { started, stdout, stderr, report: *report }),
            other => panic!("out of order: {other:?}"),
        }
    }
}

/// A copy of a program that every user can reach and run, in this directory.
pub(crate) fn public_copy(program: &Path, directory: &Path) -> PathBuf {
    let copy = directory.join(program.file_name().unwrap());
    super::process::install(program, &copy, 0o755);
    copy
}
