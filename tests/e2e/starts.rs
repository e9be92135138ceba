//! Executors started by something that has left its mark on them: they are as any other, or say why not.

use crate::harness::{
    Executor, PATIENCE,
    client::{argv, collect, line},
    daemon,
    daemon::{in_scope, open_directory, write_configuration},
    eventually, host, marker, process,
};
use cordon_protocol::{CgroupMode, Event, NamespaceName, client::blocking};
use nix::sys::signal::Signal;
use std::{os::unix::net::UnixStream, process::Command};

/// Runs these lines of Python first; then the process becomes the executor.
fn started_after(lines: &str) -> (Command, tempfile::TempDir) {
    started_with("", lines)
}

/// The same with keys and profiles.
pub(crate) fn started_with(configuration: &str, lines: &str) -> (Command, tempfile::TempDir) {
    daemon::ensure_users();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "available", configuration);
    let code = format!("import os, resource, signal, sys\n{lines}\nos.execv(sys.argv[1], sys.argv[1:])");
    let mut command = process::tied("/usr/bin/python3".as_ref());
    command.args(["-c", &code]).arg(&crate::harness::build::programs().executor).arg("--config").arg(file);
    (command, directory)
}

fn executor_after(lines: &str) -> Executor {
    let (command, directory) = started_after(lines);
    Executor::wait_ready(command, directory)
}

#[test]
fn ignored_and_blocked_signals_take_no_layer_away() {
    let executor = executor_after(
        "for s in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1): signal.signal(s, signal.SIG_IGN)\n\
         signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR2])",
    );
    let report = executor.report(&["--", "cat", "/proc/self/status"]);
    assert_eq!(report.exit_code, Some(0), "{report:?}");
    assert!(report.enforced.namespaces.contains(&NamespaceName::Pid), "{report:?}");
    assert!(report.enforced.seccomp);
    let status = process::parse_status(&report.stdout.unwrap());
    assert_eq!((&status["SigIgn"][..], &status["SigBlk"][..]), ("0000000000000000", "0000000000000000"));
}

#[test]
fn inherited_groups_and_capabilities_reach_nobody() {
    let executor = executor_after(
        "given = '+chown,+kill,+net_raw'\nargv = ['setpriv', '--groups', '54105', '--inh-caps', given, \
         '--ambient-caps', given, '--']\nos.execvp(argv[0], argv + sys.argv[1:])",
    );
    let monitor = process::status(executor.pid());
    assert_eq!(monitor["Groups"], "54105", "the control");
    assert_ne!(monitor["CapInh"], "0000000000000000", "the control");
    let of_command = executor.report(&["--", "cat", "/proc/self/status"]).stdout.unwrap();
    for status in [process::parse_status(&of_command), process::status(daemon::server_of(executor.pid()))] {
        assert_eq!(status["Groups"], "");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status[set], "0000000000000000", "{set} of {}", status["Name"]);
        }
    }
}

#[test]
fn what_is_mounted_below_a_given_directory_is_no_more_writable_than_it() {
    daemon::ensure_users();
    let given = crate::harness::build::scratch().join(format!("submount-{}", marker()));
    std::fs::create_dir_all(given.join("below")).unwrap();
    let directory = open_directory();
    let at = given.display();
    let profile = format!("[profiles.default]\nread = ['/usr', '/etc', '{at}']\n");
    let file = write_configuration(directory.path(), "available", &profile);
    // In a mount namespace that is the executor's alone.
    let mut command = in_scope("unshare".as_ref());
    let mount = "mount -t tmpfs -o mode=777 none \"$2/below\" && exec \"$0\" --config \"$1\"";
    command.args(["--mount", "sh", "-c", mount]);
    command.arg(&crate::harness::build::programs().executor).arg(file).arg(&given);
    let executor = Executor::wait_ready(command, directory);
    let mounts = executor.inside("cat /proc/self/mountinfo");
    for target in [given.clone(), given.join("below")] {
        let named = |line: &&str| line.split(' ').nth(4) == target.to_str();
        let line = mounts.lines().find(named).unwrap_or_else(|| panic!("no {target:?} in {mounts}"));
        let options: Vec<_> = line.split(' ').nth(5).unwrap().split(',').collect();
        assert!(["ro", "nosuid", "nodev"].iter().all(|o| options.contains(o)), "{line}");
    }
    drop(executor);
    std::fs::remove_dir_all(given).unwrap();
}

