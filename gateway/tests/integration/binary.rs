//! The program itself: what it refuses to start with, what it has given up once it serves, and its end.

use crate::{
    client::{SOON, TOKEN, get, post},
    executor::{self, report},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid, dup},
};
use std::{
    fs,
    io::Read,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            fs::{MetadataExt, PermissionsExt, chown},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixDatagram, UnixStream},
    time::timeout,
};

/// A uid that belongs to nobody, for tests that run as root.
const UID: u32 = 54_321;

/// The program, by a descriptor, and its files in a directory that an unprivileged user can reach.
///
/// The build may lie where that user cannot go. A copy of it would now and then be "text file busy", when
/// another test forks while it is being written.
struct Installed {
    directory: TempDir,
    program: OwnedFd,
}

impl Installed {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = fs::File::open(env!("CARGO_BIN_EXE_cordon-gateway")).unwrap();
        // Without close-on-exec, so that a program can be started that way.
        let program = dup(program).unwrap();
        let state = directory.path().join("state");
        fs::create_dir(&state).unwrap();
        let installed = Self { directory, program };
        installed.give(&state);
        installed.token(TOKEN, 0o640);
        installed
    }

    /// Makes the path the test user's own.
    fn give(&self, path: &Path) {
        if Uid::effective().is_root() {
            chown(path, Some(UID), Some(UID)).unwrap();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("state").join(name)
    }

    fn token(&self, text: &str, mode: u32) {
        fs::write(self.path("token"), text).unwrap();
        fs::set_permissions(self.path("token"), fs::Permissions::from_mode(mode)).unwrap();
        self.give(&self.path("token"));
    }

    /// The command that starts it on a port of the system's choice, with `more` in its configuration.
    fn command(&self, more: &str) -> Command {
        let config = self.path("gateway.toml");
        let text = format!(
            "listen = \"127.0.0.1:1\"\nsocket = {:?}\nexecutor = {:?}\ntoken_file = {:?}\n{more}",
            self.path("gateway.sock"),
            self.path("executor.sock"),
            self.path("token"),
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new(format!("/proc/self/fd/{}", self.program.as_raw_fd()));
        command.arg("--config").arg(config).env_clear().env("PORT", "0").stdin(Stdio::null());
        if Uid::effective().is_root() {
            command.uid(UID).gid(UID);
        }
        command
    }
}

/// A started gateway, which does not outlive its test.
struct Running(Child);

impl Running {
    fn terminate(&self) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), Signal::SIGTERM).unwrap();
    }

    /// Waits for its end, which must be a success, and returns its log where that was piped.
    async fn end(mut self) -> String {
        let output = tokio::task::spawn_blocking(move || {
            let mut log = String::new();
            if let Some(stderr) = self.0.stderr.as_mut() {
                stderr.read_to_string(&mut log).unwrap();
            }
            (self.0.wait().unwrap(), log)
        });
        let (status, log) = timeout(SOON, output).await.unwrap().unwrap();
        assert!(status.success(), "{status} {log}");
        log
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn it_does_not_start_as_root() {
    if !Uid::effective().is_root() {
        return; // Only root can try.
    }
    let output = Command::new(env!("CARGO_BIN_EXE_cordon-gateway")).output().unwrap();
    assert!(refused(&output).contains("refusing to run as root"), "{output:?}");
}

#[test]
fn it_does_not_start_with_a_bad_configuration_or_token() {
    let installed = Installed::new();
    let start = |more: &str| refused(&installed.command(more).output().unwrap());
    assert!(start("listen_on = 1").contains("listen_on"));
    assert!(start("allowed_hosts = [\"*\"]").contains("allowed_hosts"));
    let output = installed.command("").env("PORT", "http").output().unwrap();
    assert!(refused(&output).contains("PORT"));
    installed.token(TOKEN, 0o644);
    assert!(start("").contains("chmod o-rwx"));
    installed.token("changeme", 0o640);
    let text = start("");
    assert!(text.contains("32") && !text.contains("changeme"), "{text}");
    installed.token("", 0o640);
    assert!(start("").contains("--make-token"));
    fs::remove_file(installed.path("token")).unwrap();
    assert!(start("").contains("token_file"));
}

/// Values of `/proc/PID/status` by name.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
    line.split_once(':').unwrap().1.trim().to_owned()
}

