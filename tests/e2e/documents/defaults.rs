//! `systemd/*.toml`: the default configurations, as the daemons print them.

use super::{read, repository};
use crate::harness::{
    build::programs,
    daemon::{ensure_users, open_directory},
    host, process,
};
use cordon_executor::config::Config;
use cordon_protocol::configuration::uncommented;
use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Command,
};

fn printed(program: &Path) -> String {
    let mut command = Command::new(program);
    command.arg("--default-config");
    process::run(command, &[]).text()
}

#[test]
fn the_stored_defaults_are_what_the_daemons_print() {
    let programs = programs();
    for (program, file) in
        [(&programs.executor, "systemd/executor.toml"), (&programs.gateway, "systemd/gateway.toml")]
    {
        let text = printed(program);
        if std::env::var_os("BLESS").is_some() {
            fs::write(repository().join(file), &text).unwrap();
        }
        assert!(read(file) == text, "{file} is not what {} prints; run with BLESS=1", program.display());
    }
}

/// Makes the one thing that has to be there beside a gateway's file, and gives its key.
pub(super) fn token_key(directory: &Path) -> String {
    let token = directory.join("token");
    fs::write(&token, "t".repeat(64)).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o640)).unwrap();
    chown(&token, None, Some(host::gid_of("cordon"))).unwrap();
    format!("token_file = {token:?}\n")
}

#[test]
fn they_are_taken_as_they_are_and_with_every_key_in_force() {
    ensure_users();
    let directory = open_directory();
    // But for the bytes that were read.
    let shown = |config: Config| format!("{:?}", Config { sha256: String::new(), ..config });
    let default = shown(Config::defaults().unwrap());
    let there = token_key(directory.path());
    for (name, program) in [("executor", &programs().executor), ("gateway", &programs().gateway)] {
        let text = printed(program);
        for mut text in [uncommented(&text), text] {
            if name == "gateway" {
                text = text.replace("token_file = \"/var/lib/cordon/token\"\n", &there);
                text = text.replace(&format!("#{there}"), &there);
            }
            let file = directory.path().join(format!("{name}.toml"));
            fs::write(&file, text).unwrap();
            let mut check = Command::new(&programs().cordon);
            check.args(["config", "check"]).arg(&file);
            let ran = process::run(check, &[]);
            assert_eq!((ran.status, ran.text()), (0, format!("{}: good\n", file.display())), "{ran:?}");
            if name == "executor" {
                assert_eq!(shown(Config::load(&file).unwrap()), default);
            }
        }
    }
}

#[test]
fn a_mistake_is_125_with_key_and_line_and_no_start() {
    ensure_users();
    let directory = open_directory();
    for (name, text, says) in [
        ("executor.toml", "\nsokcet = '/x'", &["line 2", "`sokcet`"][..]),
        (
            "executor.toml",
            "[profiles.p]\nlimits.pids = { default = 0 }",
            &["line 2", "limits.pids: 0 is below"],
        ),
        ("gateway.toml", "\n\nread_timeout = '0s'", &["line 3", "read_timeout: 0ms"]),
        ("gateway.toml", "body_max = 5", &["line 1", "body_max"]),
    ] {
        let file = directory.path().join(name);
        fs::write(&file, text).unwrap();
        let mut check = Command::new(&programs().cordon);
        check.args(["config", "check"]).arg(&file);
        let ran = process::run(check, &[]);
        assert_eq!((ran.status, ran.stdout.len()), (125, 0), "{text}: {ran:?}");
        assert!(says.iter().all(|word| ran.stderr.contains(word)), "{text}: {}", ran.stderr);
    }
    // A name that says nothing.
    let file = directory.path().join("draft.toml");
    fs::write(&file, "").unwrap();
    for (daemon, status) in [(&[][..], 125), (&["--daemon", "profiles"], 0), (&["--daemon", "executor"], 0)] {
        let mut check = Command::new(&programs().cordon);
        check.args(["config", "check"]).arg(&file).args(daemon);
        assert_eq!(process::run(check, &[]).status, status, "{daemon:?}");
    }
}

#[test]
fn each_daemon_s_help_has_what_it_takes_and_an_example() {
    for (name, program, options) in [
        ("cordon-executor", &programs().executor, &["--probe", "--steps"][..]),
        ("cordon-gateway", &programs().gateway, &["PORT", "RUST_LOG"]),
    ] {
        let help = |flag: &str| {
            let mut command = Command::new(program);
            command.arg(flag);
            process::run(command, &[])
        };
        let text = help("--help").text();
        assert_eq!(help("-h").text(), text);
        let always =
            ["--config", "--check", "--default-config", "--help", "--version", "[default: /etc/cordon/"];
        for word in options.iter().chain(&always) {
            assert!(text.contains(word), "{name} {word}: {text}");
        }
        assert!(text.contains(&format!("Examples:\n  {name} --default-config >")), "{text}");
        let wrong = help("--bogus");
        assert!(
            wrong.status != 0 && wrong.stderr.contains("--bogus") && wrong.stderr.contains("--help"),
            "{wrong:?}"
        );
    }
}
