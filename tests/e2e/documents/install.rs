//! `docs/install.md`: its configurations are taken by the daemons that they are for.

use super::{defaults::token_key, read};
use crate::harness::{
    build::programs,
    daemon::{ensure_users, open_directory},
    process,
};
use cordon_tests::markdown::blocks;
use std::{fs, os::unix::fs::PermissionsExt, process::Command};

#[test]
fn its_configurations_are_taken() {
    ensure_users();
    let directory = open_directory();
    let blocks = blocks(&read("docs/install.md"), "toml");
    let daemons = ["gateway", "executor"];
    assert_eq!(blocks.len(), daemons.len(), "{blocks:?}");
    for (text, daemon) in blocks.iter().zip(daemons) {
        let token = if daemon == "gateway" { token_key(directory.path()) } else { String::new() };
        let text = format!("{token}{text}");
        let file = directory.path().join("draft.toml");
        let check = || {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
            let mut check = Command::new(&programs().cordon);
            check.args(["config", "check", "--daemon", daemon]).arg(&file);
            process::run(check, &[])
        };
        fs::write(&file, &text).unwrap();
        assert_eq!(check().status, 0, "{daemon}: {:?}\n{text}", check());
        fs::write(&file, format!("{text}\nno_such_key = 1\n")).unwrap();
        assert_ne!(check().status, 0, "{daemon}: the control");
    }
}