#[tokio::test]
async fn locked_down_it_still_serves_and_ends_on_sigterm() {
    let installed = Installed::new();
    let socket = installed.path("gateway.sock");
    let manager = UnixDatagram::bind(installed.path("notify.sock")).unwrap();
    fs::set_permissions(installed.path("notify.sock"), fs::Permissions::from_mode(0o666)).unwrap();
    let mut command = installed.command("");
    command.env("NOTIFY_SOCKET", installed.path("notify.sock"));
    let child = Running(command.stderr(Stdio::piped()).spawn().unwrap());
    let told = async || {
        let mut buffer = [0; 256];
        let length = timeout(SOON, manager.recv(&mut buffer)).await.unwrap().unwrap();
        String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
    };
    assert_eq!(told().await, "READY=1");

    let pid = child.0.id();
    assert_eq!((status(pid, "NoNewPrivs").as_str(), status(pid, "Seccomp").as_str()), ("1", "2"));
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(pid, set), "0000000000000000", "{set}");
    }
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let values = |name: &str| -> Vec<String> {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(values("Max core file size")[..2], ["0", "0"]);
    assert_eq!(values("Max open files")[0], values("Max open files")[1]);
    if Uid::effective().is_root() {
        // What is not dumpable belongs to root in /proc.
        assert_eq!(fs::metadata(format!("/proc/{pid}/environ")).unwrap().uid(), 0);
        assert_eq!(status(pid, "Uid").split_whitespace().next(), Some(UID.to_string().as_str()));
    }
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);

    // The executor comes later, and is found in spite of the closed file system.
    executor::start(&installed.path("executor.sock"), |mut c| async move {
        c.run().await;
        c.exit(report(0, "through")).await;
    });
    fs::set_permissions(installed.path("executor.sock"), fs::Permissions::from_mode(0o666)).unwrap();
    let mut client = UnixStream::connect(&socket).await.unwrap();
    client.write_all(&post(r#"{"command":"secret words"}"#, "")).await.unwrap();
    let mut answer = String::new();
    timeout(SOON, client.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.contains("through"), "{answer}");

    child.terminate();
    assert_eq!(told().await, "STOPPING=1");
    let log = child.end().await;
    for words in ["listening on http://127.0.0.1:", "landlock abi", "POST /v1/exec 200", "stopped"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    for words in [TOKEN, "secret words", "through"] {
        assert!(!log.contains(words), "{words}: {log}");
    }
}

#[tokio::test]
async fn it_takes_the_listeners_that_systemd_passes() {
    let installed = Installed::new();
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let unix = std::os::unix::net::UnixListener::bind(installed.path("passed.sock")).unwrap();
    // A shell puts them where systemd would, and its pid is the program's after exec. Everything moves to
    // numbers out of the way first, so that moving one does not close another.
    let passed = [dup(&unix).unwrap(), dup(&tcp).unwrap()];
    let [first, second] = passed.each_ref().map(AsRawFd::as_raw_fd);
    installed.command("");
    let script = format!(
        "exec 103<&{first} 104<&{second} 105<&{}; exec 3<&103 4<&104 103<&- 104<&-
         LISTEN_PID=$$ LISTEN_FDS=2 exec /proc/self/fd/105 --config \"$0\"",
        installed.program.as_raw_fd()
    );
    let mut command = Command::new("/bin/bash");
    command.arg("-c").arg(script).arg(installed.path("gateway.toml")).env_clear().stdin(Stdio::null());
    if Uid::effective().is_root() {
        command.uid(UID).gid(UID);
    }
    let child = Running(command.spawn().unwrap());
    drop((tcp, unix, passed));
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(&get("/healthz", "Host: localhost\r\n")).await.unwrap();
    let mut answer = String::new();
    timeout(SOON, client.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The one that came over the Unix socket needs no token, the other does.
    let mut client = UnixStream::connect(installed.path("passed.sock")).await.unwrap();
    client.write_all(&get("/openapi.json", "")).await.unwrap();
    answer.clear();
    timeout(SOON, client.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!installed.path("gateway.sock").exists(), "nothing is bound beside what was passed");
    child.terminate();
    child.end().await;
}

#[tokio::test]
async fn a_kind_that_systemd_does_not_pass_is_bound_as_the_configuration_says() {
    let installed = Installed::new();
    let unix = std::os::unix::net::UnixListener::bind(installed.path("passed.sock")).unwrap();
    let passed = dup(&unix).unwrap();
    installed.command("");
    let script = format!(
        "exec 103<&{} 105<&{}; exec 3<&103 103<&-; LISTEN_PID=$$ LISTEN_FDS=1 exec /proc/self/fd/105 --config \"$0\"",
        passed.as_raw_fd(),
        installed.program.as_raw_fd()
    );
    let mut command = Command::new("/bin/bash");
    command.arg("-c").arg(script).arg(installed.path("gateway.toml")).env_clear().env("PORT", "0");
    if Uid::effective().is_root() {
        command.uid(UID).gid(UID);
    }
    let child = Running(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    drop((unix, passed));
    let mut client = UnixStream::connect(installed.path("passed.sock")).await.unwrap();
    client.write_all(&get("/healthz", "")).await.unwrap();
    let mut answer = String::new();
    timeout(SOON, client.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(!installed.path("gateway.sock").exists(), "one of that kind was passed");
    child.terminate();
    let log = child.end().await;
    assert!(log.contains("listening on http://127.0.0.1:") && log.contains("passed.sock"), "{log}");
}

#[tokio::test]
async fn a_unit_is_named_only_where_systemd_started_it() {
    let installed = Installed::new();
    let notify = installed.path("notify.sock");
    let notify = notify.to_str().unwrap();
    for (variables, hint) in [
        (&[][..], "start it (`sudo cordon-executor --config FILE`) and try again"),
        (&[("CORDON_PARENT", "1")], "start it (`sudo cordon up`) and try again"),
        (
            &[("INVOCATION_ID", "0123"), ("NOTIFY_SOCKET", notify)],
            "start it (`sudo systemctl start cordon-executor`) and try again",
        ),
    ] {
        let manager = UnixDatagram::bind(notify).unwrap();
        fs::set_permissions(notify, fs::Permissions::from_mode(0o666)).unwrap();
        let mut command = installed.command("");
        // Whoever waits for it to be ready is not always systemd.
        let child =
            Running(command.env("NOTIFY_SOCKET", notify).envs(variables.iter().copied()).spawn().unwrap());
        let mut buffer = [0; 256];
        timeout(SOON, manager.recv(&mut buffer)).await.unwrap().unwrap();
        let mut client = UnixStream::connect(installed.path("gateway.sock")).await.unwrap();
        client.write_all(&post(r#"{"command":"true"}"#, "")).await.unwrap();
        let mut answer = String::new();
        timeout(SOON, client.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains(hint), "{hint}: {answer}");
        child.terminate();
        child.end().await;
        fs::remove_file(notify).unwrap();
    }
}
