//! `cordon up`: the whole product with one command, and its end.

use crate::harness::{
    Client, PATIENCE, Up,
    build::programs,
    client::public_copy,
    daemon::{free_port, open_directory},
    eventually, host, marker,
    process::{self, Process},
    shared,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{fs, net::TcpStream, os::unix::fs::chown, path::Path, time::Duration};

/// Finds a part of an instance.
type Part = fn(&Up) -> i32;

/// Command lines of processes that name this directory.
fn processes_of(directory: &std::path::Path) -> Vec<String> {
    let name = directory.to_string_lossy().into_owned();
    let line = |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = |pid| String::from_utf8_lossy(&line(pid)).replace('\0', " ");
    process::all().into_iter().map(text).filter(|t| t.contains(&name)).collect()
}

/// Another one in the same place works, and sweeps what the killed one could not remove.
fn assert_starts_again(up: &Up) {
    let mut command = Up::command(up.directory(), free_port());
    command.arg("--once");
    let ran = process::run(command, &[]);
    assert_eq!(ran.status, 0, "{ran:?}");
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
fn it_ends_with_any_of_its_parts() {
    let parts: [(&str, Part); 3] =
        [("gateway", Up::gateway), ("monitor", Up::monitor), ("server", Up::server)];
    for (name, part) in parts {
        let mut up = Up::start();
        kill(Pid::from_raw(part(&up)), Signal::SIGKILL).unwrap();
        let status = up.process().wait(Duration::from_secs(30));
        assert!(!status.success(), "{name}: {status}");
        eventually("nothing of it runs", PATIENCE, || processes_of(up.directory()).is_empty());
        assert!(TcpStream::connect(("127.0.0.1", up.port)).is_err(), "{name}: the port still answers");
        assert_starts_again(&up);
    }
}

#[test]
fn a_second_signal_does_not_wait_for_commands_and_says_so() {
    let mut up = Up::start();
    let marker = marker();
    // One behind each daemon, so that both would wait.
    let run = Process::start(up.cordon(&["run", "--", "sleep", &marker]));
    let mut post = process::tied(Path::new("curl"));
    post.args(["-sS", "-H", "Content-Type: application/json", "-d"])
        .arg(format!("{{\"argv\": [\"sleep\", \"{marker}\"]}}"))
        .arg("--unix-socket")
        .arg(up.directory().join("gateway.sock"))
        .arg("http://localhost/v1/exec");
    let post = Process::start(post);
    eventually("both run", PATIENCE, || process::sandboxed(&marker).len() == 2);
    up.process().signal(Signal::SIGINT);
    up.process().wait_for("a second signal ends them at once");
    up.process().signal(Signal::SIGINT);
    let status = up.process().wait(Duration::from_secs(30));
    assert_eq!(status.code(), Some(130));
    let log = up.process().log();
    let last = log.lines().rfind(|line| line.starts_with("cordon: ")).unwrap();
    let says = "cordon: told a second time (SIGINT): killed cordon-gateway and cordon-executor, and with";
    assert!(last.starts_with(says), "{log}");
    eventually("nothing of it runs", PATIENCE, || process::sandboxed(&marker).is_empty());
    drop((run, post));
    assert_starts_again(&up);
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
fn its_parts_end_with_it() {
    let mut up = Up::start();
    up.process().signal(Signal::SIGKILL);
    up.process().wait(Duration::from_secs(30));
    eventually("nothing of it runs", PATIENCE, || processes_of(up.directory()).is_empty());
    assert_starts_again(&up);
}

#[test]
fn what_an_ended_one_left_is_no_obstacle_to_the_next() {
    let directory = open_directory();
    for _ in 0..2 {
        let mut process = Process::start(Up::command(directory.path(), free_port()));
        process.wait_for("curl");
        process.signal(Signal::SIGKILL);
        process.wait(Duration::from_secs(30));
        eventually("nothing of it runs", PATIENCE, || processes_of(directory.path()).is_empty());
    }
    let mut process = Process::start(Up::command(directory.path(), free_port()));
    process.wait_for("curl");
    process.signal(Signal::SIGTERM);
    assert!(process.wait(Duration::from_secs(30)).success());
}

#[test]
fn undo_clears_the_directory_and_leaves_users_that_somebody_runs_with() {
    shared().assert_works();
    let directory = open_directory();
    let mut command = Up::command(directory.path(), free_port());
    command.arg("--once");
    assert_eq!(process::run(command, &[]).status, 0);
    assert!(directory.path().join("token").exists());
    let mut undo = process::tied(&programs().cordon);
    undo.args(["up", "--undo", "--dir"]).arg(directory.path());
    let ran = process::run(undo, &[]);
    // The shared instance runs with the users: they stay, and that is said.
    assert!(ran.status == 0 && ran.stderr.contains("kept the users"), "{ran:?}");
    let entries = fs::read_dir(directory.path()).into_iter().flatten().flatten();
    let left: Vec<_> = entries.map(|e| e.path()).collect();
    assert!(left.is_empty(), "{left:?}");
    shared().assert_works();
}

#[test]
fn profiles_of_a_person_s_own_are_used_and_survive() {
    let directory = open_directory();
    let file = directory.path().join("profiles.toml");
    let text = "[profiles.mine]\nenv = { MINE = \"yes\" }\nlimits.pids = { ceiling = 2000 }\n";
    fs::write(&file, text).unwrap();
    let client = Client { socket: directory.path().join("executor.sock") };
    // From the second start on too.
    for _ in 0..2 {
        let mut process = Process::start(Up::command(directory.path(), free_port()));
        process.wait_for("Serving");
        let ran = client.run(&["--profile", "mine", "--pids", "2000", "-c", "echo $MINE"]);
        assert_eq!((ran.status, &*ran.text()), (0, "yes\n"), "{ran:?}");
        process.signal(Signal::SIGTERM);
        assert!(process.wait(Duration::from_secs(30)).success());
    }
    shared();
    let mut undo = process::tied(&programs().cordon);
    undo.args(["up", "--undo", "--dir"]).arg(directory.path());
    assert_eq!(process::run(undo, &[]).status, 0);
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!((left, fs::read_to_string(&file).unwrap()), (vec!["profiles.toml".into()], text.to_owned()));
}

#[test]
fn profiles_that_cannot_be_used_are_named_with_file_and_line_before_anything_starts() {
    shared();
    let stranger = |file: &Path| chown(file, Some(crate::harness::lab::STRANGER), None).unwrap();
    type Change<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, Change<'_>, &[&str]); 4] = [
        ("[profiles.p]\n\nreed = []", &|_| {}, &["profiles.toml", "line 3", "`reed`"]),
        ("[profiles.p]\nread = ['usr']", &|_| {}, &["profiles.toml, line 2", "read: `usr`"]),
        ("socket = '/tmp/x'", &|_| {}, &["profiles.toml", "`socket` is not for this file"]),
        ("[profiles.p]", &stranger, &["profiles.toml", "does not belong to root"]),
    ];
    for (text, change, says) in cases {
        let directory = open_directory();
        let file = directory.path().join("profiles.toml");
        fs::write(&file, text).unwrap();
        change(&file);
        let ran = process::run(Up::command(directory.path(), free_port()), &[]);
        assert!(ran.status == 1 && says.iter().all(|word| ran.stderr.contains(word)), "{text}: {ran:?}");
        assert!(!ran.stderr.contains("listening on"), "{ran:?}");
    }
}

#[test]
fn what_is_somebody_else_s_is_left_alone() {
    let directory = open_directory();
    fs::create_dir(directory.path().join("state")).unwrap();
    for name in ["state/precious", "token"] {
        fs::write(directory.path().join(name), "precious").unwrap();
    }
    let mut command = Up::command(directory.path(), free_port());
    command.arg("--once");
    let ran = process::run(command, &[]);
    assert!(ran.status != 0 && ran.stderr.contains("not `cordon up`'s"), "{ran:?}");
    let mut undo = process::tied(&programs().cordon);
    undo.args(["up", "--undo", "--dir"]).arg(directory.path());
    // With the shared instance running, the users stay.
    shared();
    assert_eq!(process::run(undo, &[]).status, 0);
    for name in ["state/precious", "token"] {
        assert_eq!(fs::read_to_string(directory.path().join(name)).unwrap(), "precious");
    }
}

#[test]
fn told_to_stop_at_any_moment_it_leaves_nothing() {
    shared();
    let directory = open_directory();
    for delay in [0, 5, 10, 20, 40, 60, 90, 130, 200, 300] {
        let mut process = Process::start(Up::command(directory.path(), free_port()));
        std::thread::sleep(Duration::from_millis(delay));
        process.signal(Signal::SIGTERM);
        process.wait(Duration::from_secs(30));
        assert_eq!(processes_of(directory.path()), Vec::<String>::new(), "after {delay} ms");
        assert_eq!(host::mounts_with(&directory.path().to_string_lossy()), Vec::<String>::new());
        let state = directory.path().join("state");
        let entries = [directory.path(), &state].into_iter().flat_map(fs::read_dir).flatten().flatten();
        let sockets: Vec<_> =
            entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "sock")).collect();
        assert_eq!(sockets, Vec::<std::path::PathBuf>::new(), "after {delay} ms");
        // Named in its log where the host's cgroups are lesser.
        let log = process.log();
        let groups = log
            .split([' ', ':', ';'])
            .filter(|word| word.starts_with("/sys/fs/cgroup/") && word.contains("/cordon-"));
        for group in groups {
            assert!(!std::path::Path::new(group).exists(), "{group} after {delay} ms");
        }
    }
}

