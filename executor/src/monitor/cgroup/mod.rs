//! cgroup v2: finding a subtree that is ours, one pair of leaves for each sandbox, counters, ending.
//!
//! Only the delegated subtree is touched: no controller is ever switched on from the root down.

mod find;
mod leaf;
mod remedy;

pub use leaf::{Leaf, LeafLimits, Usage};

use crate::sandbox::steps::{About, Fault};
use cordon_protocol::{CgroupMode, Health, LayerReport};
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// Controllers without which limits are sampled.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// Time for another executor's start to let go of the directory.
const CLAIM_TIME: Duration = Duration::from_secs(1);
/// Begins the name of every executor's directory.
const PREFIX: &str = "cordon-";
/// Time for what an earlier monitor left behind to end after it was killed.
const SWEEP_TIME: Duration = Duration::from_secs(5);

/// The executor's own subtree, and what it can do.
#[derive(Debug, Clone)]
pub struct Cgroups {
    mode: CgroupMode,
    /// Directory that holds the leaves; none without cgroup v2.
    directory: Option<PathBuf>,
    /// Held as long as the directory is in use: one without it was abandoned.
    _claim: Option<Arc<Flock<File>>>,
    detail: String,
    remedy: Option<&'static str>,
}

impl Cgroups {
    /// Finds or makes a subtree for the executor whose state lies in `state_dir`, and sweeps what an
    /// earlier one left in it.
    pub fn establish(state_dir: &Path) -> Self {
        let none = |detail: String, remedy| Self {
            mode: CgroupMode::None,
            directory: None,
            _claim: None,
            detail,
            remedy,
        };
        let Some(own) = find::own_directory() else {
            let remedy = Some("mount cgroup v2 (systemd does; or mount -t cgroup2 cgroup2 /sys/fs/cgroup)");
            return none("no cgroup v2 hierarchy is mounted".to_owned(), remedy);
        };
        let base = find::delegated_base(&own);
        let enabled = enable_controllers(&base);
        let directory = base.join(directory_name(state_dir));
        remove_abandoned(&base, &directory);
        let made = claim_own(&directory).and_then(|claim| {
            sweep(&directory)?;
            let kill = directory.join("cgroup.kill");
            fs::metadata(&kill).about(kill.display()).map(|_| claim)
        });
        let held = match made {
            Ok(claim) => Arc::new(claim),
            Err(fault) => {
                return none(format!("{}: {}", fault.detail, fault.errno), Some(remedy::delegate()));
            }
        };
        let limited = enabled.and_then(|()| write(&directory.join("cgroup.subtree_control"), &switch_on()));
        match limited {
            Ok(()) => Self {
                mode: CgroupMode::V2,
                detail: format!("memory, pids and cpu are limited in {}", directory.display()),
                directory: Some(directory),
                _claim: Some(held),
                remedy: None,
            },
            Err(fault) => Self {
                mode: CgroupMode::Sampled,
                detail: format!("limits are sampled in {}: {}", directory.display(), fault.detail),
                directory: Some(directory),
                _claim: Some(held),
                remedy: Some(remedy::delegate()),
            },
        }
    }

    /// How limits are held.
    pub fn mode(&self) -> CgroupMode {
        self.mode
    }

    /// What was found, for `doctor`.
    pub fn layer(&self) -> LayerReport {
        let health = match self.mode {
            CgroupMode::V2 => Health::Ok,
            CgroupMode::Sampled => Health::Lesser,
            CgroupMode::None => Health::Missing,
        };
        LayerReport {
            layer: "cgroup".to_owned(),
            health,
            detail: self.detail.clone(),
            remedy: self.remedy.map(str::to_owned),
        }
    }

    /// Makes one leaf with its limits; none without cgroup v2.
    ///
    /// # Errors
    /// The file that could not be written or read back.
    pub fn make_leaf(&self, name: &str, limits: &LeafLimits) -> Result<Option<Leaf>, Fault> {
        let Some(directory) = &self.directory else { return Ok(None) };
        let limits = (self.mode == CgroupMode::V2).then_some(limits);
        Leaf::make(directory.join(name), limits).map(Some)
    }

