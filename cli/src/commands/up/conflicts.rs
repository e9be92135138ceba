//! Users that are there and cannot be used: seen before any is made, and told by the variable that names them. The
//! executor looks again, at what it is given.

use super::accounts::{GATEWAY, GROUP, group, lookup_failed, user};
use crate::failure::Failure;
use nix::unistd::{Gid, Group, User, getgrouplist};
use std::ffi::CString;

/// Users that commands are kept apart from.
const OWN: [&str; 3] = [GATEWAY, "cordon-exec", "cordon-init"];
/// Uid that stands for users that the kernel cannot name (user_namespaces(7)).
const OVERFLOW: u32 = 65534;

/// What the check has to know of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Account {
    name: String,
    uid: u32,
    gid: u32,
    /// Names of the groups it is in beside its own.
    further: Vec<String>,
}

/// Checks the user that is to run commands, and those of Cordon's own that are there.
pub(super) fn check(command: &str) -> Result<(), Failure> {
    let mut others = Vec::new();
    for name in OWN {
        let Some(account) = look_up(name)? else { continue };
        if let Some(problem) = problem(&account, &others) {
            let next = "mend it (usermod, gpasswd -d), or remove it (userdel): `cordon up` makes it anew";
            return Err(Failure::new(format!("user {name}"), problem, next));
        }
        others.push(account);
    }
    let connecting = group(GROUP)?;
    if connecting.is_none() && !others.is_empty() && others[0].name == GATEWAY {
        let next = format!("make it: groupadd --system {GROUP}");
        return Err(Failure::new(format!("group {GROUP}"), "is missing, though the user is there", next));
    }
    let refused = |problem: String| {
        let next = "set EXEC_USER to a user with a group of its own and no other, or to a name that is free, or unset it";
        Failure::new(format!("EXEC_USER={command}"), problem, next)
    };
    if OWN.contains(&command) {
        return Err(refused("is a user of Cordon's own, from which commands are kept apart".to_owned()));
    }
    match look_up(command)? {
        Some(account) => {
            let connects = connecting.is_some_and(|group| group.gid.as_raw() == account.gid);
            let connects =
                connects.then(|| format!("has the primary group {GROUP}, whose members may connect"));
            problem(&account, &others).or(connects).map_or(Ok(()), |problem| Err(refused(problem)))
        }
        None => {
            // What a group of that name may do, commands could; `execuser` is ours on any host.
            let foreign = command != "execuser" && group(command)?.is_some();
            if foreign {
                Err(refused("is no user, but there is a group of that name".to_owned()))
            } else {
                Ok(())
            }
        }
    }
}

/// Why this one cannot be kept apart from root, from nobody, from everybody else and from the others.
fn problem(account: &Account, others: &[Account]) -> Option<String> {
    let Account { uid, gid, further, .. } = account;
    if *uid == 0 || *gid == 0 {
        return Some("is root or in root's group".to_owned());
    }
    if [OVERFLOW, u32::MAX].contains(uid) || *gid == u32::MAX {
        return Some(format!("has the number {uid}, which stands for nobody in particular"));
    }
    if let Some(other) = others.iter().find(|other| other.uid == *uid || other.gid == *gid) {
        let what = if other.uid == *uid { "number" } else { "primary group" };
        return Some(format!("has the same {what} as {}", other.name));
    }
    if further.is_empty() { None } else { Some(format!("is also in {}", further.join(", "))) }
}

fn look_up(name: &str) -> Result<Option<Account>, Failure> {
    let Some(User { uid, gid, .. }) = user(name)? else { return Ok(None) };
    let listed = CString::new(name).map_err(|_| nix::errno::Errno::EINVAL);
    let groups = listed.and_then(|name| getgrouplist(&name, gid)).map_err(|e| lookup_failed(name, e))?;
    let name_of = |gid: Gid| Group::from_gid(gid).ok().flatten().map_or(gid.to_string(), |group| group.name);
    let further = groups.into_iter().filter(|other| *other != gid).map(name_of).collect();
    Ok(Some(Account { name: name.to_owned(), uid: uid.as_raw(), gid: gid.as_raw(), further }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_shares_something_cannot_be_used() {
        let account = |uid, gid| Account { name: format!("u{uid}"), uid, gid, further: Vec::new() };
        let others = [account(7, 8)];
        for (account, says) in [
            (account(0, 5), "root"),
            (account(5, 0), "root"),
            (account(65534, 65534), "nobody"),
            (account(7, 9), "same number as u7"),
            (account(9, 8), "same primary group as u7"),
            (Account { further: vec!["adm".into(), "sudo".into()], ..account(9, 9) }, "also in adm, sudo"),
        ] {
            let problem = problem(&account, &others).unwrap();
            assert!(problem.contains(says), "{problem}");
        }
        assert_eq!(problem(&account(9, 65534), &others), None);
    }

    #[test]
    fn the_variable_is_named() {
        for (name, says) in [("cordon-init", "Cordon's own"), ("nobody", "65534"), ("root", "root")] {
            let Err(Failure::Told { problem, .. }) = check(name) else {
                panic!("{name}");
            };
            assert!(problem.starts_with(&format!("EXEC_USER={name} failed: ")), "{problem}");
            assert!(problem.contains(says), "{problem}");
        }
    }
}