#[test]
fn without_namespaces_landlock_keeps_signals_inside() {
    let _verdict = crate::escape::probe!();
    if host::landlock_abi() < 6 {
        // There one command runs at a time.
        return;
    }
    let executor = executor_after("import ctypes; ctypes.CDLL(None).prctl(24, 21, 0, 0, 0)  # CAP_SYS_ADMIN");
    let marker = marker();
    let request = line(&format!("exec sleep {marker}"));
    let neighbour = blocking::run(&executor.socket, "test", request).unwrap();
    let act = format!("kill -0 {}", process::sandboxed_program("sleep", &marker));
    let report = executor.report(&["-c", &format!("kill -0 $$ && echo own; {act}")]);
    assert_eq!(report.enforced.namespaces.len(), 0);
    assert_eq!((report.stdout.as_deref(), report.exit_code), (Some("own\n"), Some(1)), "{report:?}");
    let mut control = host::as_user(host::uid_of("execuser"), host::gid_of("execuser"), &[], "/bin/bash");
    control.args(["-c", &act]);
    assert_eq!(process::run(control, &[]).status, 0, "the control: the uid alone would let it");
    drop(neighbour);
}

#[test]
fn a_narrow_umask_closes_no_directory_of_a_sandbox() {
    let executor = executor_after("os.umask(0o777)");
    assert_eq!(executor.inside("touch ~/x /tmp/x && ls /etc/hostname && umask"), "/etc/hostname\n0022\n");
}

#[test]
fn too_few_open_files_are_refused_by_name_and_few_are_enough_for_few() {
    // The remedy is that of whoever started it.
    for (variables, remedy) in [
        (&[][..], "`ulimit -Hn "),
        (&[("INVOCATION_ID", "1"), ("NOTIFY_SOCKET", "/no/such/socket")], "LimitNOFILE="),
    ] {
        let (mut command, _directory) = started_after("resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))");
        command.env_remove("INVOCATION_ID").env_remove("CORDON_PARENT").envs(variables.iter().copied());
        let ran = process::run(command, &[]);
        let told = ran.stderr.contains("64 open files") && ran.stderr.contains(remedy);
        assert!(ran.status == 1 && told, "{ran:?}");
    }
    // More who connect than there are descriptors for: some are turned away, nothing ends.
    let executor = executor_after("resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))");
    let many: Vec<_> = (0..600).filter_map(|_| UnixStream::connect(&executor.socket).ok()).collect();
    assert!(many.len() > 200, "{}", many.len());
    drop(many);
    eventually("it serves again", PATIENCE, || executor.run(&["--", "true"]).status == 0);
}

#[test]
fn few_open_files_are_enough_for_few_commands_and_the_next_waits() {
    let profile = "[profiles.default]\nconcurrency = 100\nqueue = 100";
    let (command, directory) =
        started_with(profile, "resource.setrlimit(resource.RLIMIT_NOFILE, (320, 320))");
    let executor = Executor::wait_ready(command, directory);
    let run = || blocking::run(&executor.socket, "test", argv(&["sleep", "600"])).unwrap();
    let state = |state: &str| {
        let jobs = blocking::ps(&executor.socket, "test").unwrap();
        jobs.iter().filter(|job| job.state == state).count()
    };
    let mut running: Vec<_> = (0..10).map(|_| run()).collect();
    eventually("all run", PATIENCE, || state("running") == 10);
    let (mut next, _stdin) = blocking::run(&executor.socket, "test", argv(&["true"])).unwrap();
    assert_eq!(next.next_event().unwrap(), Event::Queued { position: 1 });
    assert_eq!((state("running"), state("queued")), (10, 1));
    // One that goes makes room.
    let (connection, _stdin) = running.pop().unwrap();
    connection.close();
    assert_eq!(collect(next).unwrap().report.exit_code, Some(0));
}

#[test]
fn a_log_that_nobody_reads_ends_nothing() {
    let mut executor = executor_after(
        "r, w = os.pipe(); os.dup2(w, 2); os.close(r); os.close(w)\n\
         signal.signal(signal.SIGPIPE, signal.SIG_DFL)",
    );
    executor.assert_works();
    // Something to log.
    executor.process().signal(Signal::SIGHUP);
    executor.assert_works();
}

