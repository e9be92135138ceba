//! Steps of the lock-down one at a time, each in a process of its own.
//!
//! Of several steps nothing shows in a command that runs: what they do is done again by a later layer, or
//! by execve(2). Here each is looked at before anything else could have done its work.

use super::{
    Plan,
    command::{CommandContext, LOCK_DOWN},
    init, landlock, rlimits,
    steps::walk,
};
use crate::{
    config::{Account, Users},
    host::Host,
    profile::{Profile, RawProfile},
    sys::{process::exit_now, raw},
};
use caps::CapSet;
use cordon_protocol::CgroupMode;
use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::{
        memfd::{MFdFlags, memfd_create},
        prctl,
        resource::{Resource, getrlimit, setrlimit},
        stat::{Mode, umask},
    },
    unistd::{Gid, gethostname, getpid, getsid, pipe, setgroups, sethostname},
};
use std::{
    env, fs,
    os::fd::AsFd,
    process::{Command, Stdio},
    slice,
    sync::Arc,
};

/// In the second process: what to do.
const ROLE: &str = "CORDON_ALONE_TEST";
/// Exit status of a process that has closed what it could have said more with.
const FINE: i32 = 42;

fn plan(landlock_floor: u32) -> Plan {
    let account = |id| Account::of("nobody-there", id, id);
    let host = Host {
        namespaces: true,
        landlock_abi: 0,
        cgroup: CgroupMode::None,
        one_at_a_time: false,
        layers: Vec::new(),
    };
    Plan {
        profile: Profile::from_raw("p", RawProfile::default(), 1).unwrap(),
        users: Users {
            command: account(54_101),
            server: account(54_102),
            init: account(54_103),
            gateway: None,
            group: 54_104,
        },
        home: "/home/execuser".into(),
        host: Arc::new(host),
        landlock_floor,
        template: None,
        filter: Arc::default(),
        init_filter: Arc::default(),
    }
}

fn context() -> CommandContext {
    let plan = Arc::new(plan(0));
    let (alive, control) = pipe().unwrap();
    let place = plan.place();
    CommandContext { control: Some(control), ..CommandContext::new(plan, place, alive) }
}

fn run(steps: &[&str]) {
    let mut context = context();
    for name in steps {
        let step = LOCK_DOWN.iter().find(|step| step.name == *name).unwrap();
        walk(slice::from_ref(step), &mut context).unwrap();
    }
}

fn run_of_init(name: &str) {
    let step = init::STEPS.iter().find(|step| step.name == name).unwrap();
    let (alive, control) = pipe().unwrap();
    let (sync, _other) = pipe().unwrap();
    let (network, workspace, storage) = (None, None, Vec::new());
    let plan = Arc::new(plan(0));
    let mut context = init::InitContext { plan, control, sync, network, workspace, alive, storage };
    walk(slice::from_ref(step), &mut context).unwrap();
}

