//! `docs/install.md`: its configurations are taken by the daemons that they are for.

use super::{defaults::token_key, read};
use crate::harness::{
    build::programs,
    daemon::{ensure_users, open_directory},
    process,
};
use std::{fs, os::unix::fs::PermissionsExt, process::Command};

/// The blocks of a language, without what they are indented by.
fn blocks(language: &str) -> Vec<String> {
    let page = read("docs/install.md");
    let fence = format!("```{language}");
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.trim() == fence {
            let indent = line.len() - fence.len();
            let block = lines.by_ref().take_while(|line| line.trim() != "```");
            found.push(block.map(|line| format!("{}\n", line.get(indent..).unwrap_or(""))).collect());
        }
    }
    found
}

#[test]
fn its_configurations_are_taken() {
    ensure_users();
    let directory = open_directory();
    let blocks = blocks("toml");
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
