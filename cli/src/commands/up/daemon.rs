//! The two daemons as children: started through [`super::launcher`], their log passed on, ended.

use super::{directory::Directory, events::Events, listeners::Listeners, readiness};
use crate::{failure::Failure, output, sibling};
use cordon_protocol::supervision::PARENT_VARIABLE;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    collections::VecDeque,
    env,
    ffi::OsString,
    io::{BufRead, BufReader, Read},
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    path::PathBuf,
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

/// Lines of a daemon's log that are kept to explain its end.
const LAST_LINES: usize = 3;
/// Longest line of a log that is passed on in one piece, bytes.
const LINE_MAX: u64 = 8 << 10;
/// How long the end of a log is waited for once its daemon has ended.
const LOG_WAIT: Duration = Duration::from_millis(500);
/// What of our environment the daemons see, beside `CORDON_*`: root's may hold secrets.
const ENVIRONMENT: [&str; 5] = ["PATH", "LANG", "TZ", "RUST_LOG", "RUST_BACKTRACE"];

/// How a daemon is to be started.
#[derive(Debug)]
pub(super) struct Plan {
    name: &'static str,
    user: Option<&'static str>,
    program: PathBuf,
    configuration: PathBuf,
    listeners: Option<Listeners>,
}

impl Plan {
    /// The executor: stays root, binds its own socket.
    pub(super) fn executor(directory: &Directory) -> Result<Self, Failure> {
        let name = "cordon-executor";
        let configuration = directory.executor_configuration();
        Ok(Self { name, user: None, program: sibling::path(name)?, configuration, listeners: None })
    }

    /// The gateway: its own user, its sockets handed to it.
    pub(super) fn gateway(directory: &Directory, listeners: Listeners) -> Result<Self, Failure> {
        let name = "cordon-gateway";
        let configuration = directory.gateway_configuration();
        let (program, listeners) = (sibling::path(name)?, Some(listeners));
        Ok(Self { name, user: Some(super::accounts::GATEWAY), program, configuration, listeners })
    }

    /// Name of the program.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }
}

/// A running daemon.
#[derive(Debug)]
pub(super) struct Daemon {
    name: &'static str,
    child: Child,
    log: Log,
}

impl Daemon {
    /// Starts it; an event says when it is ready.
    ///
    /// To be called by the main thread alone: the kernel ends the child when the *thread* that made it ends.
    pub(super) fn start(plan: Plan, directory: &Directory, events: &Events) -> Result<Self, Failure> {
        let name = plan.name;
        let failed = |e: std::io::Error| {
            Failure::new(format!("starting {name}"), e, "see what the system lacks: memory, processes, files")
        };
        let notify = readiness::listen(name, plan.user, directory, events)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg("launch-daemon").arg("--program").arg(&plan.program);
        if let Some(user) = plan.user {
            command.args(["--user", user]);
        }
        command.env_clear().envs(environment()).env("NOTIFY_SOCKET", notify);
        command.env(PARENT_VARIABLE, std::process::id().to_string());
        if let Some(listeners) = plan.listeners {
            command.arg("--listeners");
            command.stdin(OwnedFd::from(listeners.http)).stdout(OwnedFd::from(listeners.local));
        } else {
            command.stdin(Stdio::null()).stdout(Stdio::null());
        }
        command.arg("--").arg("--config").arg(&plan.configuration).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let log = child.stderr.take().map(|pipe| Log::pass_on(name, pipe)).transpose().map_err(failed);
        match log {
            Ok(log) => Ok(Self { name, child, log: log.unwrap_or_default() }),
            Err(failure) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(failure)
            }
        }
    }

    /// Name of its program.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// How it ended; none while it runs.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends it a signal, unless it has ended.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.ended().is_none()
            && let Ok(pid) = i32::try_from(self.child.id())
        {
            // Not yet reaped, so the number is still its own.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Waits a moment for the rest of its log; to be called when it has ended.
    pub(super) fn finish_log(&self) {
        self.log.finish();
    }

    /// Ends it without asking.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An error when one of the daemons has ended, with its last words. That one has is told at once: the other is ended
/// before the error is, and may take its time.
pub(super) fn all_alive(daemons: &mut [Daemon]) -> Result<(), Failure> {
    for daemon in daemons {
        if let Some(status) = daemon.ended() {
            output::complain(&format!("cordon: {} has ended ({status}); ending the rest", daemon.name));
            return Err(ended_by_itself(daemon.name, status, &daemon.log.last_lines()));
        }
    }
    Ok(())
}

/// Which one ended, how, its last lines, and what fits that end.
fn ended_by_itself(name: &str, status: ExitStatus, last: &[String]) -> Failure {
    let signal = status.signal().and_then(|number| Signal::try_from(number).ok());
    let (how, next) = match (status.code(), signal) {
        (Some(0), _) => (
            "ended as when it is told to (exit status 0)".to_owned(),
            "start `cordon up` again; end `cordon up` itself (Ctrl-C, SIGTERM), and it ends both".to_owned(),
        ),
        (Some(code), _) => (
            format!("ended with exit status {code}"),
            "mend what its last lines name; `cordon doctor` shows what this host lacks".to_owned(),
        ),
        (None, Some(Signal::SIGKILL)) => (
            "was killed (SIGKILL)".to_owned(),
            "see whether the kernel ended it for want of memory (`dmesg`); start `cordon up` again"
                .to_owned(),
        ),
        (None, Some(signal @ (Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT))) => {
            (format!("was ended by {signal}"), "start `cordon up` again".to_owned())
        }
        (None, signal) => (
            format!("was ended by {}", signal.map_or_else(|| status.to_string(), |s| s.to_string())),
            format!("start `cordon up` again; report it as a fault of {name}, with its log"),
        ),
    };
    let mut problem = format!("{name} {how}");
    if !last.is_empty() {
        problem = format!("{problem}; its last lines:\n{}", last.join("\n"));
    }
    Failure::Told { problem, next }
}

fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    let wanted = |name: &OsString| {
        let name = name.to_string_lossy();
        ENVIRONMENT.contains(&&*name) || name.starts_with("CORDON_")
    };
    // Their log goes through us, where an escape sequence would be written out.
    let plain = [(OsString::from("NO_COLOR"), OsString::from("1"))];
    env::vars_os().filter(move |(name, _)| wanted(name)).chain(plain)
}

