//! Each layer earns its place: for each an attack that succeeds where that layer alone is left out, and fails
//! with it. So it is known of the other tests that they can fail.
//!
//! Left out means that the test build skips the steps or controls named in `CORDON_OMIT`, all others in force.
//! What is held twice has no witness here: a descriptor is closed and closes on exec, and whatever sets up Landlock
//! or the filter sets no_new_privs.

use crate::harness::{
    Executor, PATIENCE,
    build::scratch,
    client::{argv, line},
    eventually, host,
    lab::{compile, probes, profiles},
    lesser_host::{LesserHost, WHOLE},
    marker,
    process::sandboxed,
};
use cordon_protocol::{CgroupMode, ExitReport, LimitRequest, RunRequest, client::blocking};
use std::{
    fs,
    net::UdpSocket,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixListener},
        },
    },
    thread,
};

/// Asserts that the attack, under a profile, gets out where this is left out, and does not where nothing is.
fn witness(omitted: &str, profile: &str, request: RunRequest, got_out: impl Fn(&ExitReport) -> bool) {
    let mut request = request;
    request.profile = Some(profile.to_owned());
    for (omitted, expected) in [(omitted, true), ("", false)] {
        let executor = Executor::start_omitting(omitted, &profiles());
        let report = executor.ask(request.clone()).unwrap().report;
        assert_eq!(got_out(&report), expected, "without {omitted:?}: {report:?}");
    }
}

/// The attack writes this when it has got what it should not get.
const OUT: &str = "got out\n";

fn says_so(report: &ExitReport) -> bool {
    report.stdout.as_deref() == Some(OUT)
}

fn python(code: &str) -> RunRequest {
    argv(&["/usr/bin/python3", "-c", code])
}

fn limited(mut request: RunRequest, limits: LimitRequest) -> RunRequest {
    request.limits = limits;
    request
}

/// Leaves out whatever holds memory and processes, with a controller or without.
const LIMITS: &str = "memory.max,pids.max,sampling,request_limits";

#[test]
fn identity_keeps_root_s_files_from_the_command() {
    let secret = probes().join(format!("secret-{}", marker()));
    fs::write(&secret, OUT).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let identity = "bounding_set,securebits,groups,ids,capabilities";
    witness(identity, "probe", argv(&["cat", &secret.to_string_lossy()]), says_so);
    fs::remove_file(secret).unwrap();
}

#[test]
fn the_cgroup_ends_what_takes_more_memory_in_many_processes() {
    let code = "import os, time\nfor i in range(6):\n  r, w = os.pipe()\n  if os.fork() == 0:\n    \
                x = bytearray(b'x') * (40 << 20); os.write(w, b'x'); time.sleep(60)\n  os.read(r, 1)\n\
                time.sleep(1); print('got out', flush=True); os.kill(0, 9)";
    let limits = LimitRequest { memory_bytes: Some(100 << 20), ..LimitRequest::default() };
    witness(LIMITS, "default", limited(python(code), limits), says_so);
}

#[test]
fn the_cgroup_bounds_processes() {
    // Sampling bounds them less exactly.
    if host::cgroup_mode() != CgroupMode::V2 {
        return;
    }
    let code = "import os, time\nfor i in range(40):\n  if os.fork() == 0: time.sleep(60)\n\
                print('got out', flush=True); os.kill(0, 9)";
    let limits = LimitRequest { pids: Some(16), ..LimitRequest::default() };
    witness(LIMITS, "default", limited(python(code), limits), says_so);
}

#[test]
fn the_cgroup_holds_the_share_of_the_processor() {
    if host::cgroup_mode() != CgroupMode::V2 {
        return;
    }
    let code = "import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass";
    let limits = LimitRequest { cpu_percent: Some(20), ..LimitRequest::default() };
    witness("cpu.max", "default", limited(python(code), limits), |report| {
        report.cpu_ms > report.wall_ms * 0.4
    });
}

#[test]
fn the_pid_namespace_keeps_other_commands_from_being_slowed_down() {
    let _verdict = crate::escape::probe!();
    // /proc shows no other user's processes, and Landlock lets no signal out of its domain and nobody look in; but
    // one's own uid may change the priority of a process that it can name.
    for (omitted, expected) in [("pid", true), ("", false)] {
        let executor = Executor::start_omitting(omitted, &profiles());
        let marker = marker();
        let _neighbour =
            blocking::run(&executor.socket, "test", line(&format!("sleep {marker}; :"))).unwrap();
        eventually("the neighbour runs", PATIENCE, || !sandboxed(&marker).is_empty());
        for pid in sandboxed(&marker) {
            let code = format!("import os; os.setpriority(os.PRIO_PROCESS, {pid}, 19); print('got out')");
            let report = executor.ask(python(&code)).unwrap().report;
            assert_eq!(says_so(&report), expected, "without {omitted:?}: {report:?}");
        }
    }
}

