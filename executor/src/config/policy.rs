//! The part of the configuration that a running executor takes over when it changes (SIGHUP), and the keys that
//! only a restart can change.

use super::{Config, ConfigError};
use crate::profile::Profile;
use cordon_protocol::codec::{FrameError, decode_payload, encode_payload};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::Path};

/// What may be asked for, and how much of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Policy {
    /// As in [`Config`].
    pub cwd: Option<String>,
    /// As in [`Config`].
    pub free_space_min: u64,
    /// As in [`Config`].
    pub max_commands: u32,
    /// As in [`Config`].
    pub profiles: BTreeMap<String, Profile>,
    /// As in [`Config`].
    pub sha256: String,
}

/// Largest encoded policy, bytes.
pub const POLICY_MAX: usize = 4 << 20;

/// Why a changed configuration is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum Unchanged {
    /// It would be refused at start, too.
    #[error(transparent)]
    Refused(#[from] ConfigError),
    /// What has changed is in use.
    #[error(
        "configuration: {0} has changed, which only a restart can do; nothing of the file was taken over"
    )]
    Fixed(&'static str),
    /// More than ever was.
    #[error("configuration: profiles of more than {POLICY_MAX} bytes")]
    TooLarge,
}

impl Config {
    /// The policy in the file as it is now, in the form that travels.
    ///
    /// # Errors
    /// The file is refused, or changes more than a policy.
    pub fn read_policy(&self, path: &Path) -> Result<Vec<u8>, Unchanged> {
        let now = Self::load(path)?;
        if let Some(key) = self.fixed_difference(&now) {
            return Err(Unchanged::Fixed(key));
        }
        let Config { cwd, free_space_min, max_commands, profiles, sha256, .. } = now;
        let encoded = Policy { cwd, free_space_min, max_commands, profiles, sha256 }.encode();
        encoded.ok().filter(|bytes| bytes.len() <= POLICY_MAX).ok_or(Unchanged::TooLarge)
    }

    /// This configuration with another policy.
    pub fn with_policy(&self, policy: Policy) -> Self {
        let Policy { cwd, free_space_min, max_commands, profiles, sha256 } = policy;
        Self { cwd, free_space_min, max_commands, profiles, sha256, ..self.clone() }
    }

    /// A key that differs and cannot while the executor runs: processes, sockets, files and mounts depend on it.
    fn fixed_difference(&self, now: &Self) -> Option<&'static str> {
        let (users, others) = (&self.users, &now.users);
        let keys = [
            ("socket", self.socket != now.socket),
            ("state_dir", self.state_dir != now.state_dir),
            ("audit", self.audit != now.audit),
            ("audit_max_size", self.rotation.size != now.rotation.size),
            ("audit_keep", self.rotation.keep != now.rotation.keep),
            ("require", self.require != now.require),
            ("landlock_abi_min", self.landlock_abi_min != now.landlock_abi_min),
            ("home", self.home != now.home),
            ("users.command", users.command != others.command),
            ("users.server", users.server != others.server),
            ("users.init", users.init != others.init),
            ("users.gateway", users.gateway != others.gateway),
            ("users.group", users.group != others.group),
            // The server half's lock is made once, for the ports of the start, and so is its share of open files.
            ("profiles.*.services", !self.relays.covers(&now.relays)),
        ];
        keys.into_iter().find(|(_, differs)| *differs).map(|(key, _)| key)
    }
}

impl Policy {
    /// The bytes that travel.
    ///
    /// # Errors
    /// When there are more than a frame may have.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        encode_payload(self)
    }

    /// The policy in these bytes.
    ///
    /// # Errors
    /// When they are not exactly one.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        decode_payload(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Account, server::fixture};
    use std::path::PathBuf;

    #[test]
    fn a_policy_travels_whole() {
        let mut config = fixture::config();
        let cwd = Some("/tmp".to_owned());
        let (profiles, sha256) = (config.profiles.clone(), "1".repeat(64));
        let policy = Policy { cwd, free_space_min: 7, max_commands: 9, profiles, sha256 };
        let arrived = Policy::decode(&policy.encode().unwrap()).unwrap();
        assert_eq!(format!("{arrived:?}"), format!("{policy:?}"));
        config.profiles.clear();
        let taken = config.with_policy(arrived);
        assert_eq!((taken.free_space_min, taken.max_commands, taken.profiles.len()), (7, 9, 2));
    }

    #[test]
    fn what_only_a_restart_can_change_is_named() {
        type Change = fn(&mut Config);
        let changes: [(&str, Change); 15] = [
            ("socket", |c| c.socket = PathBuf::from("/x")),
            ("state_dir", |c| c.state_dir = PathBuf::from("/x")),
            ("audit", |c| c.audit = PathBuf::from("/x")),
            ("audit_max_size", |c| c.rotation.size += 1),
            ("audit_keep", |c| c.rotation.keep += 1),
            ("require", |c| c.require = crate::config::Require::Available),
            ("landlock_abi_min", |c| c.landlock_abi_min += 1),
            ("home", |c| c.home = PathBuf::from("/home/x")),
            ("users.command", |c| c.users.command = Account::of("x", 1, 2)),
            ("users.server", |c| c.users.server = Account::of("x", 1, 2)),
            ("users.init", |c| c.users.init = Account::of("x", 1, 2)),
            ("users.gateway", |c| c.users.gateway = Some(Account::of("x", 1, 2))),
            ("users.group", |c| c.users.group += 1),
            ("profiles.*.services", |c| c.relays.ports = [80, 81, 82].into()),
            ("profiles.*.services", |c| c.relays.most = 3),
        ];
        let mut config = fixture::config();
        (config.relays.ports, config.relays.most) = ([80, 81].into(), 2);
        for (key, change) in changes {
            let mut changed = config.clone();
            change(&mut changed);
            assert_eq!(config.fixed_difference(&changed), Some(key));
        }
        let mut other = config.clone();
        other.profiles.clear();
        (other.max_commands, other.free_space_min) = (1, 1);
        (other.relays.ports, other.relays.most) = ([81].into(), 1);
        assert_eq!(config.fixed_difference(&other), None);
    }
}
