//! What the command is as a process: identity, filter, limits, signals, environment.

use super::*;
use crate::harness::{client::argv, host, lab, shared};
use nix::sys::resource::{Resource, getrlimit};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn identity_is_the_sandbox_user_s_and_nobody_else_s() {
    let status = own_status();
    let (uid, gid) = (host::uid_of("execuser").to_string(), host::gid_of("execuser").to_string());
    assert!(status["Uid"].split_whitespace().all(|n| n == uid), "{}", status["Uid"]);
    assert!(status["Gid"].split_whitespace().all(|n| n == gid), "{}", status["Gid"]);
    assert_eq!(status["Groups"], "");
    assert_eq!(shared().inside("whoami; id -un"), "execuser\nexecuser\n");
    // Allowed: to name one's own ids again. Denied: to take any other.
    let code = "import os\nos.setuid(os.getuid()); os.setgid(os.getgid())\n\
                for f, a in ((os.setuid, 0), (os.setgid, 0), (os.setgroups, [0])):\n  try: f(a); print('taken')\n  \
                except PermissionError: print('denied')";
    assert_eq!(shared().python(code), "denied\ndenied\ndenied\n");
}

#[test]
fn no_capability_is_left_in_any_set() {
    let status = own_status();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status[set], "0000000000000000", "{set}");
    }
    assert_eq!(status["NoNewPrivs"], "1");
    assert!(can("touch own && chmod 600 own"), "the owner may");
    assert!(!can("chown 0 own"), "CAP_CHOWN would be needed");
}

#[test]
fn it_ends_with_the_monitor_even_where_no_init_ends_it() {
    let code =
        "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(n)); print(n.value)";
    // PR_GET_PDEATHSIG: SIGKILL (prctl(2)).
    assert_eq!(shared().python(code), "9\n");
}

#[test]
fn the_secure_bits_are_set_and_locked() {
    let code = "import ctypes; l = ctypes.CDLL(None, use_errno=True)\n\
                print(hex(l.prctl(27) & 0xff), l.prctl(28, 0), ctypes.get_errno())";
    // NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE with their locks, and KEEP_CAPS locked off
    // (capabilities(7)); setting them anew is EPERM.
    assert_eq!(shared().python(code), "0xef -1 1\n");
}

#[test]
fn the_system_call_filter_is_loaded() {
    assert_eq!(own_status()["Seccomp"], "2");
    // Allowed: uname. Unknown numbers: ENOSYS. Named dangerous ones: EPERM. Refused families: EAFNOSUPPORT.
    let code = "import ctypes; l = ctypes.CDLL(None, use_errno=True)\ndef call(*a):\n  ctypes.set_errno(0)\n  \
                r = l.syscall(*a); return ctypes.get_errno() if r < 0 else 0\n\
                b = ctypes.create_string_buffer(512)\nprint(call(63, b), call(9999), call(165, 0, 0, 0, 0, 0), \
                call(321, 0, 0, 0), call(41, 40, 1, 0), call(41, 16, 3, 0), call(41, 2, 1, 0), call(41, 1, 1, 0), \
                call(435, 0, 0), call(425, 1, b))";
    let seen = shared().python(code);
    let seen: Vec<i32> = seen.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let (eperm, enosys, eafnosupport) = (1, 38, 97);
    assert_eq!(seen[0], 0, "uname");
    assert_eq!(seen[1], enosys, "an unknown number");
    assert_eq!(seen[2], eperm, "mount");
    assert_eq!(seen[3], eperm, "bpf");
    assert_eq!(seen[4], eafnosupport, "AF_VSOCK");
    assert!([0, eafnosupport].contains(&seen[5]), "AF_NETLINK: a policy's choice, but an orderly one");
    assert_eq!((seen[6], seen[7]), (0, 0), "AF_INET and AF_UNIX");
    assert_eq!(seen[8], enosys, "clone3");
    assert!([eperm, enosys].contains(&seen[9]), "io_uring_setup");
}

#[test]
fn only_three_descriptors_are_open() {
    let _verdict = crate::escape::probe!();
    let code = "import os\ndef there(f):\n  try: os.fstat(f); return True\n  except OSError: return False\n\
                print([f for f in range(1024) if there(f)])";
    assert_eq!(shared().python(code), "[0, 1, 2]\n");
}

