//! What the daemons are told: their configuration files in DIR/state.

use super::directory::{Directory, write_root_file};
use crate::failure::Failure;
use serde::Serialize;
use std::path::PathBuf;

/// Keys of `executor.toml`.
#[derive(Serialize)]
struct Executor {
    socket: PathBuf,
    state_dir: PathBuf,
    audit: PathBuf,
    require: &'static str,
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
pub(super) fn write(directory: &Directory, port: u16) -> Result<(), Failure> {
    let executor = Executor {
        socket: directory.executor_socket(),
        state_dir: directory.executor_state(),
        audit: directory.audit_file(),
        require: "available",
    };
    let gateway = Gateway {
        listen: format!("127.0.0.1:{port}"),
        socket: directory.gateway_socket(),
        executor: directory.executor_socket(),
        token_file: directory.token_file(),
    };
    write_root_file(&directory.executor_configuration(), &text(&executor)?, 0o644)?;
    write_root_file(&directory.gateway_configuration(), &text(&gateway)?, 0o644)
}

fn text(keys: &impl Serialize) -> Result<String, Failure> {
    let text = toml::to_string(keys);
    let text =
        text.map_err(|e| Failure::new("writing the configuration", e, "choose a plain path for --dir"))?;
    Ok(format!("# Written anew by each `cordon up`.\n{text}"))
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
        };
        let written: toml::Table = text(&keys).unwrap().parse().unwrap();
        assert_eq!(written["socket"].as_str().map(Path::new), Some(&*socket));
        assert_eq!(written["require"].as_str(), Some("available"));
        let keys = Executor {
            socket: OsStr::from_bytes(b"/\xff").into(),
            state_dir: "/s".into(),
            audit: "/a".into(),
            require: "",
        };
        assert!(text(&keys).is_err());
    }
}
