//! Each hint with its second fact, and the same words without it.

use super::{super::door::Door, super::fixture::outcome, landmarks::Landmarks, *};
use crate::{
    monitor::link::AskedLimits,
    profile::{Profile, RawProfile},
};
use cordon_protocol::{LimitName, NamespaceName, NetworkMode};

/// A failed command in the sandbox of a host with every layer.
struct Case {
    outcome: Outcome,
    profile: Profile,
    ran: Ran,
    door: Door,
    limits: AskedLimits,
}

impl Case {
    fn new(line: &str) -> Self {
        Self::with_profile(line, "")
    }

    fn with_profile(line: &str, profile: &str) -> Self {
        let raw: RawProfile = toml::from_str(profile).unwrap();
        let mut outcome = outcome(EndedBy::Exit);
        outcome.exit_code = Some(1);
        outcome.enforced.namespaces.extend([NamespaceName::Mount, NamespaceName::Net]);
        let there =
            ["/root/", "/srv/", "/srv/data", "/etc/", "/etc/shadow", "/link@", "/run/", "/run/docker.sock"];
        Self {
            outcome,
            profile: Profile::from_raw("p", raw, 1).unwrap(),
            ran: Ran {
                line: line.to_owned(),
                home: "/home/execuser".into(),
                landmarks: Rc::new(Landmarks::with(&there, &["/etc/cordon", "/usr/hidden"])),
                ..Ran::default()
            },
            door: Door::Cli,
            limits: AskedLimits::default(),
        }
    }

    fn hint(&self, stderr: &str) -> Option<Hint> {
        let asked = Asked { profile: &self.profile, limits: &self.limits, door: self.door, ran: &self.ran };
        explain(&self.outcome, asked, &LastWords { stdout: Tail::default(), stderr: Tail::from(stderr) })
    }

    /// Layer and what of the hint, and its remedy.
    #[track_caller]
    fn assert_hint(&self, stderr: &str, layer: &str, what: &str, remedy: &str) {
        let hint = self.hint(stderr).unwrap_or_else(|| panic!("no hint for {stderr}"));
        assert_eq!(hint.layer, layer, "{stderr}: {hint:?}");
        assert!(hint.what.contains(what) && hint.remedy.contains(remedy), "{stderr}: {hint:?}");
    }

    #[track_caller]
    fn assert_none(&self, stderr: &str) {
        assert_eq!(self.hint(stderr), None, "{stderr}");
    }
}

#[test]
fn a_missing_file_is_refused_only_where_the_host_has_it_and_the_profile_does_not() {
    let case = Case::new("");
    let missing = |path: &str| format!("cat: {path}: No such file or directory");
    case.assert_hint(&missing("/root/x"), "namespaces", "/root/x", "add `/root` to profiles.p.read");
    case.assert_hint(&missing("/srv/data"), "namespaces", "/srv/data", "add `/srv/data` to profiles.p.read");
    case.assert_hint(&missing("/etc/shadow"), "namespaces", "/etc/shadow", "profiles.p.read cannot");
    case.assert_hint(&missing("/run/docker.sock"), "namespaces", "/run/docker.sock", "no setting");
    case.assert_none(&missing("/srv/none"));
    case.assert_none(&missing("/none/x"));
    case.assert_none(&missing("/etc/none"));
    case.assert_none(&missing("/link/x"));
    case.assert_none(&missing("/home/execuser/x"));
    case.assert_none(&missing("/tmp/x"));
    case.assert_none(&missing("/proc/7/x"));
    // The errno that the root does not give.
    case.assert_none("cat: /root/x: Permission denied");
    Case::with_profile("", "read = ['/srv']").assert_none(&missing("/srv/data"));
    Case::with_profile("", "write = ['/srv']").assert_none(&missing("/srv/data"));
    // Without a root of its own what is missing is missing.
    let mut bare = Case::new("");
    bare.outcome.enforced.namespaces.clear();
    bare.assert_none(&missing("/root/x"));
}