#[test]
fn signals_umask_and_session_are_a_fresh_program_s() {
    let status = own_status();
    for key in ["SigBlk", "SigIgn", "SigPnd", "ShdPnd"] {
        assert_eq!(status[key], "0000000000000000", "{key}");
    }
    assert_eq!((status["Umask"].as_str(), status["Threads"].as_str()), ("0022", "1"));
    let code = "import os; p = os.getpid(); print(os.getsid(0) == p, os.getpgid(0) == p)";
    assert_eq!(shared().python(code), "True True\n");
    // A pipe whose reader went away ends the writer.
    assert_eq!(shared().inside("yes | head -n 1; echo ${PIPESTATUS[0]}"), "y\n141\n");
    assert!(!can("exec 3<>/dev/tty || false"), "there is no controlling terminal");
}

#[test]
fn the_environment_is_built_and_has_nothing_of_the_caller_s() {
    let _verdict = crate::escape::probe!();
    let mut command = shared().cordon(&["run", "--", "env"]);
    command.envs([
        ("LD_PRELOAD", "/no/such.so"),
        ("BASH_ENV", "/x"),
        ("GIT_DIR", "/x"),
        ("PYTHONPATH", "/x"),
        ("SECRET", "x"),
    ]);
    let ran = crate::harness::process::run(command, &[]);
    let entries: BTreeMap<String, String> = ran
        .text()
        .lines()
        .map(|l| l.split_once('=').unwrap())
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    let names: BTreeSet<String> = entries.keys().cloned().collect();
    assert_eq!(names, set("HOME PATH LANG TERM USER SHELL TMPDIR"));
    for (name, value) in
        [("HOME", "/home/execuser"), ("USER", "execuser"), ("SHELL", "/bin/bash"), ("TMPDIR", "/tmp")]
    {
        assert_eq!(entries[name], value);
    }
    assert!(entries["PATH"].split(':').all(|p| p.starts_with('/')) && entries["PATH"].contains("/usr/bin"));
    let mut request = argv(&["env"]);
    request.env = vec![("MORE".into(), "a=b c\n".into()), ("LANG".into(), "C".into())];
    let text = shared().events(request).report.stdout.unwrap();
    assert!(
        text.contains("MORE=a=b c\n\n") && text.contains("LANG=C\n") && text.matches("LANG=").count() == 1,
        "{text}"
    );
    let greeting = lab().report(&["--profile", "greeting", "-c", "echo $GREETING"]).stdout.unwrap();
    assert_eq!(greeting, "hello there\n");
}

#[test]
fn resource_limits_are_those_of_the_design() {
    let text = shared().inside("cat /proc/self/limits");
    let limit = |name: &str| -> Vec<String> {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
        line[name.len()..].split_whitespace().take(2).map(str::to_owned).collect()
    };
    assert_eq!(limit("Max core file size"), ["1", "1"]);
    let hard = |most: u64, of: Resource| getrlimit(of).unwrap().1.min(most).to_string();
    let files = hard(65_536, Resource::RLIMIT_NOFILE);
    assert_eq!(limit("Max open files"), ["1024", &files]);
    for (name, of, soft, most) in [
        ("Max locked memory", Resource::RLIMIT_MEMLOCK, 64 << 10, 64 << 10),
        ("Max msgqueue size", Resource::RLIMIT_MSGQUEUE, 0, 0),
        ("Max nice priority", Resource::RLIMIT_NICE, 0, 0),
        ("Max realtime priority", Resource::RLIMIT_RTPRIO, 0, 0),
        ("Max stack size", Resource::RLIMIT_STACK, 8 << 20, 64 << 20),
    ] {
        assert_eq!(limit(name), [hard(soft, of), hard(most, of)], "{name}");
    }
    assert_eq!(limit("Max file size"), [(1_u64 << 30).to_string(), (1_u64 << 30).to_string()]);
    assert_eq!(limit("Max address space"), ["unlimited", "unlimited"]);
    assert!(can("ulimit -n 512"), "less is allowed");
    assert!(!can("ulimit -f unlimited"), "more is not");
    // Setting this one seems to succeed, and nothing has happened.
    assert!(!can("ulimit -c unlimited; grep -q 'core file size *unlimited' /proc/self/limits"), "it stays");
}

#[test]
fn the_host_s_own_services_outlive_a_command_when_memory_runs_out() {
    assert_eq!(shared().inside("cat /proc/self/oom_score_adj"), "500\n");
    let nice = shared().inside("nice").trim().parse::<i32>().unwrap();
    assert!(nice > 0, "{nice}: commands come after the monitor");
}
