//! What a monitor has while nothing runs, so that what a sandbox left can be seen.

use crate::host;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Kinds of namespaces, as /proc/PID/ns names them.
const NAMESPACES: [&str; 7] = ["mnt", "pid", "pid_for_children", "ipc", "uts", "net", "cgroup"];

/// Things by kind, sorted; what looks the same is there as often as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Belongings(BTreeMap<String, Vec<String>>);

impl Belongings {
    /// What a monitor has now, with all processes below it.
    pub fn of(monitor: i32) -> Self {
        let processes = host::descendants(monitor);
        let mut found = Self::default();
        found.add("mounts", mounts(monitor));
        let mut namespaces: BTreeSet<_> = processes.iter().flat_map(|pid| namespaces(*pid, &[])).collect();
        // While it fills its stock of network namespaces it is in one of them for a moment.
        namespaces.extend(self::namespaces(monitor, &["net"]));
        found.add("namespaces", namespaces);
        found.add("processes", processes.iter().map(|pid| process(*pid)));
        found.add("monitor's descriptors", kinds_of_descriptors(monitor));
        if let Some(own) = host::cgroups_of(monitor) {
            let groups = host::cgroups().into_iter().filter(|group| group.starts_with(&own));
            found.add("cgroups", groups.map(|path| path.display().to_string()));
        }
        found
    }

    /// Adds things of a kind.
    pub fn add(&mut self, kind: &str, things: impl IntoIterator<Item = String>) {
        let list = self.0.entry(kind.to_owned()).or_default();
        list.extend(things);
        list.sort();
    }

    /// How many of a kind there are.
    pub fn count(&self, kind: &str) -> usize {
        self.0.get(kind).map_or(0, Vec::len)
    }

    /// The kinds there are.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// What is here and not in `before`, each with its kind.
    pub fn beyond(&self, before: &Self) -> Vec<String> {
        let mut more = Vec::new();
        for (kind, things) in &self.0 {
            let mut known = before.0.get(kind).cloned().unwrap_or_default();
            for thing in things {
                match known.iter().position(|k| k == thing) {
                    Some(at) => drop(known.swap_remove(at)),
                    None => more.push(format!("{kind}: {thing}")),
                }
            }
        }
        more
    }
}

/// Where a process has something mounted, but for what units of the host have there while they run.
fn mounts(pid: i32) -> Vec<String> {
    mounts_in(&fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default())
}

/// Where systemd mounts the credentials of each unit when it starts, and unmounts them with its end: in all mount
/// namespaces, those of monitors among them. Nothing of Cordon's is mounted there.
const CREDENTIALS: &str = "/run/credentials/";

/// The same of a text as mountinfo has it (proc_pid_mountinfo(5)).
fn mounts_in(text: &str) -> Vec<String> {
    let places = text.lines().filter_map(|line| line.split(' ').nth(4));
    places.filter(|path| !path.starts_with(CREDENTIALS)).map(place).collect()
}

/// A path. The roots of profiles are made anew, with another number, when /etc changes.
fn place(path: &str) -> String {
    let Some((above, root)) = path.split_once("/roots/") else { return path.to_owned() };
    let (root, below) = root.split_once('/').unwrap_or((root, ""));
    let name = root.trim_end_matches(|c: char| c.is_ascii_digit());
    format!("{above}/roots/{name}/{below}")
}

/// Namespaces that a process is in, and into which it puts its children; of all kinds but these.
fn namespaces(pid: i32, without: &[&str]) -> Vec<String> {
    let wanted = NAMESPACES.iter().filter(|kind| !without.contains(kind));
    let links = wanted.filter_map(|kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok());
    links.map(|link| link.display().to_string()).collect()
}

/// A process by its number, with its threads, and whether it has ended and was not waited for.
fn process(pid: i32) -> String {
    let status = host::status(pid);
    let field = |key: &str| status.get(key).map_or("", String::as_str);
    let zombie = if field("State").starts_with('Z') { ", zombie" } else { "" };
    format!("{pid} {} (threads {}{zombie})", field("Name"), field("Threads"))
}

/// What the descriptors of a process are, without their numbers. The stock of network namespaces is not among
/// them, since it is filled at any time.
pub fn kinds_of_descriptors(pid: i32) -> Vec<String> {
    let kinds = host::descriptors(pid).into_iter().map(|link| match link.split_once('[') {
        Some((kind, _)) => kind.to_owned(),
        None => place(&link),
    });
    kinds.filter(|kind| kind != "net:").collect()
}

/// Every path below a directory; those below a file that is no directory, or is gone, are none.
pub fn paths_below(directory: &Path) -> Vec<String> {
    let (mut found, mut pending) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(at) = pending.pop() {
        for entry in fs::read_dir(at).into_iter().flatten().flatten() {
            found.push(place(&entry.path().display().to_string()));
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                pending.push(entry.path());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::mounts_in;

    #[test]
    fn mounts_are_all_but_the_credentials_of_units() {
        let line = |path: &str| format!("36 35 98:0 / {path} rw,noatime shared:1 - tmpfs none rw\n");
        let paths = ["/", "/run", "/run/cordon/roots/default17/usr", "/run/credentials", "/tmp", "/tmp"];
        let text: String = paths.iter().map(|path| line(path)).collect();
        let seen = mounts_in(&(text + &line("/run/credentials/systemd-tmpfiles-clean.service")));
        assert_eq!(seen, ["/", "/run", "/run/cordon/roots/default/usr", "/run/credentials", "/tmp", "/tmp"]);
    }
}
