//! Every way a command, a client or a half of the executor can end, and that nothing is left behind.

use crate::harness::{
    Executor, Up,
    build::programs,
    client::line,
    crowd,
    daemon::{open_directory, server_of, write_configuration},
    eventually, host, lab, marker,
    process::{self, sandboxed},
    shared, stretched,
};
use cordon_protocol::{EndedBy, Event, ExitReport, client::blocking};
use nix::{
    fcntl::{Flock, FlockArg},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread,
    time::Duration,
};

const SOON: Duration = Duration::from_secs(10);

/// A tree that ignores signals, in two sessions: three processes with the marker.
fn stubborn(marker: &str) -> String {
    format!(
        "trap '' TERM INT HUP; (setsid bash -c \"trap '' TERM INT HUP; sleep {marker}; :\" &); \
         sleep {marker} & echo go; wait"
    )
}

fn wait_gone(marker: &str) {
    eventually("the command's whole tree is gone", SOON, || sandboxed(marker).is_empty());
}

fn start_client(executor: &crate::harness::Client, marker: &str) -> Child {
    let mut client = executor.cordon(&["run", "-c", &stubborn(marker)]);
    let mut client =
        client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut word = String::new();
    // Not dropped: a closed pipe is another way to end.
    let stdout = client.stdout.as_mut().unwrap();
    BufReader::with_capacity(3, stdout).read_line(&mut word).unwrap();
    assert_eq!(word, "go\n");
    eventually("the tree runs", SOON, || sandboxed(marker).len() >= 3);
    client
}

/// Groups, and processes of the product's users, that belong to one instance of the executor.
struct Traces {
    groups: Vec<PathBuf>,
    processes: Vec<i32>,
    directory: PathBuf,
}

impl Traces {
    /// What is there while the command with this marker runs; `before` is what was there without it.
    fn of(before: &BTreeSet<PathBuf>, monitor: i32, marker: &str, directory: &Path) -> Self {
        let command = sandboxed(marker)[0];
        let group = host::cgroup_of(command).expect("this host has cgroup v2");
        // The leaf, and every group above it that the executor made.
        let mine =
            group.ancestors().filter(|g| g.starts_with(host::cgroup2().unwrap()) && !before.contains(*g));
        let mut groups: Vec<_> = mine.map(Path::to_owned).collect();
        assert!(!groups.is_empty(), "{} is not a group of its own", group.display());
        let top = groups.last().unwrap().clone();
        groups.extend(host::cgroups().into_iter().filter(|g| g.starts_with(&top)));
        Self { groups, processes: process::descendants(monitor), directory: directory.to_owned() }
    }

    fn left(&self) -> Vec<String> {
        let uids = ["execuser", "cordon-exec", "cordon-init"].map(host::uid_of);
        let alive = |pid: &&i32| process::uids(**pid).first().is_some_and(|uid| uids.contains(uid));
        let groups = self.groups.iter().filter(|g| g.exists()).map(|g| g.display().to_string());
        let processes = self.processes.iter().filter(alive).map(|p| format!("process {p}"));
        groups.chain(processes).chain(host::mounts_with(&self.directory.to_string_lossy())).collect()
    }

    fn assert_none_left(&self) {
        eventually("no group, process or mount is left", SOON, || {
            let left = self.left();
            if !left.is_empty() {
                eprintln!("left: {left:?}");
            }
            left.is_empty()
        });
    }
}

fn groups_now() -> BTreeSet<PathBuf> {
    host::cgroups().into_iter().collect()
}

#[test]
fn a_closed_connection_ends_the_whole_tree() {
    let marker = marker();
    let mut request = line(&stubborn(&marker));
    request.stream = true;
    let (mut connection, stdin) = blocking::run(&shared().socket, "test", request).unwrap();
    while !matches!(connection.next_event().unwrap(), Event::Stdout(_)) {}
    eventually("the tree runs", SOON, || sandboxed(&marker).len() >= 3);
    drop(stdin);
    connection.close();
    wait_gone(&marker);
}

#[test]
fn a_client_that_is_killed_ends_the_whole_tree() {
    let marker = marker();
    let mut client = start_client(shared(), &marker);
    client.kill().unwrap();
    client.wait().unwrap();
    wait_gone(&marker);
}

#[test]
fn ctrl_c_in_the_client_ends_the_whole_tree_and_its_report_is_waited_for() {
    for (signal, status) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        let marker = marker();
        let client = start_client(shared(), &marker);
        kill(Pid::from_raw(client.id() as i32), signal).unwrap();
        let ran = process::finish(client, "cordon run");
        assert_eq!(ran.status, status, "{}", ran.stderr);
        wait_gone(&marker);
        // A client that just ends would end the tree as well, with the same status. This one ends the command
        // and then says how that went.
        let mut client = shared().cordon(&["run", "--json", "-c", &stubborn(&marker)]);
        let client =
            client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the tree runs", SOON, || sandboxed(&marker).len() >= 3);
        kill(Pid::from_raw(client.id() as i32), signal).unwrap();
        let ran = process::finish(client, "cordon run --json");
        let report: ExitReport =
            serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
        assert_eq!((ran.status, report.ended_by), (status, EndedBy::Cancelled), "{}", ran.stderr);
        wait_gone(&marker);
    }
}

