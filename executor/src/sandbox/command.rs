//! The process that becomes the command: joins what init has made, locks itself down, waits, executes.

use super::{
    Go, Plan, caps, errand, exec, fds, ids, init, landlock,
    message::{Held, Report},
    namespaces::Namespaces,
    plan::{self, GO_LEN, Place},
    rlimits, seccomp,
    steps::{About, Fault, Step, walk},
};
use crate::{
    sealed::{SealedRequest, Work},
    sys::{privilege, process, process::exit_now, scm},
};
use ::landlock::RulesetCreated;
use nix::{
    errno::Errno,
    sched::{CloneFlags, setns},
    sys::{
        resource::Resource,
        socket::{MsgFlags, send},
        stat::{Mode, umask},
    },
    unistd::setsid,
};
use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Arc,
};

/// What the command's process is given by the monitor, and what it gathers on the way.
#[derive(Debug)]
pub struct CommandContext {
    /// The profile's plan.
    pub plan: Arc<Plan>,
    /// Where it has its files.
    pub place: Place,
    /// The command's end of its pair with the monitor; closed once there is nothing more to tell.
    pub control: Option<OwnedFd>,
    /// The command's end of the pair with init; none without namespaces.
    pub sync: Option<OwnedFd>,
    /// init, whose namespaces are joined; none without namespaces.
    pub init: Option<OwnedFd>,
    /// Namespaces of a sandbox whose command has ended: this process comes after it, to collect what it left, and
    /// ends whatever still runs there.
    pub after: Option<Namespaces>,
    /// It comes after the command, for an errand: it runs no program.
    pub errand_only: bool,
    /// More is in the named workspace than may be: what is there may be read and removed, and nothing added.
    pub full: bool,
    /// Nothing else of this uid that this process can see is anybody else's.
    pub ends_others: bool,
    /// Closed by the kernel when the monitor has ended.
    pub alive: OwnedFd,
    /// Rules made before the uid is gone.
    pub ruleset: Option<RulesetCreated>,
    /// What has been read back.
    pub held: Held,
    /// The word to start.
    pub go: Option<Go>,
    /// What came with it.
    pub request: Option<OwnedFd>,
    /// What came with it: the content of files for the workspace.
    pub files: Option<OwnedFd>,
    /// What came with it.
    pub stdio: Option<fds::Stdio>,
    /// The request, decoded.
    pub decoded: Option<SealedRequest>,
}

impl CommandContext {
    /// What every process needs; the rest is empty.
    pub fn new(plan: Arc<Plan>, place: Place, alive: OwnedFd) -> Self {
        Self {
            plan,
            place,
            control: None,
            sync: None,
            init: None,
            after: None,
            errand_only: false,
            full: false,
            ends_others: false,
            alive,
            ruleset: None,
            held: Held::default(),
            go: None,
            request: None,
            files: None,
            stdio: None,
            decoded: None,
        }
    }
}

/// How badly the kernel wants this process when the host itself runs out of memory: before the host's own
/// services (proc_pid_oom_score_adj(5)).
const OOM_SCORE: &str = "500";
/// Below the host's own services.
const COMMAND_NICE: i32 = 5;
const UMASK: Mode = Mode::from_bits_truncate(0o022);

