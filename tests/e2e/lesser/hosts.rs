//! One executor on each kind of lesser host: what runs, what `enforced` and `doctor` say, and that limits, ends and
//! the deletion of files do not depend on what is missing.

use crate::harness::{
    Executor, PATIENCE,
    client::line,
    crowd, eventually, host,
    lesser_host::{LesserHost, WHOLE},
    marker,
    process::{self, sandboxed},
};
use cordon_protocol::{
    CgroupMode, EndedBy, Event, ExitReport, FileIn, Health, LimitName, LimitRequest, NamespaceName,
    NetworkMode, RunRequest, client::blocking,
};
use std::fs;

const NO_CGROUP: LesserHost = LesserHost { cgroup: false, ..WHOLE };
const NO_NAMESPACES: LesserHost = LesserHost { admin: false, ..WHOLE };
const NEITHER: LesserHost = LesserHost { cgroup: false, admin: false, ..WHOLE };

fn limited(script: &str, limits: LimitRequest) -> RunRequest {
    let mut request = line(script);
    request.limits = limits;
    request
}

fn ended(report: &ExitReport) -> (EndedBy, &[LimitName]) {
    (report.ended_by, &report.limits_hit)
}

/// What held, by the kind of host and by nothing that the executor itself said.
pub(super) fn assert_enforced(executor: &Executor, host: LesserHost) {
    let enforced = executor.report(&["--", "true"]).enforced;
    let mode = if host.cgroup { host::cgroup_mode() } else { CgroupMode::None };
    assert_eq!(enforced.cgroup, mode);
    assert_eq!(enforced.landlock_abi, host.landlock.unwrap_or_else(host::landlock_abi).min(10));
    assert_eq!((enforced.uid, enforced.seccomp), (host::uid_of("execuser"), true));
    assert!(enforced.capabilities.is_empty(), "{enforced:?}");
    use NamespaceName::{Ipc, Mount, Net, Pid, Uts};
    let all = vec![Pid, Mount, Ipc, Uts, Net];
    let (namespaces, network) =
        if host.admin { (all, NetworkMode::None) } else { (Vec::new(), NetworkMode::Host) };
    assert_eq!((enforced.namespaces, enforced.network), (namespaces, network));
    // From inside: whose the namespaces are.
    let inside = executor.inside("readlink /proc/self/ns/net").trim().to_owned();
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    assert_eq!(inside == own.to_string_lossy(), !host.admin, "{inside}");
    let layers = blocking::doctor(&executor.socket, "test").unwrap();
    let health = |name: &str| layers.iter().find(|l| l.layer == name).unwrap_or_else(|| panic!("{layers:?}"));
    for (name, missing) in
        [("cgroup", !host.cgroup), ("namespaces", !host.admin), ("landlock", host.landlock == Some(0))]
    {
        let layer = health(name);
        assert_eq!(layer.health == Health::Missing, missing, "{layer:?}");
        assert!(!missing || layer.remedy.is_some(), "{layer:?}");
    }
    let identity = ["identity", "seccomp"].map(|name| health(name).health);
    assert_eq!(identity, [Health::Ok; 2]);
}

/// A tree that ignores signals, two sessions deep, with the marker.
fn stubborn(marker: &str) -> String {
    format!(
        "trap '' TERM INT HUP; (setsid bash -c \"trap '' TERM INT HUP; sleep {marker}; :\" &) ; sleep {marker}"
    )
}

pub(super) fn assert_gone(marker: &str) {
    eventually("the command's whole tree is gone", PATIENCE, || sandboxed(marker).is_empty());
}

