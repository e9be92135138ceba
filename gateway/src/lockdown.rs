//! What the gateway gives up before it serves: after this it can answer on the sockets it has, connect to
//! Unix sockets that the file system lets it, and little else.
//!
//! Called while the process has one thread, so that every later thread inherits it. Each step is read back.

mod syscalls;

use caps::CapSet;
use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, Ruleset, RulesetAttr, RulesetStatus, Scope,
};
use nix::{
    sys::{
        prctl,
        resource::{Resource, getrlimit, setrlimit},
    },
    unistd::Uid,
};
use std::{error::Error, ffi::OsStr, fmt, io, os::unix::ffi::OsStrExt};

/// What holds from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enforced {
    /// Descriptors the process may hold.
    pub descriptors: u64,
    /// Capabilities left in the bounding set; without effect under no_new_privs.
    pub bounding: usize,
    /// Landlock ABI in force; 0 where the kernel has none.
    pub landlock_abi: i32,
}

/// A step that could not be done.
#[derive(Debug, thiserror::Error)]
#[error("lock-down step `{step}` failed: {cause}")]
pub struct LockdownError {
    step: &'static str,
    cause: Box<dyn Error + Send + Sync>,
}

/// A program that is to be unprivileged and is not.
#[derive(Debug, thiserror::Error)]
#[error(
    "refusing to run as root: start it as the user `cordon` (`runuser -u cordon -- cordon-gateway --config FILE`; in a unit User=cordon), or use `cordon up`"
)]
pub struct IsRoot;

/// Refuses to go on with root's uid, real or effective.
///
/// # Errors
/// When it is root.
pub fn refuse_root() -> Result<(), IsRoot> {
    if Uid::current().is_root() || Uid::effective().is_root() { Err(IsRoot) } else { Ok(()) }
}

/// Gives up everything that serving does not need.
///
/// # Errors
/// The step that failed. A kernel without Landlock is no failure: `landlock_abi` is 0.
pub fn apply() -> Result<Enforced, LockdownError> {
    // First, because Landlock asks for it, and because from here on no exec can bring anything back.
    step("no_new_privs", forbid_new_privileges)?;
    let descriptors = step("rlimits", limit_resources)?;
    let bounding = step("capabilities", drop_capabilities)?;
    // After the capabilities: a change of credentials may set it again.
    step("dumpable", forbid_dumps)?;
    let landlock_abi = step("landlock", close_file_system)?;
    // Last, so that no step before needs to be allowed for.
    step("seccomp", syscalls::refuse)?;
    Ok(Enforced { descriptors, bounding, landlock_abi })
}

type StepResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn step<T>(step: &'static str, run: fn() -> StepResult<T>) -> Result<T, LockdownError> {
    run().map_err(|cause| LockdownError { step, cause })
}

/// The value as an error when the kernel says otherwise than was asked.
fn expect_that(holds: bool, what: &str) -> StepResult<()> {
    if holds { Ok(()) } else { Err(io::Error::other(format!("{what}, read back")).into()) }
}

fn forbid_new_privileges() -> StepResult<()> {
    prctl::set_no_new_privs()?;
    expect_that(prctl::get_no_new_privs()?, "no_new_privs is off")
}

fn limit_resources() -> StepResult<u64> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    expect_that(getrlimit(Resource::RLIMIT_CORE)? == (0, 0), "core is not 0")?;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(getrlimit(Resource::RLIMIT_NOFILE)?.0)
}

fn drop_capabilities() -> StepResult<usize> {
    // The bounding set first: it takes CAP_SETPCAP, which only a gateway started with too much has.
    if caps::has_cap(None, CapSet::Effective, caps::Capability::CAP_SETPCAP)? {
        caps::clear(None, CapSet::Bounding)?;
    }
    // Ambient before permitted, effective before permitted: each must be part of the next (capabilities(7)).
    for set in [CapSet::Ambient, CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        // Clearing what is empty is a privileged call all the same to a filter that the service manager has set.
        if !caps::read(None, set)?.is_empty() {
            caps::clear(None, set)?;
        }
        expect_that(caps::read(None, set)?.is_empty(), "a capability set is not empty")?;
    }
    Ok(caps::read(None, CapSet::Bounding)?.len())
}

fn forbid_dumps() -> StepResult<()> {
    prctl::set_dumpable(false)?;
    expect_that(!prctl::get_dumpable()?, "the process is dumpable")
}

