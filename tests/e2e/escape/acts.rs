//! Acts as probes try them: the same Python inside a sandbox, outside, and where one layer is left out.

use crate::harness::{Client, Executor, client::argv, daemon, host, lab::profiles, marker, process, shared};
use cordon_protocol::{
    EndedBy, Event, ExitReport, RunRequest,
    client::{ClientError, blocking},
};
use std::{
    collections::BTreeMap,
    fs,
    process::Command,
    sync::{Mutex, OnceLock},
};

/// `call` and `sys` give 0 or errno of a C function and of a system call; `t` of a Python one.
const PRELUDE: &str = "import ctypes, os, socket, sys, time
l = ctypes.CDLL(None, use_errno=True)
def call(f, *a):
  ctypes.set_errno(0)
  r = f(*a)
  return ctypes.get_errno() if r == -1 else 0
def sys_(n, *a):
  return call(l.syscall, ctypes.c_long(n), *(ctypes.c_long(x) if isinstance(x, int) else x for x in a))
def t(f, *a, **k):
  try: f(*a, **k); return 0
  except OSError as e: return e.errno
";

/// The code after what the acts share.
pub(super) fn program(code: &str) -> String {
    format!("{PRELUDE}{code}")
}

/// What it prints in a sandbox of the shared executor.
pub(super) fn inside(code: &str) -> String {
    shared().python(&program(code))
}

/// What it prints in a sandbox of this executor and profile.
pub(super) fn inside_of(executor: &Client, profile: &str, code: &str) -> String {
    let report = executor.report(&["--profile", profile, "--", "/usr/bin/python3", "-c", &program(code)]);
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(0)), "{code}\n{report:?}");
    report.stdout.unwrap()
}

/// The report of a request, whose collected files are left aside.
pub(super) fn report_of(executor: &Client, request: RunRequest) -> Result<ExitReport, ClientError> {
    let (mut connection, _stdin) = blocking::run(&executor.socket, "test", request)?;
    loop {
        if let Event::Exited(report) = connection.next_event()? {
            return Ok(*report);
        }
    }
}

/// What a request for a command that succeeds prints.
pub(super) fn output_of(executor: &Client, request: RunRequest) -> String {
    let report = report_of(executor, request).unwrap();
    assert_eq!((report.ended_by, report.exit_code), (EndedBy::Exit, Some(0)), "{report:?}");
    report.stdout.unwrap()
}

/// What it prints outside, as root.
pub(super) fn outside(code: &str) -> String {
    host::python(&program(code))
}

/// What it prints outside, as the sandbox's user.
pub(super) fn outside_as_user(code: &str) -> String {
    let mut command = user("/usr/bin/python3");
    command.args(["-c", &program(code)]);
    let ran = process::run(command, &[]);
    assert_eq!(ran.status, 0, "{code}\n{}", ran.stderr);
    ran.text()
}

/// A program outside, as the sandbox's user.
pub(super) fn user(name: &str) -> Command {
    host::as_user(host::uid_of("execuser"), host::gid_of("execuser"), &[], name)
}

/// What it prints, as root, in the namespaces of a process.
pub(super) fn in_namespaces_of(pid: i32, code: &str) -> String {
    let mut command = Command::new("nsenter");
    command.args(["-t", &pid.to_string(), "-n", "-m", "-i", "-p", "/usr/bin/python3", "-c", &program(code)]);
    let ran = process::run(command, &[]);
    assert_eq!(ran.status, 0, "{code}\n{}", ran.stderr);
    ran.text()
}

/// Numbers that an act printed.
pub(super) fn numbers(text: &str) -> Vec<i64> {
    text.split_whitespace().map(|n| n.parse().unwrap_or_else(|e| panic!("{e}: {text}"))).collect()
}

/// An executor whose sandboxes do without this, all other layers in force: the control of what it stops.
pub(super) fn without(layer: &'static str) -> &'static Executor {
    static STARTED: OnceLock<Mutex<BTreeMap<&str, &Executor>>> = OnceLock::new();
    let mut started = STARTED.get_or_init(Mutex::default).lock().unwrap();
    started.entry(layer).or_insert_with(|| {
        let executor = Box::leak(Box::new(Executor::start_omitting(layer, &profiles())));
        daemon::end_at_exit(executor.pid(), executor.directory());
        executor
    })
}

/// A second command, which says a line when it is ready and runs until this is dropped.
pub(super) struct Neighbour {
    /// Its number in the host's pid namespace.
    pub(super) pid: i32,
    /// What it said.
    pub(super) said: String,
    _connection: (blocking::Connection, blocking::Stdin),
}

impl Neighbour {
    /// Runs this Python, which has to print a line, and then waits.
    pub(super) fn start(executor: &Client, code: &str) -> Self {
        let marker = marker();
        let code = program(&format!("{code}\nsys.stdout.flush()\nwhile True: time.sleep(1000)"));
        let mut request = argv(&["/usr/bin/python3", "-c", &code, &marker]);
        request.stream = true;
        request.env = vec![("NEIGHBOUR".to_owned(), SECRET.to_owned())];
        let (mut connection, stdin) = blocking::run(&executor.socket, "test", request).unwrap();
        let mut said = String::new();
        while !said.ends_with('\n') {
            match connection.next_event().unwrap() {
                Event::Stdout(piece) => said += &String::from_utf8(piece).unwrap(),
                Event::Stderr(piece) => panic!("{}", String::from_utf8_lossy(&piece)),
                Event::Exited(report) => panic!("{report:?}"),
                _ => {}
            }
        }
        let named = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).ends_with(&format!("\0{marker}\0"))
        };
        let pid = process::all().into_iter().find(named).expect("the neighbour");
        Self { pid, said, _connection: (connection, stdin) }
    }

    /// Whether it is there still.
    pub(super) fn lives(&self) -> bool {
        process::exe(self.pid).is_some()
    }
}

/// Stands in the environment of each [`Neighbour`].
pub(super) const SECRET: &str = "the-neighbour-s-own";

/// What it prints outside, as the sandbox's user, in a root of its own in memory where that user may write in each of
/// these directories and next to nothing else is: for what would harm the host where it succeeds.
pub(super) fn outside_in_a_copy(directories: &[&str], code: &str) -> String {
    let mut command = Command::new("unshare");
    let script = "set -e; root=$(mktemp -d); mount -t tmpfs -o mode=777 none $root; cd $root
for at in $1; do mkdir -p -m 777 .$at; chmod 777 .$at; done
for at in bin lib lib64; do [ ! -L /$at ] || cp -a /$at .; done
mkdir -p usr/bin; chmod 777 . usr/bin; touch usr/bin/python3 usr/bin/setpriv
for at in usr/bin/python3 usr/bin/setpriv; do mount --bind $(readlink -f /$at) $at; done
for at in usr/lib usr/lib64; do [ ! -d /$at ] || { mkdir -p $at; mount --bind -o ro /$at $at; }; done
for at in $1; do case $at in /usr/lib/*) mount -t tmpfs -o mode=777 none .$at ;; esac; done
exec chroot . /usr/bin/setpriv --reuid $2 --regid $3 --clear-groups /usr/bin/python3 -c \"$4\"";
    let (uid, gid) = (host::uid_of("execuser").to_string(), host::gid_of("execuser").to_string());
    command.args(["--mount", "--propagation", "private", "bash", "-c", script, "control"]);
    command.args([&directories.join(" "), &uid, &gid, &program(code)]);
    let ran = process::run(command, &[]);
    assert_eq!(ran.status, 0, "{code}\n{}", ran.stderr);
    ran.text()
}