#[test]
fn what_is_about_to_be_made_is_missing_with_its_directory() {
    let case = Case::new("");
    let made = "cp: cannot create regular file '/srv/new': No such file or directory";
    case.assert_hint(made, "namespaces", "/srv/new", "add `/srv` to profiles.p.write");
    case.assert_none("cp: cannot create regular file '/none/new': No such file or directory");
    case.assert_none("cp: cannot create regular file '/run/new': No such file or directory");
    case.assert_none("cp: cannot stat '/srv/new': No such file or directory");
}

#[test]
fn what_a_profile_hides_is_told_where_the_host_has_it() {
    let hiding = "read = ['/usr', '/etc']\nhide = ['/usr/hidden', '/usr/nothing']";
    let mut case = Case::with_profile("", hiding);
    let there = ["/usr/", "/usr/hidden/", "/usr/nothing/"];
    case.ran.landmarks = Rc::new(Landmarks::with(&there, &["/usr/hidden"]));
    let missing = |path: &str| format!("cat: {path}: No such file or directory");
    case.assert_hint(
        &missing("/usr/hidden/x"),
        "namespaces",
        "hidden",
        "`/usr/hidden` out of profiles.p.hide",
    );
    case.assert_none(&missing("/usr/nothing/x"));
}

#[test]
fn a_read_only_place_is_refused_only_where_the_profile_does_not_let_it_be_written() {
    let case = Case::new("");
    let at = |path: &str| format!("touch: cannot touch '{path}': Read-only file system");
    case.assert_hint(&at("/usr/x"), "namespaces", "/usr/x", "add `/usr` to profiles.p.write");
    case.assert_hint(&at("/data"), "namespaces", "/data", "add `/data` to profiles.p.write");
    case.assert_hint(&at("/etc/x"), "namespaces", "/etc/x", "profiles.p.write gives no /etc");
    case.assert_hint(&at("/proc/sys/x"), "namespaces", "/proc/sys/x", "no setting");
    case.assert_none(&at("/home/execuser/x"));
    case.assert_none(&at("/tmp/x"));
    Case::with_profile("", "write = ['/srv']").assert_none(&at("/srv/x"));
    let relative = "touch: cannot touch 'x': Read-only file system";
    Case::new("cd /opt && touch x").assert_hint(relative, "namespaces", "/opt", "add `/opt` to");
    Case::new("cd a && touch x").assert_none(relative);
    Case::new("cd /opt; cd /usr; touch x").assert_none(relative);
    let mut there = Case::new("touch x");
    there.ran.cwd = Some("/usr/share".into());
    there.assert_hint(relative, "namespaces", "/usr/share", "profiles.p.write");
    let shell = "/bin/bash: line 1: /etc/x: Read-only file system";
    case.assert_hint(shell, "namespaces", "`/etc/x`", "profiles.p.write");
}

#[test]
fn a_denied_file_is_refused_only_where_no_mode_could_allow_it() {
    let read = "read = ['/usr', '/etc', '/srv']";
    let mut case = Case::with_profile("/srv/x.sh", read);
    let blamed = "bash: /srv/x.sh: /bin/sh: bad interpreter: Permission denied";
    let plain = "bash: line 1: /srv/x: Permission denied";
    case.outcome.exit_code = Some(126);
    case.assert_hint(blamed, "landlock", "`/srv`", "profiles.p.execute");
    case.assert_hint(plain, "landlock", "`/srv`", "profiles.p.execute");
    case.assert_none("bash: line 1: ./x: Permission denied");
    case.assert_none("bash: line 1: /etc/passwd: Permission denied");
    case.assert_none("bash: line 1: /usr/x: Permission denied");
    case.assert_none("bash: line 1: /home/execuser/x: Permission denied");
    case.outcome.exit_code = Some(1);
    case.assert_none("cat: /srv/x: Permission denied");
    let case = Case::new("echo x >> /etc/passwd");
    let denied = "bash: line 1: /etc/passwd: Permission denied";
    case.assert_hint(denied, "namespaces", "/etc/passwd", "profiles.p.write");
    Case::new("cat /etc/passwd").assert_none(denied);
    case.assert_hint("tee: /etc/hosts: Permission denied", "namespaces", "/etc/hosts", "profiles.p.write");
}

