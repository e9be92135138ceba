//! What is compared: things one by one, and figures that must not have grown by more than they are allowed to.

use crate::{
    Failure,
    belongings::{Belongings, kinds_of_descriptors, paths_below},
    host,
    up::Up,
};
use std::{fs, os::unix::fs::MetadataExt, path::Path};

/// Own memory that a program may have beyond what it had after as many runs before, KiB. An allocator asks the kernel for
/// steps of 132 KiB, gives back only what lies at the top of a heap, and so holds what the largest outputs took that
/// ever fell together. The monitor holds none; through the server several reports of 1 MiB pass at once (seen: between
/// 1.3 and 1.6 MiB when idle, 5.7 for a moment).
const MONITOR_KIB: u64 = 512;
const SERVER_KIB: u64 = 1536;
/// The gateway's threads have a heap each, and make JSON of a report beside the report (seen: level at 11 MiB after 3000
/// runs, at 9 after 300).
const GATEWAY_KIB: u64 = 4096;
/// With pages of the program's own file, which come and go with the host's memory, KiB.
const MAPPED_KIB: u64 = 8192;
/// Memory of all file systems in memory, KiB: that of the whole host, where others store something too.
const HOST_KIB: u64 = 256 << 10;
/// Network namespaces that wait for a command: the stock, and one on its way.
const NETWORKS: u64 = 5;
/// Files other than the audit trail, bytes. Their names are compared one by one.
const FILES_BYTES: u64 = 64 << 10;

/// Users that no file of the host outside the instance's directory should be of.
const USERS: [&str; 4] = ["execuser", "cordon-init", "cordon-exec", "cordon"];
/// Where everybody may write.
const OPEN_DIRECTORIES: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run/lock"];

/// Programs of an instance, in the order of their parents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Halves {
    up: i32,
    monitor: i32,
    server: i32,
    gateway: i32,
}

impl Halves {
    /// Of a running instance in which nothing else runs.
    ///
    /// # Errors
    /// One of them does not run; a command does.
    pub(super) fn of(up: &Up) -> Result<Self, Failure> {
        let monitor = up.find("cordon-executor")?;
        let server = match host::descendants(monitor)[..] {
            [server] => server,
            ref others => return Err(format!("not the server alone is below the monitor: {others:?}").into()),
        };
        Ok(Self { up: up.pid()?, monitor, server, gateway: up.find("cordon-gateway")? })
    }

    /// With the own memory that each may grow by.
    fn named(&self) -> [(&'static str, i32, u64); 3] {
        [
            ("monitor", self.monitor, MONITOR_KIB),
            ("server", self.server, SERVER_KIB),
            ("gateway", self.gateway, GATEWAY_KIB),
        ]
    }
}

/// Everything that is there, thing by thing.
pub(super) fn belongings(halves: &Halves, directory: &Path) -> Belongings {
    let mut found = Belongings::of(halves.monitor);
    let own: Vec<_> = std::iter::once(halves.up).chain(host::descendants(halves.up)).collect();
    found.add("server's descriptors", kinds_of_descriptors(halves.server));
    found.add("gateway's descriptors", kinds_of_descriptors(halves.gateway));
    found.add("processes of the instance", own.iter().map(|pid| format!("{pid}")));
    // Whatever has become of its parent: all but commands have inherited the mark.
    let mark = format!("CORDON_UP_MARK={}", directory.display());
    let marked = |pid: &i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|entry| entry == mark.as_bytes())
    };
    let marked = host::processes().into_iter().filter(marked);
    found.add("processes of the host with its mark", marked.map(|pid| format!("{pid}")));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let here = directory.display().to_string();
    found.add("mounts of the host below it", mounts.lines().filter(|l| l.contains(&here)).map(str::to_owned));
    found.add("files", paths_below(directory).into_iter().filter(|path| !is_older(path)));
    found.add("temporary files", temporary_files());
    found
}

/// Whether it is a file that a rotation of the trail has moved aside, of which a bounded number stays: the trail of a
/// long run fills more than one.
fn is_older(path: &str) -> bool {
    let older = |name| path.rsplit_once(name).is_some_and(|(_, number)| matches!(number.parse(), Ok(1..=7)));
    older("/audit.jsonl.") || older("/commands.jsonl.")
}

