//! What the daemons are told: their configuration files in DIR/state, written anew at each start. The profiles in
//! the executor's are those of DIR/profiles.toml, which is a person's own and only read.

use super::{
    directory::{Directory, write_root_file},
    environment::Settings,
};
use crate::{commands::config, failure::Failure, sibling};
use serde::Serialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Keys of `executor.toml`.
#[derive(Serialize)]
struct Executor {
    socket: PathBuf,
    state_dir: PathBuf,
    audit: PathBuf,
    require: &'static str,
    home: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<PathBuf>,
    users: Users,
}

/// Its `users`, of which the others have their own names.
#[derive(Serialize)]
struct Users {
    command: String,
}

/// Keys of `gateway.toml`.
#[derive(Serialize)]
struct Gateway {
    listen: String,
    socket: PathBuf,
    executor: PathBuf,
    token_file: PathBuf,
}

/// Writes both files. The gateway's is for its own user to read; no secret is in either.
pub(super) fn write(directory: &Directory, settings: &Settings, port: u16) -> Result<(), Failure> {
    let executor = Executor {
        socket: directory.executor_socket(),
        state_dir: directory.executor_state(),
        audit: directory.audit_file(),
        require: "available",
        home: settings.home.clone(),
        cwd: settings.cwd.clone(),
        users: Users { command: settings.user.clone() },
    };
    let gateway = Gateway {
        listen: format!("127.0.0.1:{port}"),
        socket: directory.gateway_socket(),
        executor: directory.executor_socket(),
        token_file: directory.token_file(),
    };
    let file = directory.profiles_file();
    let executor = format!("{}\n{}", text(&executor)?, profiles(&file)?);
    write_root_file(&directory.executor_configuration(), &executor, 0o644)?;
    write_root_file(&directory.gateway_configuration(), &text(&gateway)?, 0o644)
}

/// The text of the person's file, once the executor has said that it would take it; none where there is no file.
fn profiles(file: &Path) -> Result<String, Failure> {
    let reading =
        |cause: String, next: &str| Failure::new(format!("reading {}", file.display()), cause, next);
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(reading(error.to_string(), "see whether root can read it")),
        Ok(_) => {}
    }
    // Whose it is, and every key and value with its line.
    let program = "cordon-executor";
    config::check(program, &sibling::path(program)?, file)?;
    let text =
        fs::read_to_string(file).map_err(|e| reading(e.to_string(), "see whether root can read it"))?;
    let keys: toml::Table = text.parse().map_err(|e| reading(format!("{e}"), "write it as TOML"))?;
    match keys.keys().find(|key| *key != "profiles") {
        Some(key) => {
            let next = "take the key out, or start cordon-executor yourself with a whole configuration";
            Err(reading(
                format!("`{key}` is not for this file, which has [profiles.NAME] tables alone"),
                next,
            ))
        }
        None => Ok(text),
    }
}

fn text(keys: &impl Serialize) -> Result<String, Failure> {
    let text = toml::to_string(keys);
    let text =
        text.map_err(|e| Failure::new("writing the configuration", e, "choose a plain path for --dir"))?;
    Ok(format!("# Written anew by each `cordon up`; profiles go into DIR/profiles.toml.\n{text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

    #[test]
    fn paths_are_quoted_whatever_is_in_them() {
        let socket = PathBuf::from("/a \"b\"\\/c\n");
        let keys = Executor {
            socket: socket.clone(),
            state_dir: "/s".into(),
            audit: "/a".into(),
            require: "available",
            home: "/home/x".into(),
            cwd: None,
            users: Users { command: "x".into() },
        };
        let written: toml::Table = text(&keys).unwrap().parse().unwrap();
        assert_eq!(written["socket"].as_str().map(Path::new), Some(&*socket));
        assert_eq!(written["require"].as_str(), Some("available"));
        let keys = Executor {
            socket: OsStr::from_bytes(b"/\xff").into(),
            state_dir: "/s".into(),
            audit: "/a".into(),
            require: "",
            home: "/home/x".into(),
            cwd: Some("/tmp".into()),
            users: Users { command: "x".into() },
        };
        assert!(text(&keys).is_err());
    }
}
