//! The part of the root that all sandboxes of a profile share, read-only.

use crate::{
    profile::Profile,
    sandbox::steps::{About, Fault},
    sys::mount::{Attributes, attach, clone_tree, new_filesystem, restrict_mounted, set_attributes},
};
use nix::errno::Errno;
use std::{
    fs::{self, DirBuilder, File},
    os::{
        fd::AsFd,
        unix::fs::{DirBuilderExt, FileTypeExt, symlink},
    },
    path::{Path, PathBuf},
};

/// A prepared root: where it is mounted in the monitor's namespace, and what is to hold inside.
#[derive(Debug, Clone)]
pub struct Template {
    /// Mount point in the monitor's mount namespace.
    pub at: PathBuf,
    /// Mounts of the host's trees, as paths inside, and whether they may be written.
    pub exposed: Vec<(PathBuf, bool)>,
}

/// Top-level names that are links into /usr on a merged system and directories on others.
const MERGED: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// Device nodes of the host that a command may use.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// What /sys holds: how many processors there are.
const PROCESSORS: &str = "/sys/devices/system/cpu";
/// Directories that every root has, with their modes.
const DIRECTORIES: [(&str, u32); 9] = [
    ("proc", 0o555),
    ("dev", 0o755),
    ("dev/pts", 0o755),
    ("dev/shm", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("run", 0o755),
    ("tmp", 0o755),
    ("var", 0o755),
];
/// Links that programs expect.
const LINKS: [(&str, &str); 7] = [
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
    ("dev/ptmx", "pts/ptmx"),
    ("var/tmp", "/tmp"),
    ("var/run", "/run"),
];
const READ_ONLY: Attributes = Attributes::READ_ONLY.with(Attributes::NO_SUID).with(Attributes::NO_DEV);
const WRITABLE: Attributes = Attributes::NO_SUID.with(Attributes::NO_DEV);
/// A device node on a mount with NO_DEV could not be opened. Read-only says nothing about what is written to a
/// device, but keeps the times of the host's node from being set, which every other sandbox would see.
const DEVICE: Attributes = Attributes::READ_ONLY.with(Attributes::NO_SUID).with(Attributes::NO_EXEC);

impl Template {
    /// Builds the root of a profile at `at`, in the calling process's own mount namespace.
    ///
    /// # Errors
    /// The path that could not be made, copied or mounted.
    pub fn build(home: &Path, profile: &Profile, at: PathBuf) -> Result<Self, Fault> {
        make_directory(&at, 0o755)?;
        let options = [(c"mode", Some("755")), (c"size", Some("128M")), (c"nr_inodes", Some("100k"))];
        let root = new_filesystem(c"tmpfs", &options, WRITABLE).about("tmpfs of the root")?;
        attach(root.as_fd(), &at).about(at.display())?;
        let mut template = Self { at, exposed: Vec::new() };
        for (name, mode) in DIRECTORIES {
            make_directory(&template.at.join(name), mode)?;
        }
        for (name, target) in LINKS {
            symlink(target, template.at.join(name)).about(name)?;
        }
        let home = home.strip_prefix("/").map_err(|_| Fault::new(Errno::EINVAL, "home"))?;
        make_directory(&template.at.join(home), 0o755)?;
        for name in DEVICES {
            template.bind_file(&Path::new("/dev").join(name), DEVICE)?;
        }
        if Path::new(PROCESSORS).exists() {
            template.expose(Path::new(PROCESSORS), profile, false)?;
        }
        for name in MERGED {
            template.expose(&Path::new("/").join(name), profile, false)?;
        }
        for (path, writable) in listed(profile) {
            template.expose(&path, profile, writable)?;
        }
        restrict_mounted(&template.at, READ_ONLY).about(template.at.display())?;
        Ok(template)
    }

    /// Makes a path of the host appear inside, without what the profile hides.
    fn expose(&mut self, path: &Path, profile: &Profile, writable: bool) -> Result<(), Fault> {
        let hidden = |hide: &PathBuf| path.starts_with(hide);
        let Ok(meta) = fs::symlink_metadata(path) else { return Ok(()) };
        if profile.hide.iter().any(hidden) {
            return Ok(());
        }
        let inside = self.inside(path)?;
        if meta.is_symlink() {
            let target = fs::read_link(path).about(path.display())?;
            return if inside.is_symlink() { Ok(()) } else { symlink(target, &inside).about(path.display()) };
        }
        if path.starts_with("/etc") {
            return super::snapshot::copy(path, &inside, &profile.hide);
        }
        if !meta.is_dir() {
            return if meta.is_file() { self.bind_exposed(path, writable) } else { Ok(()) };
        }
        if !profile.hide.iter().any(|hide| hide.starts_with(path)) {
            return self.bind_exposed(path, writable);
        }
        // Something below is hidden, or will be once it is made: everything beside it is given one by one.
        make_directory(&inside, 0o755)?;
        let mut entries: Vec<_> = fs::read_dir(path).about(path.display())?.collect::<Result<_, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        entries.iter().try_for_each(|entry| self.expose(&entry.path(), profile, writable))
    }

    /// Binds a directory or file of the host at the same path inside.
    fn bind_exposed(&mut self, path: &Path, writable: bool) -> Result<(), Fault> {
        let covered = |(mount, mode): &(PathBuf, bool)| path.starts_with(mount) && *mode == writable;
        if self.exposed.iter().any(covered) {
            return Ok(());
        }
        let attributes = if writable { WRITABLE } else { READ_ONLY };
        if path.is_dir() {
            let inside = self.inside(path)?;
            if !inside.exists() {
                make_directory(&inside, 0o755)?;
            }
            self.bind(path, &inside, attributes)?;
        } else {
            self.bind_file(path, attributes)?;
        }
        // What was there before is below this mount now.
        self.exposed.retain(|(mount, _)| !mount.starts_with(path));
        self.exposed.push((path.to_owned(), writable));
        Ok(())
    }

    fn bind_file(&self, path: &Path, attributes: Attributes) -> Result<(), Fault> {
        let meta = fs::metadata(path).about(path.display())?;
        if !meta.is_file() && !meta.file_type().is_char_device() {
            return Err(Fault::new(Errno::EINVAL, format!("{} is neither file nor device", path.display())));
        }
        let inside = self.inside(path)?;
        if !inside.exists() {
            File::create_new(&inside).about(inside.display())?;
        }
        self.bind(path, &inside, attributes)
    }

    fn bind(&self, path: &Path, inside: &Path, attributes: Attributes) -> Result<(), Fault> {
        let tree = clone_tree(path).about(path.display())?;
        set_attributes(tree.as_fd(), attributes).about(path.display())?;
        attach(tree.as_fd(), inside).about(inside.display())
    }

    /// Where a path lies in the template; its parents are made.
    fn inside(&self, path: &Path) -> Result<PathBuf, Fault> {
        let relative =
            path.strip_prefix("/").map_err(|_| Fault::new(Errno::EINVAL, path.to_string_lossy()))?;
        let inside = self.at.join(relative);
        let missing: Vec<_> = inside.ancestors().skip(1).take_while(|a| !a.exists()).collect();
        missing.iter().rev().try_for_each(|parent| make_directory(parent, 0o755))?;
        Ok(inside)
    }
}

/// Every path of the profile, parents before what lies in them, writable ones after readable ones.
fn listed(profile: &Profile) -> Vec<(PathBuf, bool)> {
    let readable = profile.read.iter().chain(&profile.execute).map(|path| (path.clone(), false));
    let mut paths: Vec<_> = readable.chain(profile.write.iter().map(|path| (path.clone(), true))).collect();
    paths.sort_by_key(|(path, writable)| (*writable, path.components().count(), path.clone()));
    paths.dedup();
    paths
}

/// Makes a directory with exactly this mode; one that is there already will do.
pub(super) fn make_directory(path: &Path, mode: u32) -> Result<(), Fault> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other.about(path.display()),
    }
}
