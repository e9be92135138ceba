//! The users that keep Cordon's parts apart, made where they are missing.

use super::{conflicts, environment::Settings};
use crate::{failure::Failure, output};
use nix::unistd::{Group, User};
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::Command,
};

/// The user of the gateway.
pub(super) const GATEWAY: &str = "cordon";
/// The group whose members may connect: the gateway's own.
pub(super) const GROUP: &str = "cordon";

/// Name and home of each, none of which is made as a directory. Each has a group of its own name and no other.
const ACCOUNTS: [(&str, &str); 4] = [
    (GATEWAY, "/nonexistent"),
    ("cordon-exec", "/nonexistent"),
    ("cordon-init", "/nonexistent"),
    ("execuser", "/home/execuser"),
];
/// In the comment field of what we made, so that `--undo` knows it in any directory.
const MARK: &str = "made by cordon up";
/// Held shared by every `cordon up`, exclusively by `--undo`. /run is root's alone.
const IN_USE: &str = "/run/cordon-accounts.lock";
/// Held while accounts are looked at and made: each `cordon up` sees all that another has made, or none.
const MAKING: &str = "/run/cordon-accounts-making.lock";
/// Where the tools are, whatever root's PATH says.
const TOOLS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The users are there for as long as this is held.
#[derive(Debug)]
pub(super) struct InUse {
    _lock: File,
}

/// Makes what is missing: also the user of the settings, where it is another. Before that, all that are there are
/// looked at. A group is made with its user alone, so that whoever finds our mark at the user knows both.
pub(super) fn ensure(settings: &Settings) -> Result<InUse, Failure> {
    let lock = lock_file(IN_USE)?;
    lock.lock_shared().map_err(|e| lock_failed(IN_USE, e))?;
    let making = lock_file(MAKING)?;
    making.lock().map_err(|e| lock_failed(MAKING, e))?;
    let home = settings.home.to_string_lossy();
    let named =
        Some((settings.user.as_str(), &*home)).filter(|(name, _)| ACCOUNTS.iter().all(|(a, _)| a != name));
    conflicts::check(&settings.user)?;
    for (name, home) in ACCOUNTS.into_iter().chain(named) {
        if user_exists(name)? {
            continue;
        }
        let shell = ["/usr/sbin/nologin", "/sbin/nologin"].into_iter().find(|s| Path::new(s).exists());
        let shell = shell.unwrap_or("/bin/false");
        let mut words = vec!["useradd", "--system"];
        words.extend(if group(name)?.is_some() { vec!["--gid", name] } else { vec!["--user-group"] });
        words.extend(["--no-create-home", "--home-dir", home, "--shell", shell, "--comment", MARK, name]);
        make(name, &words)?;
    }
    Ok(InUse { _lock: lock })
}

/// Removes the users that we made, each with its group. With another `cordon up` running all of them stay, also one that
/// EXEC_USER has named: which of them it runs with nobody has written down.
pub(super) fn remove() -> Result<(), Failure> {
    let lock = lock_file(IN_USE)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let kept = ours()?;
            if !kept.is_empty() {
                output::complain(&format!(
                    "cordon: kept the users {}: another `cordon up` runs, and may run with any of them; once it has \
                     ended, `cordon up --undo` takes them, whatever its --dir",
                    kept.join(", ")
                ));
            }
            return Ok(());
        }
        Err(TryLockError::Error(error)) => return Err(lock_failed(IN_USE, error)),
    }
    for name in ours()? {
        let name = name.as_str();
        let ours = user(name)?.is_some_and(|u| u.gecos.to_bytes() == MARK.as_bytes());
        if !ours {
            continue;
        }
        let next = format!("end what runs as {name} (`ps -u {name}`), then undo again");
        run(&["userdel", name])
            .map_err(|cause| Failure::new(format!("removing user {name}"), cause, next))?;
        // userdel takes the group along where login.defs says so; one with members is somebody's.
        if group(name)?.is_some_and(|g| g.mem.is_empty()) {
            let next = "remove it yourself with groupdel";
            let removed = run(&["groupdel", name]);
            removed.map_err(|cause| Failure::new(format!("removing group {name}"), cause, next))?;
        }
        output::complain(&format!("cordon: removed user {name}"));
    }
    Ok(())
}

/// Names of the users that have our mark.
fn ours() -> Result<Vec<String>, Failure> {
    let users = fs::read_to_string("/etc/passwd");
    let users = users.map_err(|e| Failure::new("reading /etc/passwd", e, "see whether root can read it"))?;
    Ok(users.lines().filter_map(marked).collect())
}

/// The name in a line of passwd(5), where its comment is our mark.
fn marked(line: &str) -> Option<String> {
    let fields: Vec<_> = line.split(':').collect();
    let name = fields.first().filter(|_| fields.get(4) == Some(&MARK))?;
    Some((*name).to_owned())
}

/// Runs the tool; another `cordon up` may have been faster, and that is as good.
fn make(name: &str, words: &[&str]) -> Result<(), Failure> {
    match run(words) {
        Ok(()) => {
            output::complain(&format!("cordon: made user {name}, with a group of its own"));
            Ok(())
        }
        Err(_) if user_exists(name)? => Ok(()),
        Err(cause) => {
            let next = format!("make it yourself: {}", words.join(" "));
            Err(Failure::new(format!("making user {name}"), cause, next))
        }
    }
}

fn run(words: &[&str]) -> Result<(), String> {
    let (tool, arguments) = words.split_first().ok_or("nothing to run")?;
    let ran = Command::new(tool).args(arguments).env("PATH", TOOLS).output();
    let ran = ran.map_err(|e| format!("{tool}: {e} (it is in the package passwd, or shadow-utils)"))?;
    if ran.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", ran.status, String::from_utf8_lossy(&ran.stderr).trim()))
}

fn lock_file(path: &str) -> Result<File, Failure> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    opened.map_err(|e| lock_failed(path, e))
}

fn lock_failed(path: &str, error: std::io::Error) -> Failure {
    Failure::new(format!("locking {path}"), error, "see whether /run can be written")
}

fn user_exists(name: &str) -> Result<bool, Failure> {
    user(name).map(|found| found.is_some())
}

pub(super) fn user(name: &str) -> Result<Option<User>, Failure> {
    User::from_name(name).map_err(|e| lookup_failed(name, e))
}

pub(super) fn group(name: &str) -> Result<Option<Group>, Failure> {
    Group::from_name(name).map_err(|e| lookup_failed(name, e))
}

pub(super) fn lookup_failed(name: &str, error: nix::errno::Errno) -> Failure {
    Failure::new(
        format!("looking up {name}"),
        error,
        "see whether /etc/nsswitch.conf and /etc/passwd are sound",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_user_with_our_mark_is_ours() {
        assert_eq!(marked("bot:x:995:995:made by cordon up:/home/bot:/bin/false").as_deref(), Some("bot"));
        for other in
            ["bot:x:995:995::/home/bot:/bin/false", "made by cordon up", "a:b:c:d:made by cordon upon:e", ""]
        {
            assert_eq!(marked(other), None, "{other}");
        }
    }
}