/// Every way a limit or a client ends a command takes the whole tree.
pub(super) fn assert_ends(executor: &Executor) {
    let wall = marker();
    let limits = LimitRequest { wall_ms: Some(500), ..LimitRequest::default() };
    let report = executor.events(limited(&stubborn(&wall), limits)).report;
    assert_eq!(ended(&report), (EndedBy::WallTimeout, &[LimitName::Wall][..]), "{report:?}");
    assert_gone(&wall);

    let limits = LimitRequest { cpu_time_ms: Some(300), ..LimitRequest::default() };
    let report = executor.events(limited("trap '' TERM XCPU; (while :; do :; done) & wait", limits)).report;
    assert_eq!(ended(&report), (EndedBy::CpuTimeout, &[LimitName::CpuTime][..]), "{report:?}");

    // In a daemon, which no process of the command's is the parent of any more.
    let hog =
        "(setsid python3 -c 'import time; x = bytearray(b\"x\") * (200 << 20); time.sleep(60)' &); sleep 55";
    let limits = LimitRequest { memory_bytes: Some(64 << 20), ..LimitRequest::default() };
    let report = executor.events(limited(hog, limits)).report;
    assert_eq!(ended(&report), (EndedBy::OutOfMemory, &[LimitName::Memory][..]), "{report:?}");

    let limits = LimitRequest { output_bytes: Some(1 << 16), ..LimitRequest::default() };
    let report = executor.events(limited("yes", limits)).report;
    assert_eq!(ended(&report), (EndedBy::OutputLimit, &[LimitName::Output][..]), "{report:?}");

    let closed = marker();
    let connection = blocking::run(&executor.socket, "test", line(&stubborn(&closed))).unwrap();
    eventually("the tree runs", PATIENCE, || sandboxed(&closed).len() >= 2);
    drop(connection);
    assert_gone(&closed);

    let killed = marker();
    let connection = blocking::run(&executor.socket, "test", line(&stubborn(&killed))).unwrap();
    eventually("the tree runs", PATIENCE, || sandboxed(&killed).len() >= 2);
    let running = blocking::ps(&executor.socket, "test").unwrap();
    assert_eq!(running.len(), 1, "{running:?}");
    assert_eq!(process::run(executor.cordon(&["kill", &running[0].id]), &[]).status, 0);
    let report = crate::harness::client::collect(connection.0).unwrap().report;
    assert_eq!(report.ended_by, EndedBy::Cancelled, "{report:?}");
    assert_gone(&killed);
    executor.assert_works();
}

/// A command's files are its own and go with it.
fn assert_files_go(executor: &Executor, host: LesserHost) {
    let script =
        "mkdir -p ~/a/b && echo kept > ~/a/b/c && ln -s /etc ~/link && echo t > $TMPDIR/t && cat ~/a/b/c";
    assert_eq!(executor.inside(script), "kept\n");
    assert_eq!(executor.inside("ls -A ~ $TMPDIR | grep -v :; pwd | wc -l"), "\n1\n");
    if !host.admin {
        let work = executor.directory().join("state/work");
        eventually("what it wrote is deleted", PATIENCE, || {
            fs::read_dir(&work).is_ok_and(|entries| entries.count() == 0)
        });
    }
    assert!(fs::metadata("/etc/passwd").is_ok(), "what its links led to is still there");
}

