//! SIGHUP: the configuration is read anew, and its policy taken over whole or not at all.
//!
//! A process of its own reads and checks the file, as looking up its users may take long (nsswitch.conf(5)) and the
//! monitor has deadlines. For what it leaves in a memory file roots are made, one in each turn of the loop. Then all of
//! it is taken over at once: sandboxes that run keep the plan that they have, every launch from then on is checked by the
//! new ones, and the server half gets the same bytes.

use super::{
    Monitor,
    link::ToServer,
    supervisor::{self, reloading},
};
use crate::{
    config::{Config, POLICY_MAX, Policy},
    sandbox::{
        fds,
        steps::{About, Fault},
    },
    sys::{
        clone::{CloneOptions, Cloned, clone_process},
        memfd,
        process::{Status, exit_now, signal, try_wait},
    },
};
use cordon_protocol::{
    audit::{Configuration, Entry},
    counted,
};
use nix::{
    sys::{
        memfd::{MFdFlags, memfd_create},
        prctl,
        signal::Signal,
    },
    unistd::Pid,
};
use std::{
    fs::File,
    io::{self, Seek, Write as _},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::PathBuf,
    time::{Duration, Instant},
};

/// Time for reading the file.
const READING_TIME: Duration = Duration::from_secs(10);
/// Longest reason for a file's refusal that is passed on, bytes.
const REASON_MAX: usize = 1024;

/// The configuration that runs, and the file in which it may have changed.
#[derive(Debug)]
pub struct Reload {
    file: PathBuf,
    running: Config,
    reader: Option<Reader>,
    /// What is to hold once its roots are made.
    wanted: Option<Wanted>,
    /// It may have changed once more since the reader was started.
    again: bool,
}

/// A policy that was read, and its bytes for the server half.
#[derive(Debug)]
struct Wanted {
    policy: Policy,
    for_server: File,
}

/// The process that reads the file.
#[derive(Debug)]
struct Reader {
    pid: Pid,
    process: OwnedFd,
    /// What it has read, or why that is no good.
    answer: File,
    until: Instant,
}

impl Reload {
    /// Nothing has changed yet.
    pub fn new(file: PathBuf, running: Config) -> Self {
        Self { file, running, reader: None, wanted: None, again: false }
    }

    /// The line of the trail for a reload after which the configuration of this hash is in force.
    fn entry(&self, taken_over: bool, sha256: &str) -> Entry {
        let configuration =
            Configuration { file: self.file.display().to_string(), sha256: sha256.to_owned() };
        Entry::Reloaded { taken_over, configuration }
    }

    /// What becomes readable when the file has been read.
    pub(super) fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.reader.as_ref().map(|reader| reader.process.as_fd())
    }

    /// When reading it has taken too long.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.reader.as_ref().map(|reader| reader.until)
    }

    /// Whether the process is its own to reap.
    pub(super) fn owns(&self, pid: Pid) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.pid == pid)
    }

    /// Starts reading the file, or notes that it has to be read once more.
    fn start(&mut self) -> Result<(), Fault> {
        self.again = self.reader.is_some() || self.wanted.is_some();
        if self.again {
            return Ok(());
        }
        let answer = File::from(memfd_create("policy", MFdFlags::MFD_CLOEXEC).about("memory file")?);
        match clone_process(CloneOptions { namespaces: 0, cgroup: None }).about("clone")? {
            Cloned::Parent { pid, pidfd } => {
                let until = Instant::now() + READING_TIME;
                self.reader = Some(Reader { pid, process: pidfd, answer, until });
                Ok(())
            }
            Cloned::Child => exit_now(self.read(answer)),
        }
    }

    /// The life of the reader; its exit status.
    fn read(&self, mut answer: File) -> i32 {
        // The monitor's sockets and locks are not its business, and it does not outlive it.
        let alone = fds::close_all_but_standard(&[answer.as_raw_fd()]);
        if alone.is_err() || prctl::set_pdeathsig(Signal::SIGKILL).is_err() {
            return 2;
        }
        let (status, bytes) = match self.running.read_policy(&self.file) {
            Ok(bytes) => (0, bytes),
            Err(problem) => (1, problem.to_string().into_bytes()),
        };
        if answer.write_all(&bytes).is_ok() { status } else { 2 }
    }

    /// What the reader has found, once it has ended: a policy in its encoded form, or why there is none.
    fn take_answer(&mut self, now: Instant) -> Option<Result<Vec<u8>, String>> {
        let reader = self.reader.as_ref()?;
        let status = try_wait(reader.process.as_fd());
        if status.is_none() && now >= reader.until {
            // Its end is seen in the next round.
            let _ = signal(reader.process.as_fd(), Signal::SIGKILL);
        }
        let status = status?;
        let Reader { answer, until, .. } = self.reader.take()?;
        Some(match status {
            Status::Exited(0) => content(&answer, POLICY_MAX).map_err(|error| error.to_string()),
            Status::Exited(1) => Err(content(&answer, REASON_MAX)
                .map_or_else(|e| e.to_string(), |reason| String::from_utf8_lossy(&reason).into_owned())),
            _ if now >= until => Err("reading the configuration took too long".to_owned()),
            _ => Err("reading the configuration failed".to_owned()),
        })
    }
}