/// No file may be opened, made, removed or executed, no port bound and none connected to. There is no rule:
/// all the gateway works with is open by now, and connecting to a Unix socket by its path is not an access to
/// a file here. (ABI 9 could restrict that as well; the executor's socket may not be there yet, so that no
/// rule could name it, and file permissions guard it.)
fn close_file_system() -> StepResult<i32> {
    let ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V8))?
        .handle_access(AccessNet::from_all(ABI::V10))?
        .scope(scopes(std::env::var_os("NOTIFY_SOCKET").as_deref()))?;
    let status = ruleset.create()?.restrict_self()?;
    match status.landlock {
        LandlockStatus::NotImplemented | LandlockStatus::NotEnabled => Ok(0),
        LandlockStatus::Available { effective_abi, .. } => {
            expect_that(status.ruleset != RulesetStatus::NotEnforced, "the ruleset is not enforced")?;
            Ok(effective_abi as i32)
        }
    }
}

/// Signals reach nothing outside; abstract sockets neither, unless systemd listens on one.
fn scopes(notify_socket: Option<&OsStr>) -> landlock::BitFlags<Scope> {
    let abstract_notify = notify_socket.is_some_and(|name| name.as_bytes().starts_with(b"@"));
    if abstract_notify { Scope::Signal.into() } else { Scope::Signal | Scope::AbstractUnixSocket }
}

impl fmt::Display for Enforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { descriptors, bounding, landlock_abi } = self;
        write!(f, "no_new_privs, not dumpable, no core, no capability (bounding set {bounding}), ")?;
        write!(f, "seccomp, {descriptors} descriptors, ")?;
        match landlock_abi {
            0 => write!(f, "no landlock: this kernel has none or it is not enabled"),
            abi => write!(f, "landlock abi {abi}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::{
        sched::{CloneFlags, unshare},
        sys::socket::{AddressFamily, SockFlag, SockType, socket},
    };
    use std::{
        fs::File,
        net::{TcpListener, TcpStream},
        os::unix::net::{UnixListener, UnixStream},
        process::Command,
        thread,
    };

    /// Everything but the rlimits binds the thread alone, so that it can be tried in one that ends.
    #[test]
    fn a_locked_down_thread_can_serve_and_do_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("executor.sock");
        let executor = UnixListener::bind(&path).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let new_file = directory.path().join("new");
        let acts = move || {
            let denied = [
                ("open", File::open("/etc/passwd").is_err()),
                ("create", File::create(&new_file).is_err()),
                ("exec", Command::new("/bin/true").status().is_err()),
                ("bind", TcpListener::bind("127.0.0.1:0").is_err()),
                ("connect", TcpStream::connect(address).is_err()),
                ("unshare", unshare(CloneFlags::CLONE_FS).is_err()),
                ("netlink", socket(AddressFamily::Netlink, SockType::Raw, SockFlag::empty(), None).is_err()),
            ];
            let allowed = [
                ("executor", UnixStream::connect(&path).is_ok()),
                ("thread", thread::spawn(|| 1).join().is_ok()),
                ("pair", UnixStream::pair().is_ok()),
            ];
            (denied, allowed)
        };
        // The control: without the lock-down every one of these acts succeeds.
        let (denied, allowed) = thread::spawn(acts.clone()).join().unwrap();
        assert!(denied.iter().all(|(_, failed)| !failed), "{denied:?}");
        assert!(allowed.iter().all(|(_, worked)| *worked), "{allowed:?}");
        let locked = thread::spawn(move || (apply().unwrap(), acts()));
        let (enforced, (denied, allowed)) = locked.join().unwrap();
        for (act, failed) in denied {
            // Without Landlock files and ports are left to permissions.
            let landlock = matches!(act, "open" | "create" | "bind" | "connect");
            assert!(failed || landlock && enforced.landlock_abi < 4, "{act}");
        }
        assert!(allowed.iter().all(|(_, worked)| *worked), "{allowed:?}");
        drop((executor, listener));
    }

    #[test]
    fn systemd_can_still_be_told_on_an_abstract_socket() {
        let both = Scope::Signal | Scope::AbstractUnixSocket;
        assert_eq!(scopes(None), both);
        assert_eq!(scopes(Some(OsStr::new("/run/systemd/notify"))), both);
        assert_eq!(scopes(Some(OsStr::new("@notify"))), Scope::Signal);
    }
}
