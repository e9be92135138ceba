//! Instances of Cordon: the whole product through `cordon up`, or an executor with its own configuration.

use super::{
    Client, PATIENCE,
    build::{fault_executor, programs},
    host,
    process::{self, Process, Ran},
    stretched,
};
use nix::{
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, User},
};
use std::{
    fs,
    net::TcpListener,
    ops::Deref,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    panic::catch_unwind,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, OnceLock},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A new directory that every user can pass through, so that other uids reach the sockets in it.
pub(crate) fn open_directory() -> TempDir {
    let directory = tempfile::Builder::new().prefix("cordon-e2e.").tempdir_in("/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// A port of the loopback interface that nothing listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A variable's value in the environment of every instance of `cordon up`.
pub(crate) const SECRET: &str = "known-to-the-daemons-alone";

/// `cordon up` and all it has started.
pub(crate) struct Up {
    // Before the directory, so that it is dropped, and has ended, first.
    process: Process,
    client: Client,
    directory: TempDir,
    /// Port of the gateway.
    pub(crate) port: u16,
    /// The gateway's token.
    pub(crate) token: String,
}

impl Deref for Up {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Up {
    /// Starts it in a directory of its own and waits until it serves.
    pub(crate) fn start() -> Self {
        let directory = open_directory();
        let port = free_port();
        let process = Process::start(Self::command(directory.path(), port));
        // The line it prints when everything works.
        process.wait_for("curl");
        let token = fs::read_to_string(directory.path().join("token")).unwrap().trim().to_owned();
        let client = Client { socket: directory.path().join("executor.sock") };
        Self { process, client, directory, port, token }
    }

    /// The command that starts it there.
    pub(crate) fn command(directory: &Path, port: u16) -> Command {
        let mut command = process::tied(&programs().cordon);
        command.arg("up").arg("--dir").arg(directory).args(["--port", &port.to_string()]);
        command.env("CORDON_TEST_SECRET", SECRET);
        command
    }

    /// The directory it writes in.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The process of `cordon up` itself.
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Its process number.
    pub(crate) fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// The executor's root half.
    pub(crate) fn monitor(&self) -> i32 {
        self.child("cordon-executor")
    }

    /// The executor's unprivileged half.
    pub(crate) fn server(&self) -> i32 {
        server_of(self.monitor())
    }

    /// The gateway.
    pub(crate) fn gateway(&self) -> i32 {
        self.child("cordon-gateway")
    }

    fn child(&self, name: &str) -> i32 {
        let runs = |pid: &i32| process::exe(*pid).is_some_and(|exe| exe.ends_with(name));
        process::descendants(self.pid()).into_iter().find(runs).unwrap_or_else(|| panic!("no {name}"))
    }
}

/// The unprivileged half below a monitor.
pub(crate) fn server_of(monitor: i32) -> i32 {
    let uid = host::uid_of("cordon-exec");
    let found = process::descendants(monitor).into_iter().find(|p| process::uids(*p) == vec![uid; 4]);
    found.unwrap_or_else(|| panic!("no server half below {monitor}"))
}

/// What the exit of this test program has to end and remove.
static AT_EXIT: Mutex<Vec<(Option<i32>, PathBuf)>> = Mutex::new(Vec::new());

extern "C" fn end_shared() {
    let Ok(mut shared) = AT_EXIT.lock() else { return };
    for (pid, directory) in shared.drain(..) {
        if let Some(pid) = pid {
            end(Pid::from_raw(pid));
        }
        let _ = fs::remove_dir_all(directory);
    }
}

fn end(pid: Pid) {
    let _ = kill(pid, Signal::SIGTERM);
    let start = Instant::now();
    while waitpid(pid, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive) {
        if start.elapsed() > stretched(Duration::from_secs(15)) {
            let _ = kill(pid, Signal::SIGKILL);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Ends the process and removes the directory when this test program exits; when it is killed instead,
/// [`process::tied`] ends the process.
pub(crate) fn end_at_exit(pid: i32, directory: &Path) {
    at_exit(Some(pid), directory);
}

/// Removes the directory when this test program exits.
pub(crate) fn remove_at_exit(directory: &Path) {
    at_exit(None, directory);
}

fn at_exit(pid: Option<i32>, directory: &Path) {
    static HOOK: OnceLock<bool> = OnceLock::new();
    assert!(HOOK.get_or_init(|| shutdown_hooks::add_shutdown_hook(end_shared)), "no hook for the exit");
    AT_EXIT.lock().unwrap().push((pid, directory.to_owned()));
}

/// The instance of `cordon up` that tests share which harm nothing.
pub(crate) fn shared() -> &'static Up {
    static SHARED: OnceLock<Option<Up>> = OnceLock::new();
    let up = SHARED.get_or_init(|| {
        // Tried once: the other tests would wait for the same failure.
        let up = catch_unwind(Up::start).ok()?;
        end_at_exit(up.pid(), up.directory());
        Some(up)
    });
    up.as_ref().expect("the shared `cordon up` did not start; the first test that wanted it says why")
}

/// Makes the product's users, which `cordon up` does.
pub(crate) fn ensure_users() {
    let missing = |name: &&str| User::from_name(name).unwrap().is_none();
    if ["execuser", "cordon", "cordon-exec", "cordon-init"].iter().any(missing) {
        shared();
    }
}

/// A program that may limit its children, whose end follows this process's: under systemd that takes a
/// cgroup which was delegated to it, as `cordon up` gets one.
pub(crate) fn in_scope(program: &Path) -> Command {
    if !host::has_systemd() {
        return process::tied(program);
    }
    let mut command = process::tied("systemd-run".as_ref());
    command.args(["--scope", "--collect", "--quiet", "-p", "Delegate=yes", "--"]).arg(program);
    command
}

/// An executor with its own configuration, without a gateway.
pub(crate) struct Executor {
    process: Process,
    client: Client,
    directory: TempDir,
}

impl Deref for Executor {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Executor {
    /// Starts it with this configuration beside socket and state, and waits until it is ready.
    pub(crate) fn start(configuration: &str) -> Self {
        Self::start_with(&programs().executor, "available", configuration, &[])
    }

    /// The build with faults, one of which is switched on.
    pub(crate) fn start_with_fault(step: &str, configuration: &str) -> Self {
        Self::start_with(fault_executor(), "available", configuration, &[("CORDON_FAULT", step)])
    }

    /// The test build, whose commands do without these steps, controls or namespaces, divided by commas.
    pub(crate) fn start_omitting(names: &str, configuration: &str) -> Self {
        Self::start_with(fault_executor(), "available", configuration, &[("CORDON_OMIT", names)])
    }

    /// With these variables in its environment.
    pub(crate) fn start_with_environment(configuration: &str, env: &[(&str, &str)]) -> Self {
        Self::start_with(&programs().executor, "available", configuration, env)
    }

    fn start_with(program: &Path, require: &str, configuration: &str, env: &[(&str, &str)]) -> Self {
        ensure_users();
        let directory = open_directory();
        let file = write_configuration(directory.path(), require, configuration);
        let mut command = in_scope(program);
        command.arg("--config").arg(file).envs(env.iter().copied());
        Self::wait_ready(command, directory)
    }

    /// Starts the command and waits for its word that it is ready (sd_notify(3)).
    pub(crate) fn wait_ready(command: Command, directory: TempDir) -> Self {
        Self::wait_ready_and_listen(command, directory).0
    }

    /// As above; what it says later can be listened to.
    pub(crate) fn wait_ready_and_listen(mut command: Command, directory: TempDir) -> (Self, NotifySocket) {
        let notify = NotifySocket::bind(directory.path());
        command.env("NOTIFY_SOCKET", &notify.path);
        let process = Process::start(command);
        notify.wait(&process);
        let client = Client { socket: directory.path().join("executor.sock") };
        (Self { process, client, directory }, notify)
    }

    /// The directory of its socket and state.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The root half.
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Process number of the root half.
    pub(crate) fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Starts another in the same place, after the end of this one.
    pub(crate) fn again(self) -> Self {
        self.again_after(|| ()).0
    }

    /// As [`Executor::again`]; something is done in between.
    pub(crate) fn again_after<T>(self, between: impl FnOnce() -> T) -> (Self, T) {
        let Self { process, client: _, directory } = self;
        drop(process);
        let done = between();
        let mut command = in_scope(&programs().executor);
        command.arg("--config").arg(directory.path().join("executor.toml"));
        (Self::wait_ready(command, directory), done)
    }
}

/// Where a daemon says that it is ready.
pub(crate) struct NotifySocket {
    socket: UnixDatagram,
    /// Value of `NOTIFY_SOCKET`.
    pub(crate) path: PathBuf,
}

impl NotifySocket {
    /// A socket in this directory.
    pub(crate) fn bind(directory: &Path) -> Self {
        let path = directory.join("notify.sock");
        let _ = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        Self { socket, path }
    }

    /// Whether the word came within a short moment.
    pub(crate) fn ready(&self) -> bool {
        self.message().is_some_and(|text| text.lines().any(|line| line == "READY=1"))
    }

    /// What is said within a short moment.
    pub(crate) fn message(&self) -> Option<String> {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }

    fn wait(&self, process: &Process) {
        let start = Instant::now();
        while !self.ready() {
            let gone = process.silent(Duration::ZERO);
            assert!(!gone && start.elapsed() < stretched(PATIENCE), "never ready:\n{}", process.log());
        }
    }
}

/// Writes an executor's configuration: these profiles and keys beside socket, state and `require`.
pub(crate) fn write_configuration(directory: &Path, require: &str, configuration: &str) -> PathBuf {
    let file = directory.join("executor.toml");
    let at = directory.display();
    let head = format!(
        "socket = \"{at}/executor.sock\"\nstate_dir = \"{at}/state\"\naudit = \"{at}/audit.jsonl\"\nrequire = \"{require}\"\n{configuration}\n"
    );
    fs::create_dir_all(directory.join("state")).unwrap();
    fs::write(&file, head).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    file
}

/// Runs an executor that is expected to refuse to start.
pub(crate) fn start_refused(file: &Path) -> Ran {
    ensure_users();
    let mut command = in_scope(&programs().executor);
    command.arg("--config").arg(file);
    let ran = process::run(command, &[]);
    assert_ne!(ran.status, 0, "it started with {}", file.display());
    ran
}