#[test]
fn the_ipc_namespace_hides_the_host_s_shared_memory() {
    let made = host::python(
        "import ctypes\nl = ctypes.CDLL(None)\ni = l.shmget(0, 4096, 0o1666)\nl.shmat.restype = ctypes.c_void_p\n\
         ctypes.memmove(l.shmat(i, None, 0), b'got out', 7); print(i)",
    );
    let id: i32 = made.trim().parse().unwrap();
    let code = format!(
        "import ctypes\nl = ctypes.CDLL(None)\nl.shmat.restype = ctypes.c_void_p\nat = l.shmat({id}, None, 0)\n\
         print(ctypes.string_at(at, 7).decode() if at != 2**64 - 1 else 'none')"
    );
    witness("ipc", "default", python(&code), says_so);
    host::python(&format!("import ctypes\nctypes.CDLL(None).shmctl({id}, 0, None)"));
}

#[test]
fn the_uts_namespace_hides_the_host_s_name() {
    let name = nix::unistd::gethostname().unwrap();
    let script = format!("[ \"$(uname -n)\" = '{}' ] && echo got out", name.to_string_lossy());
    // With the step that sets the sandbox's own name, which would be the host's.
    witness("uts,init_hostname", "default", line(&script), says_so);
}

#[test]
fn the_network_namespace_keeps_the_host_s_loopback_away() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    let code = format!(
        "import socket\ns = socket.socket(2, 2); s.settimeout(20); s.connect(('127.0.0.1', {port}))\n\
         s.send(b'x'); print(s.recv(100).decode())"
    );
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = [0];
            while let Ok((1, from)) = socket.recv_from(&mut byte) {
                if byte == *b"." {
                    break;
                }
                socket.send_to(b"got out", from).unwrap();
            }
        });
        witness("init_network", "default", python(&code), says_so);
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b".", ("127.0.0.1", port)).unwrap();
    });
}

#[test]
fn the_mount_namespace_hides_what_the_profile_does_not_name() {
    // Leaving it out would change the host's own mounts: here it is a host that can make none.
    let file = scratch().join(format!("hidden-{}", marker()));
    fs::write(&file, "").unwrap();
    // Only looked for: Landlock, which stays in force, forbids opening alone.
    let look = line(&format!("test -e {} && echo got out", file.display()));
    for (host, expected) in [(LesserHost { admin: false, ..WHOLE }, true), (WHOLE, false)] {
        let executor = host.start("");
        let report = executor.ask(look.clone()).unwrap().report;
        assert_eq!(says_so(&report), expected, "{report:?}");
    }
    fs::remove_file(file).unwrap();
}

#[test]
fn landlock_keeps_what_may_be_read_from_being_executed() {
    let program =
        compile("landlock-witness", "#include <stdio.h>\nint main(void) { puts(\"got out\"); }", &[]);
    witness("landlock", "reading", argv(&[&program.to_string_lossy()]), says_so);
}

#[test]
fn landlock_keeps_abstract_sockets_of_the_host_away_where_the_network_is_shared() {
    let name = format!("cordon-witness-{}", marker());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let code = format!("import socket\nsocket.socket(1).connect('\\0{name}'); print('got out')");
    witness("landlock", "hostnet", python(&code), says_so);
}

#[test]
fn the_filter_keeps_keyrings_that_all_commands_share_away() {
    let _verdict = crate::escape::probe!();
    // add_key(2) into the keyring of the user, which is every command's.
    let code = "import ctypes\nif ctypes.CDLL(None).syscall(248, b'user', b'witness', b'x', 1, -4) > 0: print('got out')";
    witness("seccomp", "default", python(code), says_so);
}

#[test]
fn the_filter_keeps_user_namespaces_away() {
    let _verdict = crate::escape::probe!();
    let code = "import ctypes\nif ctypes.CDLL(None).unshare(0x10000000) == 0: print('got out')";
    witness("seccomp", "default", python(code), says_so);
}

#[test]
fn rlimits_bound_a_file() {
    let script = "head -c 2M /dev/zero > large; [ $(stat -c %s large) = 2097152 ] && echo got out";
    witness("rlimits", "tiny", line(script), says_so);
}
