//! `cordon up`: the whole product with one command.

mod ends;
mod own;

use crate::harness::{
    Client, PATIENCE, Up,
    build::programs,
    client::public_copy,
    daemon::{free_port, open_directory},
    eventually, host,
    process::{self, Process},
    shared,
};
use nix::sys::signal::Signal;
use std::{
    fs,
    net::{TcpListener, TcpStream},
    time::Duration,
};

/// Command lines of processes that name this directory.
fn processes_of(directory: &std::path::Path) -> Vec<String> {
    let name = directory.to_string_lossy().into_owned();
    let line = |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = |pid| String::from_utf8_lossy(&line(pid)).replace('\0', " ");
    process::all().into_iter().map(text).filter(|t| t.contains(&name)).collect()
}

#[test]
fn once_sends_a_command_the_whole_way_prints_its_report_and_ends() {
    let directory = open_directory();
    let mut command = Up::command(directory.path(), free_port());
    command.arg("--once");
    let ran = process::run(command, &[]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let text = ran.text();
    for word in ["ended_by", "exit_code", "enforced"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // Nothing is there any more that could be tried.
    assert!(!text.contains("Try next") && !text.contains("curl") && !text.contains("Serving"), "{text}");
    // Nor runs anything, though what ran may still be on its way out.
    assert!(ran.stderr.contains("nothing more is taken; running: 0 commands"), "{ran:?}");
    assert_eq!(processes_of(directory.path()), Vec::<String>::new());
    assert_eq!(host::mounts_with(&directory.path().to_string_lossy()), Vec::<String>::new());
}

#[test]
fn under_systemd_it_runs_in_a_scope_that_is_delegated_to_it() {
    let group = |pid: i32| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let unit_of = |pid| {
        let text = group(pid);
        let names = text.lines().find_map(|l| l.strip_prefix("0::"))?.rsplit('/');
        names.map(str::to_owned).find(|n| n.ends_with(".scope") || n.ends_with(".service"))
    };
    let up = Up::start();
    let (own, monitor) = (unit_of(up.pid()), unit_of(up.monitor()));
    assert_eq!(own, monitor, "one unit for all of it");
    if !host::has_systemd() {
        return;
    }
    let shown = |unit: &str| {
        let mut command = std::process::Command::new("systemctl");
        command.args(["show", "--property=Delegate", "--value", "--", unit]);
        process::run(command, &[]).text()
    };
    let (here, scope) = (unit_of(std::process::id() as i32).unwrap(), own.unwrap());
    assert_eq!(shown(&scope), "yes\n", "{scope}");
    // Given where it was started, or made by it.
    assert!(shown(&here) == "yes\n" || scope.ends_with(".scope") && scope != here, "{here}: {scope}");
    let enforced = up.report(&["--", "true"]).enforced;
    assert_eq!(enforced.cgroup, host::cgroup_mode());
    // It goes with what it held.
    let leaf = host::cgroup_of(up.monitor()).unwrap();
    drop(up);
    eventually("the scope is gone", PATIENCE, || !leaf.exists());
}

#[test]
fn the_line_it_prints_works() {
    let mut up = Up::start();
    let log = up.process().log();
    let line = log.lines().find(|l| l.contains("curl")).unwrap();
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &line[line.find("curl").unwrap()..]]);
    let ran = process::run(command, &[]);
    assert_eq!(ran.status, 0, "{line}\n{ran:?}");
    let report: serde_json::Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    assert_eq!((&report["ended_by"], &report["exit_code"]), (&"exit".into(), &0.into()));
}

#[test]
fn everything_it_writes_is_in_its_directory() {
    let up = shared();
    for name in ["executor.sock", "gateway.sock", "token", "state"] {
        assert!(up.directory().join(name).exists(), "{name}");
    }
    assert!(up.token.len() >= 32);
    for user in ["execuser", "cordon", "cordon-exec", "cordon-init"] {
        host::uid_of(user);
    }
}

