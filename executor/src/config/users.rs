//! The users that keep the parts apart: none is root, no two share anything.

use super::ConfigError;
use nix::unistd::{Group, User};
use serde::Deserialize;
use std::fmt;

/// The users that keep the parts apart, none of them root, no two the same.
#[derive(Debug, Clone)]
pub struct Users {
    /// Runs the commands.
    pub command: Account,
    /// Runs the server half.
    pub server: Account,
    /// Runs each sandbox's init.
    pub init: Account,
    /// Runs the gateway; none on a host without one.
    pub gateway: Option<Account>,
    /// Group whose members may connect.
    pub group: u32,
}

/// A user that is not root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    name: String,
    uid: u32,
    gid: u32,
}

impl Account {
    /// An account that need not exist, for unit tests.
    #[cfg(test)]
    pub(crate) fn of(name: &str, uid: u32, gid: u32) -> Self {
        Self { name: name.to_owned(), uid, gid }
    }

    /// Name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Uid, never 0 and never the overflow uid.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Primary gid, never 0.
    pub fn gid(&self) -> u32 {
        self.gid
    }
}

/// Uid that the kernel shows for one it cannot map (user_namespaces(7)); never an account, never a peer.
pub const OVERFLOW_UID: u32 = 65534;

/// The key of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Command,
    Server,
    Init,
    Gateway,
}

impl Key {
    /// The user that it means where it is left out.
    fn default_name(self) -> &'static str {
        match self {
            Self::Command => "execuser",
            Self::Server => "cordon-exec",
            Self::Init => "cordon-init",
            Self::Gateway => "cordon",
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Command => "users.command",
            Self::Server => "users.server",
            Self::Init => "users.init",
            Self::Gateway => "users.gateway",
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawUsers {
    pub(super) command: String,
    pub(super) server: String,
    pub(super) init: String,
    pub(super) gateway: String,
    pub(super) group: String,
}

impl Default for RawUsers {
    fn default() -> Self {
        Self {
            command: Key::Command.default_name().into(),
            server: Key::Server.default_name().into(),
            init: Key::Init.default_name().into(),
            gateway: Key::Gateway.default_name().into(),
            group: "cordon".into(),
        }
    }
}

impl Users {
    /// The accounts behind the names.
    ///
    /// # Errors
    /// Names the key, or the users, and what is wrong.
    pub(super) fn from_raw(raw: &RawUsers) -> Result<Self, ConfigError> {
        let command = account(Key::Command, &raw.command)?;
        let server = account(Key::Server, &raw.server)?;
        let init = account(Key::Init, &raw.init)?;
        let gateway = match User::from_name(&raw.gateway) {
            Ok(Some(_)) => Some(account(Key::Gateway, &raw.gateway)?),
            _ => None,
        };
        let group = Group::from_name(&raw.group).ok().flatten();
        let missing =
            || ConfigError::Value(format!("users.group: no group `{}`; make it with groupadd", raw.group));
        let group = group.ok_or_else(missing)?.gid.as_raw();
        let users = Self { command, server, init, gateway, group };
        users.check_distinct()?;
        Ok(users)
    }

    /// Each with its key.
    fn accounts(&self) -> impl Iterator<Item = (Key, &Account)> {
        let own = [(Key::Command, &self.command), (Key::Server, &self.server), (Key::Init, &self.init)];
        own.into_iter().chain(self.gateway.iter().map(|gateway| (Key::Gateway, gateway)))
    }

    /// No two share a uid or a primary group, and none is in a further group.
    fn check_distinct(&self) -> Result<(), ConfigError> {
        let accounts: Vec<_> = self.accounts().collect();
        for (i, (key, one)) in accounts.iter().enumerate() {
            let same = |(_, other): &&(Key, &Account)| other.uid == one.uid || other.gid == one.gid;
            if let Some((other_key, other)) = accounts[..i].iter().find(same) {
                return Err(shared((*other_key, other), (*key, one)));
            }
            let groups = supplementary_groups(*key, one)?;
            if !groups.is_empty() {
                let (name, groups) = (&one.name, groups.join(", "));
                let text = format!(
                    "{key}: `{name}` is also in {groups}; take it out with gpasswd -d, or name another user"
                );
                return Err(ConfigError::Value(text));
            }
        }
        if self.command.gid == self.group {
            let name = &self.command.name;
            // Whichever of the two the file names.
            let text = if name == Key::Command.default_name() {
                format!("users.group: it is the primary group of `{name}`, {}; name another", Key::Command)
            } else {
                format!(
                    "{}: the primary group of `{name}` is users.group, which may connect; name another",
                    Key::Command
                )
            };
            return Err(ConfigError::Value(text));
        }
        Ok(())
    }

    /// Accounts that could log in, each worth a warning.
    pub fn with_login_shell(&self) -> Vec<&str> {
        let can_log_in = |(_, a): &(Key, &Account)| {
            let user = User::from_name(&a.name).ok().flatten();
            user.is_some_and(|u| !u.shell.ends_with("nologin") && !u.shell.ends_with("false"))
        };
        self.accounts().filter(can_log_in).map(|(_, a)| a.name.as_str()).collect()
    }
}

/// Two accounts that are not kept apart. The one that the file need not name, because it is the default, is told second:
/// the other is where the line to change stands.
fn shared(first: (Key, &Account), second: (Key, &Account)) -> ConfigError {
    let is_default = |(key, account): &(Key, &Account)| account.name == key.default_name();
    let (at, other) =
        if is_default(&second) && !is_default(&first) { (first, second) } else { (second, first) };
    let ((key, account), (other_key, other)) = (at, other);
    let what = match (account.name == other.name, account.uid == other.uid) {
        (true, _) => "is the same user as",
        (false, true) => "has the same uid as",
        (false, false) => "has the same primary group as",
    };
    ConfigError::Value(format!(
        "{key}: `{}` {what} {other_key}, `{}`; give each a user and a group of its own (useradd --system --user-group)",
        account.name, other.name
    ))
}

/// The user of that name, which must exist and be nobody special.
fn account(key: Key, name: &str) -> Result<Account, ConfigError> {
    let error = |problem: &str| ConfigError::Value(format!("{key}: `{name}` {problem}"));
    if name.is_empty() {
        return Err(error("is empty"));
    }
    let user = User::from_name(name).map_err(|e| error(&format!("cannot be looked up: {e}")))?;
    let user = user.ok_or_else(|| error("does not exist; make it with useradd --system, or `cordon up`"))?;
    let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
    if uid == 0 || gid == 0 {
        return Err(error("is root or in root's group"));
    }
    if uid == OVERFLOW_UID || uid == u32::MAX || gid == u32::MAX {
        return Err(error("has a uid that stands for nobody"));
    }
    Ok(Account { name: name.to_owned(), uid, gid })
}

/// Names of the groups in which the account is listed beside its own.
fn supplementary_groups(key: Key, account: &Account) -> Result<Vec<String>, ConfigError> {
    let error =
        |e| ConfigError::Value(format!("{key}: groups of `{}` cannot be looked up: {e}", account.name));
    let name = std::ffi::CString::new(account.name.as_str()).map_err(|e| error(e.to_string()))?;
    let gid = nix::unistd::Gid::from_raw(account.gid);
    let groups = nix::unistd::getgrouplist(&name, gid).map_err(|e| error(e.to_string()))?;
    let others = groups.into_iter().filter(|g| *g != gid);
    Ok(others.map(|g| Group::from_gid(g).ok().flatten().map_or(g.to_string(), |g| g.name)).collect())
}