#[test]
fn without_namespaces_landlock_keeps_to_the_same_lists() {
    let mut case = Case::new("");
    case.outcome.enforced.namespaces.clear();
    case.ran.state_dir = Some("/var/lib/cordon/executor".into());
    case.assert_hint("cat: /srv/x: Permission denied", "landlock", "/srv/x", "profiles.p.read");
    let writing = "touch: cannot touch '/usr/x': Permission denied";
    case.assert_hint(writing, "landlock", "/usr/x", "profiles.p.write");
    case.assert_none("cat: /usr/x: Permission denied");
    case.assert_none("cat: /var/lib/cordon/executor/work/1/x: Permission denied");
    case.outcome.enforced.landlock_abi = 0;
    case.assert_none("cat: /srv/x: Permission denied");
}

#[test]
fn the_network_is_refused_only_where_there_is_none_and_to_others() {
    let told = "curl: (6) Could not resolve host: example.com";
    let case = Case::new("");
    case.assert_hint(told, "network", "example.com", "profiles.p.network");
    case.assert_none("curl: (7) Failed to connect to localhost port 9: Couldn't connect to server");
    case.assert_none("Network is unreachable");
    Case::new("x 10.0.0.1").assert_hint("Network is unreachable", "network", "10.0.0.1", "--profile");
    Case::new("pip install x").assert_hint(
        "[Errno -3] Temporary failure in name resolution",
        "network",
        "`pip`",
        "",
    );
    let mut silent = Case::new("curl -s https://example.com | jq .");
    silent.outcome.exit_code = Some(6);
    silent.assert_hint("", "network", "example.com", "profiles.p.network");
    silent.ran.line = "sh -c 'exit 6' # curl https://example.com".into();
    silent.assert_none("");
    let mut open = Case::new("");
    open.outcome.enforced.network = NetworkMode::Host;
    open.assert_none(told);
    let mut shared = Case::new("");
    shared.outcome.enforced.namespaces.clear();
    shared.assert_none(told);
    let served = Case::with_profile("", "network = 'services'\nservices = [80]");
    served.assert_hint(told, "network", "services", "profiles.p.network");
}

#[test]
fn a_call_is_refused_only_where_the_filter_holds_and_refuses_it() {
    let case = Case::new("dmesg; mount -t tmpfs x /mnt");
    case.assert_hint("strace: ptrace(X): Operation not permitted", "seccomp", "`ptrace`", "no setting");
    case.assert_hint("dmesg: read kernel buffer failed: Operation not permitted", "seccomp", "`syslog`", "");
    case.assert_hint("mount: /mnt: must be superuser to use mount.", "seccomp", "`mount`", "");
    // Another program that only says so.
    case.assert_none("chroot: cannot change root directory to '/': must be superuser");
    case.assert_none("ptrace: Function not implemented");
    let mut open = Case::new("dmesg; mount x");
    open.outcome.enforced.seccomp = false;
    open.assert_none("strace: ptrace(X): Operation not permitted");
    open.assert_none("mount: /mnt: must be superuser to use mount.");
    let family = "OSError: [Errno 97] Address family not supported by protocol";
    Case::new("socket(AF_VSOCK)").assert_hint(family, "seccomp", "AF_VSOCK", "");
    Case::new("socket(AF_INET6)").assert_none(family);
}

#[test]
fn a_call_for_a_capability_is_refused_only_where_it_was_made_and_there_is_none() {
    let chown = "chown: changing ownership of 'x': Operation not permitted";
    let mut case = Case::new("touch x; chown root x");
    case.assert_hint(chown, "identity", "CAP_CHOWN", "no setting gives it");
    Case::new("echo chown").assert_none(chown);
    case.outcome.enforced.capabilities = 1;
    case.assert_none(chown);
    let python = "PermissionError: [Errno 1] Operation not permitted";
    Case::new("python3 -c 'import os; os.setuid(0)'").assert_hint(
        python,
        "identity",
        "CAP_SETUID",
        "no setting",
    );
    Case::new("python3 x.py").assert_none(python);
    let trace = format!("File \"x.py\", line 2, in <module>\n    os.setgroups([])\n{python}");
    Case::new("python3 x.py").assert_hint(&trace, "identity", "CAP_SETGID", "no setting");
    Case::new("python3 x.py").assert_none(&format!("os.setgroups([])\na\nb\nc\n{python}"));
    Case::new("python3 x.py").assert_none("os.setgroups([])\nx: Operation not permitted");
    let setpriv = "setpriv: setresuid failed: Operation not permitted";
    Case::new("setpriv --reuid 0 true").assert_hint(setpriv, "identity", "CAP_SETUID", "no setting");
}