/// Named workspaces stay, files go in and are collected, and what was left running is ended before that.
pub(super) fn assert_workspaces(executor: &Executor) {
    // What is left behind goes on writing, until it is ended: before anything is collected.
    let script = "cat in/file > out; (setsid sh -c 'while :; do echo x >> ticks; done' &); echo kept > stays; \
                  head -c 4M /dev/zero > big; while ! [ -s ticks ]; do :; done";
    let request = RunRequest {
        workspace: Some("work".to_owned()),
        files: vec![FileIn { path: "in/file".to_owned(), content: b"content".to_vec(), mode: None }],
        collect: ["out", "ticks", "big"].map(str::to_owned).to_vec(),
        ..line(script)
    };
    let (mut connection, _stdin) = blocking::run(&executor.socket, "test", request).unwrap();
    let mut collected = Vec::new();
    let report = loop {
        match connection.next_event().unwrap() {
            Event::File(file) => collected.push(file),
            Event::Exited(report) => break report,
            _ => {}
        }
    };
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(0)), "{report:?}");
    assert_eq!((collected.len(), &collected[0].content[..]), (3, &b"content"[..]));
    let ticks = fs::metadata(executor.directory().join("state/workspaces/0/work/ticks")).unwrap().len();
    assert_eq!(collected[1].size, ticks, "what it left ran on");
    let again = RunRequest { workspace: Some("work".to_owned()), ..line("cat stays; rm big ticks; ls; pwd") };
    let report = executor.events(again).report;
    let (stdout, _) = report.stdout.as_deref().unwrap().rsplit_once("\n/").unwrap();
    assert_eq!(stdout, "kept\nin\nout\nstays", "{report:?}");
    assert_eq!(executor.inside("ls -A ~"), "", "a private one");
    blocking::delete_workspace(&executor.socket, "test", "work").unwrap();
    let left = executor.directory().join("state/workspaces/0");
    eventually("it is deleted", PATIENCE, || fs::read_dir(&left).unwrap().count() == 0);
}

/// Whether two commands may run at once.
fn assert_side_by_side(executor: &Executor, both: bool) {
    let marker = marker();
    let first = blocking::run(&executor.socket, "test", line(&format!("exec sleep {marker}"))).unwrap();
    eventually("the first runs", PATIENCE, || !sandboxed(&marker).is_empty());
    let (mut second, _stdin) = blocking::run(&executor.socket, "test", line("echo second")).unwrap();
    let mut first = Some(first);
    if !both {
        // It waits like one whose peer has no place left.
        assert_eq!(second.next_event().unwrap(), Event::Queued { position: 1 });
        let jobs = blocking::ps(&executor.socket, "test").unwrap();
        let states: Vec<_> = jobs.iter().map(|job| (job.state.as_str(), job.position)).collect();
        assert_eq!(states, [("running", None), ("queued", Some(1))]);
        assert_eq!(sandboxed(&marker).len(), 1, "the second has not touched the first");
        drop(first.take());
    }
    let report = crate::harness::client::collect(second).unwrap().report;
    assert_eq!(report.stdout.as_deref(), Some("second\n"), "{report:?}");
    assert_eq!(sandboxed(&marker).len(), usize::from(both), "neither has touched the other");
    drop(first);
    assert_gone(&marker);
    executor.assert_works();
}

fn assert_works_on(host: LesserHost, one_at_a_time: bool) -> Executor {
    let executor = host.start("");
    assert_enforced(&executor, host);
    assert_files_go(&executor, host);
    assert_workspaces(&executor);
    assert_ends(&executor);
    assert_side_by_side(&executor, !one_at_a_time);
    executor
}

#[test]
fn without_cgroup_v2_processes_are_tracked_and_limits_sampled() {
    assert_works_on(NO_CGROUP, false);
    let said = NO_CGROUP.refused();
    assert!(said.contains("cgroup: no cgroup v2 hierarchy is mounted; remedy: mount cgroup v2"), "{said}");
    assert!(!said.contains("namespaces:"), "{said}");
}

#[test]
fn without_cgroup_v2_processes_that_nobody_waits_for_use_no_time_for_nothing() {
    let _crowd = crowd::among_others();
    // The kernel adds a child's time to its parent's only when that waits for it, which this one never does.
    let code = "
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(60):
    # There may be as many processes as may be for a moment, of others' commands.
    try: child = os.fork()
    except BlockingIOError: time.sleep(0.1); continue
    if child == 0:
        while time.process_time() < 0.1: pass
        os._exit(0)
    try: os.wait()
    except ChildProcessError: pass
print('done')";
    let limits = LimitRequest { cpu_time_ms: Some(700), ..LimitRequest::default() };
    let report = NO_CGROUP.start("").events(limited(&format!("exec python3 -c \"{code}\""), limits)).report;
    assert_eq!(ended(&report), (EndedBy::CpuTimeout, &[LimitName::CpuTime][..]), "{report:?}");
    assert!(report.cpu_ms >= 700.0, "{report:?}");
}

