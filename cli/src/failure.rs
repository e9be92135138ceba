//! Why a command of ours failed, in two lines: `cordon: thing failed: cause`, then what to do next. With `--json` also in
//! one on standard output, for programs: `{"error":{"code","message","hint"}}`, as over HTTP.

use crate::{exit_status, output};
use cordon_protocol::{RefusalCode, client::ClientError, codec::FrameError, supervision::Supervision};
use serde::Serialize;
use std::{fmt::Display, io, path::Path};

/// The end of a command of ours that did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something to tell.
    Told {
        /// `thing failed: cause`.
        problem: String,
        /// What to do next.
        next: String,
    },
    /// The same, with a code that programs know from other doors.
    Coded {
        /// As over HTTP.
        code: &'static str,
        /// Without what stands around it for people.
        message: String,
        /// As above.
        problem: String,
        /// As above.
        next: String,
    },
    /// Nobody reads our output any more: nothing to tell and nobody to tell it to.
    BrokenPipe,
}

impl Failure {
    /// A failure that tells `what` failed, why, and what to do next. `what` is one line, whatever name is in it.
    pub(crate) fn new(what: impl Display, cause: impl Display, next: impl Into<String>) -> Self {
        let what = output::visible(&what.to_string());
        Self::Told { problem: format!("{what} failed: {cause}"), next: next.into() }
    }

    /// Something that was asked for and makes no sense.
    pub(crate) fn bad_request(problem: impl Into<String>, next: impl Into<String>) -> Self {
        let problem = problem.into();
        Self::Coded { code: BAD_REQUEST, message: problem.clone(), problem, next: next.into() }
    }

    /// A question to the executor that got no answer.
    pub(crate) fn of_client(what: &str, socket: &Path, error: ClientError) -> Self {
        let next = match &error {
            ClientError::Connect { source, .. } => connect_remedy(socket, source),
            ClientError::Refused(refusal) => {
                refusal.hint.clone().unwrap_or_else(|| refusal_remedy(refusal.code))
            }
            ClientError::Frame(FrameError::TooLarge { .. } | FrameError::Malformed(_)) => format!(
                "see whether {} is the executor's socket and not another program's, as the gateway's is",
                socket.display()
            ),
            ClientError::Closed | ClientError::Frame(_) => {
                format!("it ended or broke off; {}", look_at_log())
            }
            ClientError::Unexpected => "use a cordon and a cordon-executor of the same version".to_owned(),
        };
        let code = match &error {
            ClientError::Refused(refusal) => refusal.code.as_str(),
            ClientError::Connect { source, .. } if source.kind() == io::ErrorKind::WouldBlock => {
                RefusalCode::Busy.as_str()
            }
            ClientError::Connect { .. }
            | ClientError::Closed
            | ClientError::Frame(FrameError::Io(_) | FrameError::Truncated) => "executor_unavailable",
            ClientError::Frame(_) | ClientError::Unexpected => RefusalCode::Internal.as_str(),
        };
        let (message, problem) = match error {
            ClientError::Refused(refusal) => {
                let problem = format!("{what} refused ({code}): {}", refusal.message);
                (refusal.message, problem)
            }
            error => (error.to_string(), format!("{what} failed: {error}")),
        };
        Self::Coded { code, message, problem, next }
    }

    /// Prints it to standard output as one line of JSON. Where that fails, standard error says what there is to say.
    pub(crate) fn print_json(&self) {
        let (code, message, hint) = match self {
            Self::Told { problem, next } => (FAILED, problem, next),
            Self::Coded { code, message, next, .. } => (*code, message, next),
            Self::BrokenPipe => return,
        };
        let _ = output::print_json(&ErrorBody { error: ErrorDetail { code, message, hint } });
    }

    /// Prints it to standard error; the exit status to end with, `otherwise` for all but a broken pipe.
    pub(crate) fn report(&self, otherwise: u8) -> u8 {
        match self {
            Self::Told { problem, next } | Self::Coded { problem, next, .. } => {
                // A daemon's words may have lines of their own; indented, none of them passes for one of ours.
                let problem: Vec<_> = problem.lines().map(output::visible).collect();
                let next = output::visible(next);
                output::complain(&format!("cordon: {}\n  next: {next}", problem.join("\n    ")));
                otherwise
            }
            Self::BrokenPipe => exit_status::BROKEN_PIPE,
        }
    }
}