    /// Removes the executor's own, by now empty, directory.
    pub fn close(&self) {
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Makes the directory and takes its lock.
fn claim(directory: &Path) -> Result<Flock<File>, Fault> {
    make_directory(directory)?;
    let file = File::open(directory).about(directory.display())?;
    let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
    let claim = locked.map_err(|(_, errno)| Fault::new(errno, directory.to_string_lossy()))?;
    // Another executor may have taken it for abandoned in between.
    if directory.exists() { Ok(claim) } else { Err(Fault::new(Errno::ENOENT, directory.to_string_lossy())) }
}

/// As [`claim`]; another executor's start may hold or remove the directory for a moment.
fn claim_own(directory: &Path) -> Result<Flock<File>, Fault> {
    let deadline = Instant::now() + CLAIM_TIME;
    loop {
        match claim(directory) {
            Err(fault)
                if matches!(fault.errno, Errno::EAGAIN | Errno::ENOENT) && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

/// Ends and removes what other executors have left in the same cgroup, when they were killed.
fn remove_abandoned(base: &Path, own: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let path = entry.path();
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX) && path != own;
        if ours && let Ok(_claim) = claim(&path) {
            // What cannot be removed stays for the next start; it takes nothing from this one.
            let _ = sweep(&path).and_then(|()| fs::remove_dir(&path).about(path.display()));
        }
    }
}

/// One name for each state directory, so that two executors on one host never touch each other's leaves.
fn directory_name(state_dir: &Path) -> String {
    // FNV-1a: a name, not a secret.
    let bytes = state_dir.as_os_str().as_encoded_bytes();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{PREFIX}{hash:016x}")
}

fn switch_on() -> String {
    CONTROLLERS.map(|controller| format!("+{controller}")).join(" ")
}

/// Whether every controller is named in a `cgroup.controllers` or `cgroup.subtree_control`.
fn has_controllers(file: &Path) -> Result<(), Fault> {
    let text = fs::read_to_string(file).about(file.display())?;
    let missing: Vec<_> =
        CONTROLLERS.into_iter().filter(|c| !text.split_whitespace().any(|w| w == *c)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let text = format!("{} lacks {}", file.display(), missing.join(", "));
    Err(Fault::new(Errno::ENOTSUP, text))
}

/// Makes the controllers available to children of `base`, where that is ours to do.
fn enable_controllers(base: &Path) -> Result<(), Fault> {
    has_controllers(&base.join("cgroup.controllers"))?;
    let control = base.join("cgroup.subtree_control");
    if has_controllers(&control).is_ok() {
        return Ok(());
    }
    if !find::is_ours(base) {
        let text = format!("{} is not delegated to the executor", base.display());
        return Err(Fault::new(Errno::EPERM, text));
    }
    // A cgroup with processes of its own cannot hand controllers on: they move to a leaf beside the others.
    let supervisor = base.join("supervisor");
    make_directory(&supervisor)?;
    let processes = fs::read_to_string(base.join("cgroup.procs")).about(base.display())?;
    for pid in processes.lines() {
        // One that has ended meanwhile is no failure.
        let _ = fs::write(supervisor.join("cgroup.procs"), pid);
    }
    write(&control, &switch_on())
}

fn make_directory(path: &Path) -> Result<(), Fault> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other.about(path.display()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), Fault> {
    fs::write(path, text).about(path.display())
}

/// Ends and removes every leaf that is left in the directory.
fn sweep(directory: &Path) -> Result<(), Fault> {
    let deadline = Instant::now() + SWEEP_TIME;
    for entry in fs::read_dir(directory).about(directory.display())? {
        let path = entry.about(directory.display())?.path();
        if !path.is_dir() {
            continue;
        }
        write(&path.join("cgroup.kill"), "1")?;
        // The kernel has no call that waits for this; it takes microseconds.
        while let Err(error) = fs::remove_dir(&path) {
            if Instant::now() > deadline {
                return Err(error).about(path.display());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}