#[test]
fn every_instance_has_a_token_of_its_own() {
    let (first, second) = (Up::start(), Up::start());
    assert!(first.token != second.token && first.token != shared().token);
}

#[test]
fn a_second_one_in_the_same_directory_is_refused() {
    let up = Up::start();
    let ran = process::run(Up::command(up.directory(), free_port()), &[]);
    let said = format!("{}{}", ran.text(), ran.stderr);
    assert!(ran.status != 0 && said.contains(&*up.directory().to_string_lossy()), "{ran:?}");
    up.assert_works();
    // Nor one on the same port elsewhere.
    let directory = open_directory();
    let ran = process::run(Up::command(directory.path(), up.port), &[]);
    assert!(
        ran.status != 0 && format!("{}{}", ran.text(), ran.stderr).contains(&up.port.to_string()),
        "{ran:?}"
    );
    assert_eq!(processes_of(directory.path()), Vec::<String>::new());
    up.assert_works();
}

#[test]
fn what_the_host_lacks_is_told_once() {
    let mut up = Up::start();
    up.process().wait_for("Serving");
    up.process().signal(Signal::SIGTERM);
    assert!(up.process().wait(Duration::from_secs(30)).success());
    let log = up.process().log();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("warning")).collect();
    let cgroup = warnings.iter().filter(|line| line.contains("cgroup"));
    let expected = usize::from(host::cgroup_mode() != cordon_protocol::CgroupMode::V2);
    assert_eq!(cgroup.count(), expected, "{log}");
}

#[test]
fn where_the_port_is_taken_nothing_is_made() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let parent = open_directory();
    let (missing, empty) = (parent.path().join("missing"), parent.path().join("empty"));
    fs::create_dir(&empty).unwrap();
    for directory in [&missing, &empty] {
        let ran = process::run(Up::command(directory, port), &[]);
        assert!(ran.status == 1 && ran.stderr.contains(&format!("port {port}")), "{ran:?}");
    }
    assert!(!missing.exists() && fs::read_dir(&empty).unwrap().next().is_none());
    // Where both are somebody's, the nearer reason is told.
    let up = Up::start();
    let ran = process::run(Up::command(up.directory(), up.port), &[]);
    assert!(ran.stderr.contains("another `cordon up` is running in this directory"), "{ran:?}");
}

/// Gives the rest of a script a copy of /etc and an empty /run that nobody else sees. useradd(8) of whoever else tests here
/// makes and removes files in /etc while it has the lock of lckpwdf(3), so that is held meanwhile.
const OWN_ETC: &str = r#"
mount --make-rprivate /
/usr/bin/python3 -c '
import fcntl, os, subprocess, sys
lock = os.open("/etc/.pwd.lock", os.O_WRONLY | os.O_CREAT, 0o600)
fcntl.lockf(lock, fcntl.LOCK_EX)
sys.exit(subprocess.call(["cp", "-a", "/etc", sys.argv[1]]))
' "$1/etc" && mount --bind "$1/etc" /etc && mount -t tmpfs none /run || exit 9
"#;

