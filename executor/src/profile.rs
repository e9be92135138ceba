//! Profiles: what a command may reach and how much it may use. Raw TOML becomes a checked [`Profile`].

mod place;
mod ranges;
mod services;

pub(crate) use services::mode_name;

use crate::monitor::link::LimitField;
use cordon_protocol::{Bytes, LimitInfo, Millis, NetworkMode, ProfileInfo, limits};
use nix::unistd::{Group, User};
use ranges::{FLOORS, GIBI, MEBI, MOST, RawLimits, YEAR, position};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

/// A checked profile.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Profile {
    /// Name that requests use.
    pub name: String,
    /// Shell for `-c`, run as `SHELL -c LINE`.
    pub shell: PathBuf,
    /// Paths of the host that appear read-only.
    pub read: Vec<PathBuf>,
    /// Paths of the host that appear writable, beside the workspace and /tmp.
    pub write: Vec<PathBuf>,
    /// Paths from which programs may be executed.
    pub execute: Vec<PathBuf>,
    /// Paths that do not appear, though they lie in one that does.
    pub hide: Vec<PathBuf>,
    /// What of the network is reachable.
    pub network: NetworkMode,
    /// Ports of the host's loopback interface that appear inside; none but in the mode `services`.
    pub services: Vec<u16>,
    /// Environment entries beside the standard ones.
    pub env: BTreeMap<String, String>,
    /// Default and ceiling of each limit, in the order of [`LimitField::ALL`].
    pub limits: [LimitRange; 7],
    /// Largest file, bytes.
    pub file_size: u64,
    /// Size of a private workspace, bytes.
    pub workspace: u64,
    /// Size of a named workspace, bytes.
    pub named_workspace: u64,
    /// Files and directories in a named workspace.
    pub named_workspace_files: u64,
    /// Size of /tmp, bytes.
    pub tmp: u64,
    /// Who may use it.
    pub peers: Vec<PeerRule>,
    /// Commands of one peer at once.
    pub concurrency: u32,
    /// Commands of one peer that may wait.
    pub queue: u32,
    /// How long one waits before it is refused, milliseconds.
    pub queue_timeout: u64,
}

/// Default and most of a limit; bytes, milliseconds, percent or a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRange {
    /// Used when a request names none; none is no limit below the others.
    pub default: Option<u64>,
    /// Most that a request may ask for.
    pub ceiling: u64,
}

/// One entry of `peers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerRule {
    /// A user.
    User(u32),
    /// Every member of a group, primary or supplementary.
    Group(u32),
}

/// Why a profile is refused.
#[derive(Debug, thiserror::Error)]
#[error("profile `{profile}`: {key}: {problem}")]
pub struct ProfileError {
    profile: String,
    key: String,
    problem: String,
}

impl ProfileError {
    /// The way to the key from the top of the file.
    pub(crate) fn way(&self) -> Vec<&str> {
        ["profiles", &self.profile].into_iter().chain(self.key.split('.')).collect()
    }
}

/// A profile as written; every key may be left out.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawProfile {
    shell: Option<PathBuf>,
    read: Option<Vec<PathBuf>>,
    write: Option<Vec<PathBuf>>,
    execute: Option<Vec<PathBuf>>,
    hide: Option<Vec<PathBuf>>,
    network: Option<NetworkMode>,
    services: Option<Vec<i64>>,
    env: Option<BTreeMap<String, String>>,
    peers: Option<Vec<String>>,
    concurrency: Option<u32>,
    queue: Option<u32>,
    queue_timeout: Option<Millis>,
    #[serde(default)]
    limits: RawLimits,
}

/// Paths below which a profile can give nothing: they are the sandbox's own.
pub(crate) const OWN_PATHS: [&str; 5] = ["/proc", "/dev", "/sys", "/run", "/tmp"];

impl Profile {
    /// What is wrong with what does not fit into a workspace, a named one or a private one.
    pub(crate) fn beyond_room(&self, named: bool) -> String {
        let most = match named {
            true => format!(
                "{} (named_workspace) or {} files (named_workspace_files)",
                Bytes(self.named_workspace),
                self.named_workspace_files
            ),
            false => format!("{} (workspace)", Bytes(self.workspace)),
        };
        format!("the workspace would hold more than {most}")
    }

    /// The default and ceiling of a limit.
    pub fn limit(&self, field: LimitField) -> LimitRange {
        self.limits[position(field)]
    }

    /// The least that may be asked of a limit.
    pub fn floor(field: LimitField) -> u64 {
        FLOORS[position(field)]
    }

    /// The most that a configuration may give a limit.
    pub fn most(field: LimitField) -> u64 {
        MOST[position(field)]
    }

