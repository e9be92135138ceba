//! Whether a directory is fit to hold what root writes and other users pass through.

use crate::failure::Failure;
use std::{ffi::OsString, fs, os::unix::fs::MetadataExt, path::Path};

/// DIR must be root's alone, and everything above it such that nobody else can replace it.
pub(super) fn check_trust(path: &Path) -> Result<(), Failure> {
    check_one(path, false)?;
    path.parent().map_or(Ok(()), check_above)
}

/// The path and everything above it: a sticky directory (/tmp) will do, others cannot replace root's entries in it.
pub(super) fn check_above(path: &Path) -> Result<(), Failure> {
    path.ancestors().try_for_each(|directory| check_one(directory, true))
}

fn check_one(path: &Path, sticky_will_do: bool) -> Result<(), Failure> {
    let what = format!("checking {}", path.display());
    let next = "choose another directory with --dir";
    let meta = fs::metadata(path).map_err(|e| Failure::new(&what, e, next))?;
    if !meta.is_dir() {
        return Err(Failure::new(&what, "it is not a directory", next));
    }
    match problem(meta.uid(), meta.mode(), sticky_will_do) {
        None => Ok(()),
        Some((cause, remedy)) => {
            let mut command = OsString::from(format!("{remedy} "));
            command.push(path);
            let next = format!("`{}`, or {next}", command.to_string_lossy());
            Err(Failure::new(&what, cause, next))
        }
    }
}

/// What is wrong with a directory of this owner and mode, and the command that mends it.
fn problem(uid: u32, mode: u32, sticky_will_do: bool) -> Option<(&'static str, &'static str)> {
    let sticky = sticky_will_do && mode & 0o1000 != 0;
    if uid != 0 {
        Some(("it does not belong to root, so its owner could replace what is in it", "chown root"))
    } else if mode & 0o022 != 0 && !sticky {
        Some(("others than root can write to it", "chmod go-w"))
    } else if mode & 0o001 == 0 {
        Some(("the gateway's user cannot pass through it", "chmod o+x"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_fit_when_only_root_can_change_it_and_all_can_pass() {
        for (uid, mode, sticky_will_do, fit) in [
            (0, 0o755, false, true),
            (0, 0o711, false, true),
            (1000, 0o755, false, false),
            (0, 0o775, false, false),
            (0, 0o757, true, false),
            (0, 0o1777, true, true),
            (0, 0o1777, false, false),
            (0, 0o700, true, false),
            (0, 0o750, false, false),
        ] {
            assert_eq!(problem(uid, mode, sticky_will_do).is_none(), fit, "{uid} {mode:o} {sticky_will_do}");
        }
    }
}
