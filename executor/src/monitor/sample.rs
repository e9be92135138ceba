//! The sampled watchdog: memory of a sandbox where no memory controller counts it.

use super::launch::Process;
use crate::sys::{
    clone::{CloneOptions, Cloned, clone_process},
    process::{close_all_but, compare_memory, exit_now},
};
use nix::{
    errno::Errno,
    sys::{prctl::set_pdeathsig, signal::Signal, statvfs::fstatvfs},
};
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fs,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
};

/// Memory that the processes and the sandbox's own file systems hold, bytes, at most: pages that several
/// processes share are counted once for each.
pub(super) fn memory(processes: &[i32], storage: &[OwnedFd]) -> u64 {
    total(stored(storage), processes.iter().map(|pid| resident(*pid)))
}

/// Anonymous memory, and the larger of what is stored and what is mapped as shared memory: a file of /tmp
/// that is mapped is both.
fn total(stored: u64, processes: impl Iterator<Item = Held>) -> u64 {
    let held = processes.fold(Held::default(), |sum, held| Held {
        anonymous: sum.anonymous.saturating_add(held.anonymous),
        shared: sum.shared.saturating_add(held.shared),
    });
    held.anonymous.saturating_add(held.shared.max(stored))
}

/// What a process holds, bytes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    anonymous: u64,
    shared: u64,
}

/// Starts a process that counts shared pages once, and ends with 0 when that is within `limit`, else with 1.
///
/// Telling shared pages apart takes each process's memory lock, which the process itself can hold as long as
/// it likes: the monitor must never wait for one. What is started may have to, so it keeps nothing open that
/// somebody waits to see closed, and ends with the monitor.
///
/// # Errors
/// errno of clone(2).
pub(super) fn start_recount(processes: &[i32], storage: &[OwnedFd], limit: u64) -> Result<Process, Errno> {
    match clone_process(CloneOptions { namespaces: 0, cgroup: None })? {
        Cloned::Parent { pid, pidfd } => Ok(Process { pid, pidfd }),
        Cloned::Child => {
            let kept: Vec<_> = storage.iter().map(AsRawFd::as_raw_fd).collect();
            let _ = close_all_but(&kept);
            let _ = set_pdeathsig(Signal::SIGKILL);
            let counted = distinct(processes).into_iter().map(proportional);
            exit_now(i32::from(total(stored(storage), counted) > limit))
        }
    }
}

/// Whether a tmpfs has no room left.
pub(super) fn is_full(directory: &OwnedFd) -> bool {
    fstatvfs(directory.as_fd()).is_ok_and(|stat| stat.blocks_available() == 0 || stat.files_available() == 0)
}

/// Bytes in use on these file systems.
fn stored(directories: &[OwnedFd]) -> u64 {
    let used = |directory: &OwnedFd| {
        let stat = fstatvfs(directory.as_fd()).ok()?;
        Some(stat.blocks().saturating_sub(stat.blocks_free()).saturating_mul(stat.block_size()))
    };
    directories.iter().filter_map(used).fold(0, u64::saturating_add)
}

/// A file of /proc; empty for a process that has ended meanwhile. A process names itself with any bytes,
/// which stand in some of its files as they are (prctl(2), PR_SET_NAME).
fn read(path: impl AsRef<Path>) -> String {
    fs::read(path).map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Resident or swapped pages that belong to no file on a disk (proc_pid_status(5)). Takes no lock of the
/// process's.
fn resident(pid: i32) -> Held {
    told(&of_living_thread(pid, "status", "RssAnon:"), ["RssAnon:", "VmSwap:", "RssShmem:"])
}

/// The same with shared pages divided among their holders (proc_pid_smaps(5)). Where that is not to be had, as
/// without CAP_SYS_PTRACE, they are counted for each: nobody holds nothing because he could not be asked.
fn proportional(pid: i32) -> Held {
    let text = of_living_thread(pid, "smaps_rollup", "Pss_Anon:");
    if text.is_empty() { resident(pid) } else { told(&text, ["Pss_Anon:", "SwapPss:", "Pss_Shmem:"]) }
}

/// What the lines of these names say: of anonymous memory what is resident and what is swapped out, which a
/// process can do with its own (madvise(2), MADV_PAGEOUT), and shared memory.
fn told(text: &str, [anonymous, swapped, shared]: [&str; 3]) -> Held {
    let anonymous = kibibytes(text, anonymous).saturating_add(kibibytes(text, swapped));
    Held { anonymous, shared: kibibytes(text, shared) }
}

/// A file of the process that says something about its memory, which the line `key` shows; empty when none
/// does. Of a process whose first thread has ended while others go on, only those still tell.
fn of_living_thread(pid: i32, file: &str, key: &str) -> String {
    let tells = |text: &String| text.lines().any(|line| line.starts_with(key));
    let own = read(format!("/proc/{pid}/{file}"));
    if tells(&own) {
        return own;
    }
    let others = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    others.map(|task| read(task.path().join(file))).find(tells).unwrap_or_default()
}

/// Of processes that have all their memory in common, as parent and child have between vfork(2) and exec, one:
/// of its pages /proc says that they are nobody else's.
fn distinct(processes: &[i32]) -> Vec<i32> {
    let mut found: Vec<i32> = Vec::new();
    for pid in processes {
        // What cannot be compared is another's.
        let compared = |other: &i32| compare_memory(*other, *pid).unwrap_or(Ordering::Less);
        if let Err(at) = found.binary_search_by(compared) {
            found.insert(at, *pid);
        }
    }
    found
}

/// The value of a line `KEY 12 kB`, bytes; 0 when there is none.
fn kibibytes(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix(" kB"));
    line.and_then(|number| number.parse::<u64>().ok()).map_or(0, |number| number.saturating_mul(1024))
}

