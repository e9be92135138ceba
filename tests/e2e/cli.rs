//! The command-line program: what it passes on, what it prints, and what its exit status says.

use crate::harness::{
    PATIENCE,
    build::programs,
    client::public_copy,
    daemon::open_directory,
    eventually, host, lab, marker,
    process::{self, sandboxed},
    shared,
};
use cordon_protocol::{Health, JobInfo, LayerReport, client::blocking};
use std::{collections::BTreeSet, process::Command};

fn cordon(arguments: &[&str]) -> process::Ran {
    process::run(shared().cordon(arguments), &[])
}

#[test]
fn the_exit_status_is_the_command_s_or_says_what_ended_it() {
    for (arguments, status) in [
        (&["--", "true"][..], 0),
        (&["-c", "exit 7"], 7),
        (&["-c", "exit 255"], 255),
        (&["-c", "kill -TERM $$"], 143),
        (&["-c", "kill -KILL $$"], 137),
        (&["--timeout", "300ms", "--", "sleep", "9"], 124),
        (&["--memory", "64M", "--", "tail", "/dev/zero"], 137),
        (&["--output", "10K", "--", "yes"], 141),
        (&["--", "/no/such"], 127),
        (&["--", "/etc"], 126),
        (&["--", "/etc/passwd"], 126),
        (&["--profile", "nope", "--", "true"], 125),
        (&["--memory", "900G", "--", "true"], 125),
        (&["--cwd", "/no/such", "--", "true"], 125),
        (&["--no-such-option", "--", "true"], 125),
        (&["-c", "true", "--", "true"], 125),
    ] {
        for json in [&[][..], &["--json"]] {
            let ran = shared().run(&[json, arguments].concat());
            assert_eq!(ran.status, status, "{json:?} {arguments:?}: {}", ran.stderr);
        }
    }
}

#[test]
fn output_passes_through_unchanged_and_apart() {
    let ran = shared().run(&["-c", "printf 'out\\377\\0'; printf err >&2"]);
    assert_eq!((ran.stdout.as_slice(), ran.stderr.as_str(), ran.status), (&b"out\xff\0"[..], "err", 0));
}

