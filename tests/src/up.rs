//! A running `cordon up` for programs that measure, and HTTP as they speak it.

use crate::{Failure, host};
use cordon_protocol::ExitReport;
use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// Longest time in which something comes from the gateway.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running `cordon up` in a directory of its own. Every process of it has the directory's path in its environment,
/// commands excepted.
pub struct Up {
    child: Child,
    // Kept open: what it writes later must not fail.
    _stdout: BufReader<ChildStdout>,
    /// Where sockets, state and audit trail are.
    pub directory: PathBuf,
    /// Port of the gateway.
    pub port: u16,
    /// The gateway's token.
    pub token: String,
}

impl Up {
    /// Waits until it serves with these profiles; what the daemons say goes to `log`.
    ///
    /// # Errors
    /// What cannot be made or started; an early end.
    pub fn start(cordon: &Path, log: &Path, profiles: &str) -> Result<Self, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = env::temp_dir().join(format!("cordon-up.{}.{number}", std::process::id()));
        fs::create_dir(&directory)?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755))?;
        fs::write(directory.join("profiles.toml"), profiles)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        // Ended by the kernel should the thread that starts it end without having dropped it.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).arg(cordon).arg("up").arg("--dir").arg(&directory);
        command.args(["--port", &port.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
        command.env("CORDON_UP_MARK", &directory);
        let mut child = command.stderr(fs::File::create(log)?).spawn()?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or("no standard output")?);
        let mut line = String::new();
        while !line.contains("curl") {
            line.clear();
            if stdout.read_line(&mut line)? == 0 {
                return Err(format!("cordon up ended early, see {}: {}", log.display(), child.wait()?).into());
            }
        }
        let token = fs::read_to_string(directory.join("token"))?.trim().to_owned();
        Ok(Self { child, _stdout: stdout, directory, port, token })
    }

    /// The executor's socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("executor.sock")
    }

    /// Process number of `cordon up` itself.
    ///
    /// # Errors
    /// A number that is none.
    pub fn pid(&self) -> Result<i32, Failure> {
        Ok(i32::try_from(self.child.id())?)
    }

    /// The first process below it, nearest first, that runs a program of this name.
    ///
    /// # Errors
    /// None does.
    pub fn find(&self, name: &str) -> Result<i32, Failure> {
        let runs = |pid: &i32| host::exe(*pid).is_some_and(|exe| exe.ends_with(name));
        let found = host::descendants(self.pid()?).into_iter().find(runs);
        found.ok_or_else(|| format!("no {name} runs").into())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// One HTTP connection.
pub struct Http {
    stream: BufReader<TcpStream>,
    head: String,
}

/// An answer.
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The body; of a stream none, which is left to be read.
    pub body: Vec<u8>,
}

impl Http {
    /// Connects to the gateway.
    ///
    /// # Errors
    /// What connect(2) says.
    pub fn connect(up: &Up) -> Result<Self, Failure> {
        let head =
            format!("HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\n", up.port, up.token);
        let stream = TcpStream::connect(("127.0.0.1", up.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream), head })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// What write(2) says.
    pub fn send(&mut self, first: &str, headers: &str, body: &str) -> Result<(), Failure> {
        let length = body.len();
        let head = format!("{first} {}{headers}Content-Length: {length}\r\n\r\n", self.head);
        // In one piece: a second write would wait for the answer to the first (Nagle).
        Ok(self.stream.get_mut().write_all([head.as_bytes(), body.as_bytes()].concat().as_slice())?)
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// A connection that closes early; an answer that is none.
    pub fn answer(&mut self) -> Result<Answer, Failure> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err("the gateway closed the connection".into());
            }
        }
        let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
        let lower = head.to_lowercase();
        let length = lower.lines().find_map(|l| l.strip_prefix("content-length:"));
        let mut body = vec![0; length.map_or(Ok(0), |l| l.trim().parse())?];
        self.stream.read_exact(&mut body)?;
        Ok(Answer { status, body })
    }

    /// The next line of a stream; none at its end.
    ///
    /// # Errors
    /// What read(2) says.
    pub fn line(&mut self) -> Result<Option<String>, Failure> {
        let mut line = String::new();
        Ok((self.stream.read_line(&mut line)? > 0).then_some(line))
    }

    /// Runs a command to its report.
    ///
    /// # Errors
    /// As [`Http::answer`] says; an answer that is no report.
    pub fn exec(&mut self, body: &str) -> Result<ExitReport, Failure> {
        self.send("POST /v1/exec", "Content-Type: application/json\r\n", body)?;
        let answer = self.answer()?;
        let text = || String::from_utf8_lossy(&answer.body).into_owned();
        serde_json::from_slice(&answer.body).map_err(|e| format!("{e}: {} {}", answer.status, text()).into())
    }
}
