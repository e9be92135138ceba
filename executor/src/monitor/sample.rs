//! The sampled watchdog: memory of a sandbox where no memory controller counts it.

use crate::sys::process::{CloneOptions, Cloned, clone_process, exit_now};
use nix::{errno::Errno, sys::statvfs::fstatvfs};
use std::{
    fs,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
};

/// Memory that the processes and the sandbox's own file systems hold, bytes, at most: pages that several
/// processes share are counted once for each.
pub(super) fn memory(processes: &[i32], storage: &[OwnedFd]) -> u64 {
    total(storage, processes.iter().map(|pid| resident(*pid)))
}

/// Anonymous memory, and the larger of what is stored and what is mapped as shared memory: a file of /tmp
/// that is mapped is both.
fn total(storage: &[OwnedFd], processes: impl Iterator<Item = Held>) -> u64 {
    let stored: u64 = storage.iter().map(stored).sum();
    let held = processes.fold(Held::default(), |sum, held| Held {
        anonymous: sum.anonymous + held.anonymous,
        shared: sum.shared + held.shared,
    });
    held.anonymous + held.shared.max(stored)
}

/// What a process holds, bytes.
#[derive(Default)]
struct Held {
    anonymous: u64,
    shared: u64,
}

/// Starts a process that counts shared pages once, and ends with 0 when that is within `limit`, else with 1.
///
/// Telling shared pages apart takes each process's memory lock, which the process itself can hold as long as
/// it likes: the monitor must never wait for one.
///
/// # Errors
/// errno of clone3(2).
pub(super) fn start_recount(processes: &[i32], storage: &[OwnedFd], limit: u64) -> Result<OwnedFd, Errno> {
    match clone_process(CloneOptions { namespaces: 0, cgroup: None })? {
        Cloned::Parent { pidfd, .. } => Ok(pidfd),
        Cloned::Child => {
            exit_now(i32::from(total(storage, processes.iter().map(|pid| proportional(*pid))) > limit))
        }
    }
}

/// Bytes in use on a tmpfs.
fn stored(directory: &OwnedFd) -> u64 {
    fstatvfs(directory.as_fd())
        .map_or(0, |stat| stat.blocks().saturating_sub(stat.blocks_free()) * stat.block_size())
}

/// Resident pages that belong to no file on a disk (proc_pid_status(5)). Takes no lock of the process's.
fn resident(pid: i32) -> Held {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    Held { anonymous: kibibytes(&text, "RssAnon:"), shared: kibibytes(&text, "RssShmem:") }
}

/// The same with shared pages divided among their holders (proc_pid_smaps(5)). A process that has ended
/// meanwhile holds nothing.
fn proportional(pid: i32) -> Held {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    Held { anonymous: kibibytes(&text, "Pss_Anon:"), shared: kibibytes(&text, "Pss_Shmem:") }
}

/// The value of a line `KEY 12 kB`, bytes.
fn kibibytes(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix(" kB"));
    line.and_then(|number| number.parse::<u64>().ok()).map_or(0, |number| number << 10)
}

/// The processes and all their descendants, for hosts without cgroup v2 (proc_tid_children(5)).
pub(super) fn tree(mut found: Vec<i32>) -> Vec<i32> {
    let mut next = 0;
    while next < found.len() {
        let tasks = fs::read_dir(format!("/proc/{}/task", found[next]));
        for task in tasks.into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
        next += 1;
    }
    found
}

/// Children of the monitor that run under this uid: on a host without pid namespaces what a command has
/// left behind becomes the monitor's (PR_SET_CHILD_SUBREAPER, prctl(2)).
pub(super) fn adopted(uid: u32) -> Vec<i32> {
    let own = std::process::id();
    let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    let of_uid = |pid: &i32| fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == uid);
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(of_uid).collect()
}

/// Threads of the processes.
pub(super) fn threads(processes: &[i32]) -> u64 {
    let of = |pid: &i32| fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |tasks| tasks.count() as u64);
    processes.iter().map(of).sum()
}

/// Processor time of the processes and of those children of theirs that they have waited for,
/// microseconds: fields 14 to 17 of stat (proc_pid_stat(5)).
pub(super) fn cpu_us(processes: &[i32]) -> u64 {
    const TICK_US: u64 = 10_000;
    let ticks = |pid: &i32| -> u64 {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields = after_name.split_whitespace().skip(11).take(4);
        fields.map(|field| field.parse::<u64>().unwrap_or(0)).sum()
    };
    processes.iter().map(ticks).sum::<u64>() * TICK_US
}