/// The lock-down of the command's process, in order, up to the wait.
pub const LOCK_DOWN: &[Step<CommandContext>] = &[
    Step {
        name: "descriptors",
        why: "first of all: the copy has every descriptor of the monitor, listening socket and link included",
        run: |c| {
            let mut keep = vec![c.alive.as_raw_fd()];
            keep.extend([&c.control, &c.sync, &c.init].into_iter().flatten().map(AsRawFd::as_raw_fd));
            keep.extend(c.after.iter().flat_map(|after| after.all().map(|fd| fd.as_raw_fd())));
            fds::close_all_but(&keep)
        },
    },
    Step {
        name: "await_root",
        why: "only a finished root may be joined",
        run: |c| match &c.sync {
            Some(sync) => plan::await_nudge(sync.as_fd()).about("init"),
            None => Ok(()),
        },
    },
    Step {
        name: "join_namespaces",
        why: "all at once, through init, while both are still root; then init may drop its rights",
        run: |c| {
            // Both stay open: init must not see this process's end before the monitor hears its reason.
            if let Some(after) = c.after.take() {
                return after.join();
            }
            let (Some(init), Some(sync)) = (&c.init, &c.sync) else { return Ok(()) };
            let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
            if c.plan.isolates_network() {
                flags |= CloneFlags::CLONE_NEWNET;
            }
            setns(init, flags).about("init's namespaces")?;
            Ok(plan::nudge(sync.as_fd())?)
        },
    },
    Step {
        name: "session",
        why: "kill(0) crosses pid namespaces through a shared process group; no controlling terminal",
        run: |_| Ok(setsid().map(drop)?),
    },
    Step {
        name: "priority",
        why: "the monitor's own, which comes before commands so that it can end them, is inherited",
        run: |_| {
            process::set_nice(COMMAND_NICE)?;
            // A session of its own is a scheduling group of its own (sched(7), "The autogroup feature"), in
            // which nice values mean nothing to the others.
            match fs::write("/proc/self/autogroup", COMMAND_NICE.to_string()) {
                // No such feature; ten a second from the whole host, without CAP_SYS_ADMIN; the root group, whose
                // weight is fixed: in there, nice values mean something to all.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::WouldBlock | io::ErrorKind::InvalidInput
                    ) =>
                {
                    Ok(())
                }
                other => other.about("/proc/self/autogroup"),
            }
        },
    },
    Step {
        name: "keyring",
        why: "a session keyring is inherited through every change of uid",
        run: |_| match privilege::join_new_session_keyring() {
            Ok(()) | Err(Errno::ENOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
        },
    },
    Step {
        name: "rlimits",
        why: "while hard limits can be set",
        run: |c| rlimits::apply(&rlimits::command_limits(c.plan.profile.file_size)),
    },
    Step {
        name: "oom_score",
        why: "written by root, so that the command cannot lower it below this again",
        run: |_| {
            let file = "/proc/self/oom_score_adj";
            fs::write(file, OOM_SCORE).about(file)?;
            let found = fs::read_to_string(file).about(file)?;
            if found.trim() == OOM_SCORE {
                Ok(())
            } else {
                Err(Fault::mismatch(file, found.trim(), OOM_SCORE))
            }
        },
    },
    Step {
        name: "umask",
        why: "inherited from whoever started the executor",
        run: |_| {
            umask(UMASK);
            let found = umask(UMASK);
            let octal = |mode: Mode| format!("{:03o}", mode.bits());
            if found == UMASK { Ok(()) } else { Err(Fault::mismatch("umask", octal(found), octal(UMASK))) }
        },
    },
    Step {
        name: "landlock_rules",
        why: "still root: the command may not be able to open every path that a rule names",
        run: |c| {
            c.ruleset = landlock::prepare(&c.plan, &c.place, c.full)?;
            Ok(())
        },
    },
    Step {
        name: "bounding_set",
        why: "needs CAP_SETPCAP, so before the uid",
        run: |_| caps::drop_bounding_set(),
    },
    Step {
        name: "securebits",
        why: "needs CAP_SETPCAP, so before the uid",
        run: |_| caps::lock_securebits(),
    },
    Step { name: "groups", why: "needs CAP_SETGID, so before the uid", run: |_| ids::drop_groups() },
    Step {
        name: "ids",
        why: "gid before uid, as the uid takes the right to change either",
        run: |c| ids::become_account(&c.plan.users.command),
    },
    Step {
        name: "capabilities",
        why: "after the uid, whose change they allow; the securebits keep them through it",
        run: |c| {
            c.held.capabilities = caps::clear_all_sets()?;
            Ok(())
        },
    },
    Step {
        name: "end_others",
        why: "only after a command: what it left behind runs on no longer. As its user, before Landlock, whose scope \
              lets no signal out",
        run: |c| {
            if c.ends_others {
                process::kill_everything_of_own_uid();
            }
            Ok(())
        },
    },
    Step { name: "dumpable", why: "after the uid, which resets it", run: |_| init::not_dumpable() },
    Step {
        name: "parent",
        why: "after the uid, which clears the signal; then the check, as the monitor may have died before it",
        run: |c| init::die_with_monitor(c.alive.as_fd()),
    },
    Step { name: "no_new_privs", why: "Landlock and the filter need it", run: |_| init::no_new_privs() },
    Step {
        name: "landlock",
        why: "before the filter, which does not let a process read back as much",
        run: |c| {
            if let Some(ruleset) = c.ruleset.take() {
                c.held.landlock_abi = landlock::enforce(ruleset, &c.place)?;
            }
            Ok(())
        },
    },
    Step {
        name: "seccomp",
        why: "last lock: everything above needs calls that it refuses",
        run: |c| {
            seccomp::apply(&c.plan.filter).map_err(|e| Fault::new(Errno::EINVAL, e.to_string()))?;
            c.held.seccomp = true;
            Ok(())
        },
    },
];