/// Two at once where the users are missing, in what [`OWN_ETC`] gives.
const TWO_AT_ONCE: &str = r#"
sed -i -E '/^(execuser|cordon|cordon-exec|cordon-init):/d' /etc/passwd /etc/group /etc/shadow /etc/gshadow
for name in a b; do "$2" up --once --port 0 --dir "$1/$name" >"$1/$name.log" 2>&1 </dev/null & jobs="$jobs $!"; done
for job in $jobs; do wait "$job" || { cat "$1"/*.log; exit 1; }; done
for user in execuser cordon cordon-exec cordon-init; do
  [ "$(id -gn $user)" = $user ] && [ "$(grep -c "^$user:" /etc/passwd /etc/group | tr '\n' ' ')" = "/etc/passwd:1 /etc/group:1 " ] || exit 2
done
[ "$(grep -h ': made ' "$1"/*.log | sort | uniq -d)" = "" ] || { cat "$1"/*.log; exit 3; }
"#;

#[test]
fn two_at_once_make_each_user_once() {
    shared();
    for _ in 0..3 {
        let directory = open_directory();
        let mut command = process::tied(std::path::Path::new("unshare"));
        command
            .args(["--mount", "bash", "-c", &format!("{OWN_ETC}{TWO_AT_ONCE}"), "two"])
            .arg(directory.path())
            .arg(&programs().cordon);
        let ran = process::run(command, &[]);
        assert_eq!(ran.status, 0, "{ran:?}");
    }
}

/// Users that cannot run commands, one that shares its group with another, and `--undo`, in what [`OWN_ETC`] gives.
const OTHER_USERS: &str = r#"
sed -i -E '/^(execuser|cordon|cordon-exec|cordon-init):/d' /etc/passwd /etc/group /etc/shadow /etc/gshadow
echo 'e2e-shares:x:777:60::/:/bin/false' >>/etc/passwd
echo 'e2e-zero:x:778:0::/:/bin/false' >>/etc/passwd
echo 'e2e-further:x:779:779::/:/bin/false' >>/etc/passwd
echo 'e2e-further:x:779:' >>/etc/group; echo 'e2e-group:x:780:e2e-further' >>/etc/group
cp /etc/passwd "$1/passwd"; cp /etc/group "$1/group"
as_before() { diff "$1/passwd" /etc/passwd && diff "$1/group" /etc/group || exit "$2"; }
for user in nobody e2e-zero e2e-further e2e-group cordon-init; do
  EXEC_USER=$user "$2" up --once --port 0 --dir "$1/dir" >"$1/log" 2>&1 </dev/null && exit 1
  cat "$1/log"
  grep -q "EXEC_USER=$user failed: " "$1/log" && ! grep -q 'executor.toml' "$1/log" || exit 2
  [ ! -e "$1/dir" ] || exit 3
  as_before "$1" 4
done
EXEC_USER=e2e-shares "$2" up --once --port 0 --dir "$1/dir" >"$1/log" 2>&1 </dev/null || { cat "$1/log"; exit 5; }
grep -q '^execuser:' /etc/group && ! grep -q '^e2e-shares:' /etc/group || exit 6
"$2" up --undo --dir "$1/dir" || exit 7
as_before "$1" 8
"#;

#[test]
fn a_user_that_cannot_run_commands_is_named_before_anything_is_made_and_undo_takes_all_that_was() {
    shared();
    let directory = open_directory();
    let mut command = process::tied(std::path::Path::new("unshare"));
    command
        // With processes of its own: userdel(8) keeps a user that somebody runs as.
        .args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "bash",
            "-c",
            &format!("{OWN_ETC}{OTHER_USERS}"),
            "users",
        ])
        .arg(directory.path())
        .arg(&programs().cordon);
    let ran = process::run(command, &[]);
    assert_eq!(ran.status, 0, "{ran:?}");
}

#[test]
fn without_root_it_says_so() {
    shared();
    let directory = open_directory();
    let cordon = public_copy(&programs().cordon, directory.path());
    let uid = crate::harness::lab::STRANGER;
    let mut command = host::as_user(uid, uid, &[], &cordon.to_string_lossy());
    command.args(["up", "--once", "--dir", "/tmp/not-made", "--port", "1"]);
    let ran = process::run(command, &[]);
    assert!(ran.status != 0 && ran.stderr.contains("root"), "{ran:?}");
    assert!(!std::path::Path::new("/tmp/not-made").exists());
}

/// A user that a test has made, and its group.
pub(super) struct Made(pub(super) &'static str);

impl Drop for Made {
    fn drop(&mut self) {
        for tool in ["userdel", "groupdel"] {
            let _ = std::process::Command::new(tool).arg(self.0).output();
        }
    }
}

#[test]
fn the_environment_says_for_whom_and_where_commands_run() {
    const USER: &str = "cordon-e2e-bot";
    let directory = open_directory();
    let (port, other) = (free_port(), free_port());
    let _made = Made(USER);
    let client = Client { socket: directory.path().join("executor.sock") };
    let command = |arguments: &[&str]| {
        let mut command = process::tied(&programs().cordon);
        command.arg("up").arg("--dir").arg(directory.path()).args(arguments);
        command.env("EXEC_USER", USER).env("EXEC_HOME", "/home/work").env("EXEC_CWD", "/tmp");
        command.env("PORT", port.to_string());
        command
    };
    let mut process = Process::start(command(&[]));
    process.wait_for("Serving");
    assert!(process.log().contains(&format!("made user {USER}")), "{}", process.log());
    let ran = client.run(&["-c", "id -un; echo $HOME $USER; pwd; cd; pwd; env | grep -c ^EXEC_"]);
    assert_eq!(ran.text(), format!("{USER}\n/home/work {USER}\n/tmp\n/home/work\n0\n"), "{ran:?}");
    assert_eq!(client.run(&["--cwd", "/usr", "--", "pwd"]).text(), "/usr\n");
    assert_eq!(client.report(&["--", "true"]).enforced.uid, host::uid_of(USER));
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok(), "the gateway is at PORT");
    process.signal(Signal::SIGTERM);
    assert!(process.wait(Duration::from_secs(30)).success());
    // Options win over variables.
    let mut process = Process::start(command(&["--port", &other.to_string()]));
    process.wait_for("Serving");
    assert!(TcpStream::connect(("127.0.0.1", other)).is_ok());
    process.signal(Signal::SIGTERM);
    assert!(process.wait(Duration::from_secs(30)).success());
}

#[test]
fn a_place_to_start_that_no_profile_gives_is_refused_by_the_variable_s_name() {
    let run = |directory: &std::path::Path, cwd: &str| {
        let mut command = Up::command(directory, free_port());
        command.arg("--once").env("EXEC_CWD", cwd);
        process::run(command, &[])
    };
    for (cwd, problem) in [
        ("/srv", "is outside profile `default`"),
        ("/etc/cordon", "is outside profile `default`"),
        ("/proc/self", "lies in /proc, which is never a place to work"),
    ] {
        let directory = open_directory();
        let ran = run(directory.path(), cwd);
        let says = format!(
            "cordon: EXEC_CWD={cwd} failed: {problem}\n  next: set EXEC_CWD to a directory of EXEC_HOME"
        );
        assert!(ran.status == 1 && ran.stderr.contains(&says), "{cwd}: {ran:?}");
        assert!(!ran.stderr.contains("listening on"), "{ran:?}");
    }
    // One that may be and is not there is told by the variable's name as well, of each command that names none.
    let directory = open_directory();
    let ran = run(directory.path(), "/tmp/not-there");
    let said = format!("{}{}", ran.text(), ran.stderr);
    assert!(ran.status != 0 && said.contains("/tmp/not-there") && said.contains("(EXEC_CWD of"), "{ran:?}");
    // The control: a profile of one's own gives it.
    let directory = open_directory();
    let text = "[profiles.default]\nread = ['/usr', '/etc', '/opt', '/srv']\n";
    std::fs::write(directory.path().join("profiles.toml"), text).unwrap();
    let ran = run(directory.path(), "/srv");
    assert_eq!(ran.status, 0, "{ran:?}");
}

#[test]
fn variables_that_cannot_be_are_refused_before_anything_is_made() {
    for (name, value) in [
        ("EXEC_USER", ""),
        ("EXEC_USER", "root"),
        ("EXEC_HOME", "/root"),
        ("EXEC_CWD", "tmp"),
        ("PORT", "many"),
    ] {
        let parent = open_directory();
        let directory = parent.path().join("dir");
        let mut command = process::tied(&programs().cordon);
        command.args(["up", "--once", "--dir"]).arg(&directory).env(name, value);
        let ran = process::run(command, &[]);
        assert!(ran.status != 0 && ran.stderr.contains(name), "{name}={value}: {ran:?}");
        assert!(!directory.exists(), "{name}={value}");
    }
}