/// A line of the calling thread's own status.
fn status(key: &str) -> String {
    let text = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs the test `each_step_does_its_own` again, for one step.
fn again(role: &str) -> std::process::Output {
    let name = format!("{}::each_step_does_its_own", module_path!().split_once("::").unwrap().1);
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([&name, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command.stdin(Stdio::null()).output().unwrap()
}

type Look = fn();

/// What each looks at; what was there before it is the control.
const LOOKS: &[(&str, Look)] = &[
    ("session", || {
        assert_ne!(getsid(None), Ok(getpid()));
        run(&["session"]);
        assert_eq!(getsid(None), Ok(getpid()));
    }),
    ("keyring", || {
        // KEYCTL_GET_KEYRING_ID of KEY_SPEC_SESSION_KEYRING; a kernel without keyrings has none to leave.
        let session = || raw::call(250, [0, u64::MAX - 2, 1, 0, 0, 0]);
        let Ok(before) = session() else { return };
        run(&["keyring"]);
        assert_ne!(session(), Ok(before));
    }),
    ("umask", || {
        umask(Mode::from_bits_truncate(0o077));
        run(&["umask"]);
        assert_eq!(status("Umask"), "0022");
    }),
    ("oom_score", || {
        let score = || fs::read_to_string("/proc/self/oom_score_adj").unwrap();
        fs::write("/proc/self/oom_score_adj", "0").unwrap();
        run(&["oom_score"]);
        assert_eq!(score(), "500\n");
    }),
    ("rlimits", || {
        let limits = [
            (Resource::RLIMIT_CORE, 1, 1),
            (Resource::RLIMIT_FSIZE, 1 << 30, 1 << 30),
            (Resource::RLIMIT_NOFILE, 1024, 65_536),
            (Resource::RLIMIT_MEMLOCK, 64 << 10, 64 << 10),
            (Resource::RLIMIT_MSGQUEUE, 0, 0),
            (Resource::RLIMIT_NICE, 0, 0),
            (Resource::RLIMIT_RTPRIO, 0, 0),
            (Resource::RLIMIT_STACK, 8 << 20, 64 << 20),
        ];
        assert_eq!(rlimits::command_limits(1 << 30), limits);
        let before = limits.map(|(resource, _, hard)| {
            // Without CAP_SYS_RESOURCE it stays at what was inherited.
            let _ = setrlimit(resource, hard + 10, hard + 10);
            getrlimit(resource).unwrap().1
        });
        run(&["rlimits"]);
        for ((resource, soft, hard), before) in limits.into_iter().zip(before) {
            assert_eq!(getrlimit(resource), Ok((soft.min(before), hard.min(before))), "{resource:?}");
        }
    }),
    ("init_hostname", || {
        unshare(CloneFlags::CLONE_NEWUTS).unwrap();
        sethostname("another").unwrap();
        run_of_init("init_hostname");
        assert_eq!(gethostname().unwrap(), "cordon");
    }),
    ("identity", || {
        setgroups(&[Gid::from_raw(54_105)]).unwrap();
        let held = caps::read(None, CapSet::Permitted).unwrap();
        caps::set(None, CapSet::Inheritable, &held).unwrap();
        assert_eq!(status("Groups"), "54105");
        assert_ne!(status("CapInh"), "0000000000000000");
        run(&["bounding_set", "securebits", "groups", "ids", "capabilities"]);
        assert_eq!((status("Uid"), status("Gid")), (["54101"; 4].join(" "), ["54101"; 4].join(" ")));
        assert_eq!(status("Groups"), "");
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status(set), "0000000000000000", "{set}");
        }
    }),
    ("dumpable", || {
        prctl::set_dumpable(true).unwrap();
        run(&["dumpable"]);
        assert_eq!(prctl::get_dumpable(), Ok(false));
    }),
    ("no_new_privs", || {
        assert_eq!(status("NoNewPrivs"), "0");
        run(&["no_new_privs"]);
        assert_eq!(status("NoNewPrivs"), "1");
    }),
    ("parent", || {
        run(&["parent"]);
        assert_eq!(prctl::get_pdeathsig(), Ok(Some(nix::sys::signal::Signal::SIGKILL)));
        let (alive, held) = pipe().unwrap();
        drop(held);
        let dead = init::die_with_monitor(alive.as_fd()).unwrap_err();
        assert_eq!(dead.errno, Errno::ESRCH, "the monitor had ended before");
    }),
    ("init_propagation", || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let shared = MsFlags::MS_REC | MsFlags::MS_SHARED;
        mount(None::<&str>, "/", None::<&str>, shared, None::<&str>).unwrap();
        let tells = || fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        assert!(tells().contains(" shared:"));
        run_of_init("init_propagation");
        assert!(!tells().contains(" shared:") && !tells().contains(" master:"), "{}", tells());
    }),
    ("descriptors", || {
        // Neither of them closes on exec.
        let kept = [(); 2].map(|()| memfd_create("inherited", MFdFlags::empty()).unwrap());
        run(&["descriptors"]);
        std::mem::forget(kept);
        // Three and the one that reads the directory: the context's own closed with it. Only an exit status
        // can be told from here on.
        let open = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count());
        exit_now(if open == 4 { FINE } else { 1 });
    }),
];

#[test]
fn each_step_does_its_own() {
    if let Some(role) = env::var_os(ROLE) {
        let (_, look) = LOOKS.iter().find(|(name, _)| role == *name).unwrap();
        return look();
    }
    for (name, _) in LOOKS {
        let output = again(name);
        let text = String::from_utf8_lossy(&output.stdout);
        let told = if *name == "descriptors" {
            output.status.code() == Some(FINE)
        } else {
            output.status.success() && text.contains("1 passed")
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(told, "{name}: {}\n{text}{said}", output.status);
    }
}

#[test]
fn below_the_configured_landlock_nothing_is_launched() {
    let plan = plan(99);
    assert_eq!(landlock::prepare(&plan, &plan.place(), false).unwrap_err().errno, Errno::ENOSYS);
}
