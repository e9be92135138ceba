//! Row 24: a secret that is the same everywhere, or that is not needed.

use super::{Probe, probe};
use crate::harness::{
    Up,
    build::programs,
    client::public_copy,
    daemon::{free_port, open_directory},
    host, process, shared,
};
use serde_json::json;
use std::{fs, process::Command};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 24,
        test: "escape::r24_credentials::each_installation_has_a_secret_of_its_own",
        tried: "showing one instance the token of another, an empty one and the default configuration's words",
        control: "each takes its own",
        closed_by: "a token of random bytes, made when it is first started",
    },
    Probe {
        row: 24,
        test: "escape::r24_credentials::nothing_that_is_shipped_opens_a_door",
        tried: "starting the gateway as it is shipped, with no token there, and looking for a token in the default configuration",
        control: "with a token file it serves: `gateway::own::configured_hosts_and_origins_are_let_in`",
        closed_by: "a start that is refused",
    },
];

#[test]
fn each_installation_has_a_secret_of_its_own() {
    let _verdict = probe!();
    let other = Up::start();
    assert!(other.token.len() >= 32 && shared().token.len() >= 32);
    assert_ne!(other.token, shared().token);
    let status = |up: &Up, token: &str| {
        let request = up.anonymous("POST", "/v1/exec").bearer_auth(token).json(&json!({"argv": ["true"]}));
        request.send().unwrap().status().as_u16()
    };
    for (mine, foreign) in [(&other, shared()), (shared(), &other)] {
        assert_eq!(status(mine, &mine.token), 200, "the control");
        for token in
            [foreign.token.as_str(), "", "token", "changeme", "null", &mine.token[..mine.token.len() - 1]]
        {
            assert_eq!(status(mine, token), 401, "{token:?}");
        }
    }
}

#[test]
fn nothing_that_is_shipped_opens_a_door() {
    let _verdict = probe!();
    let mut shown = Command::new(&programs().gateway);
    shown.arg("--default-config");
    let defaults = process::run(shown, &[]).text();
    let keys: Vec<_> = defaults.lines().filter(|line| line.contains('=') && line.contains("token")).collect();
    assert!(!keys.is_empty() && keys.iter().all(|key| key.contains("token_file")), "{keys:?}");
    let directory = open_directory();
    let file = directory.path().join("gateway.toml");
    let text = format!(
        "{defaults}\nlisten = \"127.0.0.1:{}\"\ntoken_file = \"{}\"\n",
        free_port(),
        directory.path().join("absent").display()
    );
    fs::write(&file, text).unwrap();
    let program = public_copy(&programs().gateway, directory.path());
    let (uid, gid) = (host::uid_of("cordon"), host::gid_of("cordon"));
    let mut command = host::as_user(uid, gid, &[], &program.to_string_lossy());
    command.arg("--config").arg(&file);
    let ran = process::run(command, &[]);
    assert!(ran.status != 0 && ran.stderr.contains("absent"), "{ran:?}");
}
