//! The part of the root that is each sandbox's own, made by its init, and the pivot onto the whole.

use super::template::Template;
use crate::{
    config::Account,
    profile::Profile,
    sandbox::steps::{About, Fault},
    sys::mount::{Attributes, attach, clone_tree, new_filesystem, set_attributes},
};
use nix::{
    errno::Errno,
    mount::{MntFlags, umount2},
    sys::statvfs::{FsFlags, statvfs},
    unistd::{chdir, pivot_root},
};
use std::{
    ffi::CStr,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

/// Files of /proc that tell of the host or of other users' doings; each reads as empty.
const MASKED: [&str; 7] = ["cmdline", "keys", "key-users", "locks", "kallsyms", "iomem", "config.gz"];
const STORAGE: Attributes = Attributes::NO_SUID.with(Attributes::NO_DEV);
const MASK: Attributes = Attributes::READ_ONLY.with(Attributes::NO_SUID).with(Attributes::NO_EXEC);
const PROC: Attributes = Attributes::NO_SUID.with(Attributes::NO_DEV).with(Attributes::NO_EXEC);

/// Terminals of one sandbox: their number is bounded for the whole host too (kernel.pty.max, often 4,096).
const TERMINALS: &str = "64";

/// Mounts a /proc of the own pid namespace, masked, with /proc/sys read-only.
///
/// # Errors
/// The path that could not be mounted.
pub fn mount_proc(template: &Template) -> Result<(), Fault> {
    let proc = template.at.join("proc");
    // Processes of other users (init) do not appear at all.
    let tree = new_filesystem(c"proc", &[(c"hidepid", Some("invisible"))], PROC).about("proc")?;
    attach(tree.as_fd(), &proc).about("/proc")?;
    for name in MASKED.iter().filter(|name| proc.join(name).exists()) {
        let mask = clone_tree(&template.at.join("dev/null")).about("/dev/null")?;
        set_attributes(mask.as_fd(), MASK).about(name)?;
        attach(mask.as_fd(), &proc.join(name)).about(name)?;
    }
    let sys = proc.join("sys");
    let tree = clone_tree(&sys).about("/proc/sys")?;
    set_attributes(tree.as_fd(), PROC.with(Attributes::READ_ONLY)).about("/proc/sys")?;
    attach(tree.as_fd(), &sys).about("/proc/sys")
}

/// What is mounted as the home directory.
#[derive(Debug, Clone, Copy)]
pub enum Home<'a> {
    /// Memory that goes with the sandbox, this user's.
    Private(&'a Account),
    /// A directory of the host's that stays.
    Named(&'a Path),
}

/// Mounts the terminals, shared memory, /tmp and workspace that no other sandbox sees; returns those that
/// hold data in memory, so that what is in them can be counted.
///
/// # Errors
/// The path that could not be mounted.
pub fn mount_private(
    template: &Template,
    profile: &Profile,
    home: &Path,
    content: Home<'_>,
) -> Result<Vec<OwnedFd>, Fault> {
    let terminals = [(c"ptmxmode", Some("0666")), (c"mode", Some("0600")), (c"max", Some(TERMINALS))];
    let tree = new_filesystem(c"devpts", &terminals, Attributes::NO_SUID.with(Attributes::NO_EXEC));
    attach(tree.about("devpts")?.as_fd(), &template.at.join("dev/pts")).about("/dev/pts")?;
    let relative = home.strip_prefix("/").map_err(|_| Fault::new(Errno::EINVAL, "home"))?;
    let at = template.at.join(relative);
    let mut counted = vec![
        storage(&template.at.join("dev/shm"), profile.tmp, "1777", None)?,
        storage(&template.at.join("tmp"), profile.tmp, "1777", None)?,
    ];
    match content {
        Home::Private(user) => counted.push(storage(&at, profile.workspace, "0700", Some(user))?),
        Home::Named(directory) => {
            let tree = clone_tree(directory).about(directory.display())?;
            set_attributes(tree.as_fd(), STORAGE).about(directory.display())?;
            attach(tree.as_fd(), &at).about(at.display())?;
        }
    }
    Ok(counted)
}

/// A tmpfs of at most `size` bytes and one inode for each 4 KiB of them.
fn storage(at: &Path, size: u64, mode: &str, owner: Option<&Account>) -> Result<OwnedFd, Fault> {
    let (size, inodes) = (size.to_string(), (size / 4096).max(64).to_string());
    let (uid, gid) = owner.map_or((0, 0), |account| (account.uid(), account.gid()));
    let (uid, gid) = (uid.to_string(), gid.to_string());
    let options: [(&CStr, Option<&str>); 5] = [
        (c"size", Some(&size)),
        (c"nr_inodes", Some(&inodes)),
        (c"mode", Some(mode)),
        (c"uid", Some(&uid)),
        (c"gid", Some(&gid)),
    ];
    let tree = new_filesystem(c"tmpfs", &options, STORAGE).about(at.display())?;
    attach(tree.as_fd(), at).about(at.display())?;
    Ok(tree)
}

/// Makes the template the root and drops everything else of the host.
///
/// # Errors
/// errno of pivot_root(2) or umount2(2).
pub fn pivot(template: &Template) -> Result<(), Fault> {
    chdir(&template.at).about(template.at.display())?;
    // The old root lands on top of the new one, from where it is taken away (pivot_root(2)).
    pivot_root(".", ".").about("pivot_root")?;
    umount2(".", MntFlags::MNT_DETACH).about("old root")?;
    chdir("/").about("/")
}

fn names(flags: FsFlags) -> String {
    flags.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
}

/// Reads the flags of every shared mount back.
///
/// # Errors
/// A mount that could be written or would honour set-uid bits or devices.
pub fn verify(template: &Template, home: &Path) -> Result<(), Fault> {
    let own = [(PathBuf::from("/"), false), (home.to_owned(), true)];
    for (path, writable) in template.exposed.iter().chain(&own) {
        let flags = statvfs(path).about(path.display())?.flags();
        let mut wanted = FsFlags::ST_NOSUID | FsFlags::ST_NODEV;
        if !writable {
            wanted |= FsFlags::ST_RDONLY;
        }
        if !flags.contains(wanted) {
            return Err(Fault::mismatch(&path.to_string_lossy(), names(flags), names(wanted)));
        }
    }
    Ok(())
}
