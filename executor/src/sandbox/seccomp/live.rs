//! The filter on the running kernel: each test runs itself again in a process of its own, which loads the
//! filter, does what the test names and says what came of it. Every refusal stands beside something allowed,
//! and beside the same act without the filter.

use super::{Policy, apply, program};
use crate::sys::{prctl, raw};
use nix::errno::Errno;
use std::{
    env,
    ffi::OsStr,
    os::unix::process::ExitStatusExt,
    process::{Command, Output, Stdio},
};

const UPPER: u64 = 0xffff_ffff_0000_0000;

/// In the second process: what to do, `filtered` or `free`.
const ROLE: &str = "CORDON_SECCOMP_TEST";

fn loaded(role: &OsStr) {
    if role == "filtered" {
        apply(&program().unwrap()).unwrap();
        assert_eq!(prctl::seccomp_mode(), Ok(prctl::SECCOMP_MODE_FILTER));
    }
}

/// A call, its arguments, what may come of it without the filter, and what comes of it with the filter.
type Act = (&'static str, &'static [u64], &'static [Option<Errno>], Option<Errno>);

/// Runs the named test again in a process of its own.
fn again(test: &str, role: &str) -> Output {
    let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([&name, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command.stdin(Stdio::null()).output().unwrap()
}

/// That the test, run again with and without the filter, found what it expects there.
fn assert_both(test: &str) {
    for role in ["free", "filtered"] {
        let output = again(test, role);
        let text = String::from_utf8_lossy(&output.stdout);
        let seen = text.contains("1 passed");
        assert!(
            output.status.success() && seen,
            "{role}: {}\n{text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// A call by name; the errno, or none where it succeeded.
fn act(policy: &Policy, name: &str, arguments: [u64; 6]) -> Option<Errno> {
    let number = policy.rows().iter().find(|row| row.name == name).unwrap().number;
    raw::call(number, arguments).err()
}

#[test]
fn calls_are_refused_and_allowed() {
    let Some(role) = env::var_os(ROLE) else { return assert_both("calls_are_refused_and_allowed") };
    let policy = Policy::command().unwrap();
    loaded(&role);
    // What the kernel itself says to each, on hosts with and without the feature, and what the filter says.
    let acts: &[Act] = &[
        ("clone3", &[0, 0], &[Some(Errno::EINVAL), Some(Errno::EFAULT)], Some(Errno::ENOSYS)),
        ("io_uring_setup", &[0, 0], &[Some(Errno::EINVAL), Some(Errno::EFAULT)], Some(Errno::EPERM)),
        ("unshare", &[0], &[None], Some(Errno::EPERM)),
        ("socket", &[40, 1, 0], &[None, Some(Errno::EAFNOSUPPORT)], Some(Errno::EAFNOSUPPORT)),
        ("socket", &[2, 1, 262], &[None, Some(Errno::ENOPROTOOPT)], Some(Errno::EPROTONOSUPPORT)),
        ("socket", &[16, 3, 9], &[None], Some(Errno::EAFNOSUPPORT)),
        ("ioctl", &[u64::MAX, 0x5412], &[Some(Errno::EBADF)], Some(Errno::EPERM)),
        ("ioctl", &[u64::MAX, 0x1_0000_5412], &[Some(Errno::EBADF)], Some(Errno::EPERM)),
        ("ioctl", &[u64::MAX, 0xffff_ffff_0000_541c], &[Some(Errno::EBADF)], Some(Errno::EPERM)),
        ("personality", &[0x0040_0000], &[None], Some(Errno::EPERM)),
        ("process_vm_readv", &[0; 6], &[None, Some(Errno::ESRCH)], Some(Errno::EPERM)),
        ("kcmp", &[0; 6], &[Some(Errno::ESRCH)], Some(Errno::EPERM)),
        ("mount", &[0; 6], &[Some(Errno::EFAULT)], Some(Errno::EPERM)),
        ("keyctl", &[0, u64::MAX - 2, 0], &[None], Some(Errno::EPERM)),
        ("seccomp", &[2, 0, 0], &[Some(Errno::EFAULT)], Some(Errno::EPERM)),
        ("prctl", &[22, 2, 0], &[Some(Errno::EFAULT)], Some(Errno::EPERM)),
        ("memfd_create", &[0, 4], &[Some(Errno::EFAULT)], Some(Errno::ENOMEM)),
        ("sendto", &[u64::MAX, 0, 0, 0x2000_0000], &[Some(Errno::EBADF)], Some(Errno::EOPNOTSUPP)),
    ];
    for (name, given, free, filtered) in acts {
        let mut arguments = [0; 6];
        arguments[..given.len()].copy_from_slice(given);
        let found = act(&policy, name, arguments);
        let expected = if role == "filtered" { &[*filtered][..] } else { free };
        assert!(expected.contains(&found), "{name} {given:x?}: {found:?}, expected {expected:?}");
    }
    // The neighbours of those, on either side of the filter alike.
    for (name, given, expected) in [
        ("socket", [1, 1, 0], None),
        ("socket", [UPPER | 2, UPPER | 1, UPPER | 6], None),
        ("socket", [16, 3, 0], None),
        ("ioctl", [u64::MAX, 0x5413, 0], Some(Errno::EBADF)),
        ("personality", [0xffff_ffff, 0, 0], None),
        ("memfd_create", [0, 0, 0], Some(Errno::EFAULT)),
        ("sendto", [u64::MAX, 0, 0], Some(Errno::EBADF)),
        ("getpid", [0; 3], None),
        ("prctl", [39, 0, 0], None),
    ] {
        let found = act(&policy, name, [given[0], given[1], given[2], 0, 0, 0]);
        assert_eq!(found, expected, "{name} {given:x?}");
    }
    // Threads and processes start, though clone3 is gone.
    assert_eq!(std::thread::spawn(|| 5).join().unwrap(), 5);
    assert!(Command::new("/bin/true").status().unwrap().success());
    // A kernel without x32 says the same to this; that the filter says it too is in the interpreted test.
    assert_eq!(raw::call(0x4000_0000 | 39, [0; 6]), Err(Errno::ENOSYS));
}

#[test]
fn the_32_bit_way_in_ends_the_process() {
    const NAME: &str = "the_32_bit_way_in_ends_the_process";
    if let Some(role) = env::var_os(ROLE) {
        loaded(&role);
        let found = raw::getpid_by_interrupt();
        assert_eq!(u32::try_from(found), Ok(std::process::id()));
        return;
    }
    let free = again(NAME, "free");
    let signal = free.status.signal();
    // A kernel without the 32-bit ABI ends the process too, with another signal.
    assert!(free.status.success() || signal == Some(libc::SIGSEGV), "{free:?}");
    let filtered = again(NAME, "filtered").status;
    assert_ne!(filtered.code(), Some(0));
    if free.status.success() {
        assert_eq!(filtered.signal(), Some(libc::SIGSYS));
    }
}

/// Programs of the host, as a command would start them: name and what to run.
const PROGRAMS: [(&str, &str); 8] = [
    (
        "bash",
        "set -e; f=$(mktemp); printf 'b\\na\\n' | sort | tee $f | grep -c . >/dev/null; (sleep 0.01 & wait); rm $f",
    ),
    (
        "tar",
        "set -e; d=$(mktemp -d); cd $d; mkfifo p; echo x >f; tar cf t.tar f p; rm f p; tar xf t.tar; test -p p; rm -r $d",
    ),
    (
        "git",
        "set -e; d=$(mktemp -d); cd $d; git init -q .; echo x >f; git add f; git -c user.name=a -c user.email=a@b commit -qm m; git log --oneline | cat >/dev/null; rm -rf $d",
    ),
    (
        "python3",
        "exec python3 -c 'import multiprocessing as m, asyncio, ssl, json, socket, subprocess, threading\nif __name__ == \"__main__\":\n p = m.Pool(2); assert p.map(abs, [-1, -2]) == [1, 2]; p.close(); p.join(); asyncio.run(asyncio.sleep(0)); ssl.create_default_context(); a, b = socket.socketpair(); assert socket.if_nameindex()'",
    ),
    (
        "node",
        "exec node -e 'const w = require(\"worker_threads\"); new w.Worker(\"0\", {eval: true}).on(\"exit\", c => { require(\"fs\").writeFileSync(\"/dev/null\", \"\" + c); require(\"child_process\").execSync(\"true\"); })'",
    ),
    (
        "gcc",
        "set -e; d=$(mktemp -d); cd $d; echo 'int main(void){return 0;}' >m.c; gcc -O1 -o m m.c; ./m; rm -r $d",
    ),
    ("perl", "exec perl -e 'my $p = fork; exit 0 unless $p; waitpid $p, 0; exit $?'"),
    ("openssl", "exec openssl rand -hex 8 >/dev/null"),
];

#[test]
fn programs_of_the_host_work() {
    let Some(role) = env::var_os(ROLE) else { return assert_both("programs_of_the_host_work") };
    loaded(&role);
    let run = |line: &str| Command::new("bash").args(["-c", line]).status().unwrap().success();
    for (name, line) in PROGRAMS {
        // bash and tar are on every host; the others are tried where they are.
        let needed = ["bash", "tar"].contains(&name);
        assert!(run(line) || !(needed || run(&format!("command -v {name} >/dev/null"))), "{name}: {line}");
    }
}
