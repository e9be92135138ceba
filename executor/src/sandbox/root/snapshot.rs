//! A copy of /etc that holds only what every user of the host may read.
//!
//! A bind of /etc could leave nothing out without mounting over it, and would pin replaced files.

use super::template::make_directory;
use crate::sandbox::steps::{About, Fault};
use nix::{errno::Errno, fcntl::OFlag};
use std::{
    fs::{self, OpenOptions, Permissions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

/// Files larger than this are no configuration, bytes.
const FILE_MAX: u64 = 16 << 20;

/// Copies what everybody may read of `from` to `to`, leaving out what is in `hide`. What is removed while it
/// is looked at is left out too.
pub(super) fn copy(from: &Path, to: &Path, hide: &[PathBuf]) -> Result<(), Fault> {
    match copy_entry(from, to, hide) {
        Err(fault) if fault.errno == Errno::ENOENT && !from.exists() && !from.is_symlink() => Ok(()),
        other => other,
    }
}

fn copy_entry(from: &Path, to: &Path, hide: &[PathBuf]) -> Result<(), Fault> {
    if hide.iter().any(|hidden| from.starts_with(hidden)) {
        return Ok(());
    }
    let meta = fs::symlink_metadata(from).about(from.display())?;
    if meta.is_symlink() {
        return copy_link(from, to);
    }
    if meta.is_dir() && meta.mode() & 0o005 == 0o005 {
        make_directory(to, 0o755)?;
        let mut entries: Vec<_> = fs::read_dir(from).about(from.display())?.collect::<Result<_, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        return entries.iter().try_for_each(|entry| copy(&entry.path(), &to.join(entry.file_name()), hide));
    }
    if meta.is_file() && meta.mode() & 0o004 != 0 && meta.len() <= FILE_MAX {
        return copy_file(from, to);
    }
    Ok(())
}

/// Copies a link as it is; one that points into /run, which is empty inside, becomes the file it names
/// (/etc/resolv.conf on many systems).
fn copy_link(from: &Path, to: &Path) -> Result<(), Fault> {
    let target = fs::read_link(from).about(from.display())?;
    match fs::canonicalize(from) {
        Ok(real) if real.starts_with("/run") => {
            let meta = fs::metadata(&real).about(real.display())?;
            let readable = meta.is_file() && meta.mode() & 0o004 != 0 && meta.len() <= FILE_MAX;
            if readable && everybody_gets_to(&real) { copy_file(&real, to) } else { Ok(()) }
        }
        _ => symlink(target, to).about(to.display()),
    }
}

/// Whether every directory above the file lets everybody pass.
fn everybody_gets_to(file: &Path) -> bool {
    let passable = |directory: &Path| fs::metadata(directory).is_ok_and(|meta| meta.mode() & 0o001 != 0);
    file.ancestors().skip(1).all(passable)
}

fn copy_file(from: &Path, to: &Path) -> Result<(), Fault> {
    let opened = OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(from);
    let mut source = opened.about(from.display())?;
    let mode = source.metadata().about(from.display())?.mode();
    if mode & 0o004 == 0 {
        return Ok(());
    }
    let mut target = OpenOptions::new().write(true).create_new(true).open(to).about(to.display())?;
    io::copy(&mut source, &mut target).about(from.display())?;
    let permissions = Permissions::from_mode(if mode & 0o001 == 0 { 0o644 } else { 0o755 });
    target.set_permissions(permissions).map_err(|_| Fault::new(Errno::EPERM, to.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_everybody_may_read_is_copied() {
        let dir = std::env::temp_dir().join(format!("cordon-snapshot-{}", std::process::id()));
        let (from, to) = (dir.join("from"), dir.join("to"));
        fs::create_dir_all(from.join("hidden")).unwrap();
        fs::create_dir_all(from.join("closed")).unwrap();
        fs::set_permissions(from.join("closed"), Permissions::from_mode(0o700)).unwrap();
        for (name, mode) in
            [("open", 0o644), ("secret", 0o640), ("setuid", 0o4755), ("hidden/x", 0o644), ("closed/x", 0o644)]
        {
            fs::write(from.join(name), name).unwrap();
            fs::set_permissions(from.join(name), Permissions::from_mode(mode)).unwrap();
        }
        symlink("open", from.join("link")).unwrap();
        copy(&from, &to, &[from.join("hidden")]).unwrap();
        let mut found: Vec<_> =
            fs::read_dir(&to).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        found.sort();
        assert_eq!(found, ["link", "open", "setuid"]);
        assert_eq!(fs::metadata(to.join("setuid")).unwrap().mode() & 0o7777, 0o755);
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("open"));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_file_behind_a_closed_directory_is_not_for_everybody() {
        let dir = std::env::temp_dir().join(format!("cordon-passable-{}", std::process::id()));
        fs::create_dir_all(dir.join("open/closed")).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        for file in ["open/x", "open/closed/x"] {
            fs::write(dir.join(file), "x").unwrap();
        }
        fs::set_permissions(dir.join("open/closed"), Permissions::from_mode(0o700)).unwrap();
        assert!(everybody_gets_to(&dir.join("open/x")));
        assert!(!everybody_gets_to(&dir.join("open/closed/x")));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn of_what_links_lead_to_in_run_only_what_everybody_may_read_is_copied() {
        let name = format!("cordon-snapshot-links-{}", std::process::id());
        let (dir, run) = (std::env::temp_dir().join(&name), Path::new("/run").join(&name));
        let (from, to) = (dir.join("from"), dir.join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::create_dir_all(run.join("closed")).unwrap();
        for (name, mode) in [("open", 0o644), ("secret", 0o640), ("closed/open", 0o644)] {
            fs::write(run.join(name), name).unwrap();
            fs::set_permissions(run.join(name), Permissions::from_mode(mode)).unwrap();
            symlink(run.join(name), from.join(name.replace('/', "-"))).unwrap();
        }
        fs::set_permissions(&run, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(run.join("closed"), Permissions::from_mode(0o700)).unwrap();
        copy(&from, &to, &[]).unwrap();
        let found: Vec<_> =
            fs::read_dir(&to).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        let is_file = fs::symlink_metadata(to.join("open")).is_ok_and(|meta| meta.is_file());
        fs::remove_dir_all(run).unwrap();
        fs::remove_dir_all(dir).unwrap();
        assert_eq!(found, ["open"]);
        assert!(is_file, "a link into /run, which is empty inside, would lead nowhere");
    }
}
