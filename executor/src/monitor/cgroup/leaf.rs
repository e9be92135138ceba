//! One leaf: its limits, its counters, its end.

use super::write;
use crate::sandbox::steps::{About, Fault, omitted};
use nix::errno::Errno;
use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

/// Limits of a leaf (cgroup-v2.rst, "Controllers").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeafLimits {
    /// `memory.max`, bytes; swap is always 0.
    pub memory: u64,
    /// `pids.max`.
    pub pids: u64,
    /// `cpu.max`, percent of one processor; none is no limit.
    pub cpu_percent: Option<u64>,
    /// `memory.oom.group`: running out of memory ends the whole leaf.
    pub end_together: bool,
}

/// Counters of a leaf.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// `usage_usec` of `cpu.stat`.
    pub cpu_us: u64,
    /// `memory.peak`, bytes; none without the controller or before Linux 5.19.
    pub peak_memory: Option<u64>,
    /// `oom_kill` of `memory.events`.
    pub oom_kills: u64,
    /// `max` of `pids.events`.
    pub pids_refused: u64,
}

/// A leaf of a sandbox.
#[derive(Debug)]
pub struct Leaf {
    path: PathBuf,
    directory: OwnedFd,
}

/// Microseconds of a `cpu.max` period.
const CPU_PERIOD: u64 = 100_000;

impl Leaf {
    /// Makes the leaf, sets its limits before anything is in it, and reads them back.
    pub(super) fn make(path: PathBuf, limits: Option<&LeafLimits>) -> Result<Self, Fault> {
        fs::create_dir(&path).about(path.display())?;
        let opened = File::open(&path).about(path.display());
        let leaf = opened.map(|directory| Self { directory: directory.into(), path: path.clone() });
        let set = leaf.and_then(|leaf| {
            if let Some(limits) = limits {
                leaf.set(limits)?;
            }
            Ok(leaf)
        });
        if set.is_err() {
            let _ = fs::remove_dir(&path);
        }
        set
    }

    fn set(&self, limits: &LeafLimits) -> Result<(), Fault> {
        // The kernel rounds memory down to whole pages.
        let memory = limits.memory / 4096 * 4096;
        self.write_back("memory.max", &memory.to_string())?;
        self.write_back("pids.max", &limits.pids.to_string())?;
        match self.write_back("memory.swap.max", "0") {
            // A kernel without swap accounting has no such file; then there must be no swap.
            Err(fault) if fault.errno == Errno::ENOENT && !host_has_swap() => {}
            other => other?,
        }
        if limits.end_together {
            self.write_back("memory.oom.group", "1")?;
        }
        if let Some(percent) = limits.cpu_percent {
            self.write_back(
                "cpu.max",
                &format!("{} {CPU_PERIOD}", percent.saturating_mul(CPU_PERIOD) / 100),
            )?;
        }
        Ok(())
    }

    fn write_back(&self, file: &str, value: &str) -> Result<(), Fault> {
        if omitted(file) {
            return Ok(());
        }
        let path = self.path.join(file);
        write(&path, value)?;
        let found = fs::read_to_string(&path).about(path.display())?;
        if found.trim() == value { Ok(()) } else { Err(Fault::mismatch(file, found.trim(), value)) }
    }

    /// For CLONE_INTO_CGROUP.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Sends SIGKILL to everything in the leaf, forks in flight included.
    pub fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    /// The counters as they are now; 0 for what this mode does not count.
    pub fn usage(&self) -> Usage {
        Usage {
            cpu_us: self.counter("cpu.stat", "usage_usec"),
            peak_memory: self.read("memory.peak").and_then(|text| text.trim().parse().ok()),
            oom_kills: self.counter("memory.events", "oom_kill"),
            pids_refused: self.counter("pids.events", "max"),
        }
    }

    /// Processor time alone, microseconds.
    pub fn cpu_us(&self) -> u64 {
        self.counter("cpu.stat", "usage_usec")
    }

    /// Processes in the leaf, as the host numbers them.
    pub fn processes(&self) -> Vec<i32> {
        let text = self.read("cgroup.procs").unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Threads in the leaf.
    pub fn threads(&self) -> u64 {
        self.read("cgroup.threads").map_or(0, |text| text.lines().count() as u64)
    }

    /// Removes the leaf; false when something in it has not ended yet.
    pub fn remove(&self) -> bool {
        match fs::remove_dir(&self.path) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.path.join(file)).ok()
    }

    fn counter(&self, file: &str, key: &str) -> u64 {
        value(&self.read(file).unwrap_or_default(), key)
    }
}

