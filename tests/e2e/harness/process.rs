//! Starting programs so that none outlives the tests, and reading what /proc says about them.

use super::{PATIENCE, eventually, stretched};
pub(crate) use cordon_tests::host::{descendants, descriptors, exe, parse_status, processes as all, status};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs,
    io::{BufRead, BufReader, Write, pipe},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// A program whose end follows this process's, however that comes.
pub(crate) fn tied(program: &Path) -> Command {
    // The tests may have been started with signals ignored (nohup, a background job), which all would inherit.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT,TERM", "setpriv", "--pdeathsig", "TERM", "--"]).arg(program);
    command
}

type Work = Box<dyn FnOnce() + Send>;

/// Starts a program from a thread that lasts as long as this process: the signal that [`tied`] asks for
/// comes when the *thread* that started it ends (prctl(2), PR_SET_PDEATHSIG).
fn spawn(mut command: Command) -> Child {
    static SPAWNER: OnceLock<Mutex<Sender<Work>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, receiver) = channel::<Work>();
        thread::spawn(move || receiver.into_iter().for_each(|work| work()));
        Mutex::new(sender)
    });
    let (answer, child) = channel();
    let work: Work = Box::new(move || {
        // The command is dropped here, and with it the writing ends of its pipes.
        let _ = answer.send(command.spawn());
    });
    spawner.lock().unwrap().send(work).unwrap();
    child.recv().unwrap().expect("the program starts")
}

/// Copies a file to be executed. Another process writes it: while this one has it open for writing, a
/// child of another thread's could inherit that for a moment, and executing it is ETXTBSY.
pub(crate) fn install(from: &Path, to: &Path, mode: u32) {
    let mode = format!("--mode={mode:o}");
    let status = Command::new("install").arg(mode).args([from, to]).status().unwrap();
    assert!(status.success(), "install {}", to.display());
}

/// A running daemon with everything it has written.
pub(crate) struct Process {
    child: Child,
    log: Arc<Mutex<String>>,
    lines: Mutex<Receiver<String>>,
}

impl Process {
    /// Starts it, standard output and error into the log.
    pub(crate) fn start(command: Command) -> Self {
        Self::start_with_stdin(command, Stdio::null())
    }

    /// As [`Process::start`], with this standard input.
    pub(crate) fn start_with_stdin(mut command: Command, stdin: Stdio) -> Self {
        let (reader, writer) = pipe().unwrap();
        command.stdin(stdin).stdout(writer.try_clone().unwrap()).stderr(writer);
        let child = spawn(command);
        let log = Arc::new(Mutex::new(String::new()));
        let (sender, lines) = channel();
        let copy = Arc::clone(&log);
        thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                let text = String::from_utf8_lossy(&line).into_owned();
                copy.lock().unwrap().push_str(&text);
                let _ = sender.send(text);
                line.clear();
            }
        });
        Self { child, log, lines: Mutex::new(lines) }
    }

    /// Waits for a line with this text.
    pub(crate) fn wait_for(&self, text: &str) {
        let lines = self.lines();
        let start = Instant::now();
        loop {
            match lines.recv_timeout(stretched(PATIENCE).saturating_sub(start.elapsed())) {
                Ok(line) if line.contains(text) => return,
                Ok(_) => {}
                Err(error) => panic!("no line with `{text}` ({error}) in:\n{}", self.log()),
            }
        }
    }

    /// Usable after a failure as well: the end of a process is waited for then too.
    fn lines(&self) -> MutexGuard<'_, Receiver<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Process number.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Everything written so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it and all that share its output have ended.
    pub(crate) fn silent(&self, within: Duration) -> bool {
        let within = stretched(within);
        let lines = self.lines();
        let start = Instant::now();
        loop {
            match lines.recv_timeout(within.saturating_sub(start.elapsed())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.pid()), signal);
    }

    /// Waits for the end of it and of all that share its output.
    pub(crate) fn wait(&mut self, within: Duration) -> ExitStatus {
        assert!(self.silent(within), "still there after {within:?}:\n{}", self.log());
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- log of process {} ---\n{}", self.pid(), self.log());
        }
        if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        self.signal(Signal::SIGTERM);
        let ended = self.silent(Duration::from_secs(20));
        if !ended {
            self.signal(Signal::SIGKILL);
        }
        let _ = self.child.wait();
        if !ended && !thread::panicking() {
            panic!("process {} did not end on SIGTERM:\n{}", self.pid(), self.log());
        }
    }
}

/// A program that ran to its end.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Exit status; 128 and the signal's number where a signal ended it.
    pub(crate) status: i32,
    /// Standard output.
    pub(crate) stdout: Vec<u8>,
    /// Standard error as text.
    pub(crate) stderr: String,
}

impl Ran {
    /// Standard output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// Runs a program with this standard input to its end; fails when it takes too long.
pub(crate) fn run(mut command: Command, input: &[u8]) -> Ran {
    let shown = format!("{command:?}");
    let stdin = if input.is_empty() { Stdio::null() } else { Stdio::piped() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{shown} failed: {e}"));
    drop(command);
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_vec();
        // The command need not read all of it.
        thread::spawn(move || stdin.write_all(&input));
    }
    finish(child, &shown)
}

/// Waits for a program whose output is piped.
pub(crate) fn finish(child: Child, shown: &str) -> Ran {
    let pid = i32::try_from(child.id()).unwrap();
    let (sender, receiver) = channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(out) = receiver.recv_timeout(stretched(PATIENCE * 2)) else {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        panic!("{shown} did not end");
    };
    let out = out.unwrap();
    let status = out.status.code().unwrap_or_else(|| 128 + out.status.signal().unwrap_or(0));
    Ran { status, stdout: out.stdout, stderr: String::from_utf8_lossy(&out.stderr).into_owned() }
}

/// A number of `/proc/PID/status` (`VmHWM` in KiB).
pub(crate) fn status_number(pid: i32, key: &str) -> u64 {
    let text = status(pid).remove(key).unwrap_or_else(|| panic!("no {key} of process {pid}"));
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Real, effective, saved and file-system uid.
pub(crate) fn uids(pid: i32) -> Vec<u32> {
    let text = status(pid).remove("Uid").unwrap_or_default();
    text.split_whitespace().map(|n| n.parse().unwrap()).collect()
}

/// Processes of the sandbox user whose command line has this text.
pub(crate) fn sandboxed(text: &str) -> Vec<i32> {
    let uid = super::host::uid_of("execuser");
    let matches = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text) && uids(*pid).first() == Some(&uid)
    };
    all().into_iter().filter(matches).collect()
}

/// The sandbox user's process with this text that has become this program; waited for. While it becomes it, its
/// command line is empty for a moment, so that whoever looks twice may find it once.
pub(crate) fn sandboxed_program(name: &str, text: &str) -> i32 {
    let mut found = None;
    eventually("the program runs in its sandbox", PATIENCE, || {
        found = sandboxed(text).into_iter().find(|pid| exe(*pid).is_some_and(|exe| exe.ends_with(name)));
        found.is_some()
    });
    found.unwrap()
}
