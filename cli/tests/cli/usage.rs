//! Arguments that make no sense, and an executor that is not there.

use crate::fake::{cordon, error, stderr};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

#[test]
fn run_answers_every_misuse_with_125_the_others_with_2() {
    for (arguments, status, says) in [
        (&["run"][..], 125, "not provided"),
        (&["run", "-c", "x", "--", "y"], 125, "cannot be used with"),
        (&["run", "--bogus", "--", "y"], 125, "unexpected argument '--bogus'"),
        (&["run", "--memory", "lots", "--", "y"], 125, "`lots` is not a size"),
        (&["--socket", "/s", "run", "ls"], 125, "unexpected argument 'ls'"),
        (&["ps", "--bogus"], 2, "unexpected argument '--bogus'"),
        (&["bogus"], 2, "unrecognized subcommand"),
    ] {
        let output = cordon(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        assert!(output.stdout.is_empty());
        let text = stderr(&output);
        assert!(text.starts_with("cordon: reading the arguments failed: "), "{text}");
        assert!(text.contains(says) && text.contains("--help"), "{text}");
    }
}

#[test]
fn misuse_is_told_in_json_where_that_was_asked_for() {
    for (arguments, status, says) in [
        (&["run", "--json"][..], 125, "-- CMD [ARG]... a program and its arguments"),
        (&["run", "--json", "--bogus", "--", "y"], 125, "unexpected argument '--bogus' found"),
        (&["run", "--memory", "lots", "--json", "--", "y"], 125, "`lots` is not a size"),
        (&["run", "--json", "--into", "d", "--", "y"], 125, "--into: nothing is to be collected"),
        (&["run", "--json", "--file", "a=/nonexistent/b", "--", "y"], 125, "/nonexistent/b"),
        (&["ps", "--bogus", "--json"], 2, "unexpected argument '--bogus' found"),
    ] {
        let output = cordon(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        let error = error(&output);
        assert!(error["message"].as_str().unwrap().contains(says), "{error}");
        assert!(["bad_request", "failed"].contains(&error["code"].as_str().unwrap()), "{error}");
        assert!(error["hint"].is_string() && stderr(&output).starts_with("cordon: "), "{error}");
    }
    // An argument of the command's own asks for nothing, and help is none of it.
    let output = cordon(&["run", "--bogus", "--", "y", "--json"]).output().unwrap();
    assert!(output.stdout.is_empty(), "{output:?}");
    let output = cordon(&["run", "--json", "--help"]).output().unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"Run a command"), "{output:?}");
}

#[test]
fn run_says_how_a_program_is_named() {
    let said = |arguments: &[&str]| stderr(&cordon(arguments).output().unwrap());
    let text = said(&["run"]);
    assert!(text.contains("  -- CMD [ARG]...") && text.contains("  -c LINE"), "{text}");
    for arguments in [&["run", "ls", "-l"][..], &["run", "--timeout", "1s", "ls"]] {
        let text = said(arguments);
        assert!(text.contains("tip: the program stands after `--`: cordon run [OPTIONS] -- ls"), "{text}");
    }
    let text = said(&["run", "--bogus", "--", "ls"]);
    assert!(!text.contains("stands after"), "{text}");
}

#[test]
fn a_socket_in_the_environment_is_not_shown_as_if_it_were_required() {
    for arguments in [&["kill"][..], &["completions"], &["run"], &["config", "check"], &["kill", "a", "b"]] {
        let output = cordon(arguments).env("CORDON_SOCKET", "/s").output().unwrap();
        let text = stderr(&output);
        assert!(text.contains("Usage: cordon ") && !text.contains("--socket"), "{text}");
    }
}