/// The number after the key of a line of its own; 0 when there is none.
fn value(text: &str, key: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok());
    value.unwrap_or(0)
}

fn host_has_swap() -> bool {
    fs::read_to_string(Path::new("/proc/swaps")).is_ok_and(|text| text.lines().count() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A leaf that is an ordinary directory with these files.
    fn leaf(name: &str, files: &[(&str, &str)]) -> Leaf {
        let path = std::env::temp_dir().join(format!("cordon-leaf-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        for (file, text) in files {
            fs::write(path.join(file), text).unwrap();
        }
        Leaf { directory: File::open(&path).unwrap().into(), path }
    }

    fn gone(leaf: Leaf) {
        fs::remove_dir_all(leaf.path).unwrap();
    }

    #[test]
    fn counters_are_those_of_the_line_that_is_theirs() {
        let leaf = leaf(
            "counters",
            &[
                ("cpu.stat", "user_usec 1\nusage_usec 1234567\nusage_usec_x 9\n"),
                ("memory.peak", "4096\n"),
                ("memory.events", "low 1\noom 2\noom_kill_other 8\noom_kill 3\noom_group_kill 4\n"),
                ("pids.events", "max 5\n"),
                ("cgroup.procs", "12\n13\n"),
                ("cgroup.threads", "12\n13\n14\n"),
            ],
        );
        let usage = Usage { cpu_us: 1_234_567, peak_memory: Some(4096), oom_kills: 3, pids_refused: 5 };
        assert_eq!((leaf.usage(), leaf.cpu_us()), (usage, 1_234_567));
        assert_eq!((leaf.processes(), leaf.threads()), (vec![12, 13], 3));
        gone(leaf);
    }

    #[test]
    fn files_that_are_missing_empty_or_garbled_count_nothing() {
        let none = leaf("none", &[]);
        let names = ["cpu.stat", "memory.peak", "memory.events", "pids.events", "cgroup.procs"];
        let empty = leaf("empty", &names.map(|name| (name, "")));
        let too_large = "usage_usec 18446744073709551616\noom_kill -1\nmax max\n99999999999\n";
        let garbled = leaf("garbled", &names.map(|name| (name, too_large)));
        for leaf in [none, empty, garbled] {
            assert_eq!(leaf.usage(), Usage::default(), "{}", leaf.path.display());
            assert_eq!((leaf.processes(), leaf.threads()), (Vec::new(), 0));
            gone(leaf);
        }
    }

    #[test]
    fn one_that_is_gone_is_removed_and_one_with_something_in_it_is_not() {
        let full = leaf("full", &[("file", "")]);
        assert!(!full.remove());
        fs::remove_file(full.path.join("file")).unwrap();
        assert!(full.remove() && full.remove());
        assert_eq!(full.usage(), Usage::default());
    }

    proptest! {
        #[test]
        fn a_value_is_read_wherever_its_line_stands_and_no_text_is_too_odd(number: u64, odd in "(max|[a-z_ ]{0,5}|[0-9]{0,25}|\\PC|\n){0,20}") {
            value(&odd, "max");
            let others = odd.replace("max", "other");
            prop_assert_eq!(value(&format!("{others}\nmax {number}\n{odd}"), "max"), number);
        }
    }

    /// What is written, and that it is read back; what the kernel makes of it only a host with the
    /// controllers can show.
    #[test]
    fn a_leaf_has_every_limit_before_anything_is_in_it() {
        let dir = std::env::temp_dir().join(format!("cordon-leaf-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut limits = LeafLimits { memory: 10 << 20, pids: 7, cpu_percent: Some(150), end_together: true };
        Leaf::make(dir.join("command"), Some(&limits)).unwrap();
        let written = |file: &str| fs::read_to_string(dir.join(file)).unwrap();
        for (file, value) in [
            ("memory.max", "10485760"),
            ("memory.swap.max", "0"),
            ("memory.oom.group", "1"),
            ("pids.max", "7"),
            ("cpu.max", "150000 100000"),
        ] {
            assert_eq!(written(&format!("command/{file}")), value, "{file}");
        }
        limits.end_together = false;
        Leaf::make(dir.join("init"), Some(&limits)).unwrap();
        assert!(!dir.join("init/memory.oom.group").exists());
        // Made twice it would be shared.
        assert_eq!(Leaf::make(dir.join("init"), None).unwrap_err().errno, Errno::EEXIST);
        fs::remove_dir_all(dir).unwrap();
    }
}
