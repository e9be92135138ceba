//! Short probes of known ways out, each with the control that the same act works outside.

use crate::harness::{
    client::line,
    daemon, host,
    lab::{compile, lab, probes},
    marker, process, shared,
};
use cordon_protocol::{EndedBy, client::blocking};
use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixListener},
        },
    },
    path::Path,
};

const PRELUDE: &str = "import ctypes, os\nl = ctypes.CDLL(None, use_errno=True)\ndef call(f, *a):\n  \
                       ctypes.set_errno(0)\n  r = f(*a)\n  return ctypes.get_errno() if r == -1 else 0\n";

/// What a probe prints inside.
fn inside(code: &str) -> String {
    shared().python(&format!("{PRELUDE}{code}"))
}

/// What it prints outside, as root.
fn outside(code: &str) -> String {
    host::python(&format!("{PRELUDE}{code}"))
}

/// Runs a compiled probe inside, under the profile `probe`.
fn probe(program: &Path, arguments: &[&str]) -> cordon_protocol::ExitReport {
    let program = program.to_string_lossy();
    lab().report(&[&["--profile", "probe", "--", &program], arguments].concat())
}

/// A second command that runs until the answer is dropped; its number in the host's pid namespace.
struct Neighbour {
    pid: i32,
    _connection: (blocking::Connection, blocking::Stdin),
}

fn neighbour(script: &str) -> Neighbour {
    let marker = marker();
    let request = line(&format!("{script}\nexec sleep {marker}"));
    let connection = blocking::run(&shared().socket, "test", request).unwrap();
    Neighbour { pid: process::sandboxed_program("sleep", &marker), _connection: connection }
}

#[test]
fn a_terminal_cannot_be_fed() {
    // TIOCSTI, TIOCLINUX, and both with bits above the 32 that the kernel looks at.
    let code = "import pty\nm, s = pty.openpty()\nc = ctypes.c_char(b'x')\nprint(*(call(l.ioctl, s, \
                ctypes.c_ulong(n + up), ctypes.byref(c)) != 0 for n in (0x5412, 0x541c) for up in (0, 1 << 32)))";
    assert_eq!(inside(code), "True True True True\n");
    // The control: an ordinary request of the same device works.
    let size = "import pty\nm, s = pty.openpty()\nb = ctypes.create_string_buffer(8)\nprint(call(l.ioctl, s, 0x5413, b))";
    assert_eq!(inside(size), "0\n");
}

#[test]
fn other_system_call_tables_are_shut_out() {
    let source = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>
int main(int argc, char **argv) {
    long result = -1;
    if (!strcmp(argv[1], "native")) result = syscall(SYS_getpid);
    if (!strcmp(argv[1], "x32")) result = syscall(SYS_getpid | 0x40000000);
    if (!strcmp(argv[1], "i386")) __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
    printf("%d\n", result > 0);
    return 0;
}"#;
    let program = compile("tables", source, &["-O1"]);
    assert_eq!(probe(&program, &["native"]).stdout.as_deref(), Some("1\n"));
    for table in ["x32", "i386"] {
        let report = probe(&program, &[table]);
        let shut = report.ended_by == EndedBy::Signal || report.stdout.as_deref() == Some("0\n");
        assert!(shut, "{table}: {report:?}");
    }
}

#[test]
fn arguments_with_dirty_upper_halves_are_refused_alike() {
    // socket(AF_VSOCK | 1 << 32): the kernel looks at 32 bits, and so must the filter.
    let code = "print(*(call(l.syscall, ctypes.c_long(41), ctypes.c_long(d), ctypes.c_long(1), ctypes.c_long(0)) \
                for d in (40, 40 + (1 << 32), 1, 1 + (1 << 32))))";
    let seen = inside(code);
    let seen: Vec<&str> = seen.split_whitespace().collect();
    assert_eq!((seen[0], seen[2]), ("97", "0"));
    assert_ne!(seen[1], "0", "AF_VSOCK with dirty bits");
}

#[test]
fn user_namespaces_cannot_be_made_or_joined() {
    let code = "print(*(call(l.unshare, f) for f in (0x10000000, 0x20000, 0x20000000, 0x40000000)), \
                call(l.setns, os.open('/proc/self/ns/net', 0), 0), \
                call(l.syscall, 56, 0x10000000 | 17, 0, 0, 0, 0), call(l.syscall, 435, 0, 88))";
    let seen = inside(code);
    let seen: Vec<&str> = seen.split_whitespace().collect();
    assert!(seen.iter().all(|e| ["1", "22", "38"].contains(e)), "{seen:?}");
    assert_eq!(outside("print(call(l.unshare, 0x20000))"), "0\n", "the control");
}

