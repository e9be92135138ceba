//! What the product's own processes are, read from /proc: who may do what before anything goes wrong.

use crate::harness::{
    host,
    process::{self, descriptors, exe, status},
    shared,
};
use std::{fs, os::unix::fs::MetadataExt};

const CAPABILITY_SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];

fn assert_no_capability(pid: i32, sets: &[&str]) {
    let status = status(pid);
    for set in sets {
        assert_eq!(status[*set], "0000000000000000", "{set} of {:?}", exe(pid));
    }
}

fn has_runtime(pid: i32) -> bool {
    descriptors(pid).iter().any(|d| d.contains("eventpoll") || d.contains("eventfd"))
}

/// Tries ptrace(PTRACE_ATTACH) as this user, without capabilities; 0 is success, else errno.
fn attach_as(user: &str, pid: i32) -> i32 {
    let code = format!(
        "import ctypes; l = ctypes.CDLL(None, use_errno=True); r = l.ptrace(16, {pid}, 0, 0)\n\
         print(ctypes.get_errno() if r else 0)"
    );
    let mut command = host::as_user(host::uid_of(user), host::gid_of(user), &[], "/usr/bin/python3");
    command.args(["-c", &code]);
    let ran = process::run(command, &[]);
    ran.text().trim().parse().unwrap_or_else(|e| panic!("{e}: {}", ran.stderr))
}

#[test]
fn the_monitor_is_root_with_one_thread_and_no_runtime() {
    shared().assert_works();
    let monitor = shared().monitor();
    assert_eq!(process::uids(monitor), [0; 4]);
    assert_eq!(status(monitor)["Threads"], "1");
    assert!(!has_runtime(monitor), "{:?}", descriptors(monitor));
    // The control: a process with a runtime is recognised by the same look.
    assert!(has_runtime(shared().server()), "{:?}", descriptors(shared().server()));
}

#[test]
fn the_server_has_a_user_of_its_own_and_no_privilege() {
    let server = shared().server();
    assert_eq!(process::uids(server), [host::uid_of("cordon-exec"); 4]);
    let gid = host::gid_of("cordon-exec").to_string();
    let status = status(server);
    assert!(status["Gid"].split_whitespace().all(|g| g == gid), "{}", status["Gid"]);
    assert_eq!(status["Groups"], "");
    assert_no_capability(server, &CAPABILITY_SETS);
    assert_eq!((status["NoNewPrivs"].as_str(), status["Seccomp"].as_str()), ("1", "2"));
    assert!(exe(server).unwrap().ends_with("cordon-executor"));
}

#[test]
fn nobody_but_root_can_look_into_the_server() {
    let server = shared().server();
    // The files of a process that is not dumpable belong to root (proc(5)).
    assert_eq!(fs::metadata(format!("/proc/{server}/environ")).unwrap().uid(), 0);
    const EPERM: i32 = 1;
    for user in ["execuser", "cordon-exec", "cordon"] {
        assert_eq!(attach_as(user, server), EPERM, "{user}");
    }
    // The control: a user's own ordinary process can be traced, so that the refusal is ours.
    let uid = host::uid_of("cordon-exec");
    let mut own = host::as_user(uid, host::gid_of("cordon-exec"), &[], "sleep").arg("60").spawn().unwrap();
    let pid = own.id() as i32;
    crate::harness::eventually("sleep runs", std::time::Duration::from_secs(5), || {
        exe(pid).is_some_and(|e| e.ends_with("sleep"))
    });
    let answer = attach_as("cordon-exec", pid);
    own.kill().unwrap();
    own.wait().unwrap();
    let restricted = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").is_ok_and(|s| s.trim() != "0");
    assert!(answer == 0 || restricted, "{answer}");
}

#[test]
fn the_server_holds_no_descriptor_of_the_host_s_files() {
    for open in descriptors(shared().server()) {
        let own = shared().directory().to_string_lossy().into_owned();
        let harmless = open.contains(':') || open.starts_with("/dev/null") || open.starts_with(&own);
        assert!(harmless, "{open}");
    }
}

