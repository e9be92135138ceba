//! cgroup v2: finding a subtree that is ours, one pair of leaves for each sandbox, counters, ending.
//!
//! Only the delegated subtree is touched: no controller is ever switched on from the root down.

mod find;
mod leaf;

pub use leaf::{Leaf, LeafLimits, Usage};

use crate::sandbox::steps::{About, Fault};
use cordon_protocol::{CgroupMode, Health, LayerReport};
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Controllers without which limits are sampled.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// Time for what an earlier monitor left behind to end after it was killed.
const SWEEP_TIME: Duration = Duration::from_secs(5);

/// The executor's own subtree, and what it can do.
#[derive(Debug, Clone)]
pub struct Cgroups {
    mode: CgroupMode,
    /// Directory that holds the leaves; none without cgroup v2.
    directory: Option<PathBuf>,
    detail: String,
    remedy: Option<&'static str>,
}

impl Cgroups {
    /// Finds or makes a subtree for the executor whose state lies in `state_dir`, and sweeps what an
    /// earlier one left in it.
    pub fn establish(state_dir: &Path) -> Self {
        let none = |detail: String, remedy| Self { mode: CgroupMode::None, directory: None, detail, remedy };
        let Some(own) = find::own_directory() else {
            let remedy = Some("mount cgroup v2 (systemd does; or mount -t cgroup2 cgroup2 /sys/fs/cgroup)");
            return none("no cgroup v2 hierarchy is mounted".to_owned(), remedy);
        };
        let base = find::delegated_base(&own);
        let enabled = enable_controllers(&base);
        let directory = base.join(directory_name(state_dir));
        let made = make_directory(&directory).and_then(|()| sweep(&directory)).and_then(|()| {
            let kill = directory.join("cgroup.kill");
            fs::metadata(&kill).about(kill.display()).map(drop)
        });
        if let Err(fault) = made {
            let remedy =
                Some("let the executor write to its cgroup (systemd: Delegate=yes), kernel 5.14 or newer");
            return none(format!("{}: {}", fault.detail, fault.errno), remedy);
        }
        let limited = enabled.and_then(|()| write(&directory.join("cgroup.subtree_control"), &switch_on()));
        match limited {
            Ok(()) => Self {
                mode: CgroupMode::V2,
                detail: format!("memory, pids and cpu are limited in {}", directory.display()),
                directory: Some(directory),
                remedy: None,
            },
            Err(fault) => Self {
                mode: CgroupMode::Sampled,
                detail: format!("limits are sampled in {}: {}", directory.display(), fault.detail),
                directory: Some(directory),
                remedy: Some(
                    "give the executor a delegated cgroup v2 with memory, pids and cpu (systemd: Delegate=yes; \
                     boot with systemd.unified_cgroup_hierarchy=1)",
                ),
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

/// One name for each state directory, so that two executors on one host never touch each other's leaves.
fn directory_name(state_dir: &Path) -> String {
    // FNV-1a: a name, not a secret.
    let bytes = state_dir.as_os_str().as_encoded_bytes();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("cordon-{hash:016x}")
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
    Err(Fault::new(nix::errno::Errno::ENOTSUP, text))
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
        return Err(Fault::new(nix::errno::Errno::EPERM, text));
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