#[test]
fn host_sockets_cannot_be_reached() {
    let name = format!("cordon-test-{}", marker());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let directory = shared().directory().display().to_string();
    let code = format!(
        "import socket\nfor a in ('\\0{name}', '{directory}/executor.sock', '{directory}/gateway.sock', \
         '/run/dbus/system_bus_socket', '/run/systemd/private', '/var/run/docker.sock'):\n  s = socket.socket(1)\n  \
         try: s.connect(a); print('open')\n  except OSError as e: print(e.errno)"
    );
    let seen = shared().python(&code);
    assert!(seen.lines().all(|l| l == "111" || l == "2"), "{seen}");
    assert_eq!(host::python(&code).lines().filter(|l| *l == "open").count().min(3), 3, "the control");
}

#[test]
fn a_socket_that_a_profile_shows_is_closed_where_landlock_can_close_it() {
    let path = probes().join(format!("socket-{}", marker()));
    let _listener = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let code = format!(
        "import socket\nown = socket.socket(1); own.bind('own'); own.listen()\nfor a in ('own', '{}'):\n  \
         s = socket.socket(1)\n  try: s.connect(a); print('open')\n  except OSError as e: print(e.errno)",
        path.display()
    );
    let report = lab().report(&["--profile", "probe", "--", "/usr/bin/python3", "-c", &code]);
    fs::remove_file(&path).unwrap();
    // LANDLOCK_ACCESS_FS_RESOLVE_UNIX came with ABI 9; before it only modes decide, as README says of `read`.
    let expected = if host::landlock_abi() < 9 { "open\nopen\n" } else { "open\n13\n" };
    assert_eq!(report.stdout.as_deref(), Some(expected), "{report:?}");
}

#[test]
fn a_neighbour_cannot_be_signalled_traced_read_or_limited() {
    let neighbour = neighbour("export SECRET=hidden");
    let code = format!(
        "p = {}\nprint(*(call(*a) != 0 for a in ((l.kill, p, 0), (l.kill, p, 9), (l.ptrace, 16, p, 0, 0), \
         (l.syscall, 310, p, 0, 0, 0, 0, 0), (l.syscall, 302, p, 7, 0, 0), (l.setpriority, 0, p, 19))))\n\
         print(*(os.path.exists(f'/proc/{{p}}/{{f}}') for f in ('environ', 'fd', 'mem')))",
        neighbour.pid
    );
    assert_eq!(inside(&code), "True True True True True True\nFalse False False\n");
    assert_eq!(outside(&format!("print(call(l.kill, {}, 0))", neighbour.pid)), "0\n", "the control");
    assert!(process::exe(neighbour.pid).is_some(), "it lives");
}

#[test]
fn signals_to_everybody_and_to_init_reach_nobody_else() {
    let neighbour = neighbour("true");
    let report = shared().report(&["-c", "trap '' TERM; kill -TERM 0; kill -9 1; python3 -c 'import os; os.kill(-1, 0)'; kill -TERM -1; echo alive"]);
    assert_eq!(report.ended_by, EndedBy::Exit, "{report:?}");
    assert!(report.stdout.unwrap().ends_with("alive\n"));
    assert!(process::exe(neighbour.pid).is_some());
    // Init has another uid: no signal and no limit of its can be touched.
    let code = "print(*(call(*a) != 0 for a in ((l.kill, 1, 9), (l.syscall, 302, 1, 7, 0, 0), \
                (l.setpriority, 0, 1, 19), (l.syscall, 144, 1, 0, 0), (l.ptrace, 16, 1, 0, 0))))";
    assert_eq!(inside(code), "True True True True True\n");
    let score = "try: open('/proc/1/oom_score_adj', 'w').write('1000'); print('written')\nexcept OSError: print('denied')";
    assert_eq!(inside(score), "denied\n");
    shared().assert_works();
}

#[test]
fn nothing_is_passed_from_one_run_to_the_next() {
    let name = marker();
    let write = format!(
        "echo x > /dev/shm/{name}; echo x > /tmp/{name}; echo x > ~/{name}; \
         python3 -c 'import ctypes; l = ctypes.CDLL(None); l.shmget(4242, 4096, 0o1666); l.msgget(4242, 0o1666); l.semget(4242, 1, 0o1666)'; \
         python3 -c 'import ctypes; l = ctypes.CDLL(None); l.syscall(248, b\"user\", b\"{name}\", b\"x\", 1, -3)'"
    );
    let read = format!(
        "ls /dev/shm/{name} /tmp/{name} ~/{name} 2>/dev/null; \
         python3 -c 'import ctypes; l = ctypes.CDLL(None); print(l.shmget(4242, 0, 0), l.msgget(4242, 0), l.semget(4242, 0, 0))'; \
         python3 -c 'import ctypes; l = ctypes.CDLL(None); print(l.syscall(250, 10, -3, b\"user\", b\"{name}\", 0))'"
    );
    shared().inside(&format!("{write}; true"));
    assert_eq!(shared().inside(&read), "-1 -1 -1\n-1\n");
    let control = shared().inside(&format!("{write}; {read}"));
    assert_eq!(control.lines().filter(|l| l.contains(&name)).count(), 3, "the control: {control}");
}

