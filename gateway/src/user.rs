//! The user that the gateway runs as, and what such a user cannot read.

use nix::unistd::{User, geteuid, setgid, setgroups, setuid};
use std::io;

/// As whom `cordon up` and the package start the gateway.
const USER: &str = "cordon";

/// Becomes the gateway's user for the rest of this process, where root asks and there is such a user: what that one
/// may not read tells nobody else.
///
/// # Errors
/// What looking it up or changing to it says.
pub fn become_gateway() -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let Some(user) = User::from_name(USER)? else { return Ok(()) };
    setgroups(&[])?;
    setgid(user.gid)?;
    Ok(setuid(user.uid)?)
}

/// Why a file cannot be read, and what to do: `otherwise`, unless it may not be read.
pub(crate) fn unreadable(error: &io::Error, otherwise: &str) -> String {
    if error.kind() != io::ErrorKind::PermissionDenied {
        return format!("cannot read: {error}{otherwise}");
    }
    let uid = geteuid();
    let name = User::from_uid(uid).ok().flatten().map_or_else(|| format!("uid {uid}"), |user| user.name);
    format!(
        "user {name} may not read it; give it to that user's group (chgrp, chmod 0640), and let it pass through the directories above"
    )
}