/// A daemon's standard error. It never gets our own: a terminal in the hands of another user takes input
/// from it too (ioctl_tty(2), TIOCSTI).
#[derive(Debug, Default)]
struct Log {
    last: Arc<Mutex<VecDeque<String>>>,
    end: Option<mpsc::Receiver<()>>,
}

impl Log {
    /// Starts a thread that writes each line to our standard error, under the daemon's name.
    fn pass_on(name: &'static str, pipe: ChildStderr) -> std::io::Result<Self> {
        let last = Arc::new(Mutex::new(VecDeque::new()));
        let (ended, end) = mpsc::channel();
        let kept = Arc::clone(&last);
        let body = move || {
            let mut reader = BufReader::new(pipe);
            let mut line = Vec::new();
            loop {
                line.clear();
                match reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
                let text = output::visible(String::from_utf8_lossy(&line).trim_end());
                let text = text.strip_prefix(name).and_then(|t| t.strip_prefix(": ")).unwrap_or(&text);
                output::complain(&format!("{name}: {text}"));
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == LAST_LINES {
                    kept.pop_front();
                }
                kept.push_back(text.to_owned());
            }
            drop(ended);
        };
        thread::Builder::new().name("log".into()).spawn(body)?;
        Ok(Self { last, end: Some(end) })
    }

    /// Waits a moment until all of it has been passed on; to be called when the daemon has ended.
    fn finish(&self) {
        if let Some(end) = &self.end {
            // The sender is dropped at the end: an error either way.
            let _ = end.recv_timeout(LOG_WAIT);
        }
    }

    /// The last lines, once the log has ended.
    fn last_lines(&self) -> Vec<String> {
        self.finish();
        self.last.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_with_its_way_and_the_remedy_that_fits() {
        let (exit, killed) = (|code| ExitStatus::from_raw(code << 8), ExitStatus::from_raw);
        for (status, says, remedy) in [
            (exit(0), "x ended as when it is told to (exit status 0)", "again"),
            (exit(1), "x ended with exit status 1", "cordon doctor"),
            (killed(9), "x was killed (SIGKILL)", "dmesg"),
            (killed(15), "x was ended by SIGTERM", "again"),
            (killed(11), "x was ended by SIGSEGV", "fault of x"),
            (killed(40), "x was ended by signal: 40", "fault of x"),
        ] {
            let Failure::Told { problem, next } = ended_by_itself("x", status, &["a".into(), "b".into()])
            else {
                panic!("told");
            };
            assert!(problem.starts_with(says) && problem.ends_with("; its last lines:\na\nb"), "{problem}");
            assert!(next.contains(remedy), "{says}: {next}");
            assert_eq!(next.contains("doctor"), status.code() == Some(1), "{says}: {next}");
        }
    }
}