#[test]
fn it_hears_of_its_parts_whatever_signals_its_starter_ignored() {
    let deaf = |directory: &std::path::Path| {
        let up = Up::command(directory, free_port());
        let mut command = std::process::Command::new("env");
        command.args(["--ignore-signal=CHLD", "--block-signal"]).arg(up.get_program()).args(up.get_args());
        command
    };
    let directory = open_directory();
    let mut command = deaf(directory.path());
    command.arg("--once");
    let ran = process::run(command, &[]);
    assert_eq!(ran.status, 0, "{ran:?}");
    let mut process = Process::start(deaf(directory.path()));
    process.wait_for("Serving");
    let gateway = process::descendants(process.pid());
    let gateway =
        gateway.into_iter().find(|pid| process::uids(*pid).first() == Some(&host::uid_of("cordon")));
    kill(Pid::from_raw(gateway.unwrap()), Signal::SIGKILL).unwrap();
    assert!(!process.wait(Duration::from_secs(30)).success());
    assert_eq!(processes_of(directory.path()), Vec::<String>::new());
}

/// Two at once where the users are missing, in a copy of /etc and an empty /run that nobody else sees.
const TWO_AT_ONCE: &str = r#"
mount --make-rprivate /
cp -a /etc "$1/etc" && mount --bind "$1/etc" /etc && mount -t tmpfs none /run || exit 9
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
            .args(["--mount", "bash", "-c", TWO_AT_ONCE, "two"])
            .arg(directory.path())
            .arg(&programs().cordon);
        let ran = process::run(command, &[]);
        assert_eq!(ran.status, 0, "{ran:?}");
    }
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
struct Made(&'static str);

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
