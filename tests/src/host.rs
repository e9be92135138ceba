//! What the kernel says about processes and cgroups (proc(5), cgroups(7)).

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Every process number there is now.
pub fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_string_lossy().parse().ok()).collect()
}

/// `/proc/PID/status` by key; empty when the process has ended.
pub fn status(pid: i32) -> BTreeMap<String, String> {
    // A process names itself with any bytes.
    parse_status(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/status")).unwrap_or_default()))
}

/// The text of a `status` file by key.
pub fn parse_status(text: &str) -> BTreeMap<String, String> {
    let pair = |line: &str| line.split_once(':').map(|(k, v)| (k.to_owned(), v.trim().to_owned()));
    text.lines().filter_map(pair).collect()
}

/// A number in a file of lines `KEY: NUMBER` (/proc/meminfo, /proc/PID/smaps_rollup), in the file's unit.
pub fn number(path: impl AsRef<Path>, key: &str) -> Option<u64> {
    let text = parse_status(&fs::read_to_string(path).ok()?).remove(key)?;
    text.split_whitespace().next()?.parse().ok()
}

/// Every process below this one, nearest first; those that have ended and nobody has waited for as well.
pub fn descendants(pid: i32) -> Vec<i32> {
    let parents: BTreeMap<i32, i32> =
        processes().into_iter().filter_map(|p| Some((p, status(p).get("PPid")?.parse().ok()?))).collect();
    let mut found = vec![pid];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(parents.iter().filter(|(_, p)| **p == parent).map(|(child, _)| *child));
        at += 1;
    }
    found.split_off(1)
}

/// The program a process runs; none for one that has ended.
pub fn exe(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// What the descriptors of a process are.
pub fn descriptors(pid: i32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let link = |e: fs::DirEntry| fs::read_link(e.path()).ok();
    entries.flatten().filter_map(link).map(|l| l.to_string_lossy().into_owned()).collect()
}

/// Where cgroup v2 is mounted.
pub fn cgroup2() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|l| l.contains(" - cgroup2 "))?;
    line.split(' ').nth(4).map(PathBuf::from)
}

/// Every directory of the cgroup v2 hierarchy.
pub fn cgroups() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = cgroup2().into_iter().collect();
    let mut at = 0;
    while at < found.len() {
        let entries = fs::read_dir(&found[at]).into_iter().flatten().flatten();
        found.extend(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        at += 1;
    }
    found
}

/// The directory in which a monitor makes its cgroups: it keeps it open, as a lock.
pub fn cgroups_of(monitor: i32) -> Option<PathBuf> {
    let root = cgroup2()?;
    descriptors(monitor).into_iter().map(PathBuf::from).filter(|path| path.starts_with(&root)).min()
}