/// From the word to start to the program, in order.
pub const START: &[Step<CommandContext>] = &[
    Step { name: "go", why: "what is to be run is learned only after every lock holds", run: receive_go },
    Step {
        name: "request_limits",
        why: "limits of this request, where no cgroup holds them; only ever lower than the profile's",
        run: |c| {
            let go = c.go.ok_or(Errno::EPROTO)?;
            let limits = [(Resource::RLIMIT_DATA, go.data), (Resource::RLIMIT_NPROC, go.processes)];
            let set = limits.iter().filter(|(_, value)| *value != u64::MAX);
            rlimits::apply(&set.map(|(resource, value)| (*resource, *value, *value)).collect::<Vec<_>>())
        },
    },
    Step {
        name: "request",
        why: "decoded with no more rights than the command itself",
        run: |c| {
            let request = c.request.take().ok_or(Errno::EPROTO)?;
            c.decoded = Some(exec::read_request(request)?);
            Ok(())
        },
    },
    Step {
        name: "files",
        why: "with the command's own rights, and before the working directory, which may be one of theirs",
        run: |c| {
            let request = c.decoded.as_ref().ok_or(Errno::EPROTO)?;
            let room = c.go.ok_or(Errno::EPROTO)?.room;
            exec::put_files(&c.place.home, &request.files, c.files.take(), room)
        },
    },
    Step {
        name: "chdir",
        why: "as the command's user, so that a directory it may not enter is refused by the kernel",
        run: |c| {
            let request = c.decoded.as_ref().ok_or(Errno::EPROTO)?;
            exec::enter_directory(&c.plan, &c.place, request.cwd.as_deref())
        },
    },
    Step {
        name: "stdio",
        why: "after everything that may open a descriptor; the others close on exec",
        run: |c| fds::install(c.stdio.take().ok_or(Errno::EPROTO)?),
    },
    Step {
        name: "signals",
        why: "inherited dispositions and masks would change what the program does",
        run: |_| Ok(process::reset_signals()?),
    },
    Step {
        name: "exec",
        why: "the end of the list: the pair with the monitor closes on success; an errand takes no program",
        run: |c| {
            let request = c.decoded.as_ref().ok_or(Errno::EPROTO)?;
            if !matches!(request.work, Work::Program(_)) {
                // As an exec would: nothing more will be told.
                c.control = None;
                let room = c.go.ok_or(Errno::EPROTO)?.room;
                errand::perform(&request.work, &c.plan.profile, &c.place, room);
            }
            if c.errand_only {
                return Err(Fault::new(Errno::EPERM, "a program after the command"));
            }
            Err(exec::Program::new(&c.plan, &c.place, request)?.execute())
        },
    },
];

/// Waits for the word to start and what comes with it.
fn receive_go(context: &mut CommandContext) -> Result<(), Fault> {
    let mut bytes = [0; GO_LEN];
    let control = context.control.as_ref().ok_or(Errno::EPROTO)?;
    let received = loop {
        match scm::receive(control.as_fd(), &mut bytes) {
            Err(Errno::EINTR) => {}
            other => break other?,
        }
    };
    if received.length == 0 {
        // The monitor discards a sandbox that was never used by closing the pair.
        exit_now(0);
    }
    let go = Go::decode(bytes);
    let mut descriptors = received.descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| Fault::new(Errno::EPROTO, "missing descriptor"));
    context.request = Some(next()?);
    context.files = go.files.then(&mut next).transpose()?;
    let (stdout, stderr) = (next()?, next()?);
    context.stdio = Some(fds::Stdio { stdout, stderr, stdin: go.stdin.then(next).transpose()? });
    context.go = Some(go);
    Ok(())
}

/// The whole life of the process up to its exec. Never returns.
pub fn run(mut context: CommandContext) -> ! {
    let control = context.control.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let tell = |report: Report| send(control, &report.encode(), MsgFlags::MSG_NOSIGNAL);
    let locked = walk(LOCK_DOWN, &mut context);
    if let Err(failed) = locked {
        let _ = tell(failed.into());
        exit_now(1);
    }
    if tell(Report::Ready(context.held)).is_err() {
        exit_now(1);
    }
    if let Err(failed) = walk(START, &mut context) {
        let _ = tell(failed.into());
    }
    exit_now(1)
}
