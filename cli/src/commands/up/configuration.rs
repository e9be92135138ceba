//! What the daemons are told: their configuration files in DIR/state, written anew at each start. The profiles in
//! the executor's are those of DIR/profiles.toml, which is a person's own and only read.

use super::{
    directory::{Directory, write_root_file},
    environment::Settings,
};
use crate::{commands::config, failure::Failure, sibling};
use cordon_protocol::configuration::text as toml_text;
use serde::Serialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Keys of `executor.toml`, beside `users.command` and the profiles.
#[derive(Serialize)]
struct Executor {
    socket: PathBuf,
    state_dir: PathBuf,
    audit: PathBuf,
    require: &'static str,
    home: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<PathBuf>,
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
    };
    let gateway = Gateway {
        listen: format!("127.0.0.1:{port}"),
        socket: directory.gateway_socket(),
        executor: directory.executor_socket(),
        token_file: directory.token_file(),
    };
    let file = directory.profiles_file();
    let user = toml_text(&settings.user);
    // The profiles come last, and no table is open there: they may begin in any way that TOML has.
    let executor = format!("{}users.command = {user}\n\n{}", text(&executor)?, profiles(&file)?);
    write_root_file(&directory.executor_configuration(), &executor, 0o644)?;
    write_root_file(&directory.gateway_configuration(), &text(&gateway)?, 0o644)?;
    settings.cwd.as_ref().map_or(Ok(()), |cwd| check_cwd(cwd, settings, directory))
}

/// Asks the executor whether commands may start there, which depends on the profiles, and tells by the variable's name
/// where not. What else it says it says again when it is started.
fn check_cwd(cwd: &Path, settings: &Settings, directory: &Directory) -> Result<(), Failure> {
    let executor = sibling::path(config::EXECUTOR)?;
    let said = match config::check(config::EXECUTOR, &executor, &directory.executor_configuration()) {
        Err(Failure::Told { problem, .. }) => problem,
        other => return other,
    };
    let Some((_, problem)) = said.split_once(": cwd: ") else { return Ok(()) };
    let next = format!(
        "set EXEC_CWD to a directory of EXEC_HOME ({}), of /tmp or of what profile `default` reads ({} can change that), or unset it",
        settings.home.display(),
        directory.profiles_file().display()
    );
    // Of the key's name, the path and the remedy the variable has its own.
    let problem = problem.split_once("; name a directory").map_or(problem, |(problem, _)| problem);
    let problem = problem.split_once("` ").map_or(problem, |(_, problem)| problem);
    Err(Failure::new(format!("EXEC_CWD={}", cwd.display()), problem, next))
}

/// The text of the person's file; none where there is no file.
fn profiles(file: &Path) -> Result<String, Failure> {
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        // What else is wrong with it is told there.
        _ => config::profiles(&sibling::path(config::EXECUTOR)?, file),
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
        };
        assert!(text(&keys).is_err());
    }
}