/// Code of what is wrong with the arguments.
const BAD_REQUEST: &str = RefusalCode::BadRequest.as_str();
/// Code of what failed here, and neither executor nor request were the cause.
const FAILED: &str = "failed";

/// What every door but the socket says of a failure.
#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorDetail<'a>,
}

#[derive(Serialize)]
struct ErrorDetail<'a> {
    code: &'a str,
    message: &'a str,
    hint: &'a str,
}

fn connect_remedy(socket: &Path, error: &io::Error) -> String {
    let path = socket.display();
    if socket.as_os_str().is_empty() {
        return "name the executor's socket with --socket, or unset CORDON_SOCKET, which is empty".to_owned();
    }
    let start = Supervision::of_this_host().start_executor();
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "join the group that owns {path} (`sudo usermod -aG cordon $USER`, then log in again), or use sudo"
        ),
        io::ErrorKind::ConnectionRefused => {
            format!("{path} is left over and nobody listens: start the executor again (`{start}`)")
        }
        _ => format!("start the executor (`{start}`), or name its socket with --socket or CORDON_SOCKET"),
    }
}

/// Where to look when the executor itself has failed.
fn look_at_log() -> String {
    format!("look at the executor's log ({})", Supervision::of_this_host().executor_log())
}

fn refusal_remedy(code: RefusalCode) -> String {
    let remedy = match code {
        RefusalCode::UnknownProfile | RefusalCode::LimitRefused => {
            "`cordon profiles` lists the profiles you may use and their limits"
        }
        RefusalCode::BadVersion => "use a cordon and a cordon-executor of the same version",
        RefusalCode::NotAllowed => "add yourself to the profile's `peers`, or to the group cordon",
        RefusalCode::NotFound => "`cordon ps` lists your running commands",
        RefusalCode::Busy | RefusalCode::ShuttingDown | RefusalCode::Timeout => "try again in a moment",
        RefusalCode::BadRequest | RefusalCode::BadFrame | RefusalCode::OutOfOrder => {
            "change the request; `cordon run --help` shows what can be asked for"
        }
        RefusalCode::Internal => return look_at_log(),
    };
    remedy.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cordon_protocol::Refusal;

    fn told(error: ClientError) -> (String, String) {
        match Failure::of_client("run", Path::new("/s"), error) {
            Failure::Told { problem, next } | Failure::Coded { problem, next, .. } => (problem, next),
            Failure::BrokenPipe => panic!("not a broken pipe"),
        }
    }

    #[test]
    fn a_refusal_names_its_code_and_keeps_the_executors_hint() {
        let refusal = |hint| Refusal {
            code: RefusalCode::LimitRefused,
            message: "memory 900G is above the ceiling 2G".into(),
            hint,
        };
        let (problem, next) = told(refusal(Some("ask for less".into())).into());
        assert_eq!(problem, "run refused (limit_refused): memory 900G is above the ceiling 2G");
        assert_eq!(next, "ask for less");
        assert!(told(refusal(None).into()).1.contains("cordon profiles"));
    }

    #[test]
    fn each_way_of_not_connecting_has_its_own_remedy() {
        let connect =
            |kind: io::ErrorKind| told(ClientError::Connect { path: "/s".into(), source: kind.into() }).1;
        assert!(connect(io::ErrorKind::NotFound).contains("cordon up"));
        assert!(connect(io::ErrorKind::PermissionDenied).contains("usermod -aG cordon"));
        assert!(connect(io::ErrorKind::ConnectionRefused).contains("left over"));
    }

    #[test]
    fn a_socket_on_which_something_else_speaks_is_named() {
        let frame = FrameError::TooLarge { length: 1_347_703_880, limit: 1 };
        assert!(told(frame.into()).1.contains("/s is the executor's socket"));
    }
}