#[test]
fn the_gateway_has_a_user_of_its_own_and_no_privilege() {
    let gateway = shared().gateway();
    assert_eq!(process::uids(gateway), [host::uid_of("cordon"); 4]);
    let status = status(gateway);
    assert_eq!(status["Groups"], "");
    assert_eq!((status["NoNewPrivs"].as_str(), status["Seccomp"].as_str()), ("1", "2"));
    // What no process can raise to without a privileged start is the bounding set; no_new_privs forbids that.
    assert_no_capability(gateway, &["CapInh", "CapPrm", "CapEff", "CapAmb"]);
}

#[test]
fn both_daemons_are_programs_of_their_own_below_cordon_up() {
    let up = shared();
    assert!(exe(up.pid()).unwrap().ends_with("cordon"));
    assert!(exe(up.monitor()).unwrap().ends_with("cordon-executor"));
    assert!(exe(up.gateway()).unwrap().ends_with("cordon-gateway"));
}

#[test]
fn an_init_has_a_user_of_its_own_that_a_command_cannot_reach() {
    let marker = crate::harness::marker();
    let mut client = shared().cordon(&["run", "-n", "--", "sleep", &marker]);
    let mut client = client.spawn().unwrap();
    crate::harness::eventually("the command runs", std::time::Duration::from_secs(10), || {
        process::sandboxed(&marker).len() == 1
    });
    let command = process::sandboxed(&marker)[0];
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let pid_namespace = namespace(command);
    let in_it: Vec<_> = process::all().into_iter().filter(|p| namespace(*p) == pid_namespace).collect();
    let init = in_it.iter().find(|p| status(**p)["NSpid"].ends_with("\t1"));
    let init = *init.unwrap_or_else(|| panic!("no init among {in_it:?}"));
    assert_eq!(process::uids(init), [host::uid_of("cordon-init"); 4]);
    assert_no_capability(init, &CAPABILITY_SETS);
    let status = status(init);
    assert_eq!((status["NoNewPrivs"].as_str(), status["Seccomp"].as_str()), ("1", "2"));
    assert_ne!(host::cgroup_of(init), host::cgroup_of(command), "two leaves");
    // A group shared with the command would let kill(0) cross pid namespaces.
    let session = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        fields.skip(2).take(2).map(|n| n.parse().unwrap()).collect::<Vec<i32>>()
    };
    assert_eq!(session(init), [init; 2], "its own group and session");
    assert_eq!(session(command), [command; 2]);
    let limits = fs::read_to_string(format!("/proc/{init}/limits")).unwrap();
    for (name, value) in [("Max core file size", "1"), ("Max file size", "0"), ("Max processes", "0")] {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        assert_eq!(line.split_whitespace().take(2).collect::<Vec<_>>(), [value; 2], "{name}");
    }
    // It never executes a program, which would close what it was not told to close itself.
    let held: Vec<_> = descriptors(init);
    let own = held.iter().all(|open| open.ends_with("/null") || open.starts_with("pipe:"));
    assert!(own && held.len() == 4, "/dev/null three times and a pipe of the monitor's: {held:?}");
    let score = fs::read_to_string(format!("/proc/{init}/oom_score_adj")).unwrap();
    assert!(score.trim().parse::<i32>().unwrap() >= 0, "{score}");
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
fn the_sockets_are_open_to_the_group_alone() {
    for name in ["executor.sock", "gateway.sock"] {
        let meta = fs::metadata(shared().directory().join(name)).unwrap();
        assert_eq!(
            (meta.mode() & 0o777, meta.uid(), meta.gid()),
            (0o660, 0, host::gid_of("cordon")),
            "{name}"
        );
    }
    let token = fs::metadata(shared().directory().join("token")).unwrap();
    assert_eq!(token.mode() & 0o007, 0, "everybody can read the token");
}