#[test]
fn a_time_out_is_put_down_to_the_network_only_where_something_wanted_out() {
    let late = |case: &Case, stderr: &str| {
        let asked = Asked { profile: &case.profile, limits: &case.limits, door: case.door, ran: &case.ran };
        explain_late(&case.outcome, asked, &LastWords { stdout: Tail::default(), stderr: Tail::from(stderr) })
    };
    let timed_out = |line: &str, unrouted| {
        let mut case = Case::new(line);
        (case.outcome.ended_by, case.outcome.exit_code) = (EndedBy::WallTimeout, None);
        case.outcome.unrouted = unrouted;
        case
    };
    let hint = late(&timed_out("npm install x", true), "").unwrap();
    assert_eq!(hint.layer, "network");
    assert!(
        hint.what.starts_with("what `npm` fetches from cannot be reached: profile `p` has no network"),
        "{hint:?}"
    );
    assert!(
        late(&timed_out("wget https://a.example/", true), "").unwrap().what.starts_with("a.example cannot")
    );
    let said = "npm warn retry reason: getaddrinfo EAI_AGAIN registry.example";
    assert!(late(&timed_out("./build", false), said).unwrap().what.starts_with("registry.example cannot"));
    for (line, unrouted) in
        [("npm install x", false), ("sleep 100", true), ("curl localhost:1; sleep 9", false)]
    {
        assert_eq!(late(&timed_out(line, unrouted), "working"), None, "{line}");
    }
    let mut open = timed_out("npm install x", true);
    open.outcome.enforced.network = NetworkMode::Host;
    assert_eq!(late(&open, said), None);
}

#[test]
fn threads_that_were_refused_are_told_where_many_were_seen_and_none_are_counted() {
    let python = "RuntimeError: can't start new thread";
    let mut case = Case::new("python3 x.py");
    case.outcome.enforced.cgroup = cordon_protocol::CgroupMode::Sampled;
    case.assert_none(python);
    case.outcome.threads_seen = 63;
    case.assert_none(python);
    case.outcome.threads_seen = 64;
    case.assert_none("working");
    case.assert_none("Resource temporarily unavailable");
    for said in [
        python,
        "runtime: failed to create new OS thread (have 128 already; errno=11)",
        "thread 'main' panicked: failed to spawn thread: Os { code: 11, kind: WouldBlock }",
        "java.lang.OutOfMemoryError: unable to create native thread: possibly out of memory",
        "OpenBLAS blas_thread_init: pthread_create failed for thread 3 of 8",
        "  what():  Resource temporarily unavailable",
        "bash: fork: Resource temporarily unavailable",
        "libgomp: Thread creation failed: Resource temporarily unavailable",
    ] {
        case.assert_hint(said, "limits", "256 (pids)", "--pids");
        case.assert_hint(said, "limits", "reserve 2G with its limit of 512M (memory)", "--memory");
    }
    case.outcome.enforced.cgroup = cordon_protocol::CgroupMode::V2;
    case.assert_none(python);
}

#[test]
fn privileges_and_the_host_s_sockets_are_told_of_programs_that_want_them() {
    Case::new("su -c id").assert_hint("su: Authentication failure", "identity", "`su`", "no setting");
    Case::new("echo").assert_none("su: Authentication failure");
    Case::new("su -x").assert_none("su: invalid option -- 'x'");
    let docker = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.";
    Case::new("docker ps").assert_hint(docker, "namespaces", "/run/docker.sock", "no setting");
    // The host has none.
    Case::new("systemctl status").assert_none("Failed to connect to bus: Host is down");
}

