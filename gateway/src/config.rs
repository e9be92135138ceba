//! The gateway's configuration: one TOML file, raw and then checked.

mod document;

pub use document::document;

use crate::user::unreadable;
use cordon_protocol::{
    Bytes, Millis,
    configuration::{FILE_MAX, Way, line_of, read_text, refusal},
    limits,
};
use nix::fcntl::OFlag;
use serde::Deserialize;
use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// TCP address, loopback unless `allow_remote`.
    pub listen: SocketAddr,
    /// Addresses that other machines reach are accepted.
    pub allow_remote: bool,
    /// Unix socket beside it; none where there is to be none.
    pub socket: Option<PathBuf>,
    /// The executor's socket.
    pub executor: PathBuf,
    /// File with the token that TCP clients must show.
    pub token_file: PathBuf,
    /// Lower-case names accepted in `Host` beside the loopback ones, with or without a port.
    pub allowed_hosts: Vec<String>,
    /// Lower-case origins accepted beside the gateway's own (`https://example.org`).
    pub allowed_origins: Vec<String>,
    /// Longest request body, bytes.
    pub body_max: usize,
    /// Time for a request's head; also for a client that sends nothing, or takes nothing of its answer.
    pub header_timeout: Duration,
    /// Time for a request's body.
    pub read_timeout: Duration,
    /// Time that running requests are given after SIGTERM.
    pub shutdown_grace: Duration,
    /// Open connections of one listener.
    pub connections_max: usize,
}

/// Why the configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Cannot be read.
    #[error("configuration {}: {}", path.display(), unreadable(source, ""))]
    Read {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Somebody else than root could have led here from another file.
    #[error("configuration {}: {problem}", path.display())]
    Untrusted {
        /// The link, or the file.
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
    /// The same, and where it stands.
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
    /// With the place of what is wrong.
    fn located(self, path: &Path, text: &str) -> Self {
        let Self::Value(message) = self else { return self };
        let key = message.split(':').next().unwrap_or_default();
        match line_of(text, &[key]) {
            Some(line) => Self::At { path: path.to_owned(), line, message },
            None => Self::Value(message),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawConfig {
    listen: SocketAddr,
    allow_remote: bool,
    socket: Option<PathBuf>,
    executor: PathBuf,
    token_file: PathBuf,
    allowed_hosts: Vec<String>,
    allowed_origins: Vec<String>,
    body_max: Bytes,
    header_timeout: Millis,
    read_timeout: Millis,
    shutdown_grace: Millis,
    connections_max: u16,
}

impl Default for RawConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, limits::GATEWAY_PORT)),
            allow_remote: false,
            socket: None,
            executor: limits::EXECUTOR_SOCKET.into(),
            token_file: "/var/lib/cordon/token".into(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            body_max: Bytes(u64::try_from(limits::HTTP_BODY_MAX).unwrap_or(u64::MAX)),
            header_timeout: Millis(30_000),
            read_timeout: Millis(30_000),
            shutdown_grace: Millis(u64::try_from(limits::SHUTDOWN_GRACE.as_millis()).unwrap_or(u64::MAX)),
            connections_max: 2048,
        }
    }
}