#[test]
fn without_cap_sys_admin_commands_run_without_namespaces() {
    let executor = assert_works_on(NO_NAMESPACES, host::landlock_abi() < 6);
    // Landlock stands in for the network namespace, for what it knows (TCP from ABI 4 on).
    if host::landlock_abi() >= 4 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let code = format!(
            "import socket\ntry: socket.create_connection(('127.0.0.1', {port}), 5); print('open')\n\
             except PermissionError: print('refused')"
        );
        assert_eq!(host::python(&code), "open\n", "the control");
        assert_eq!(executor.python(&code), "refused\n");
    }
    let said = NO_NAMESPACES.refused();
    assert!(said.contains("namespaces: ") && said.contains("CAP_SYS_ADMIN"), "{said}");
}

#[test]
fn without_both_one_command_runs_at_a_time() {
    assert_works_on(NEITHER, true);
    let said = NEITHER.refused();
    assert!(said.contains("cgroup: ") && said.contains("namespaces: "), "{said}");
}

#[test]
fn without_landlock_the_other_layers_hold() {
    let host = LesserHost { landlock: Some(0), ..WHOLE };
    let executor = host.start("");
    assert_enforced(&executor, host);
    assert_workspaces(&executor);
    assert_ends(&executor);
    // What Landlock would refuse, the mount tree does: nothing of the host can be written.
    assert_eq!(executor.inside("touch /usr/x /etc/x 2>/dev/null; ls /root 2>&1 | wc -l; echo $?"), "1\n0\n");
    let said = host.refused();
    assert!(said.contains("landlock: the kernel has no Landlock; remedy: "), "{said}");
}

#[test]
fn an_older_landlock_is_used_as_far_as_it_goes() {
    if host::landlock_abi() < 4 {
        // There is nothing older that would differ.
        return;
    }
    for abi in [1, 3] {
        let host = LesserHost { landlock: Some(abi), ..WHOLE };
        let executor = host.start("landlock_abi_min = 1");
        assert_enforced(&executor, host);
        assert_eq!(
            executor.inside("echo x > ~/x && cat ~/x && ! cat /root/x 2>/dev/null && echo no"),
            "x\nno\n"
        );
    }
    let said = LesserHost { landlock: Some(1), ..WHOLE }.refused();
    assert!(said.contains("landlock: ABI 1 is below landlock_abi_min = 2; remedy: "), "{said}");
}

#[test]
fn one_that_is_not_root_refuses_and_says_what_it_needs() {
    let executor = crate::harness::lab();
    let file = executor.directory().join("executor.toml");
    let directory = crate::harness::daemon::open_directory();
    let program =
        crate::harness::client::public_copy(&crate::harness::build::programs().executor, directory.path());
    let mut command = host::as_user(54_320, 54_320, &[], &program.to_string_lossy());
    command.arg("--config").arg(file);
    let ran = process::run(command, &[]);
    assert!(ran.status == 1 && ran.stderr.contains("root"), "{ran:?}");
}

/// What starting says in a process without a capability that every host must give.
#[test]
fn a_capability_without_which_nothing_can_be_ended_is_asked_for_by_name() {
    for (taken, name) in [("-kill", "CAP_KILL"), ("-chown", "CAP_CHOWN"), ("-setuid", "CAP_SETUID")] {
        let directory = crate::harness::daemon::open_directory();
        let file = crate::harness::daemon::write_configuration(directory.path(), "available", "");
        let mut command = process::tied("setpriv".as_ref());
        command.args(["--bounding-set", taken, "--inh-caps", "-all", "--"]);
        command.arg(&crate::harness::build::programs().executor).arg("--config").arg(file);
        let ran = process::run(command, &[]);
        assert!(ran.status == 1 && ran.stderr.contains(&format!("{name} is missing")), "{ran:?}");
    }
}
