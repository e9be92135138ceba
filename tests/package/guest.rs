//! What the tests share: programs run to their end, the package in the state that a test starts from, the units.

use cordon_tests::markdown::blocks;
use serde_json::Value;
use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// In the group that may connect.
pub(crate) const MEMBER: &str = "member";
/// Not in it.
pub(crate) const OUTSIDER: &str = "outsider";
/// What is enabled, in the words of the documents.
pub(crate) const ENABLE: &str = "systemctl enable --now cordon-executor.socket cordon-gateway";
/// Everything that can run.
pub(crate) const UNITS: [&str; 5] = [
    "cordon-executor.socket",
    "cordon-executor.service",
    "cordon-gateway.socket",
    "cordon-gateway.service",
    "cordon-token.service",
];
/// Longest time for anything, on a host whose processor is emulated.
const PATIENCE: Duration = Duration::from_secs(180);

/// A value that the script around the tests must have set.
fn setting(name: &str) -> PathBuf {
    let value = std::env::var_os(name);
    value
        .unwrap_or_else(|| panic!("{name} is not set: these tests change the host, run tests/vm/package"))
        .into()
}

/// The package.
pub(crate) fn package() -> PathBuf {
    setting("CORDON_TEST_DEB")
}

/// The same with a higher version.
pub(crate) fn newer_package() -> PathBuf {
    setting("CORDON_TEST_DEB_NEWER")
}

/// docs/install.md.
pub(crate) fn page() -> String {
    fs::read_to_string(setting("CORDON_TEST_INSTALL_PAGE")).unwrap()
}

/// The lines for the shell on docs/install.md that have this word, for root, who needs no sudo.
pub(crate) fn page_lines(word: &str) -> String {
    let found: Vec<_> = blocks(&page(), "sh").into_iter().filter(|block| block.contains(word)).collect();
    assert_eq!(found.len(), 1, "{word}: {found:?}");
    found[0].replace("sudo ", "")
}