/// Bounds of `body_max`: below, an ordinary request does not fit; above, one body takes the host's memory.
const BODY_MAX_BOUNDS: (u64, u64) = (1 << 10, 1 << 30);
/// Longest time that a timeout may be set to: an hour.
const TIMEOUT_MAX_MS: u64 = 3_600_000;

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// As [`ConfigError`] says; nothing is guessed.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        // A pipe is not waited for.
        let opened = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
        Self::from_file(path, opened)
    }

    /// As [`Config::load`], for whoever may read more than the gateway: nothing is shown of a file to which somebody else
    /// than root could have led.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn check(path: &Path) -> Result<Self, ConfigError> {
        let way = Way::follow(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        if let Some((path, problem)) = way.doubt() {
            return Err(ConfigError::Untrusted { path, problem });
        }
        Self::from_file(path, way.open((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits()))
    }

    fn from_file(path: &Path, opened: io::Result<File>) -> Result<Self, ConfigError> {
        let text = opened.and_then(|file| read_text(&file, FILE_MAX));
        Self::from_text(path, &text.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?)
    }

    fn from_text(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let parse = |e: toml::de::Error| ConfigError::Parse { path: path.to_owned(), message: refusal(&e) };
        let raw = toml::from_str(text).map_err(parse)?;
        Self::from_raw(raw).map_err(|error| error.located(path, text))
    }

    fn from_raw(raw: RawConfig) -> Result<Self, ConfigError> {
        for (key, path) in [("socket", raw.socket.as_ref()), ("executor", Some(&raw.executor))] {
            check_absolute(key, path)?;
        }
        check_absolute("token_file", Some(&raw.token_file))?;
        let (least, most) = BODY_MAX_BOUNDS;
        let body_max = usize::try_from(raw.body_max.0).unwrap_or(usize::MAX);
        if !(least..=most).contains(&raw.body_max.0) {
            let (least, most) = (Bytes(least), Bytes(most));
            let text = format!("body_max: {} is not between {least} and {most}", raw.body_max);
            return Err(ConfigError::Value(text));
        }
        if raw.connections_max == 0 {
            return Err(ConfigError::Value(
                "connections_max: 0 would refuse everybody; use 1 or more".into(),
            ));
        }
        let config = Self {
            listen: raw.listen,
            allow_remote: raw.allow_remote,
            socket: raw.socket,
            executor: raw.executor,
            token_file: raw.token_file,
            allowed_hosts: raw.allowed_hosts.iter().map(|h| check_host(h)).collect::<Result<_, _>>()?,
            allowed_origins: raw.allowed_origins.iter().map(|o| check_origin(o)).collect::<Result<_, _>>()?,
            body_max,
            header_timeout: timeout("header_timeout", raw.header_timeout)?,
            read_timeout: timeout("read_timeout", raw.read_timeout)?,
            shutdown_grace: timeout("shutdown_grace", raw.shutdown_grace)?,
            connections_max: raw.connections_max.into(),
        };
        config.check_address("listen", config.listen)?;
        Ok(config)
    }

    /// The configuration with the port of the `PORT` environment variable, where it is set.
    ///
    /// # Errors
    /// `Value` when it is not a port.
    pub fn with_port_variable(mut self, value: Option<OsString>) -> Result<Self, ConfigError> {
        if let Some(value) = value {
            let port = value.to_str().and_then(|text| text.parse().ok());
            let port = port.ok_or_else(|| {
                let value = value.to_string_lossy();
                ConfigError::Value(format!("PORT: `{value}` is not a port; use 0 to 65535, or unset it"))
            })?;
            self.listen.set_port(port);
        }
        Ok(self)
    }

    /// Refuses an address that other machines reach, unless that is wanted.
    ///
    /// # Errors
    /// `Value`, naming `key`.
    pub fn check_address(&self, key: &str, address: SocketAddr) -> Result<(), ConfigError> {
        if self.allow_remote || address.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        Err(ConfigError::Value(format!(
            "{key}: {address} is not a loopback address; put a TLS proxy in front of 127.0.0.1, \
             or set allow_remote = true"
        )))
    }
}

fn check_absolute(key: &str, path: Option<&PathBuf>) -> Result<(), ConfigError> {
    match path {
        Some(path) if !path.is_absolute() => {
            Err(ConfigError::Value(format!("{key}: `{}` is not an absolute path", path.display())))
        }
        _ => Ok(()),
    }
}

fn timeout(key: &str, value: Millis) -> Result<Duration, ConfigError> {
    if (1..=TIMEOUT_MAX_MS).contains(&value.0) {
        Ok(Duration::from_millis(value.0))
    } else {
        Err(ConfigError::Value(format!("{key}: {value} is not between 1ms and {}", Millis(TIMEOUT_MAX_MS))))
    }
}

