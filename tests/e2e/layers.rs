//! Each layer around a command, read back from inside: one act that is allowed, one that is denied.

use crate::harness::{
    client::{argv, line},
    eventually, host, lab,
    lab::probes,
    marker,
    process::{parse_status, sandboxed},
    shared,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::TcpListener,
    time::Duration,
};

/// A program run without a shell between: its own `status` is the command's.
fn own_status() -> BTreeMap<String, String> {
    parse_status(&shared().report(&["--", "cat", "/proc/self/status"]).stdout.unwrap())
}

fn set(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// What a shell line says about an act: `yes` where it could be done.
fn can(act: &str) -> bool {
    let answer = shared().inside(&format!("if ({act}) >/dev/null 2>&1; then echo yes; else echo no; fi"));
    match answer.as_str() {
        "yes\n" => true,
        "no\n" => false,
        other => panic!("{act}: {other}"),
    }
}

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
fn namespaces_are_the_command_s_own() {
    let kinds = ["pid", "mnt", "ipc", "uts", "net"];
    let script = "for n in pid mnt ipc uts net user; do readlink /proc/self/ns/$n; done";
    let read = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let marker = marker();
    let held = format!("{script}; sleep {marker}");
    let (mut connection, _stdin) = cordon_protocol::client::blocking::run(&shared().socket, "test", {
        let mut request = line(&held);
        request.stream = true;
        request
    })
    .unwrap();
    let mut text = String::new();
    while text.lines().count() < 6 {
        if let cordon_protocol::Event::Stdout(piece) = connection.next_event().unwrap() {
            text += &String::from_utf8(piece).unwrap();
        }
    }
    eventually("the first one runs", Duration::from_secs(5), || !sandboxed(&marker).is_empty());
    let (first, second) = (read(text), read(shared().inside(script)));
    for (i, kind) in kinds.iter().enumerate() {
        let host = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap().to_string_lossy().into_owned();
        assert_ne!(first[i], host, "{kind} is the host's");
        assert_ne!(second[i], host, "{kind} is the host's");
        assert_ne!(first[i], second[i], "{kind} is shared by two commands at once");
    }
    let user = fs::read_link("/proc/self/ns/user").unwrap().to_string_lossy().into_owned();
    assert_eq!(first[5], user, "no user namespace is made");
}

#[test]
fn only_its_own_processes_are_visible() {
    let listing =
        shared().inside("sleep 5 & ls /proc | grep -c '^[0-9]'; kill $!; test -d /proc/$$ && echo own");
    let count: u32 = listing.lines().next().unwrap().parse().unwrap();
    assert!((3..8).contains(&count) && listing.ends_with("own\n"), "{listing}");
    let status = own_status();
    assert_eq!((status["PPid"].as_str(), status["TracerPid"].as_str()), ("0", "0"));
    assert!(!can(&format!("kill -0 {}", std::process::id())), "this process is not there");
}

#[test]
fn the_root_holds_the_allow_list_alone() {
    let seen = set(&shared().inside("ls -A /"));
    let allowed = set("bin sbin lib lib32 lib64 libx32 usr etc opt home proc dev sys run tmp");
    assert!(seen.is_subset(&allowed), "{:?}", seen.difference(&allowed));
    assert!(set("bin lib lib64 usr etc home proc dev sys run tmp").is_subset(&seen), "{seen:?}");
    assert_eq!(shared().inside("ls -A /home"), "execuser\n");
    for path in ["/root", "/var", "/boot", "/srv", "/mnt", "/work", "/lost+found"] {
        assert!(!can(&format!("test -e {path}")), "{path}");
    }
    assert!(can("test -r /etc/passwd") && can("test -x /usr/bin/env"));
    assert!(!can("mkdir /new") && !can("touch /file"));
}

#[test]
fn hidden_paths_are_not_there_at_all() {
    let probes = probes();
    let probes = probes.display();
    let script = format!(
        "cat {probes}/shown; ls -A {probes} | grep -c hidden; cat {probes}/hidden/secret 2>&1 | tail -c 26"
    );
    let seen = lab().report(&["--profile", "probe", "-c", &script]).stdout.unwrap();
    assert_eq!(seen, "shown0\nNo such file or directory\n");
    // Without the profile nothing of it is there.
    assert_eq!(lab().inside(&format!("ls {probes} 2>/dev/null || echo absent")), "absent\n");
    assert!(!can("test -e /etc/cordon"));
}

#[test]
fn the_system_is_read_only_and_the_workspace_is_not() {
    let mounts = shared().inside("cat /proc/self/mountinfo");
    let options = |target: &str| -> BTreeSet<String> {
        let line = mounts.lines().find(|l| l.split(' ').nth(4) == Some(target));
        let line = line.unwrap_or_else(|| panic!("no mount {target} in\n{mounts}"));
        line.split(' ').nth(5).unwrap().split(',').map(str::to_owned).collect()
    };
    for target in ["/usr", "/etc"] {
        let options = options(target);
        assert!(["ro", "nosuid", "nodev"].iter().all(|o| options.contains(*o)), "{target}: {options:?}");
    }
    for target in ["/tmp", "/home/execuser"] {
        let options = options(target);
        let safe = ["rw", "nosuid", "nodev"].iter().all(|o| options.contains(*o));
        assert!(safe, "{target}: {options:?}");
    }
    assert!(options("/proc/sys").contains("ro"));
    for (act, expected) in [
        ("touch ~/x", true),
        ("touch /tmp/x", true),
        ("touch /usr/x", false),
        ("touch /etc/x", false),
        ("echo x > /etc/resolv.conf", false),
        ("rm -f /usr/bin/env", false),
        ("echo x > /proc/sys/kernel/hostname", false),
        ("echo x > /proc/self/comm", true),
        ("echo 1 > /proc/sysrq-trigger", false),
    ] {
        assert_eq!(can(act), expected, "{act}");
    }
}

#[test]
fn what_proc_would_tell_about_the_host_is_masked() {
    for name in ["cmdline", "keys", "key-users", "locks", "kallsyms", "iomem", "config.gz"] {
        let seen = shared().inside(&format!("cat /proc/{name} 2>/dev/null | wc -c"));
        assert_eq!(seen, "0\n", "/proc/{name}");
    }
    assert!(fs::read("/proc/cmdline").is_ok_and(|c| !c.is_empty()), "the control: the host has it");
    assert!(
        shared()
            .inside("cat /proc/meminfo /proc/cpuinfo /proc/uptime | wc -c")
            .trim()
            .parse::<u32>()
            .unwrap()
            > 100
    );
    assert_eq!(
        shared().inside("nproc; free -m | grep -c Mem"),
        format!("{}\n1\n", host::python("import os; print(len(os.sched_getaffinity(0)))").trim())
    );
}

#[test]
fn devices_are_few_and_work() {
    let seen = set(&shared().inside("ls -A /dev"));
    let allowed = set("null zero full random urandom tty fd stdin stdout stderr ptmx pts shm core mqueue");
    assert!(seen.is_subset(&allowed), "{:?}", seen.difference(&allowed));
    assert!(set("null zero full random urandom fd pts ptmx shm").is_subset(&seen), "{seen:?}");
    let script = "head -c 4 /dev/zero | od -An -tx1; head -c 8 /dev/urandom | wc -c; echo x > /dev/null; \
                  echo x 2>/dev/null > /dev/full || echo full; echo shared > /dev/shm/x && cat /dev/shm/x; \
                  python3 -c 'import pty, os; m, s = pty.openpty(); print(os.ttyname(s))'; \
                  echo both | tee /dev/stderr";
    let report = shared().report(&["-c", script]);
    let expected = " 00 00 00 00\n8\nfull\nshared\n/dev/pts/0\nboth\n";
    assert_eq!((report.stdout.as_deref(), report.stderr.as_deref()), (Some(expected), Some("both\n")));
    for act in ["mknod x b 254 0", "mknod x c 1 1", "cat /dev/mem", "cat /dev/kmsg", "cat /dev/vda"] {
        assert!(!can(act), "{act}");
    }
}

#[test]
fn sys_has_the_processors_and_run_is_empty() {
    assert_eq!(
        shared().inside("ls -A /sys; ls -A /sys/devices; ls -A /sys/devices/system"),
        "devices\nsystem\ncpu\n"
    );
    assert!(can("test -r /sys/devices/system/cpu/online"));
    assert!(!can("test -e /sys/fs/cgroup") && !can("echo 0 > /sys/devices/system/cpu/cpu1/online"));
    assert_eq!(shared().inside("ls -A /run | wc -l"), "0\n");
    assert!(!can("touch /run/x"));
}

#[test]
fn tmp_and_the_workspace_are_private_and_empty() {
    let name = format!("cordon-{}", marker());
    fs::write(format!("/tmp/{name}"), "the host's").unwrap();
    let script = format!("ls -A /tmp /dev/shm ~; echo mine > /tmp/{name} > ~/file > /dev/shm/x");
    let expected = "/dev/shm:\n\n/home/execuser:\n\n/tmp:\n";
    for _ in 0..3 {
        assert_eq!(shared().inside(&script), expected);
    }
    assert_eq!(fs::read_to_string(format!("/tmp/{name}")).unwrap(), "the host's");
    fs::remove_file(format!("/tmp/{name}")).unwrap();
}

#[test]
fn sizes_of_tmp_and_workspace_are_bounded() {
    let script = "for d in /tmp ~; do head -c 1M /dev/zero > $d/1 && echo fits; \
                  for i in 2 3 4 5 6 7 8 9 10; do head -c 1M /dev/zero > $d/$i; done 2>/dev/null || echo full; done";
    let seen = lab().report(&["--profile", "tiny", "-c", script]).stdout.unwrap();
    assert_eq!(seen, "fits\nfull\nfits\nfull\n");
}

#[test]
fn only_three_descriptors_are_open() {
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
    assert_eq!(limit("Max open files")[0], "1024");
    assert_eq!(limit("Max file size"), [(1_u64 << 30).to_string(), (1_u64 << 30).to_string()]);
    assert_eq!(limit("Max address space"), ["unlimited", "unlimited"]);
    assert!(can("ulimit -n 512"), "less is allowed");
    assert!(!can("ulimit -c unlimited") && !can("ulimit -f unlimited"), "more is not");
}

#[test]
fn the_network_is_a_loopback_of_its_own() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!(
        "import socket\ns = socket.socket(); s.settimeout(5)\ntry: s.connect(('127.0.0.1', {port})); print('open')\n\
         except OSError as e: print(e.errno)"
    );
    assert_eq!(host::python(&connect), "open\n", "the control");
    const ECONNREFUSED: &str = "111\n";
    assert_eq!(shared().python(&connect), ECONNREFUSED);
    let away = connect.replace("127.0.0.1", "192.0.2.1");
    const ENETUNREACH: &str = "101\n";
    assert_eq!(shared().python(&away), ENETUNREACH);
    let script = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; tail -n +2 /proc/net/route | wc -l";
    assert_eq!(shared().inside(script), "lo\n0\n");
    let server = "import http.server, os, threading, urllib.request\nfound = set()\n\
                  for host in ('127.0.0.1', '[::1]')[:1 + os.path.exists('/proc/net/if_inet6')]:\n  \
                  class S(http.server.HTTPServer): address_family = 10 if ':' in host else 2\n  \
                  s = S((host.strip('[]'), 0), http.server.SimpleHTTPRequestHandler)\n  \
                  threading.Thread(target=s.serve_forever, daemon=True).start()\n  \
                  found.add(urllib.request.urlopen(f'http://{host}:{s.server_port}/').status)\nprint(found)";
    assert_eq!(shared().python(server), "{200}\n");
}