/// What the product's users have in directories where everybody may write.
fn temporary_files() -> Vec<String> {
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let uid = |name: &str| {
        let line = accounts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":x:"));
        line?.split(':').next()?.parse::<u32>().ok()
    };
    let users: Vec<_> = USERS.iter().filter_map(|name| uid(name)).collect();
    let entries = OPEN_DIRECTORIES.iter().flat_map(|path| fs::read_dir(path).into_iter().flatten().flatten());
    let theirs = entries.filter(|e| e.metadata().is_ok_and(|found| users.contains(&found.uid())));
    theirs.map(|entry| entry.path().display().to_string()).collect()
}

/// A number, and by how much it may be larger after as many runs again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Figure {
    /// What it counts.
    pub(super) name: String,
    /// How many.
    pub(super) value: u64,
    /// What it may become.
    pub(super) bound: Bound,
}

/// What a figure may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// So much larger than it was.
    Grow(u64),
    /// Never more than this.
    Most(u64),
    /// It is shown alone.
    None,
}

impl Bound {
    /// The limit for something that was so large before.
    pub(super) fn limit(self, before: u64) -> Option<u64> {
        match self {
            Self::Grow(by) => Some(before.saturating_add(by)),
            Self::Most(most) => Some(most),
            Self::None => None,
        }
    }
}

/// All figures, in the same order each time.
pub(super) fn figures(halves: &Halves, directory: &Path) -> Vec<Figure> {
    let mut found = Vec::new();
    let mut add = |name: String, value, bound| found.push(Figure { name, value, bound });
    for (name, pid, own) in halves.named() {
        let of = |file: &str, key: &str| host::number(format!("/proc/{pid}/{file}"), key).unwrap_or(0);
        add(format!("{name}: own memory, KiB"), of("status", "RssAnon"), Bound::Grow(own));
        add(format!("{name}: RSS, KiB"), of("status", "VmRSS"), Bound::Grow(MAPPED_KIB));
        add(format!("{name}: PSS, KiB"), of("smaps_rollup", "Pss"), Bound::Grow(MAPPED_KIB));
    }
    let networks = host::descriptors(halves.monitor).iter().filter(|link| link.starts_with("net:")).count();
    add("network namespaces in stock".to_owned(), networks as u64, Bound::Most(NETWORKS));
    if let Some(dying) = dying_cgroups(halves.monitor) {
        // What a removed leaf has read first stays charged to it: no more than there is to be read.
        add("cgroups that are removed but not gone".to_owned(), dying, Bound::Grow(100));
    }
    let shmem = host::number("/proc/meminfo", "Shmem").unwrap_or(0);
    add("Shmem of the host, KiB".to_owned(), shmem, Bound::Grow(HOST_KIB));
    let (trail, files): (Vec<_>, Vec<_>) =
        paths_below(directory).into_iter().partition(|path| path.ends_with(".jsonl") || is_older(path));
    let bytes = |paths: Vec<String>| {
        let sizes = paths.iter().filter_map(|path| fs::symlink_metadata(path).ok());
        sizes.filter(fs::Metadata::is_file).map(|found| found.len()).sum()
    };
    add("files but the audit trail, bytes".to_owned(), bytes(files), Bound::Grow(FILES_BYTES));
    add("audit trail, bytes".to_owned(), bytes(trail), Bound::None);
    found
}

fn dying_cgroups(monitor: i32) -> Option<u64> {
    let text = fs::read_to_string(host::cgroups_of(monitor)?.join("cgroup.stat")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("nr_dying_descendants "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::is_older;

    #[test]
    fn files_of_a_rotation_are_nothing_left_over_and_what_looks_like_them_is() {
        assert!(is_older("/run/cordon/audit.jsonl.1") && is_older("/run/cordon/commands.jsonl.7"));
        for left in ["audit.jsonl", "audit.jsonl.8", "audit.jsonl.0", "audit.jsonl.1.x", "my-audit.jsonl.1"] {
            assert!(!is_older(&format!("/run/cordon/{left}")), "{left}");
        }
    }
}