    /// Whether a peer of this uid and these groups may use the profile.
    pub fn allows(&self, uid: u32, groups: &[u32]) -> bool {
        self.peers.iter().any(|rule| match rule {
            PeerRule::User(user) => *user == uid,
            PeerRule::Group(group) => groups.contains(group),
        })
    }

    /// Checks a profile as written; `group` is the group of the product's users.
    ///
    /// # Errors
    /// Names the profile, the key and what is wrong with it.
    pub fn from_raw(name: &str, raw: RawProfile, group: u32) -> Result<Self, ProfileError> {
        let error = |key: &str, problem: String| ProfileError {
            profile: name.to_owned(),
            key: key.to_owned(),
            problem,
        };
        check_name(name).map_err(|p| error("name", p))?;
        let paths = |key: &str, given: Option<Vec<PathBuf>>, default: &[&str]| {
            let list = given.unwrap_or_else(|| default.iter().map(PathBuf::from).collect());
            list.iter().try_for_each(|path| check_path(path)).map_err(|p| error(key, p))?;
            Ok(list)
        };
        let shell = raw.shell.unwrap_or_else(|| PathBuf::from("/bin/bash"));
        check_path(&shell).map_err(|p| error("shell", p))?;
        let env = raw.env.unwrap_or_default();
        if let Some(bad) = env.keys().find(|k| k.is_empty() || k.contains(['=', '\0'])) {
            return Err(error("env", format!("`{bad}` is not a name of a variable")));
        }
        let mut peers = vec![PeerRule::User(0), PeerRule::Group(group)];
        if let Some(given) = raw.peers {
            let parsed: Result<_, String> = given.iter().map(|text| parse_peer(text)).collect();
            peers = parsed.map_err(|p| error("peers", p))?;
        }
        let limits = raw.limits.checked().map_err(|(key, p)| error(&format!("limits.{key}"), p))?;
        if raw.concurrency == Some(0) {
            return Err(error("concurrency", "0 would let nothing run; use 1 or more".to_owned()));
        }
        if let Some(time) = raw.queue_timeout.filter(|time| time.0 > YEAR) {
            return Err(error("queue_timeout", format!("{time} is above the most, {}", Millis(YEAR))));
        }
        let network = raw.network.unwrap_or(NetworkMode::None);
        let services = services::checked(network, raw.services).map_err(|(key, p)| error(key, p))?;
        Ok(Self {
            read: paths("read", raw.read, &["/usr", "/etc", "/opt"])?,
            write: paths("write", raw.write, &[])?,
            execute: paths("execute", raw.execute, &["/usr", "/opt"])?,
            hide: paths("hide", raw.hide, &["/etc/cordon"])?,
            network,
            services,
            file_size: raw.limits.file_size.map_or(GIBI, |b| b.0),
            workspace: raw.limits.workspace.map_or(512 * MEBI, |b| b.0),
            named_workspace: raw.limits.named_workspace.map_or(4 * GIBI, |b| b.0),
            named_workspace_files: raw.limits.named_workspace_files.unwrap_or(200_000),
            tmp: raw.limits.tmp.map_or(256 * MEBI, |b| b.0),
            concurrency: raw.concurrency.unwrap_or(32),
            queue: raw.queue.unwrap_or(256),
            queue_timeout: raw.queue_timeout.map_or(60_000, |time| time.0),
            name: name.to_owned(),
            shell,
            env,
            limits,
            peers,
        })
    }

    /// The profile as a peer that may use it sees it.
    pub fn info(&self) -> ProfileInfo {
        let show = |paths: &[PathBuf]| paths.iter().map(|p| p.display().to_string()).collect();
        let limit = |field: LimitField| {
            let range = self.limit(field);
            LimitInfo {
                name: field.name().to_owned(),
                default: range.default.map_or_else(|| "none".to_owned(), |v| field.show(v)),
                ceiling: field.show(range.ceiling),
            }
        };
        let fixed = |name: &str, value: u64| {
            let text = Bytes(value).to_string();
            LimitInfo { name: name.to_owned(), default: text.clone(), ceiling: text }
        };
        let mut limits: Vec<_> = LimitField::ALL.into_iter().map(limit).collect();
        limits.push(fixed("file_size", self.file_size));
        limits.push(fixed("workspace", self.workspace));
        limits.push(fixed("named_workspace", self.named_workspace));
        let files = self.named_workspace_files.to_string();
        limits.push(LimitInfo {
            name: "named_workspace_files".to_owned(),
            default: files.clone(),
            ceiling: files,
        });
        limits.push(fixed("tmp", self.tmp));
        ProfileInfo {
            name: self.name.clone(),
            shell: self.shell.display().to_string(),
            network: mode_name(self.network).to_owned(),
            services: self.services.iter().map(|port| u32::from(*port)).collect(),
            read: show(&self.read),
            write: show(&self.write),
            execute: show(&self.execute),
            limits,
            concurrency: self.concurrency,
        }
    }
}

