//! Where in cgroup v2 the executor is, and which part of it is its own.

use crate::sys::host::is_marked;
use cordon_protocol::supervision::has_systemd;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The executor's own cgroup as a directory, wherever cgroup2 is mounted.
pub(super) fn own_directory() -> Option<PathBuf> {
    // Other mounts of the host can have names that are no text.
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let mounts = fs::read("/proc/self/mountinfo").map(text).ok()?;
    let groups = fs::read("/proc/self/cgroup").map(text).ok()?;
    locate(&mounts, &groups).filter(|path| path.is_dir())
}

/// From the texts of mountinfo (proc_pid_mountinfo(5)) and cgroup (cgroups(7)): the line of hierarchy 0
/// below the mount of type cgroup2.
fn locate(mounts: &str, groups: &str) -> Option<PathBuf> {
    let own = Path::new(groups.lines().find_map(|line| line.strip_prefix("0::"))?);
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = own.strip_prefix(root).ok().filter(|_| after.split(' ').next() == Some("cgroup2"))?;
        Some(Path::new(point).join(below))
    })
}

/// The delegated cgroup that holds `own`: systemd may have put the executor into a subgroup of it
/// (DelegateSubgroup=, systemd.resource-control(5)).
pub(super) fn delegated_base(own: &Path) -> PathBuf {
    match own.parent() {
        Some(parent) if !is_delegated(own) && is_delegated(parent) => parent.to_owned(),
        _ => own.to_owned(),
    }
}

fn is_delegated(directory: &Path) -> bool {
    is_marked(directory, c"trusted.delegate") || is_marked(directory, c"user.delegate")
}

/// Whether controllers may be switched on below the directory: it was delegated, or it is the root of a
/// container's view on a host without systemd. The real root is the host's.
pub(super) fn is_ours(directory: &Path) -> bool {
    let real_root = !directory.join("cgroup.type").exists();
    !real_root && (is_delegated(directory) || !has_systemd())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cgroup2_is_found_by_type_wherever_it_is_mounted() {
        let hybrid = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
        let groups = "4:memory:/x\n0::/system.slice/a.service\n";
        let found = locate(hybrid, groups).unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/unified/system.slice/a.service"));
        let container = "41 31 0:38 /pod/one /sys/fs/cgroup ro - cgroup2 cgroup2 ro\n";
        assert_eq!(locate(container, "0::/pod/one/x\n").unwrap(), Path::new("/sys/fs/cgroup/x"));
        assert_eq!(locate("35 31 0:32 / /m rw - cgroup cgroup rw,memory\n", groups), None);
        assert_eq!(locate(hybrid, "4:memory:/x\n"), None);
        // A line that is none, and a mount of another part, are passed over.
        let odd = format!("\n31 23 garbled\n - \n40 1 0:38 /other /x rw - cgroup2 cgroup2 rw\n{hybrid}");
        assert_eq!(locate(&odd, groups).unwrap(), found);
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(
            mounts in "([0-9]{0,2} | / | - |cgroup2|\\PC{0,3}|\n){0,30}", groups in "(0::|[a-z/.:]{0,9}|\n){0,6}",
        ) {
            locate(&mounts, &groups);
        }
    }
}