#[test]
fn a_closed_http_connection_ends_the_whole_tree() {
    use std::{io::Write, net::TcpStream};
    let marker = marker();
    let up = shared();
    let body = serde_json::json!({"command": stubborn(&marker)}).to_string();
    let authorization = format!("Bearer {}", up.token);
    let headers = [
        ("Host", format!("127.0.0.1:{}", up.port)),
        ("Authorization", authorization),
        ("Content-Type", "application/json".to_owned()),
    ];
    let headers: Vec<_> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let bytes = crate::harness::http::request_bytes("POST /v1/exec", &headers, body.as_bytes());
    let mut stream = TcpStream::connect(("127.0.0.1", up.port)).unwrap();
    stream.write_all(&bytes).unwrap();
    eventually("the tree runs", SOON, || sandboxed(&marker).len() >= 3);
    drop(stream);
    wait_gone(&marker);
}

#[test]
fn an_executor_that_is_told_to_end_leaves_nothing() {
    lab();
    let before = groups_now();
    let mut executor = Executor::start("");
    let marker = marker();
    let client = start_client(&executor, &marker);
    let traces = Traces::of(&before, executor.pid(), &marker, executor.directory());
    // Nobody else is to remove for it what it leaves.
    let claim = claim(&host::cgroup_of(sandboxed(&marker)[0]).unwrap());
    executor.process().signal(Signal::SIGTERM);
    let status = executor.process().wait(Duration::from_secs(20));
    assert!(status.success(), "{status}");
    let _claim = claim.join().unwrap();
    traces.assert_none_left();
    let ran = process::finish(client, "cordon run");
    assert!([125, 130].contains(&ran.status), "{}: {}", ran.status, ran.stderr);
    assert!(!executor.socket.exists(), "the socket is still there");
}

#[test]
fn an_executor_that_ends_lets_short_commands_finish() {
    let mut executor = Executor::start("");
    let mut client = executor.cordon(&["run", "-c", "echo go; sleep 1; echo finished"]);
    let client = client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the command runs", SOON, || {
        blocking::ps(&executor.socket, "test").unwrap().iter().any(|j| j.state == "running")
    });
    executor.process().signal(Signal::SIGTERM);
    let ran = process::finish(client, "cordon run");
    assert_eq!((ran.status, ran.text().as_str()), (0, "go\nfinished\n"), "{}", ran.stderr);
    assert!(executor.process().wait(Duration::from_secs(20)).success());
}

/// Kills one half and takes the lock of its groups, in which this leaf is: any executor that starts meanwhile
/// would sweep what is left in them. Whoever waits for the lock gets it first.
fn kill_and_claim(executor: &mut Executor, half: impl Fn(&Executor) -> i32, leaf: &Path) -> Flock<File> {
    let claim = claim(leaf);
    kill(Pid::from_raw(half(executor)), Signal::SIGKILL).unwrap();
    let status = executor.process().wait(Duration::from_secs(20));
    assert!(!status.success(), "{status}");
    claim.join().unwrap()
}

/// Waits for the lock of the groups in which this leaf is, which their executor holds until its end.
fn claim(leaf: &Path) -> thread::JoinHandle<Flock<File>> {
    let groups = File::open(leaf.parent().unwrap()).unwrap();
    thread::spawn(move || Flock::lock(groups, FlockArg::LockExclusive).unwrap())
}

/// Kills one half, and shows that everything ends and that the next start finds a clean place.
fn killing_ends_everything(half: impl Fn(&Executor) -> i32) {
    lab();
    let before = groups_now();
    let mut executor = Executor::start("");
    let marker = marker();
    let client = start_client(&executor, &marker);
    let traces = Traces::of(&before, executor.pid(), &marker, executor.directory());
    let leaf = host::cgroup_of(sandboxed(&marker)[0]).unwrap();
    let claim = kill_and_claim(&mut executor, half, &leaf);
    wait_gone(&marker);
    eventually("both halves and every sandbox are gone", SOON, || {
        traces.left().iter().all(|left| !left.starts_with("process"))
    });
    drop(claim);
    let ran = process::finish(client, "cordon run");
    assert_eq!(ran.status, 125, "an executor that went away is no ordinary end: {}", ran.stderr);
    let mut executor = executor.again();
    executor.assert_works();
    executor.process().signal(Signal::SIGTERM);
    executor.process().wait(Duration::from_secs(20));
    traces.assert_none_left();
}

#[test]
fn killing_the_monitor_ends_the_server_and_every_sandbox() {
    killing_ends_everything(Executor::pid);
}

#[test]
fn killing_the_server_ends_the_monitor_and_every_sandbox() {
    killing_ends_everything(|executor| server_of(executor.pid()));
}

