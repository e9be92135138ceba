//! The executor's configuration: one root-owned TOML file, read before anything else happens.

mod document;
mod policy;
mod services;
mod trusted;
mod users;

pub use document::document;
pub use policy::{POLICY_MAX, Policy};
pub use services::Relays;
pub use users::{Account, OVERFLOW_UID, Users};

use crate::{
    monitor::Rotation,
    profile::{Profile, ProfileError, RawProfile},
};
use cordon_protocol::{
    Bytes,
    audit::sha256,
    configuration::{line_of, refusal},
    limits,
};
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};
use trusted::Source;
use users::RawUsers;

/// Least size of a trail that is moved aside, bytes: room for some commands with their texts.
const AUDIT_SIZE_LEAST: u64 = 64 << 10;
/// Most older files that stay.
const AUDIT_KEEP_MOST: u32 = 999;

/// Checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Path of the listening socket.
    pub socket: PathBuf,
    /// Root-owned directory for templates and workspaces.
    pub state_dir: PathBuf,
    /// The audit trail.
    pub audit: PathBuf,
    /// How large its files may grow.
    pub rotation: Rotation,
    /// What happens where the host lacks a layer.
    pub require: Require,
    /// Least Landlock ABI that is accepted under `strict`.
    pub landlock_abi_min: u32,
    /// The users.
    pub users: Users,
    /// The home directory inside, where the workspace is.
    pub home: PathBuf,
    /// Where commands start that name no directory; none is the workspace.
    pub cwd: Option<String>,
    /// Bytes that commands in named workspaces must leave free on the disk.
    pub free_space_min: u64,
    /// Commands of all peers at once.
    pub max_commands: u32,
    /// The services of the profiles that the executor was started with.
    pub relays: Relays,
    /// By name.
    pub profiles: BTreeMap<String, Profile>,
    /// SHA-256 of the file's bytes, hexadecimal.
    pub sha256: String,
}

/// Whether a lesser host will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Require {
    /// Refuse to start on a host that lacks a layer.
    Strict,
    /// Run with what the host has, and say so in every result.
    Available,
}