/// A profile's name: letters, digits, `-` and `_`.
fn check_name(name: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.len() <= limits::NAME_MAX_BYTES && name.chars().all(legal) {
        return Ok(());
    }
    Err(format!("a name has 1 to {} letters, digits, `-` or `_`", limits::NAME_MAX_BYTES))
}

/// An absolute path without `..`, outside what is the sandbox's own.
fn check_path(path: &Path) -> Result<(), String> {
    let plain = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain || path == Path::new("/") {
        return Err(format!("`{}` is not an absolute path below / without `..`", path.display()));
    }
    match OWN_PATHS.iter().find(|own| path.starts_with(own)) {
        Some(own) => Err(format!("`{}` lies in {own}, which is the sandbox's own", path.display())),
        None => Ok(()),
    }
}

/// `uid:1000`, `gid:1000`, `@group` or a user's name.
fn parse_peer(text: &str) -> Result<PeerRule, String> {
    let number = |digits: &str| digits.parse::<u32>().map_err(|_| format!("`{text}` has no number"));
    if let Some(digits) = text.strip_prefix("uid:") {
        return number(digits).map(PeerRule::User);
    }
    if let Some(digits) = text.strip_prefix("gid:") {
        return number(digits).map(PeerRule::Group);
    }
    if let Some(name) = text.strip_prefix('@') {
        let group = Group::from_name(name).ok().flatten();
        return group.map(|g| PeerRule::Group(g.gid.as_raw())).ok_or(format!("no group `{name}`"));
    }
    let user = User::from_name(text).ok().flatten();
    user.map(|u| PeerRule::User(u.uid.as_raw())).ok_or(format!("no user `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Profile, String> {
        let raw: RawProfile = toml::from_str(text).map_err(|e| e.to_string())?;
        Profile::from_raw("test", raw, 77).map_err(|e| e.to_string())
    }

    #[test]
    fn an_empty_profile_is_the_default_of_the_design() {
        let profile = parse("").unwrap();
        let ranges: Vec<_> = LimitField::ALL.into_iter().map(|f| (f, profile.limit(f))).collect();
        let range = |default, ceiling| LimitRange { default, ceiling };
        assert_eq!(
            ranges,
            [
                (LimitField::Wall, range(Some(60_000), 3_600_000)),
                (LimitField::CpuTime, range(None, 3_600_000)),
                (LimitField::Memory, range(Some(512 << 20), 2 << 30)),
                (LimitField::Pids, range(Some(256), 1024)),
                (LimitField::Cpu, range(Some(200), 200)),
                (LimitField::Capture, range(Some(1 << 20), 8 << 20)),
                (LimitField::Output, range(Some(64 << 20), 16 << 30)),
            ]
        );
        assert_eq!((profile.file_size, profile.workspace, profile.tmp), (1 << 30, 512 << 20, 256 << 20));
        assert_eq!((profile.concurrency, profile.queue), (32, 256));
        assert!(profile.allows(0, &[]) && profile.allows(5, &[77]) && !profile.allows(5, &[5]));
    }

    #[test]
    fn mistakes_name_the_key() {
        for (text, expected) in [
            ("reed = []", "unknown field `reed`"),
            ("limits.memmory.default = '1M'", "unknown field `memmory`"),
            ("limits.memory.cieling = '1M'", "unknown field `cieling`"),
            ("read = ['usr']", "read: `usr` is not an absolute path"),
            ("write = ['/usr/../root']", "write: `/usr/../root`"),
            ("read = ['/proc/1']", "lies in /proc"),
            ("peers = ['no-such-user']", "peers: no user `no-such-user`"),
            ("limits.memory.default = '9G'", "limits.memory: the default, 9G, is above the ceiling, 2G"),
            ("limits.memory = '1G'", "expected a table: { default = …, ceiling = … }"),
            ("limits.pids.ceiling = 0", "limits.pids: 0 is below the least"),
            (
                "limits.wall.ceiling = '18446744073709551615ms'",
                "limits.wall: 18446744073709551615ms is above",
            ),
            ("limits.memory.ceiling = '2000000G'", "limits.memory: 2000000G is above the most, 1048576G"),
            ("limits.cpu.ceiling = 999999999999999999", "limits.cpu: 999999999999999999% is above"),
            ("limits.memory = {default = '1X'}", "`1X` is not a size"),
            ("network = 'services'", "network: `services` wants the ports"),
            ("services = [80]", "services: 80 is reached only with"),
            ("concurrency = 0", "concurrency: 0 would let nothing run"),
            ("queue_timeout = '10000h'", "queue_timeout: 10000h is above the most, 8760h"),
            ("env = {'A=B' = '1'}", "env: `A=B`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