/// What a program came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let status = output.status.code().unwrap_or(-1);
        Self { status, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// A line for the shell, as root.
fn line(text: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", text]).env("DEBIAN_FRONTEND", "noninteractive").current_dir("/").stdin(Stdio::null());
    command
}

/// Runs a line as root.
pub(crate) fn sh(text: &str) -> Ran {
    line(text).output().unwrap().into()
}

/// Runs a line as root, which must succeed; what it prints.
pub(crate) fn ok(text: &str) -> String {
    let ran = sh(text);
    assert_eq!(ran.status, 0, "{text}\n{}{}", ran.stdout, ran.stderr);
    ran.stdout.trim_end().to_owned()
}

/// A line as this user.
fn line_as(user: &str, text: &str) -> Command {
    let mut command = Command::new("runuser");
    command.args(["-u", user, "--", "bash", "-c", text]).current_dir("/").stdin(Stdio::null());
    command
}

/// Runs a line as this user.
pub(crate) fn run_as(user: &str, text: &str) -> Ran {
    line_as(user, text).output().unwrap().into()
}

/// Runs a line as a member of the group, which must succeed; what it prints.
pub(crate) fn member(text: &str) -> String {
    let ran = run_as(MEMBER, text);
    assert_eq!(ran.status, 0, "{text}\n{}{}\n{}", ran.stdout, ran.stderr, journal());
    ran.stdout.trim_end().to_owned()
}

/// A line that runs as a member of the group, and is ended with the test.
pub(crate) struct Running(Option<Child>);

impl Running {
    /// Starts it.
    pub(crate) fn start(text: &str) -> Self {
        let mut command = line_as(MEMBER, text);
        Self(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ran {
        let mut child = self.0.take().unwrap();
        eventually("a client comes to its end", || child.try_wait().unwrap().is_some());
        child.wait_with_output().unwrap().into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Tells a figure, also of a test that passes: what such a one prints is not shown.
pub(crate) fn tell(text: &str) {
    io::stderr().write_all(format!("{text}\n").as_bytes()).unwrap();
}

/// Waits until the condition holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}\n{}", journal());
        thread::sleep(Duration::from_millis(100));
    }
}

/// What the units have said of late.
pub(crate) fn journal() -> String {
    sh("journalctl --no-pager -b -n 60 -u 'cordon-*'").stdout
}

/// What has been said since that moment; `units` are options of journalctl.
pub(crate) fn journal_since(cursor: &str, units: &str) -> String {
    ok(&format!("journalctl --no-pager --after-cursor '{cursor}' {units}"))
}

/// This moment in the journal.
pub(crate) fn cursor() -> String {
    let shown = ok("journalctl --sync; journalctl -n 1 --show-cursor -o cat");
    shown.lines().last().unwrap().strip_prefix("-- cursor: ").unwrap().to_owned()
}

/// A property of a unit (`systemctl show`).
pub(crate) fn property(unit: &str, name: &str) -> String {
    ok(&format!("systemctl show -P {name} {unit}"))
}

/// Its main process.
pub(crate) fn main_pid(unit: &str) -> i32 {
    property(unit, "MainPID").parse().unwrap()
}

/// The server half: the child of the monitor that has its user.
pub(crate) fn server_pid() -> i32 {
    let monitor = main_pid("cordon-executor.service");
    ok(&format!("pgrep -P {monitor} -u cordon-exec")).parse().unwrap()
}

/// `ActiveState` of a unit.
pub(crate) fn state(unit: &str) -> String {
    property(unit, "ActiveState")
}

/// Waits until a unit is up with another main process than this.
pub(crate) fn await_other(unit: &str, than: i32) -> i32 {
    eventually(&format!("{unit} comes back"), || {
        state(unit) == "active" && ![0, than].contains(&main_pid(unit))
    });
    main_pid(unit)
}

/// Processes that are left of ours, commands among them.
pub(crate) fn processes() -> String {
    sh("ps -o pid,user,args -u cordon,cordon-exec,cordon-init,execuser; pgrep -a cordon").stdout
}

/// Processes of commands with this text.
pub(crate) fn sandboxed(text: &str) -> bool {
    sh(&format!("pgrep -u execuser -f -- '{text}'")).status == 0
}

/// The executor has been asked for once, so that it runs.
pub(crate) fn wake() {
    assert_eq!(member("cordon run -- echo awake"), "awake");
}

/// An HTTP request with this body: status and JSON. `how` are options of curl and the address's beginning.
pub(crate) fn post(user: &str, how: &str, body: &str) -> (u16, Value) {
    let text = format!(
        "curl -sS -w '\\n%{{http_code}}' -H 'Content-Type: application/json' -d '{body}' {how}/v1/exec"
    );
    let ran = run_as(user, &text);
    let (answer, status) = ran.stdout.trim_end().rsplit_once('\n').unwrap_or(("", "0"));
    (status.parse().unwrap_or(0), serde_json::from_str(answer).unwrap_or(Value::Null))
}

/// Options of curl for the TCP door with the token, as far as the user can read it.
pub(crate) const WITH_TOKEN: &str =
    "-H \"Authorization: Bearer $(cat /var/lib/cordon/token)\" http://127.0.0.1:3800";
/// Options of curl for the Unix door.
pub(crate) const LOCAL: &str = "--unix-socket /run/cordon/gateway.sock http://localhost";

/// This host, for one test.
pub(crate) struct Host(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

/// Where drop-ins of tests are: gone with the next test.
const DROP_INS: &str = "/run/systemd/system";

impl Host {
    fn alone() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        for (user, groups) in [(MEMBER, ""), (OUTSIDER, "")] {
            ok(&format!("id {user} >/dev/null 2>&1 || useradd -m {groups} {user}"));
        }
        Self(turn)
    }

    /// Without a trace of the package.
    pub(crate) fn without_package() -> Self {
        let host = Self::alone();
        ok("! dpkg-query -s cordon >/dev/null 2>&1 || apt-get purge -y cordon");
        host
    }

    /// With the package, enabled and running, its configuration as it was delivered.
    pub(crate) fn with_package() -> Self {
        let host = Self::alone();
        ok(&format!("rm -rf {DROP_INS}/cordon-*; systemctl daemon-reload"));
        if sh("dpkg-query -W -f '${Status}' cordon").stdout != "install ok installed" {
            install(&package());
        }
        ok(&format!("usermod -aG cordon {MEMBER}"));
        for name in ["executor", "gateway"] {
            ok(&format!("cordon-{name} --default-config >/etc/cordon/{name}.toml"));
        }
        ok("rm -f /etc/cordon/keys/*");
        forget_failures();
        ok("systemctl stop cordon-executor.socket cordon-executor cordon-gateway");
        ok(ENABLE);
        wake();
        host
    }

    /// Adds lines to a unit, until the next test.
    pub(crate) fn amend(&self, unit: &str, lines: &str) {
        let directory = Path::new(DROP_INS).join(format!("{unit}.d"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("test.conf"), lines).unwrap();
        ok("systemctl daemon-reload");
    }
}

/// Failures, and with them how often a unit was started of late: more than ten times in a minute it is not started.
///
/// By name, as a pattern fits only what has failed or is active.
pub(crate) fn forget_failures() {
    for unit in UNITS {
        // One that is not loaded has nothing to forget.
        sh(&format!("systemctl reset-failed {unit}"));
    }
}

/// Installs a package as a user would.
pub(crate) fn install(package: &Path) {
    ok(&format!("apt-get install -y --allow-downgrades {}", package.display()));
}
