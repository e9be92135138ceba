//! Uid, gid and groups: from root to one user, with no way back, each read back.

use super::steps::{About, Fault};
use crate::config::Account;
use nix::{
    errno::Errno,
    unistd::{Gid, Uid, getgroups, getresgid, getresuid, setgroups, setresgid, setresuid},
};
use std::fmt::Display;

fn list<T: Display>(ids: &[T]) -> String {
    ids.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// Drops every supplementary group.
///
/// # Errors
/// `EPERM` without CAP_SETGID; a group that is still there.
pub fn drop_groups() -> Result<(), Fault> {
    setgroups(&[]).about("supplementary groups")?;
    let left = getgroups()?;
    if left.is_empty() { Ok(()) } else { Err(Fault::mismatch("groups", list(&left), "none")) }
}

/// Becomes the account: real, effective, saved and file-system ids.
///
/// # Errors
/// `EPERM` without CAP_SETGID and CAP_SETUID; an id that is another.
pub fn become_account(account: &Account) -> Result<(), Fault> {
    let (uid, gid) = (Uid::from_raw(account.uid()), Gid::from_raw(account.gid()));
    setresgid(gid, gid, gid).about("gid")?;
    setresuid(uid, uid, uid).about("uid")?;
    let gids = getresgid()?;
    if [gids.real, gids.effective, gids.saved] != [gid; 3] {
        return Err(Fault::mismatch("gid", list(&[gids.real, gids.effective, gids.saved]), gid));
    }
    let uids = getresuid()?;
    if [uids.real, uids.effective, uids.saved] != [uid; 3] {
        return Err(Fault::mismatch("uid", list(&[uids.real, uids.effective, uids.saved]), uid));
    }
    // The file-system ids follow the effective ones (setfsuid(2)).
    Ok(())
}

/// Tries to become root again, which must fail; for after the capabilities are gone.
///
/// # Errors
/// When it worked.
pub fn check_no_way_back() -> Result<(), Fault> {
    let root = Uid::from_raw(0);
    match setresuid(root, root, root) {
        Err(Errno::EPERM) => Ok(()),
        other => Err(Fault::not_refused("becoming root again", other, Errno::EPERM)),
    }
}