#[test]
fn setuid_programs_gain_nothing() {
    let programs = "find /usr/bin /usr/sbin -perm -4000 2>/dev/null | wc -l";
    let there: u32 = shared().inside(programs).trim().parse().unwrap();
    assert!(there > 0, "the control: the host has setuid programs");
    let code = "import subprocess\nr = subprocess.run(['/usr/bin/su', '-c', 'id -u'], stdin=subprocess.DEVNULL, \
                capture_output=True, text=True)\nprint(r.returncode != 0, r.stdout == '')";
    assert_eq!(inside(code), "True True\n");
    // Opened before it runs, so that it may have ended when it is read.
    let effective = "
started, starts = os.pipe()
waits, go = os.pipe()
p = os.fork()
if p == 0:
  os.read(waits, 1)
  for fd in (0, 1, 2): os.dup2(os.open('/dev/null', os.O_RDWR), fd)
  try: os.execv('/usr/bin/passwd', ['passwd'])
  except OSError: os.write(starts, b'!'); os._exit(1)
status = open(f'/proc/{p}/status')
os.write(go, b'x'); os.close(starts)
print(os.read(started, 1), set(status.read().split('Uid:')[1].split('\\n')[0].split()) == {str(os.getuid())})";
    assert_eq!(inside(effective), "b'' True\n");
}

#[test]
fn programs_cannot_be_overwritten_through_proc() {
    let code = "for p in ('/proc/self/exe', '/proc/1/exe', '/usr/bin/env'):\n  try: os.open(p, os.O_WRONLY); print('open')\n  \
                except OSError: print('denied')";
    assert_eq!(inside(code), "denied\ndenied\ndenied\n");
}

#[test]
fn control_groups_cannot_be_reached() {
    let code = "found = [os.path.join(d, f) for d, _, fs in os.walk('/sys') for f in fs if f.startswith('cgroup.')]\nprint(found)\n\
                print(call(l.mount, b'none', b'/tmp', b'cgroup2', 0, 0) != 0)";
    assert_eq!(inside(code), "[]\nTrue\n");
}

#[test]
fn files_that_protect_the_host_cannot_be_made() {
    let targets = "/etc/cordon /etc/ld.so.preload /etc/profile.d/x.sh /usr/local/bin/x /etc/cron.d/x /opt/x";
    let script = format!(
        "for f in {targets}; do (echo x > $f) 2>/dev/null && echo made $f; done; touch ~/x && echo control"
    );
    assert_eq!(shared().inside(&script), "control\n");
    assert!(!Path::new("/usr/local/bin/x").exists() && !Path::new("/etc/ld.so.preload").exists());
}

#[test]
fn a_crash_feeds_no_core_dump_program() {
    let report =
        shared().report(&["-c", "ulimit -c unlimited 2>/dev/null; ulimit -c 0 2>/dev/null; kill -SEGV $$"]);
    assert_eq!((report.ended_by, report.signal.as_deref()), (EndedBy::Signal, Some("SIGSEGV")));
    let limits = shared().report(&["--", "cat", "/proc/self/limits"]).stdout.unwrap();
    let core = limits.lines().find(|l| l.starts_with("Max core")).unwrap();
    assert!(core.split_whitespace().filter(|w| *w == "1").count() == 2, "{core}");
}

#[test]
fn other_processes_tell_no_secret() {
    let script = "for p in /proc/[0-9]*; do cat $p/environ $p/cmdline 2>/dev/null | tr '\\0' '\\n'; done";
    let seen = shared().inside(script);
    for secret in [shared().token.as_str(), daemon::SECRET] {
        assert!(!seen.contains(secret), "{secret} in {seen}");
    }
    let environment = fs::read_to_string(format!("/proc/{}/environ", shared().monitor())).unwrap();
    assert!(environment.contains(daemon::SECRET), "the control: the daemons have it");
}

#[test]
fn truncating_linking_and_device_control_keep_to_the_rules() {
    let code = "def t(f, *a):\n  try: f(*a); return 'done'\n  except OSError: return 'denied'\n\
                open('own', 'w').write('text')\n\
                print(t(os.truncate, 'own', 1), t(os.truncate, '/etc/passwd', 0), t(os.link, 'own', 'second'), \
                t(os.rename, 'second', '/tmp/third'), t(os.link, '/etc/passwd', 'p'), t(os.chmod, '/etc/passwd', 0o777), \
                t(os.symlink, '/etc/shadow', 's'), t(open, 's'))";
    // A rename from the workspace to /tmp crosses file systems, which every system refuses.
    assert_eq!(inside(code), "done denied done denied denied denied done denied\n");
    let directories = "mkdir -p a/b c && echo x > a/b/f && mv a/b/f c/ && ln c/f a/g && cat a/g";
    assert_eq!(shared().inside(directories), "x\n", "REFER: moving between directories works");
}