#[test]
fn the_end_of_the_server_is_seen_also_while_somebody_holds_its_end_of_the_link() {
    let mut executor = Executor::start("");
    let marker = marker();
    let client = start_client(&executor, &marker);
    let server = server_of(executor.pid());
    // As if it had passed its sockets on before it ended (pidfd_getfd(2)).
    let code = format!(
        "import ctypes, os, time\nlibc, server = ctypes.CDLL(None), os.pidfd_open({server})\n\
         links = [f for f in os.listdir('/proc/{server}/fd') if 'socket:' in os.readlink('/proc/{server}/fd/' + f)]\n\
         held = [libc.syscall(438, server, int(f), 0) for f in links]\n\
         assert held and min(held) >= 0\nprint('held', flush=True)\ntime.sleep(600)"
    );
    let mut holder = std::process::Command::new("setpriv");
    holder.args(["--pdeathsig", "KILL", "--", "/usr/bin/python3", "-c", &code]).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut word = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut word).unwrap();
    assert_eq!(word, "held\n");
    kill(Pid::from_raw(server), Signal::SIGKILL).unwrap();
    assert!(!executor.process().wait(Duration::from_secs(20)).success());
    wait_gone(&marker);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(process::finish(client, "cordon run").status, 125);
}

#[test]
fn a_server_that_hangs_ends_with_the_monitor() {
    let mut executor = Executor::start("");
    let server = server_of(executor.pid());
    // It cannot see that the link has ended.
    kill(Pid::from_raw(server), Signal::SIGSTOP).unwrap();
    kill(Pid::from_raw(executor.pid()), Signal::SIGKILL).unwrap();
    assert!(!executor.process().wait(Duration::from_secs(20)).success());
    eventually("it is gone", SOON, || process::exe(server).is_none());
}

#[test]
fn the_next_start_ends_and_removes_what_is_left_in_its_groups() {
    if host::has_systemd() {
        // There each start has a scope of its own, and systemd removes the one before.
        return;
    }
    let mut executor = Executor::start("");
    let marker = marker();
    let client = start_client(&executor, &marker);
    let leaf = host::cgroup_of(sandboxed(&marker)[0]).unwrap();
    let claim = kill_and_claim(&mut executor, Executor::pid, &leaf);
    process::finish(client, "cordon run");
    wait_gone(&marker);
    // Whatever was kept from ending with the monitor.
    let mut left = process::tied("sleep".as_ref()).arg(&marker).spawn().unwrap();
    fs::write(leaf.join("cgroup.procs"), left.id().to_string()).unwrap();
    drop(claim);
    let executor = executor.again();
    eventually("it is killed", SOON, || left.try_wait().unwrap().is_some());
    assert_eq!(left.wait().unwrap().signal(), Some(9));
    assert!(!leaf.exists(), "{} is still there", leaf.display());
    executor.assert_works();
}

#[test]
fn the_end_of_cordon_up_leaves_nothing() {
    let before = groups_now();
    let mut up = Up::start();
    let marker = marker();
    let client = start_client(&up, &marker);
    let traces = Traces::of(&before, up.monitor(), &marker, up.directory());
    let all = process::descendants(up.pid());
    let claim = claim(&host::cgroup_of(sandboxed(&marker)[0]).unwrap());
    up.process().signal(Signal::SIGTERM);
    up.process().wait(Duration::from_secs(30));
    let _claim = claim.join().unwrap();
    traces.assert_none_left();
    let still: Vec<_> = all.into_iter().filter(|p| process::exe(*p).is_some()).collect();
    assert!(still.is_empty(), "{still:?}");
    process::finish(client, "cordon run");
}

#[test]
fn fork_bombs_at_once_all_end_in_time() {
    // Processes that fork and touch memory without an end hold their own memory locks nearly all the time:
    // a monitor that waited for one of them would end none.
    let bomb = "import os\ndata = bytearray(8 << 20)\nwhile True:\n    try: os.fork(); data[0] += 1\n    except OSError: pass\n    except ValueError: data[0] = 0";
    let _crowd = crowd::alone();
    let bombs: Vec<_> = (0..4)
        .map(|_| thread::spawn(move || shared().report(&["--timeout", "2s", "--", "python3", "-c", bomb])))
        .collect();
    for bomb in bombs {
        let report = bomb.join().unwrap();
        let ended = matches!(report.ended_by, EndedBy::WallTimeout | EndedBy::OutOfMemory);
        assert!(
            ended && report.wall_ms < stretched(Duration::from_secs(30)).as_secs_f64() * 1e3,
            "{report:?}"
        );
    }
    shared().assert_works();
}

#[test]
fn an_end_is_told_rightly_whatever_signals_the_starter_ignored() {
    shared();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "available", "");
    let mut command = std::process::Command::new("env");
    // Of a child whose end nobody is told, the kernel keeps no exit status.
    command.args(["--ignore-signal=CHLD", "setpriv", "--pdeathsig", "TERM", "--"]);
    command.arg(&programs().executor).arg("--config").arg(file);
    let executor = Executor::wait_ready(command, directory);
    for (line, status) in [("exit 3", 3), ("kill -TERM $$", 143)] {
        let ran = executor.run(&["-c", line]);
        assert_eq!(ran.status, status, "{line}: {ran:?}");
    }
    assert!(executor.report(&["--", "true"]).enforced.seccomp);
}