#[test]
fn room_and_memory_are_told_where_the_monitor_saw_them_run_out() {
    let full = "cp: error writing 'x': No space left on device";
    let mut case = Case::new("cp a x");
    case.assert_none(full);
    case.outcome.limits_hit = vec![LimitName::Disk];
    case.assert_hint(full, "limits", "workspace", "profiles.p.limits.workspace");
    case.assert_none("cp: cannot stat 'x'");
    case.ran.line = "cp a /tmp/x".into();
    case.assert_hint(full, "limits", "/tmp", "profiles.p.limits.tmp");
    let mut case = Case::new("");
    case.outcome.peak_memory_bytes = Some(100 << 20);
    case.assert_none("MemoryError");
    case.outcome.peak_memory_bytes = Some(500 << 20);
    case.assert_hint("MemoryError", "limits", "512M (memory)", "--memory");
    case.limits.memory_bytes = Some(1 << 30);
    case.assert_none("MemoryError");
    case.door = Door::Http;
    case.limits.memory_bytes = Some(500 << 20);
    case.assert_hint("MemoryError", "limits", "memory", "memory_bytes");
}

#[test]
fn a_file_that_grew_too_large_is_told_by_signal_status_or_size() {
    let mut case = Case::with_profile("", "limits.file_size = '1M'");
    case.outcome.peak_memory_bytes = Some(1000);
    case.assert_none("OSError: [Errno 27] File too large");
    case.outcome.peak_memory_bytes = Some(2 << 20);
    case.assert_hint("OSError: [Errno 27] File too large", "limits", "1M (file_size)", "limits.file_size");
    case.outcome.exit_code = Some(153);
    case.outcome.peak_memory_bytes = None;
    case.assert_hint("File size limit exceeded", "limits", "1M (file_size)", "");
    case.assert_none("");
    (case.outcome.exit_code, case.outcome.ended_by) = (None, EndedBy::Signal);
    case.outcome.limits_hit = vec![LimitName::FileSize];
    case.assert_hint("", "limits", "1M (file_size)", "");
}

#[test]
fn a_workspace_that_outgrew_its_limit_is_told_with_all_that_bounds_it() {
    let mut case = Case::new("");
    case.outcome.ended_by = EndedBy::DiskLimit;
    case.assert_hint("", "limits", "4G (named_workspace)", "profiles.p.limits.named_workspace");
}

#[test]
fn what_went_well_has_no_hint_and_the_last_complaint_comes_first() {
    let mut case = Case::new("");
    let missing = "cat: /root/x: No such file or directory\ncat: /srv/data: No such file or directory\nlast";
    case.assert_hint(missing, "namespaces", "/srv/data", "");
    case.outcome.exit_code = Some(0);
    case.assert_none(missing);
    case.outcome.ended_by = EndedBy::Cancelled;
    case.outcome.exit_code = None;
    case.assert_none(missing);
}

#[test]
fn each_door_is_told_how_a_file_is_brought() {
    let mut case = Case::new("");
    let missing = "cat: /root/x: No such file or directory";
    case.assert_hint(missing, "namespaces", "", "with --file");
    case.door = Door::Http;
    case.assert_hint(missing, "namespaces", "", "in `files`");
}

#[test]
fn programs_are_words_that_a_shell_would_run() {
    let of = |line| programs(line).collect::<Vec<_>>();
    assert_eq!(of("A=1 curl -s x | jq . && exit 6 # wget y"), ["A=1", "curl", "jq", "exit"]);
    assert_eq!(
        of("bash -c 'mount x'; if su; then dmesg; fi"),
        ["bash", "mount", "if", "su", "then", "dmesg", "fi"]
    );
    assert_eq!(of("echo mount"), ["echo"]);
}

#[test]
fn hostile_words_cost_little_and_show_nothing_raw() {
    let case = Case::new(&"/root/x(".repeat(10_000));
    let stderr = "/root/\u{1b}[31m: No such file or directory /".repeat(10_000);
    if let Some(hint) = case.hint(&stderr) {
        assert!(!hint.what.contains('\u{1b}') && hint.what.chars().count() <= TEXT_MAX + 1);
    }
}