/// Why the configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Cannot be read.
    #[error("configuration {}: cannot read: {source}", path.display())]
    Read {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Somebody else than root could have written it.
    #[error("configuration {}: {problem}; make it root's and not writable by others (chown root, chmod go-w)", path.display())]
    Untrusted {
        /// The file, or the directory above it.
        path: PathBuf,
        /// What is wrong.
        problem: &'static str,
    },
    /// Not TOML, an unknown key, or a value of the wrong type; the text has key and line.
    #[error("configuration {}: {message}", path.display())]
    Parse {
        /// Path.
        path: PathBuf,
        /// What the parser says.
        message: String,
    },
    /// A value that makes no sense; the text begins with the key.
    #[error("configuration: {0}")]
    Value(String),
    /// A profile that makes no sense.
    #[error("configuration: {0}")]
    Profile(#[from] ProfileError),
    /// One of the two above, and where it stands.
    #[error("configuration {}, line {line}: {message}", path.display())]
    At {
        /// Path.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
}

impl ConfigError {
    /// With the place of what is wrong; a default that is wrong has none.
    fn located(self, path: &Path, text: &str) -> Self {
        let (line, message) = match &self {
            Self::Value(message) => {
                let key = message.split(':').next().unwrap_or_default();
                (line_of(text, &key.split('.').collect::<Vec<_>>()), message.clone())
            }
            Self::Profile(error) => (line_of(text, &error.way()), error.to_string()),
            _ => return self,
        };
        match line {
            Some(line) => Self::At { path: path.to_owned(), line, message },
            None => self,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConfig {
    #[serde(default = "default_socket")]
    socket: PathBuf,
    #[serde(default = "default_state_dir")]
    state_dir: PathBuf,
    #[serde(default = "default_audit")]
    audit: PathBuf,
    #[serde(default = "default_audit_max_size")]
    audit_max_size: Bytes,
    #[serde(default = "default_audit_keep")]
    audit_keep: u32,
    #[serde(default = "default_require")]
    require: Require,
    #[serde(default = "default_abi")]
    landlock_abi_min: u32,
    #[serde(default)]
    users: RawUsers,
    home: Option<PathBuf>,
    cwd: Option<String>,
    #[serde(default = "default_free_space")]
    free_space_min: Bytes,
    #[serde(default = "default_max_commands")]
    max_commands: u32,
    #[serde(default)]
    profiles: BTreeMap<String, RawProfile>,
}

fn default_socket() -> PathBuf {
    limits::EXECUTOR_SOCKET.into()
}

fn default_state_dir() -> PathBuf {
    "/var/lib/cordon/executor".into()
}

fn default_audit() -> PathBuf {
    limits::AUDIT_FILE.into()
}

fn default_audit_max_size() -> Bytes {
    Bytes(32 << 20)
}

fn default_audit_keep() -> u32 {
    7
}

fn default_require() -> Require {
    Require::Strict
}

fn default_free_space() -> Bytes {
    Bytes(1 << 30)
}

fn default_max_commands() -> u32 {
    128
}

fn default_abi() -> u32 {
    2
}

fn default_home(command: &str) -> PathBuf {
    Path::new("/home").join(command)
}

fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    let failed = |e: toml::de::Error| ConfigError::Parse { path: path.to_owned(), message: refusal(&e) };
    toml::from_str(text).map_err(failed)
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// As [`ConfigError`] says; nothing is guessed.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let source = Source::open(path)?;
        source.check_trust()?;
        Self::from_text(path, &source.text()?)
    }

    /// As [`Config::load`]. What is in the file comes first, so that a draft can be checked before it is root's;
    /// not where its name may be another's for a file that is none.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn check(path: &Path) -> Result<Self, ConfigError> {
        let source = Source::open(path)?;
        source.check_way()?;
        let config = Self::from_text(path, &source.text()?)?;
        source.check_trust().map(|()| config)
    }

    fn from_text(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config = Self::from_raw(parse(path, text)?).map_err(|error| error.located(path, text))?;
        Ok(Self { sha256: sha256(text.as_bytes()), ..config })
    }

    /// What an empty file means.
    ///
    /// # Errors
    /// As [`Config::load`]: the users may not be there.
    pub fn defaults() -> Result<Self, ConfigError> {
        Self::from_raw(parse(Path::new(""), "")?)
    }

    /// Profiles in which a command that names no directory is refused, as `cwd` is not theirs.
    pub fn without_cwd(&self) -> impl Iterator<Item = &str> {
        let lacks = |p: &&Profile| {
            self.cwd.as_ref().is_some_and(|cwd| p.check_cwd(cwd.as_ref(), &self.home).is_err())
        };
        self.profiles.values().filter(lacks).map(|profile| profile.name.as_str())
    }

    /// No more commands at once than there is room for.
    pub fn bound_commands(&mut self, room: usize) {
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        if self.max_commands > room {
            crate::log!("max_commands: {room} at once on this host, not {}", self.max_commands);
            self.max_commands = room;
        }
    }

    fn from_raw(raw: RawConfig) -> Result<Self, ConfigError> {
        for (key, path) in [("socket", &raw.socket), ("state_dir", &raw.state_dir), ("audit", &raw.audit)] {
            if !path.is_absolute() {
                return Err(ConfigError::Value(format!(
                    "{key}: `{}` is not an absolute path",
                    path.display()
                )));
            }
        }
        if raw.max_commands == 0 {
            let text = "max_commands: 0 would let nothing run; use 1 or more";
            return Err(ConfigError::Value(text.to_owned()));
        }
        let rotation = Rotation { size: raw.audit_max_size.0, keep: raw.audit_keep };
        check_rotation(rotation).map_err(ConfigError::Value)?;
        let users = Users::from_raw(&raw.users)?;
        let home = raw.home.unwrap_or_else(|| default_home(users.command.name()));
        if home.parent() != Some(Path::new("/home")) {
            return Err(ConfigError::Value(format!(
                "home: `{}` is not directly below /home",
                home.display()
            )));
        }
        // The workspace lies elsewhere on a host without namespaces, and is the default anyway.
        let cwd = raw.cwd.filter(|cwd| Path::new(cwd) != home);
        check_count(&raw.profiles).map_err(ConfigError::Value)?;
        let mut profiles = BTreeMap::new();
        for (name, profile) in raw.profiles {
            profiles.insert(name.clone(), Profile::from_raw(&name, profile, users.group)?);
        }
        if !profiles.contains_key(limits::DEFAULT_PROFILE) {
            let default = Profile::from_raw(limits::DEFAULT_PROFILE, RawProfile::default(), users.group)?;
            profiles.insert(default.name.clone(), default);
        }
        if let Some(cwd) = &cwd {
            check_cwd(cwd, &profiles, &home).map_err(ConfigError::Value)?;
        }
        Ok(Self {
            socket: raw.socket,
            state_dir: raw.state_dir,
            audit: raw.audit,
            rotation,
            require: raw.require,
            landlock_abi_min: raw.landlock_abi_min,
            users,
            home,
            cwd,
            free_space_min: raw.free_space_min.0,
            max_commands: raw.max_commands,
            relays: Relays::of(profiles.values()),
            profiles,
            sha256: String::new(),
        })
    }
}

/// Where commands start that name no directory must be in the profile that they run in where they name none.
fn check_cwd(cwd: &str, profiles: &BTreeMap<String, Profile>, home: &Path) -> Result<(), String> {
    let name = limits::DEFAULT_PROFILE;
    let given = if cwd.contains('\0') || cwd.len() > limits::CWD_MAX_BYTES {
        Err(format!("is no path of at most {} bytes", limits::CWD_MAX_BYTES))
    } else {
        profiles.get(name).map_or(Ok(()), |default| default.check_cwd(cwd.as_ref(), home))
    };
    given.map_err(|problem| {
        format!(
            "cwd: `{}` {problem}; name a directory of the workspace ({}), of /tmp or of that profile's \
             paths (profiles.{name}.read), or leave cwd out",
            cwd.escape_debug(),
            home.display()
        )
    })
}

/// No more profiles than a peer's set of them has bits; and each has a root of its own, which takes time to make.
fn check_count<T>(profiles: &BTreeMap<String, T>) -> Result<(), String> {
    let implied = usize::from(!profiles.contains_key(limits::DEFAULT_PROFILE));
    let (count, most) = (profiles.len() + implied, limits::PROFILES_MAX);
    if count <= most {
        return Ok(());
    }
    let name = limits::DEFAULT_PROFILE;
    Err(format!(
        "profiles: {count}, with `{name}`, are over the limit of {most}; take some out, or use one for several peers"
    ))
}

/// The bounds of what is written in the file.
fn check_rotation(rotation: Rotation) -> Result<(), String> {
    let Rotation { size, keep } = rotation;
    if size != 0 && size < AUDIT_SIZE_LEAST {
        let (size, least) = (Bytes(size), Bytes(AUDIT_SIZE_LEAST));
        return Err(format!("audit_max_size: {size} is below the least, {least}; 0 is no limit"));
    }
    if !(1..=AUDIT_KEEP_MOST).contains(&keep) {
        return Err(format!("audit_keep: {keep} is not from 1 to {AUDIT_KEEP_MOST}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_counted_with_the_one_that_is_always_there() {
        let of = |names: usize| (0..names).map(|i| (format!("p{i}"), ())).collect::<BTreeMap<_, _>>();
        let with_default = |names| {
            let mut profiles = of(names);
            profiles.insert(limits::DEFAULT_PROFILE.to_owned(), ());
            profiles
        };
        assert!(check_count(&of(0)).is_ok() && check_count(&of(63)).is_ok());
        assert!(check_count(&with_default(63)).is_ok());
        for profiles in [of(64), with_default(64)] {
            assert!(
                check_count(&profiles)
                    .unwrap_err()
                    .starts_with("profiles: 65, with `default`, are over the limit of 64")
            );
        }
    }
}