#[test]
fn a_subcommand_that_is_missing_shows_the_help() {
    let output = cordon(&["audit"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(stderr(&output).starts_with("Show the audit trail"), "{}", stderr(&output));
}

#[test]
fn arguments_that_are_not_utf_8_are_refused() {
    let output = cordon(&["run", "--", "ls"]).arg(OsStr::from_bytes(b"\xff")).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = "cordon: reading the arguments failed: ARG 1: `\\xff` is not UTF-8\n  next: send text; let the command";
    assert!(stderr(&output).starts_with(said), "{}", stderr(&output));
}

#[test]
fn an_executor_that_is_not_there_is_told_with_what_to_do() {
    for (arguments, status) in [
        (&["run", "--", "true"][..], 125),
        (&["run", "--json", "-c", "true"], 125),
        (&["ps"], 1),
        (&["ps", "--json"], 1),
        (&["workspace", "list", "--json"], 125),
        (&["kill", "1"], 1),
        (&["profiles"], 1),
    ] {
        let output = cordon(arguments).env("CORDON_SOCKET", "/nonexistent/socket").output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        if arguments.contains(&"--json") {
            let error = error(&output);
            assert_eq!(error["code"], "executor_unavailable", "{arguments:?}");
            assert!(
                error["message"].as_str().unwrap().starts_with("cannot connect to the executor at"),
                "{error}"
            );
            assert!(error["hint"].as_str().unwrap().starts_with("start the executor"), "{error}");
        } else {
            assert!(output.stdout.is_empty());
        }
        let text = stderr(&output);
        let what = arguments.iter().take_while(|word| !word.starts_with('-') && **word != "1");
        let expected = format!(
            "cordon: {} failed: cannot connect to the executor at /nonexistent/socket: No such file or directory",
            what.copied().collect::<Vec<_>>().join(" ")
        );
        assert!(text.starts_with(&expected) && text.contains("\n  next: start the executor"), "{text}");
    }
}

#[test]
fn the_option_goes_before_the_environment() {
    let mut command = cordon(&["ps", "--socket", "/nonexistent/named"]);
    let output = command.env("CORDON_SOCKET", "/nonexistent/socket").output().unwrap();
    assert!(stderr(&output).contains("/nonexistent/named"), "{}", stderr(&output));
}

#[test]
fn help_and_version_are_results_and_nothing_at_all_shows_the_help() {
    let output = cordon(&["run", "--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("cordon run -- python3") && text.contains("125 when Cordon"), "{text}");
    let output = cordon(&["--version"]).output().unwrap();
    assert_eq!(output.stdout, format!("cordon {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
    for variable in ["", "/nonexistent/socket"] {
        let output = cordon(&[]).env("CORDON_SOCKET", variable).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).starts_with("Run commands as an unprivileged user"), "{}", stderr(&output));
        assert!(stderr(&output).contains("Usage: cordon"), "{}", stderr(&output));
    }
}

#[test]
fn an_empty_socket_is_told_with_both_places_it_may_come_from() {
    for command in [cordon(&["ps", "--socket", ""]), cordon(&["ps"])] {
        let mut command = command;
        let output = command.env("CORDON_SOCKET", "").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(text.contains("--socket") && text.contains("unset CORDON_SOCKET"), "{text}");
    }
}

#[test]
fn help_is_wrapped_at_words_alone() {
    for name in ["run", "up"] {
        let output = cordon(&[name, "--help"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let paragraphs = text.split("Examples:").nth(1).unwrap();
        let lines: Vec<_> = paragraphs.lines().collect();
        for pair in lines.windows(2) {
            // A line that is short although the next one's first word would have fitted was broken by hand.
            let (line, next) = (pair[0], pair[1].split(' ').next().unwrap());
            let of_a_paragraph = !line.is_empty() && !line.starts_with("  ") && !next.is_empty();
            assert!(!of_a_paragraph || line.len() + 1 + next.len() > 99, "{line}");
        }
    }
}

#[test]
fn completions_know_the_subcommands() {
    for shell in ["bash", "fish", "zsh"] {
        let output = cordon(&["completions", shell]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(
            script.contains("profiles") && script.contains("--socket") || script.contains("-l socket"),
            "{shell}"
        );
        assert!(!script.contains("launch-daemon"), "{shell}");
    }
}
