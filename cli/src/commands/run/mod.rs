//! `cordon run`: one command in the sandbox, its output as it comes, its exit status as ours.

mod explanation;
mod interruption;
mod stdin;

use super::CLIENT;
use crate::{exit_status, failure::Failure, output, stdio};
use cordon_protocol::{
    Action, Bytes, Event, ExitReport, LimitRequest, Millis, RunRequest,
    client::{
        ClientError,
        blocking::{self, Connection},
    },
};
use interruption::Interruption;
use std::{
    io::{self, IsTerminal},
    os::fd::AsFd,
    path::Path,
    sync::{Arc, OnceLock},
};

const EXAMPLES: &str = "\
Examples:
  cordon run -- python3 -c 'print(6 * 7)'
  cordon run -c 'grep -r TODO . | head'
  cordon run --timeout 5s --memory 256M --pids 32 -- make test
  tar c src | cordon run -c 'tar x && wc -l src/*'
  cordon run --json -c 'exit 3' | jq .exit_code

Sizes take K, M or G (1024); times ms, s, m or h. Output passes through as it comes; with --json one \
report is printed instead.

Exit status: the command's own; 128+N when signal N ended it; 124 time-out; 137 out of memory; 141 output \
limit; 130 cancelled; 122 disk limit; 126 not executable; 127 not found; 125 when Cordon itself failed or \
refused.";

/// What to run and within which limits.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true, after_help = EXAMPLES, override_usage = "cordon run [OPTIONS] -- CMD [ARG]...\n       cordon run [OPTIONS] -c LINE")]
pub(crate) struct Args {
    /// Run a line for the profile's shell (`bash -c LINE`)
    #[arg(
        short = 'c',
        value_name = "LINE",
        allow_hyphen_values = true,
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    line: Option<String>,
    /// Profile to run under [default: default]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Most time by the clock, as in 90s
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    timeout: Option<Millis>,
    /// Most memory of all processes together, as in 512M
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    memory: Option<Bytes>,
    /// Most processes and threads
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pids: Option<u64>,
    /// Most output of both streams together; more ends the command
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    output: Option<Bytes>,
    /// Output of each stream that the report of --json keeps (head and tail)
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    capture: Option<Bytes>,
    /// Working directory inside the sandbox [default: the workspace]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Set an environment variable; may be given more than once
    #[arg(long, value_name = "NAME=VALUE", value_parser = environment_entry)]
    env: Vec<(String, String)>,
    /// Do not pass standard input on: the command reads /dev/null
    #[arg(short = 'n', long)]
    no_stdin: bool,
    /// Print one report as JSON instead of the output
    #[arg(long)]
    json: bool,
    /// Program and its arguments, no shell between
    #[arg(last = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<String>,
}

fn environment_entry(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("not of the form NAME=VALUE".to_owned()),
    }
}

impl Args {
    fn into_request(self) -> RunRequest {
        let action = match self.line {
            Some(line) => Action::Line(line),
            None => Action::Argv(self.command),
        };
        RunRequest {
            profile: self.profile,
            cwd: self.cwd,
            env: self.env,
            stdin: !self.no_stdin,
            stream: !self.json,
            limits: LimitRequest {
                wall_ms: self.timeout.map(|t| t.0),
                memory_bytes: self.memory.map(|b| b.0),
                pids: self.pids,
                output_bytes: self.output.map(|b| b.0),
                capture_bytes: self.capture.map(|b| b.0),
                ..LimitRequest::default()
            },
            ..RunRequest::new(action)
        }
    }
}

/// Runs the command; the exit status of [`crate::exit_status`].
pub(crate) fn execute(args: Args, socket: &Path) -> Result<u8, Failure> {
    let (json, with_stdin) = (args.json, !args.no_stdin);
    let told = |error| Failure::of_client("run", socket, error);
    let (mut connection, input) = blocking::run(socket, CLIENT, args.into_request()).map_err(told)?;
    let canceller = Arc::new(connection.canceller().map_err(told)?);
    let interruption = Interruption::watch(Arc::clone(&canceller))?;
    let input_failed = Arc::new(OnceLock::new());
    if with_stdin {
        stdin::pass_on(input, canceller, Arc::clone(&input_failed))?;
    }
    let ended = follow(&mut connection);
    // What came first explains the rest: after either of these the connection just ends.
    if let Some(status) = interruption.status() {
        if let (true, Ok(report)) = (json, &ended) {
            output::print_json(report)?;
        }
        return Ok(status);
    }
    if let Some(error) = input_failed.get() {
        let next = "nothing more was sent and the command was ended; use -n when it needs no input";
        return Err(Failure::new("reading standard input", error, next));
    }
    let report = ended.map_err(|stop| stop.into_failure(socket))?;
    if json {
        output::print_json(&report)?;
    } else if let Some(line) = explanation::of_report(&report) {
        output::complain(&format!("cordon: {}", output::visible(&line)));
    }
    Ok(exit_status::of_report(&report))
}