#[test]
fn a_profile_can_give_the_host_s_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let code = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('open')");
    let report = lab().report(&["--profile", "hostnet", "--", "python3", "-c", &code]);
    assert_eq!(report.stdout.as_deref(), Some("open\n"), "{report:?}");
    assert_eq!(report.enforced.network, cordon_protocol::NetworkMode::Host);
    assert!(!report.enforced.namespaces.contains(&cordon_protocol::NamespaceName::Net));
}

#[test]
fn a_profile_can_give_a_directory_to_write() {
    let directory = crate::harness::lab::writable();
    let file = directory.join(format!("file-{}", marker()));
    let script = format!("echo written > {} && cat {}", file.display(), file.display());
    assert_eq!(lab().inside_profile("writer", &script), "written\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), "written\n");
    let report = lab().report(&["-c", &format!("echo again >> {}", file.display())]);
    assert_ne!(report.exit_code, Some(0), "another profile does not give it");
    fs::remove_file(file).unwrap();
}

#[test]
fn programs_run_from_where_the_profile_says() {
    let program = crate::harness::lab::script("runs", "#!/bin/sh\necho ran\n", 0o755);
    let report = lab().report(&["--profile", "probe", "--", &program.to_string_lossy()]);
    assert_eq!(report.stdout.as_deref(), Some("ran\n"), "{report:?}");
    let report = lab().report(&["--", &program.to_string_lossy()]);
    assert_eq!(report.exit_code, Some(127), "the default profile does not have it");
    // /etc may be read and not executed.
    let report = lab().report(&["--", "/etc/passwd"]);
    assert_eq!(report.exit_code, Some(126));
}

#[test]
fn the_host_name_is_not_the_host_s_to_change() {
    assert!(!can("hostname other") && can("uname -n"));
}