/// A host name, with a port where only that port is meant. Wildcards would undo the check.
fn check_host(text: &str) -> Result<String, ConfigError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if text.is_empty() || !text.chars().all(plain) {
        return Err(ConfigError::Value(format!(
            "allowed_hosts: `{text}` is not a host; write a name or name:port, without scheme, path or wildcard"
        )));
    }
    Ok(text.to_ascii_lowercase())
}

/// An origin as browsers send it (RFC 6454): scheme, host, port where it is not the usual one.
fn check_origin(text: &str) -> Result<String, ConfigError> {
    let host = text.split_once("://").filter(|(scheme, _)| !scheme.is_empty()).map(|(_, host)| host);
    match host.map(check_host) {
        Some(Ok(_)) => Ok(text.to_ascii_lowercase()),
        _ => Err(ConfigError::Value(format!(
            "allowed_origins: `{text}` is not an origin; write scheme://host[:port], without path or wildcard"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::from_text(Path::new("t"), text)
    }

    #[test]
    fn an_empty_file_gives_the_defaults() {
        let config = parse("").unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:3800");
        assert_eq!(config.executor, Path::new("/run/cordon/executor.sock"));
        assert_eq!((config.body_max, config.socket), (24 << 20, None));
        assert_eq!(config.shutdown_grace, Duration::from_secs(5));
    }

    #[test]
    fn a_mistake_is_named_with_key_and_line() {
        for (text, words) in [
            ("listen = \"127.0.0.1:1\"\nlisten_on = 1", &["listen_on", "line 2"][..]),
            ("body_max = 5", &["body_max", "line 1"]),
            ("body_max = \"1\"", &["body_max", "1K"]),
            ("\n\nread_timeout = \"0s\"", &["read_timeout", "t, line 3"]),
            ("header_timeout = \"2h\"", &["header_timeout", "1h"]),
            ("connections_max = 0", &["connections_max"]),
            ("listen = \"0.0.0.0:3800\"", &["listen", "allow_remote"]),
            ("listen = \"localhost:3800\"", &["listen", "line 1"]),
            ("executor = \"run/x\"", &["executor", "absolute"]),
            ("token_file = \"token\"", &["token_file", "absolute"]),
            ("allowed_hosts = [\"*\"]", &["allowed_hosts", "`*`"]),
            ("allowed_hosts = [\"http://x\"]", &["allowed_hosts", "http://x"]),
            ("allowed_origins = [\"x.example\"]", &["allowed_origins", "x.example"]),
            ("allowed_origins = [\"null\"]", &["allowed_origins", "null"]),
            ("allowed_origins = [\"https://x/\"]", &["allowed_origins"]),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{text}: {message}");
        }
    }

    #[test]
    fn a_remote_address_needs_to_be_wanted() {
        assert!(parse("listen = \"0.0.0.0:1\"\nallow_remote = true").is_ok());
        assert!(parse("listen = \"[::1]:1\"").is_ok());
        assert!(parse("listen = \"[::ffff:127.0.0.1]:1\"").is_ok());
        assert!(parse("listen = \"[::ffff:8.8.8.8]:1\"").is_err());
    }

    #[test]
    fn the_port_variable_overrides_the_port_alone() {
        let config = parse("listen = \"[::1]:1\"").unwrap().with_port_variable(Some("4000".into())).unwrap();
        assert_eq!(config.listen.to_string(), "[::1]:4000");
        for bad in ["", "x", "65536", "-1"] {
            let error = parse("").unwrap().with_port_variable(Some(bad.into())).unwrap_err();
            assert!(error.to_string().contains("PORT"), "{bad}");
        }
    }

    #[test]
    fn names_are_lower_case() {
        let config =
            parse("allowed_hosts = [\"Box.Example:8443\"]\nallowed_origins = [\"HTTPS://Box\"]").unwrap();
        assert_eq!(config.allowed_hosts, ["box.example:8443"]);
        assert_eq!(config.allowed_origins, ["https://box"]);
    }
}
