//! Environment variables that say for whom and where commands run: EXEC_USER, EXEC_HOME, EXEC_CWD; and where
//! the gateway listens: PORT. None of them is passed on: commands see a built environment.

use crate::failure::Failure;
use cordon_protocol::limits;
use nix::unistd::User;
use std::{
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

/// The user where none is named.
const USER: &str = "execuser";
/// Longest name of a user (useradd(8)).
const NAME_MAX: usize = 32;

/// What the variables say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Runs the commands.
    pub(super) user: String,
    /// The home directory inside.
    pub(super) home: PathBuf,
    /// Where commands start that name no directory; none is the home directory.
    pub(super) cwd: Option<PathBuf>,
    /// Port of the gateway, where no option names one.
    pub(super) port: u16,
}

impl Settings {
    /// Reads and checks them.
    pub(super) fn read() -> Result<Self, Failure> {
        let settings = Self::from_variables(|name| std::env::var_os(name))?;
        let root = User::from_name(&settings.user).is_ok_and(|user| user.is_some_and(|u| u.uid.is_root()));
        if root {
            Err(refused("EXEC_USER", &settings.user, "is root under another name"))
        } else {
            Ok(settings)
        }
    }

    fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Failure> {
        let text = |name: &'static str| -> Result<Option<String>, Failure> {
            let Some(value) = variable(name) else { return Ok(None) };
            let value = value.into_string();
            let value = value.map_err(|raw| refused(name, &raw.to_string_lossy(), "is not UTF-8"))?;
            if value.is_empty() { Err(refused(name, "", "is empty")) } else { Ok(Some(value)) }
        };
        let user = text("EXEC_USER")?.unwrap_or_else(|| USER.to_owned());
        if user == "root" {
            return Err(refused("EXEC_USER", &user, "would give commands every right"));
        }
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
        let first = user.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        if !first || user.len() > NAME_MAX || !user.chars().all(plain) {
            return Err(refused(
                "EXEC_USER",
                &user,
                "is not the name of a user: small letters, digits, _ and -",
            ));
        }
        let home = text("EXEC_HOME")?.map_or_else(|| Path::new("/home").join(&user), PathBuf::from);
        if home.parent() != Some(Path::new("/home")) || !is_plain(&home) {
            return Err(refused("EXEC_HOME", &home.to_string_lossy(), "is not directly below /home"));
        }
        let cwd = text("EXEC_CWD")?.map(PathBuf::from);
        if let Some(bad) = cwd.as_ref().filter(|cwd| !is_plain(cwd)) {
            return Err(refused("EXEC_CWD", &bad.to_string_lossy(), "is not an absolute path without `..`"));
        }
        let port = match text("PORT")? {
            Some(port) => {
                port.parse().map_err(|_| refused("PORT", &port, "is not a number from 0 to 65535"))?
            }
            None => limits::GATEWAY_PORT,
        };
        Ok(Self { user, home, cwd, port })
    }
}

fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)))
}

fn refused(name: &str, value: &str, problem: &str) -> Failure {
    Failure::new(format!("{name}={value}"), problem, format!("set {name} to another value, or unset it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, &str)]) -> Result<Settings, String> {
        let find = |name: &str| given.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into());
        Settings::from_variables(find).map_err(|failure| match failure {
            Failure::Told { problem, .. } => problem,
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn what_is_not_said_follows_from_the_user() {
        let settings = |user: &str, home: &str, cwd: Option<&str>, port| Settings {
            port,
            user: user.into(),
            home: home.into(),
            cwd: cwd.map(PathBuf::from),
        };
        assert_eq!(read(&[]).unwrap(), settings("execuser", "/home/execuser", None, 3800));
        assert_eq!(read(&[("EXEC_USER", "bot")]).unwrap(), settings("bot", "/home/bot", None, 3800));
        let all = [("EXEC_USER", "bot"), ("EXEC_HOME", "/home/work"), ("EXEC_CWD", "/tmp/x"), ("PORT", "0")];
        assert_eq!(read(&all).unwrap(), settings("bot", "/home/work", Some("/tmp/x"), 0));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (name, value, says) in [
            ("EXEC_USER", "", "is empty"),
            ("EXEC_USER", "root", "every right"),
            ("EXEC_USER", "-x", "not the name of a user"),
            ("EXEC_USER", "a b", "not the name of a user"),
            ("EXEC_USER", "../x", "not the name of a user"),
            ("EXEC_HOME", "", "is empty"),
            ("EXEC_HOME", "/root", "directly below /home"),
            ("EXEC_HOME", "/home/a/b", "directly below /home"),
            ("EXEC_HOME", "/home/..", "directly below /home"),
            ("EXEC_HOME", "home/x", "directly below /home"),
            ("EXEC_CWD", "x", "not an absolute path"),
            ("EXEC_CWD", "/tmp/../root", "not an absolute path"),
            ("PORT", "", "is empty"),
            ("PORT", "65536", "not a number"),
        ] {
            let problem = read(&[(name, value)]).unwrap_err();
            assert!(problem.starts_with(&format!("{name}={value} failed: ")), "{problem}");
            assert!(problem.contains(says), "{problem}");
        }
    }
}
