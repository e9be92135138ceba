//! `cordon run`: one command in the sandbox, its output as it comes, its exit status as ours.

mod args;
mod collection;
pub(crate) mod explanation;
mod files;
mod interruption;
mod stdin;

pub(crate) use args::Args;

use super::CLIENT;
use crate::{exit_status, failure::Failure, output, stdio};
use collection::Collection;
use cordon_protocol::{
    Event, ExitReport, FullReport,
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

/// Runs the command; the exit status of [`crate::exit_status`].
pub(crate) fn execute(args: Args, socket: &Path) -> Result<u8, Failure> {
    let (json, with_stdin) = (args.json, !args.no_stdin);
    let mut collection = Collection::new(&args)?;
    let request = args.into_request()?;
    let told = |error| Failure::of_client("run", socket, error);
    let (mut connection, input) = blocking::run(socket, CLIENT, request).map_err(told)?;
    let canceller = Arc::new(connection.canceller().map_err(told)?);
    let interruption = Interruption::watch(Arc::clone(&canceller))?;
    let input_failed = Arc::new(OnceLock::new());
    if with_stdin {
        stdin::pass_on(input, canceller, Arc::clone(&input_failed))?;
    }
    let ended = follow(&mut connection, &mut collection);
    // What came first explains the rest: after either of these the connection just ends.
    if let Some(status) = interruption.status() {
        match ended {
            Ok(report) if json => {
                output::print_json(&FullReport { report, collected: collection.listed() })?;
            }
            Err(stop) if json => stop.into_failure(socket).print_json(),
            _ => {}
        }
        return Ok(status);
    }
    if let Some(error) = input_failed.get() {
        let next = "nothing more was sent and the command was ended; use -n when it needs no input";
        return Err(Failure::new("reading standard input", error, next));
    }
    let report = ended.map_err(|stop| stop.into_failure(socket))?;
    let status = collection.status(exit_status::of_report(&report));
    if json {
        output::print_json(&FullReport { report, collected: collection.listed() })?;
    } else if let Some(line) = explanation::of_report(&report) {
        output::complain(&format!("cordon: {}", output::visible(&line)));
    }
    Ok(status)
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

/// Writes output as it comes, and takes what was collected, until the report. The connection is closed when nobody takes the output:
/// that ends the command, as SIGPIPE would.
fn follow(connection: &mut Connection, collection: &mut Collection) -> Result<ExitReport, Stop> {
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
            Event::File(file) => {
                collection.take(file);
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
        services: vec![],
        hint: None,
    }
}