/// Why there is no report.
enum Stop {
    Client(ClientError),
    Output(&'static str, io::Error),
}

impl Stop {
    fn into_failure(self, socket: &Path) -> Failure {
        match self {
            Self::Client(error) => Failure::of_client("run", socket, error),
            Self::Output(_, error) if error.kind() == io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
            Self::Output(stream, error) => Failure::new(
                format!("writing {stream}"),
                error,
                "the command was ended; look at where the output goes",
            ),
        }
    }
}

/// Writes output as it comes, until the report. The connection is closed when nobody takes the output:
/// that ends the command, as SIGPIPE would.
fn follow(connection: &mut Connection) -> Result<ExitReport, Stop> {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    loop {
        let (stream, fd, data) = match connection.next_event().map_err(Stop::Client)? {
            Event::Started { .. } => continue,
            Event::Queued { position } => {
                // For whoever looks on; a program that reads standard error has the command's own alone.
                if stderr.is_terminal() {
                    output::complain(&format!("waiting: position {position}"));
                }
                continue;
            }
            Event::Exited(report) => return Ok(*report),
            Event::Stdout(data) => ("standard output", stdout.as_fd(), data),
            Event::Stderr(data) => ("standard error", stderr.as_fd(), data),
            _ => return Err(Stop::Client(ClientError::Unexpected)),
        };
        stdio::write_all(fd, &data).map_err(|error| Stop::Output(stream, error))?;
    }
}

/// A report to build others from.
#[cfg(test)]
pub(crate) fn sample() -> ExitReport {
    use cordon_protocol::{CgroupMode, Encoding, EndedBy, Enforced, NetworkMode};
    ExitReport {
        id: "1".into(),
        ended_by: EndedBy::Exit,
        exit_code: None,
        signal: None,
        step: None,
        stdout: None,
        stderr: None,
        stdout_encoding: Encoding::Utf8,
        stderr_encoding: Encoding::Utf8,
        stdout_bytes: 0,
        stderr_bytes: 0,
        stdout_truncated: false,
        stderr_truncated: false,
        wall_ms: 1000.4,
        cpu_ms: 7.0,
        peak_memory_bytes: Some(1 << 20),
        limits_hit: vec![],
        enforced: Enforced {
            uid: 999,
            cgroup: CgroupMode::V2,
            landlock_abi: 6,
            seccomp: true,
            namespaces: vec![],
            network: NetworkMode::None,
            capabilities: vec![],
        },
        hint: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Result<RunRequest, String> {
        let words = ["run"].iter().chain(words);
        Alone::try_parse_from(words).map(|a| a.args.into_request()).map_err(|e| e.to_string())
    }

    #[test]
    fn options_become_the_request() {
        let words = [
            "--timeout",
            "1500ms",
            "--profile",
            "p",
            "--memory",
            "64M",
            "--pids",
            "9",
            "--output",
            "1G",
            "--capture",
            "0",
            "--cwd",
            "/tmp",
            "--env",
            "A=b=c",
            "--env",
            "D=",
            "-n",
            "--json",
            "--",
            "ls",
            "--env",
        ];
        let request = parse(&words).unwrap();
        let expected = RunRequest {
            profile: Some("p".into()),
            cwd: Some("/tmp".into()),
            env: vec![("A".into(), "b=c".into()), ("D".into(), String::new())],
            limits: LimitRequest {
                wall_ms: Some(1500),
                memory_bytes: Some(64 << 20),
                pids: Some(9),
                output_bytes: Some(1 << 30),
                capture_bytes: Some(0),
                ..LimitRequest::default()
            },
            ..RunRequest::new(Action::Argv(vec!["ls".into(), "--env".into()]))
        };
        assert_eq!(request, expected);
    }

    #[test]
    fn options_stand_on_either_side_of_the_line_which_may_look_like_one() {
        for words in [["-c", "-x", "--timeout", "1s"], ["--timeout", "1s", "-c", "-x"]] {
            let request = parse(&words).unwrap();
            assert_eq!(request.action, Action::Line("-x".into()));
            assert_eq!(request.limits.wall_ms, Some(1000));
            assert!(request.stdin && request.stream);
        }
    }

    #[test]
    fn one_of_line_and_command_and_nothing_unclear() {
        for (words, says) in [
            (&[][..], "not provided"),
            (&["-c", "x", "--", "y"], "cannot be used with"),
            (&["ls"], "unexpected argument 'ls'"),
            (&["-c", "x", "--memory", "1T"], "not a size"),
            (&["-c", "x", "--timeout", "60"], "not a time"),
            (&["-c", "x", "--timeout", "-1s"], "not a time"),
            (&["-c", "x", "--pids", "-1"], "invalid digit"),
            (&["-c", "x", "--pids", "many"], "invalid digit"),
            (&["-c", "x", "--env", "=v"], "NAME=VALUE"),
            (&["-c", "x", "--env", "A"], "NAME=VALUE"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(says), "{words:?}: {error}");
        }
    }
}