/// The processes and all their descendants, each once, for hosts without cgroup v2 (proc_tid_children(5)). At
/// most so many are looked for: a process that forks and ends could lead on for ever.
pub(super) fn tree(roots: &[i32], most: usize) -> Vec<i32> {
    descendants(roots, most, |pid| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.flat_map(|task| numbers(&read(task.path().join("children")))).collect()
    })
}

/// As [`tree`]. A process whose parent ends becomes a child of another: it may be met twice.
fn descendants(roots: &[i32], most: usize, children: impl Fn(i32) -> Vec<i32>) -> Vec<i32> {
    let (mut found, mut known) = (Vec::new(), BTreeSet::new());
    let mut add = |found: &mut Vec<i32>, pids: Vec<i32>| {
        found.extend(pids.into_iter().filter(|pid| known.insert(*pid)));
    };
    add(&mut found, roots.to_vec());
    let mut next = 0;
    while next < found.len() && found.len() < most {
        let below = children(found[next]);
        add(&mut found, below);
        next += 1;
    }
    found
}

/// Process numbers, separated by white space.
fn numbers(text: &str) -> Vec<i32> {
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid > 0).collect()
}

/// Children of the monitor that run under this uid: on a host without pid namespaces what a command has
/// left behind becomes the monitor's (PR_SET_CHILD_SUBREAPER, prctl(2)).
pub(super) fn adopted(uid: u32) -> Vec<i32> {
    let own = std::process::id();
    let of_uid = |pid: &i32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == uid);
    numbers(&read(format!("/proc/{own}/task/{own}/children"))).into_iter().filter(of_uid).collect()
}

/// Threads of the processes.
pub(super) fn threads(processes: &[i32]) -> u64 {
    let of = |pid: &i32| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |tasks| tasks.count() as u64);
    processes.iter().map(of).sum()
}

/// The processor time of processes that come and go, as far as it was seen.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// What each that was there at the last look had used itself, by number and start; ticks.
    seen: BTreeMap<(i32, u64), u64>,
    /// What those had used that are gone; ticks.
    gone: u64,
    most: u64,
}

/// Microseconds of a tick.
const TICK_US: u64 = 10_000;

impl Account {
    /// Takes in what these processes have used up to now, and says what all have at least: microseconds.
    pub(super) fn take_in(&mut self, processes: &[i32]) -> u64 {
        let stats =
            processes.iter().filter_map(|pid| Some((*pid, Used::read(&read(format!("/proc/{pid}/stat")))?)));
        self.add(stats)
    }

    /// The time of a process that has ended is its parent's when that waits for it, and nobody's otherwise: the
    /// larger of two sums counts, of which either may miss what the other has.
    fn add(&mut self, stats: impl Iterator<Item = (i32, Used)>) -> u64 {
        let (mut here, mut with_children) = (BTreeMap::new(), 0_u64);
        for (pid, used) in stats {
            here.insert((pid, used.since), used.own);
            with_children = with_children.saturating_add(used.own).saturating_add(used.children);
        }
        for (process, ticks) in std::mem::take(&mut self.seen) {
            if !here.contains_key(&process) {
                self.gone = self.gone.saturating_add(ticks);
            }
        }
        self.seen = here;
        let own = self.seen.values().fold(self.gone, |sum, ticks| sum.saturating_add(*ticks));
        self.most = self.most.max(own).max(with_children);
        self.most.saturating_mul(TICK_US)
    }
}

/// Processor time of one process, ticks.
#[derive(Debug, PartialEq, Eq)]
struct Used {
    /// Its own.
    own: u64,
    /// Of those of its children that it has waited for.
    children: u64,
    /// When it started, which tells it from an earlier one of the same number.
    since: u64,
}

impl Used {
    /// From a process's `stat` (proc_pid_stat(5)): its fields 14 to 17, and 22. The name before them can have
    /// anything in it.
    fn read(stat: &str) -> Option<Self> {
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut fields = after_name.split_whitespace().skip(11).map(str::parse::<u64>);
        let mut next = || fields.next()?.ok();
        let (own, children) = (next()?.saturating_add(next()?), next()?.saturating_add(next()?));
        let since = fields.nth(4)?.ok()?;
        Some(Self { own, children, since })
    }
}

#[cfg(test)]
mod tests;
