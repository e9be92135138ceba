//! The step between `cordon up` and a daemon: a process of this program that puts itself in order and then
//! becomes the daemon.
//!
//! It runs between fork and the daemon's own code, so what must be true from the daemon's first
//! instruction on is made true here, in this order:
//! 1. nothing that we inherited from the shell stays open, and no signal that `cordon up` blocks stays blocked;
//! 2. the listeners, which came as 0 and 1, go where systemd's protocol wants them (sd_listen_fds(3));
//! 3. a session of its own: Ctrl-C reaches `cordon up` alone, and there is no terminal to take over;
//! 4. the program is opened while we are root: a build below a 0700 home cannot be traversed by another user;
//! 5. the user; 6. after it, since changing it forgets it (prctl(2)): to end when `cordon up` does.

use crate::failure::Failure;
use caps::CapSet;
use cordon_protocol::supervision::PARENT_VARIABLE;
use nix::{
    sys::{
        prctl::set_pdeathsig,
        signal::{SigSet, Signal},
    },
    unistd::{self, User, dup, dup2_stdin, dup2_stdout, fexecve, getppid, setgid, setgroups, setsid, setuid},
};
use std::{
    env,
    ffi::{CString, OsString},
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
};

/// The first descriptor that is handed over (sd_listen_fds(3)).
const FIRST_LISTENER: i32 = 3;
const NEXT: &str = "this is a step of `cordon up`, which tells the rest";

/// Which daemon to become.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The daemon's program
    #[arg(long)]
    program: PathBuf,
    /// The user to become
    #[arg(long)]
    user: Option<String>,
    /// Standard input and output are the listeners to hand over
    #[arg(long)]
    listeners: bool,
    /// The daemon's arguments
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

/// Becomes the daemon; comes back only with a failure.
pub(crate) fn execute(args: &Args) -> Result<u8, Failure> {
    let step = |what: &'static str| move |e: io::Error| Failure::new(what, e, NEXT);
    close_inherited().map_err(step("closing inherited descriptors"))?;
    SigSet::empty().thread_set_mask().map_err(|e| step("unblocking signals")(e.into()))?;
    if args.listeners {
        hand_over(&[io::stdin().as_fd(), io::stdout().as_fd()]).map_err(step("handing listeners over"))?;
    }
    occupy_stdio().map_err(step("redirecting standard input and output"))?;
    setsid().map_err(|e| step("starting a session")(e.into()))?;
    let program = File::open(&args.program);
    let program =
        program.map_err(|e| Failure::new(format!("opening {}", args.program.display()), e, NEXT))?;
    if let Some(user) = &args.user {
        become_user(user).map_err(|e| Failure::new(format!("becoming {user}"), e, NEXT))?;
    }
    end_with_parent().map_err(step("tying the daemon to cordon up"))?;
    let name = args.program.file_name().unwrap_or_default().to_owned();
    let words = [name].into_iter().chain(args.arguments.iter().cloned()).map(text);
    let words: Vec<CString> = words.collect::<io::Result<_>>().map_err(step("reading the arguments"))?;
    let environment = environment(args.listeners).map_err(step("reading the environment"))?;
    match fexecve(program.as_fd(), &words, &environment) {
        Ok(never) => match never {},
        Err(e) => Err(Failure::new(format!("executing {}", args.program.display()), e, NEXT)),
    }
}

/// Closes everything but 0, 1 and 2. No owner of a descriptor is alive here: nothing has been opened yet.
fn close_inherited() -> io::Result<()> {
    let mut open = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        open.extend(entry?.file_name().to_str().and_then(|n| n.parse::<i32>().ok()));
    }
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // The listing's own descriptor is closed already.
        let _ = unistd::close(fd);
    }
    Ok(())
}

/// Copies the listeners to 3 and on, where they survive exec.
fn hand_over(listeners: &[BorrowedFd<'_>]) -> io::Result<()> {
    for (place, listener) in (FIRST_LISTENER..).zip(listeners) {
        let copy = dup(listener)?;
        if copy.as_raw_fd() != place {
            return Err(io::Error::other(format!("descriptor {place} is taken")));
        }
        // Stays open for the daemon.
        let _ = copy.into_raw_fd();
    }
    Ok(())
}

/// Nothing to read, and what is printed goes to the log.
fn occupy_stdio() -> io::Result<()> {
    dup2_stdin(File::open("/dev/null")?)?;
    Ok(dup2_stdout(io::stderr())?)
}

fn become_user(name: &str) -> io::Result<()> {
    let user = User::from_name(name)?;
    let user = user.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such user"))?;
    if user.uid.is_root() || user.gid.as_raw() == 0 {
        return Err(io::Error::other("it is root"));
    }
    // Nothing that it may execute later can bring a capability back.
    for capability in caps::all() {
        if caps::has_cap(None, CapSet::Bounding, capability).map_err(io::Error::other)? {
            caps::drop(None, CapSet::Bounding, capability).map_err(io::Error::other)?;
        }
    }
    setgroups(&[])?;
    setgid(user.gid)?;
    Ok(setuid(user.uid)?)
}

fn end_with_parent() -> io::Result<()> {
    set_pdeathsig(Signal::SIGTERM)?;
    let parent = env::var(PARENT_VARIABLE).ok().and_then(|pid| pid.parse::<i32>().ok());
    // It may have ended before we asked.
    if parent == Some(getppid().as_raw()) { Ok(()) } else { Err(io::Error::other("it has ended already")) }
}

fn environment(listeners: bool) -> io::Result<Vec<CString>> {
    let mut entries: Vec<OsString> = Vec::new();
    for (name, value) in env::vars_os() {
        let mut entry = name;
        entry.push("=");
        entry.push(value);
        entries.push(entry);
    }
    if listeners {
        entries.push(format!("LISTEN_PID={}", std::process::id()).into());
        entries.push("LISTEN_FDS=2".into());
        entries.push("LISTEN_FDNAMES=http:local".into());
    }
    entries.into_iter().map(text).collect()
}

fn text(word: OsString) -> io::Result<CString> {
    Ok(CString::new(word.as_bytes())?)
}