/// What is in the file, at most so many bytes.
fn content(file: &File, most: usize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length.min(most)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

impl Monitor {
    /// Begins to read the configuration anew.
    pub(super) fn reload(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        reloading();
        if let Err(fault) = self.reload.start() {
            self.keep_policy(&in_words(&fault));
        }
    }

    /// Takes in what has been read. Roots that are being made for another reason come first.
    pub(super) fn go_on_reloading(&mut self) {
        if self.plans.is_making() {
            return;
        }
        let Some(answer) = self.reload.take_answer(Instant::now()) else { return };
        let wanted = answer.and_then(|bytes| self.wanted(&bytes).map_err(|fault| in_words(&fault)));
        match wanted {
            Ok(wanted) => {
                self.plans.begin_others(&wanted.policy.profiles);
                self.reload.wanted = Some(wanted);
            }
            Err(problem) => self.keep_policy(&problem),
        }
    }

    /// Makes one root of those that are wanted; once all are there they are in force, with the policy that they are for.
    pub(super) fn go_on_making_roots(&mut self) {
        let Some(made) = self.plans.make_next() else { return };
        let Some(wanted) = self.reload.wanted.take() else {
            return match made {
                Ok(()) => self.plans.put_in_force(),
                Err(fault) => crate::log!("/etc has changed, the old copy stays: {}", in_words(&fault)),
            };
        };
        match made.and_then(|()| self.adopt(wanted)) {
            Ok(profiles) => {
                let profiles = counted(profiles, "profile");
                crate::log!("configuration read anew: {profiles}");
                supervisor::ready(&format!("Configuration read anew: {profiles}"));
                self.reload_again();
            }
            Err(fault) => self.keep_policy(&in_words(&fault)),
        }
    }

    fn reload_again(&mut self) {
        if std::mem::take(&mut self.reload.again) {
            self.reload();
        }
    }

    fn keep_policy(&mut self, problem: &str) {
        // The log has the reason: others may read the trail than the configuration.
        self.note(self.reload.entry(false, &self.reload.running.sha256));
        let problem = problem.replace('\n', " ");
        crate::log!("the configuration stays as it was: {problem}");
        supervisor::ready(&format!("The configuration stays as it was: {problem}"));
        self.reload_again();
    }

    /// The policy in these bytes, as it may hold here.
    fn wanted(&self, bytes: &[u8]) -> Result<Wanted, Fault> {
        let malformed = |error: cordon_protocol::codec::FrameError| {
            Fault::new(nix::errno::Errno::EBADMSG, format!("policy: {error}"))
        };
        let mut policy = Policy::decode(bytes).map_err(malformed)?;
        let mut room = self.reload.running.with_policy(policy.clone());
        room.bound_commands(if self.plans.one_at_a_time() { 1 } else { self.connections.commands() });
        policy.max_commands = room.max_commands;
        let mut for_server = File::from(memfd::sealed(&policy.encode().map_err(malformed)?)?);
        for_server.rewind()?;
        Ok(Wanted { policy, for_server })
    }

    /// Everything that can fail has come before, but one; then all of it holds. The number of profiles.
    fn adopt(&mut self, Wanted { policy, for_server }: Wanted) -> Result<usize, Fault> {
        // What cannot be recorded does not hold.
        let entry = self.reload.entry(true, &policy.sha256);
        self.audit.record(entry).inspect_err(|_| self.plans.abandon())?;
        self.plans.put_in_force();
        self.plans.set_max_commands(policy.max_commands);
        self.reload.running.sha256.clone_from(&policy.sha256);
        self.resources.workspaces.set_floor(policy.free_space_min);
        self.outbox.push(&ToServer::Policy, vec![for_server.into()]);
        Ok(policy.profiles.len())
    }
}

fn in_words(fault: &Fault) -> String {
    format!("{}: {}", fault.detail, fault.errno.desc())
}