#[test]
fn a_socket_that_was_handed_over_stays_when_the_executor_ends() {
    let mut own = Executor::start("");
    own.assert_works();
    own.process().signal(Signal::SIGTERM);
    assert!(own.process().wait(PATIENCE).success());
    assert!(!own.socket.exists(), "the control: its own is removed");

    let (command, directory) = started_after(
        "import socket, os.path\n\
         s = socket.socket(1); s.bind(os.path.dirname(sys.argv[3]) + '/executor.sock'); s.listen(16)\n\
         s.set_inheritable(True); os.dup2(s.fileno(), 3)\n\
         os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))",
    );
    let path = directory.path().join("executor.sock");
    let mut executor = Executor::wait_ready(command, directory);
    executor.assert_works();
    executor.process().signal(Signal::SIGTERM);
    assert!(executor.process().wait(PATIENCE).success());
    assert!(path.exists(), "whoever made it still listens there");
}

/// Takes CAP_SYS_ADMIN away (PR_CAPBSET_DROP, prctl(2)).
const WITHOUT_ADMIN: &str = "import ctypes; ctypes.CDLL(None).prctl(24, 21, 0, 0, 0)";

#[test]
fn commands_follow_one_another_faster_than_the_kernel_takes_scheduling_groups() {
    // Ten changes of one a second, from the whole host, where CAP_SYS_ADMIN is missing.
    let executor = executor_after(WITHOUT_ADMIN);
    for round in 0..20 {
        let report = executor.events(argv(&["true"])).report;
        assert_eq!((report.exit_code, report.step.as_deref()), (Some(0), None), "{round}: {report:?}");
    }
}

#[test]
fn a_network_that_cannot_be_set_up_is_found_out_at_the_start() {
    // CAP_NET_ADMIN: namespaces could be made, and every launch would fail at the first use of one.
    let executor = executor_after("import ctypes; ctypes.CDLL(None).prctl(24, 12, 0, 0, 0)");
    let report = executor.report(&["--", "echo", "works"]);
    assert_eq!(
        (report.stdout.as_deref(), report.enforced.namespaces.len()),
        (Some("works\n"), 0),
        "{report:?}"
    );
    let layers = blocking::doctor(&executor.socket, "test").unwrap();
    let found = layers.iter().find(|layer| layer.layer == "namespaces").unwrap();
    assert!(found.detail.contains("loopback") && found.remedy.as_ref().unwrap().contains("CAP_NET_ADMIN"));
}

#[test]
fn files_deeper_than_any_path_keep_no_executor_from_starting_again() {
    // Without CAP_SYS_ADMIN there are no namespaces, and a command's files lie on the host's disk.
    let mut executor = executor_after(WITHOUT_ADMIN);
    let code = "import os\nfor _ in range(60): os.mkdir('d' * 200); os.chdir('d' * 200)";
    let report = executor.report(&["--", "/usr/bin/python3", "-c", code]);
    assert_eq!((report.exit_code, report.enforced.namespaces.len()), (Some(0), 0), "{report:?}");
    executor.assert_works();
    let work = executor.directory().join("state/work");
    let is_empty = || std::fs::read_dir(&work).is_ok_and(|entries| entries.count() == 0);
    eventually("what it left is deleted", PATIENCE, is_empty);
    assert!(!executor.process().log().contains("are left"), "{}", executor.process().log());
    executor.again().assert_works();
}

#[test]
fn what_counts_from_proc_does_not_start_where_proc_hides_it() {
    let hidden = "import ctypes\nlibc = ctypes.CDLL(None)\nassert libc.unshare(0x20000) == 0\n\
         assert libc.mount(b'none', b'/', None, 0x44000, None) == 0\n\
         assert libc.mount(b'proc', b'/proc', b'proc', 0, b'hidepid=2') == 0\n";
    // With CAP_SYS_PTRACE it sees them all the same.
    assert_eq!(executor_after(hidden).inside("echo ran"), "ran\n");
    let blind = format!("{hidden}assert libc.prctl(24, 19, 0, 0, 0) == 0");
    let (mut command, directory) = started_after(&blind);
    if host::cgroup_mode() == CgroupMode::V2 {
        // As the packaged unit has it. The scope is what may be limited.
        let mut scope = in_scope("/usr/bin/env".as_ref());
        scope.arg(command.get_program()).args(command.get_args());
        assert_eq!(Executor::wait_ready(scope, directory).inside("echo ran"), "ran\n");
        return;
    }
    command.stdin(std::process::Stdio::null());
    let ran = process::run(command, &[]);
    assert_eq!(ran.status, 1, "{ran:?}");
    assert!(ran.stderr.contains("hidepid=") && ran.stderr.contains("ProtectProc=default"), "{}", ran.stderr);
}
