//! What a monitor has while nothing runs, so that what a sandbox left can be seen.

use crate::host;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Kind of the mounts that are not below the monitor's state directory: its namespace began as its host's.
const FROM_HOST: &str = "mounts elsewhere";
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
        let (own, from_host) = mounts(monitor);
        found.add("mounts", own);
        found.add(FROM_HOST, from_host);
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

    /// Whether this is what there was: nothing more, and nothing less. Only what came from the host may be gone: a mount
    /// leaves every namespace when its directory is removed where nothing is mounted on it (rmdir(2) in the host's).
    pub fn is_again(&self, before: &Self) -> bool {
        let gone = before.beyond(self);
        self.beyond(before).is_empty() && gone.iter().all(|thing| thing.starts_with(FROM_HOST))
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

/// Where a monitor has something mounted: below its state directory, and elsewhere.
fn mounts(pid: i32) -> (Vec<String>, Vec<String>) {
    let text = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    let descriptors = host::descriptors(pid);
    let state = descriptors.iter().find_map(|link| link.strip_suffix("/lock"));
    sorted_out(&text, state.map(Path::new))
}

/// Where systemd mounts the credentials of each unit when it starts, and unmounts them with its end: in all mount
/// namespaces, those of monitors among them. Nothing of Cordon's is mounted there.
const CREDENTIALS: &str = "/run/credentials/";

/// The mounts of a mountinfo (proc_pid_mountinfo(5)): below a directory, and elsewhere. Without what the host mounts
/// meanwhile, which comes to its slaves.
fn sorted_out(mountinfo: &str, state: Option<&Path>) -> (Vec<String>, Vec<String>) {
    let (mut own, mut from_host) = (Vec::new(), Vec::new());
    for fields in mountinfo.lines().map(|line| line.split(' ').collect::<Vec<_>>()) {
        let Some(path) = fields.get(4) else { continue };
        let optional = fields.iter().skip(6).take_while(|field| **field != "-");
        if state.is_some_and(|state| Path::new(path).starts_with(state)) {
            own.push(place(path));
        } else if !path.starts_with(CREDENTIALS) && !optional.into_iter().any(|f| f.starts_with("master:")) {
            from_host.push(place(path));
        }
    }
    (own, from_host)
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
    use super::*;

    const MOUNTINFO: &str = "\
21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 0:40 / /mnt/image/proc rw,nosuid - proc proc rw
23 21 0:41 / /mnt/stick rw shared:7 master:3 - tmpfs none rw
24 21 0:42 / /state/roots/default3 ro - tmpfs none ro
25 24 8:1 /usr /state/roots/default3/usr ro master:3 - ext4 /dev/sda1 rw
26 21 0:43 / /statement rw shared:9 - tmpfs none rw
27 21 0:44 / /run/credentials rw - tmpfs none rw
28 27 0:45 / /run/credentials/systemd-tmpfiles-clean.service ro,noatime shared:1 - tmpfs none rw
";

    fn with(mountinfo: &str) -> Belongings {
        let (own, from_host) = sorted_out(mountinfo, Some(Path::new("/state")));
        let mut found = Belongings::default();
        found.add("mounts", own);
        found.add(FROM_HOST, from_host);
        found
    }

    /// Without the line that has this number.
    fn less(number: &str) -> String {
        let lines = MOUNTINFO.lines().filter(|line| !line.starts_with(number));
        lines.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn what_the_host_mounts_meanwhile_is_not_the_monitor_s() {
        let (own, from_host) = sorted_out(MOUNTINFO, Some(Path::new("/state")));
        assert_eq!(own, ["/state/roots/default/", "/state/roots/default/usr"]);
        assert_eq!(from_host, ["/", "/mnt/image/proc", "/statement", "/run/credentials"]);
    }

    #[test]
    fn of_mounts_only_the_host_s_may_be_gone() {
        let before = with(MOUNTINFO);
        for (number, again) in [("22", true), ("23", true), ("24", false), ("25", false)] {
            assert_eq!(with(&less(number)).is_again(&before), again, "without {number}");
        }
        // Whatever has come, wherever, is the monitor's.
        for number in ["22", "24", "25", "26"] {
            assert!(!before.is_again(&with(&less(number))), "with {number} more");
        }
    }
}