#[test]
fn json_prints_one_report_and_nothing_else() {
    let ran = shared().run(&["--json", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (3, ""));
    let text = ran.text();
    assert_eq!(serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>().count(), 1);
}

#[test]
fn options_stand_anywhere_before_the_command() {
    for arguments in [
        &["--timeout", "20s", "-c", "echo $A", "--env", "A=x"][..],
        &["-c", "echo $A", "--env", "A=x", "--timeout=20s", "-n"],
        &["--env", "A=x", "-n", "--", "bash", "-c", "echo $A"],
    ] {
        let (first, last) = (shared().report(arguments), shared().run(arguments));
        assert_eq!((first.stdout.as_deref(), last.text().as_str()), (Some("x\n"), "x\n"), "{arguments:?}");
    }
    // After `--` everything is the command's.
    assert_eq!(shared().run(&["--", "echo", "--json", "-n", "--timeout"]).text(), "--json -n --timeout\n");
}

#[test]
fn a_line_is_no_login_shell_s() {
    assert_eq!(
        shared().inside("shopt -q login_shell && echo login || echo plain; echo $0"),
        "plain\n/bin/bash\n"
    );
}

#[test]
fn several_variables_are_passed_on() {
    let ran = shared().run(&[
        "--env",
        "A=1",
        "--env",
        "B=x=y z",
        "--env",
        "C=",
        "-c",
        "echo \"$A|$B|$C|${C-unset}\"",
    ]);
    assert_eq!(ran.text(), "1|x=y z||\n");
    for entry in ["A", "=x", ""] {
        let ran = shared().run(&["--env", entry, "--", "echo", "ran"]);
        assert_eq!((ran.status, ran.stdout.len()), (125, 0), "{entry:?}");
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    let help = cordon(&["--help"]);
    assert_eq!(help.status, 0);
    for name in ["up", "run", "ps", "kill", "profiles", "doctor", "completions"] {
        assert!(help.text().lines().any(|l| l.trim_start().starts_with(name)), "{name}");
        let own = cordon(&[name, "--help"]);
        let text = own.text();
        let example = text.split("Example").nth(1).unwrap_or_else(|| panic!("{name} has no example"));
        assert!(example.contains(&format!("cordon {name}")), "{name}");
    }
}

#[test]
fn completions_are_made_for_the_usual_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = cordon(&["completions", shell]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(ran.text().contains("cordon") && ran.text().contains("profiles"), "{shell}");
    }
    // Those shells that are here read it without running it.
    for shell in ["bash", "zsh", "fish"] {
        let script = cordon(&["completions", shell]).stdout;
        let mut check = Command::new("sh");
        check.args(["-c", "command -v $0 >/dev/null || exit 0; exec $0 -n", shell]);
        let ran = process::run(check, &script);
        assert!(ran.status == 0 && ran.stderr.is_empty(), "{shell}: {ran:?}");
    }
}

#[test]
fn ps_lists_what_runs_and_kill_ends_it() {
    let marker = marker();
    let mut client = shared().cordon(&["run", "-n", "-c", &format!("sleep {marker}; :")]).spawn().unwrap();
    eventually("it runs", PATIENCE, || !sandboxed(&marker).is_empty());
    let listed = cordon(&["ps"]).text();
    let line = listed.lines().find(|l| l.contains(&marker)).unwrap_or_else(|| panic!("{listed}"));
    let id = line.split_whitespace().next().unwrap();
    let jobs: Vec<JobInfo> = serde_json::from_slice(&cordon(&["ps", "--json"]).stdout).unwrap();
    let job = jobs.iter().find(|j| j.id == id).unwrap();
    assert_eq!((job.profile.as_str(), job.state.as_str()), ("default", "running"));
    let killed = cordon(&["kill", id]);
    assert_eq!(killed.status, 0, "{}", killed.stderr);
    assert_eq!(client.wait().unwrap().code(), Some(130));
    eventually("it is gone", PATIENCE, || {
        sandboxed(&marker).is_empty() && !cordon(&["ps"]).text().contains(&marker)
    });
    for id in [id, "nope", "", "ffffffffffffffff"] {
        let again = cordon(&["kill", id]);
        assert!(again.status != 0 && !again.stderr.is_empty(), "{id}: {again:?}");
    }
}

#[test]
fn another_user_s_commands_are_neither_listed_nor_ended() {
    let directory = open_directory();
    let program = public_copy(&programs().cordon, directory.path()).to_string_lossy().into_owned();
    let marker = marker();
    let mut client = shared().cordon(&["run", "-n", "-c", &format!("sleep {marker}; :")]).spawn().unwrap();
    eventually("it runs", PATIENCE, || !sandboxed(&marker).is_empty());
    let jobs: Vec<JobInfo> = serde_json::from_slice(&cordon(&["ps", "--json"]).stdout).unwrap();
    let job = jobs.iter().find(|j| j.command.contains(&marker)).unwrap();
    let as_stranger = |arguments: &[&str]| {
        let group = host::gid_of("cordon");
        let mut command = host::as_user(lab::STRANGER, lab::STRANGER, &[group], &program);
        command.args(arguments).env("CORDON_SOCKET", &shared().socket);
        process::run(command, &[])
    };
    let listed = as_stranger(&["ps"]);
    assert!(listed.status == 0 && !listed.text().contains(&marker), "{listed:?}");
    // As if there were none.
    let (theirs, none) = (as_stranger(&["kill", &job.id]), as_stranger(&["kill", "ffffffffffffffff"]));
    assert_eq!(theirs.status, 1, "{theirs:?}");
    assert_eq!(theirs.stderr.replace(&job.id, "ID"), none.stderr.replace("ffffffffffffffff", "ID"));
    assert!(!sandboxed(&marker).is_empty());
    assert_eq!(cordon(&["kill", &job.id]).status, 0);
    assert_eq!(client.wait().unwrap().code(), Some(130));
}

#[test]
fn a_hostile_command_line_does_not_steer_the_terminal_of_ps() {
    let marker = marker();
    let line = format!("sleep {marker}; : \u{1b}[2J\u{9b}31m\u{202e}\r\n");
    let mut client = shared().cordon(&["run", "-n", "-c", &line]).spawn().unwrap();
    eventually("it runs", PATIENCE, || !sandboxed(&marker).is_empty());
    let text = cordon(&["ps"]).text();
    let listed = text.lines().find(|l| l.contains(&marker)).unwrap_or_else(|| panic!("{text}"));
    assert!(listed.contains("\\u{1b}[2J") && !listed.chars().any(char::is_control), "{listed:?}");
    assert!(!text.contains(['\u{9b}', '\u{202e}', '\r']), "{text:?}");
    client.kill().unwrap();
    client.wait().unwrap();
}

#[test]
fn a_name_that_is_none_is_told_in_one_line() {
    for (arguments, says) in [
        (&["workspace", "delete", "a\nb"][..], "cordon: workspace: `a\\nb` is not a name\n  next: "),
        (&["workspace", "get", "w", "../a\nb"], "cordon: PATH: `../a\\nb` is "),
        (&["workspace", "put", "w", "/etc/passwd", "--to", "../a\nb"], "cordon: --to: `../a\\nb` is "),
        (&["config", "check", "a\nb"], "cordon: checking a\\nb failed: "),
        (&["config", "check", "/nonexist"], "cordon: checking /nonexist failed: there is no such file\n"),
        (
            &["config", "check", "/etc/passwd/x"],
            "cordon: checking /etc/passwd/x failed: there is no such file\n",
        ),
        (
            &["config", "check", "/no/gateway.toml"],
            "cordon: checking /no/gateway.toml failed: there is no such",
        ),
        (&["config", "check", "/etc/passwd"], "cordon: checking /etc/passwd failed: its name does not say"),
    ] {
        let ran = cordon(arguments);
        assert!(ran.status == 125 && ran.stderr.starts_with(says), "{arguments:?}: {}", ran.stderr);
    }
}

#[test]
fn profiles_show_defaults_and_ceilings() {
    let text = cordon(&["profiles"]).text();
    for word in ["default", "wall", "memory", "512M", "2G", "pids", "256", "1024", "/bin/bash", "none"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let profiles = blocking::profiles(&shared().socket, "test").unwrap();
    let default = profiles.iter().find(|p| p.name == "default").unwrap();
    let limits: Vec<_> =
        default.limits.iter().map(|l| (l.name.as_str(), l.default.as_str(), l.ceiling.as_str())).collect();
    let expected = [
        ("wall", "1m", "1h"),
        ("cpu_time", "none", "1h"),
        ("memory", "512M", "2G"),
        ("pids", "256", "1024"),
        ("cpu", "200%", "200%"),
        ("capture", "1M", "8M"),
        ("output", "64M", "16G"),
        ("file_size", "1G", "1G"),
        ("workspace", "512M", "512M"),
        ("named_workspace", "4G", "4G"),
        ("named_workspace_files", "200000", "200000"),
        ("tmp", "256M", "256M"),
    ];
    assert_eq!(limits, expected);
    assert_eq!((default.network.as_str(), default.concurrency), ("none", 32));
}

#[test]
fn doctor_tells_about_each_layer_and_the_remedy() {
    let ran = cordon(&["doctor", "--json"]);
    let layers: Vec<LayerReport> = serde_json::from_slice(&ran.stdout).unwrap();
    let names: BTreeSet<_> = layers.iter().map(|l| l.layer.as_str()).collect();
    for name in ["cgroup", "landlock", "seccomp", "namespaces"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    for layer in &layers {
        assert!(!layer.detail.is_empty(), "{layer:?}");
        assert!(
            layer.health == Health::Ok || layer.remedy.as_ref().is_some_and(|r| !r.is_empty()),
            "{layer:?}"
        );
    }
    let plain = cordon(&["doctor"]).text();
    assert!(names.iter().all(|name| plain.contains(name)), "{plain}");
}

#[test]
fn without_an_executor_every_command_says_what_to_do() {
    let mut command = Command::new(&programs().cordon);
    command.args(["--socket", "/no/such/executor.sock", "run", "--", "true"]);
    let ran = process::run(command, &[]);
    assert_eq!((ran.status, ran.stdout.len()), (125, 0));
    for word in ["/no/such/executor.sock", "cordon up"] {
        assert!(ran.stderr.contains(word), "{word}: {}", ran.stderr);
    }
    for name in ["ps", "profiles"] {
        let mut command = Command::new(&programs().cordon);
        command.args([name, "--socket", "/no/such/executor.sock"]);
        let ran = process::run(command, &[]);
        assert!(ran.status != 0 && ran.stderr.contains("/no/such/executor.sock"), "{name}: {ran:?}");
    }
}

#[test]
fn the_socket_option_wins_over_the_environment() {
    let socket = shared().socket.to_string_lossy().into_owned();
    let mut command = Command::new(&programs().cordon);
    command.args(["run", "--socket", &socket, "--", "echo", "there"]).env("CORDON_SOCKET", "/no/such");
    assert_eq!(process::run(command, &[]).text(), "there\n");
}

#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let marker = marker();
    let cordon = programs().cordon.to_string_lossy().into_owned();
    let mut command = Command::new("bash");
    let script = format!("'{cordon}' run -n -- yes {marker} | head -n 1; echo ${{PIPESTATUS[0]}}");
    command.args(["-c", &script]).env("CORDON_SOCKET", &shared().socket);
    let ran = process::run(command, &[]);
    assert_eq!(ran.text(), format!("{marker}\n141\n"), "{}", ran.stderr);
    eventually("yes is gone", PATIENCE, || sandboxed(&marker).is_empty());
}

#[test]
fn doctor_probes_a_host_on_which_nothing_runs_yet() {
    // The users are there.
    shared();
    for arguments in [&["doctor"][..], &["doctor", "--json"]] {
        let mut command = process::tied(&programs().cordon);
        command.args(arguments).args(["--socket", "/nonexistent/executor.sock"]);
        let ran = process::run(command, &[]);
        assert!(ran.text().contains("landlock") && ran.text().contains("seccomp"), "{ran:?}");
        assert_eq!(ran.stderr, "");
    }
}
