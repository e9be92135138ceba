//! `README.md`: its table of limits, and its examples run as they stand there.

use super::{read, repository, table_after};
use crate::harness::{Executor, build::programs, process, shared};
use cordon_protocol::{client::blocking, limits};
use cordon_tests::markdown::blocks;
use std::{collections::BTreeSet, process::Command};

const PAGE: &str = "README.md";

#[test]
fn the_limits_are_those_of_the_default_profile() {
    let profiles = blocking::profiles(&shared().socket, "test").unwrap();
    let default = profiles.iter().find(|p| p.name == "default").unwrap();
    let expected: Vec<_> =
        default.limits.iter().map(|l| [l.name.clone(), l.default.clone(), l.ceiling.clone()]).collect();
    let rows = table_after(PAGE, "## Limits");
    let found: Vec<_> =
        rows.iter().map(|r| [r[0].trim_matches('`').to_owned(), r[1].clone(), r[2].clone()]).collect();
    assert_eq!(found, expected);
    let says = format!("{} commands at once", default.concurrency);
    assert!(read(PAGE).contains(&says), "README.md does not say: {says}");
    let (one, all) = (limits::CONNECTIONS_PER_PEER, limits::CONNECTIONS_TOTAL);
    let says = format!("a peer may hold {one} connections, and all peers together {all}");
    assert!(read(PAGE).replace('\n', " ").contains(&says), "README.md does not say: {says}");
}

/// The names in code in a cell.
fn named(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_fields_of_http_are_those_that_the_gateway_takes() {
    let document: serde_json::Value =
        serde_json::from_str(&read("gateway/tests/golden/openapi.json")).unwrap();
    let fields = &document["components"]["schemas"]["ExecRequest"]["properties"];
    let known: BTreeSet<_> = fields.as_object().unwrap().keys().cloned().collect();
    let listed: BTreeSet<_> =
        table_after(PAGE, "| field | value |").iter().flat_map(|row| named(&row[0])).collect();
    assert_eq!(listed, known);
    let of_limits: BTreeSet<_> =
        table_after(PAGE, "## Limits").iter().flat_map(|row| named(&row[5])).collect();
    assert!(of_limits.len() == 5 && of_limits.is_subset(&known), "{of_limits:?}");
}

#[test]
fn every_subcommand_and_every_option_of_a_limit_is_there() {
    let help = |arguments: &[&str]| {
        let mut command = Command::new(&programs().cordon);
        command.args(arguments).arg("--help");
        process::run(command, &[]).text()
    };
    let text = help(&[]);
    let list = text.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  ").filter(|l| !l.starts_with(' ')));
    let known: BTreeSet<_> = names.filter_map(|l| l.split(' ').next()).filter(|n| *n != "help").collect();
    let rows = table_after(PAGE, "| subcommand |");
    let cells: Vec<_> = rows.iter().flat_map(|row| named(&row[0])).collect();
    let listed: BTreeSet<_> = cells.iter().filter_map(|name| name.split(' ').next()).collect();
    assert_eq!(listed, known);
    let run = help(&["run"]);
    for option in table_after(PAGE, "## Limits").iter().flat_map(|row| named(&row[4])) {
        assert!(run.contains(&format!("{option} <")), "{option}: {run}");
    }
}

/// Whether a line is as expected, where `…` stands for anything.
fn matches(expected: &str, line: &str) -> bool {
    let parts: Vec<_> = expected.split('…').collect();
    let [first, middle @ .., last] = &parts[..] else { return expected == line };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Commands and their output in the blocks marked `console`.
fn sessions() -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for block in blocks(&read(PAGE), "console") {
        for line in block.lines() {
            match (line.strip_prefix("$ "), found.last_mut()) {
                (Some(command), _) => found.push((command.to_owned(), Vec::new())),
                (None, Some((_, output))) => output.push(line.to_owned()),
                (None, None) => panic!("output before a command: {line}"),
            }
        }
    }
    found
}

#[test]
fn the_examples_do_what_they_show() {
    let up = shared();
    let programs_directory = programs().cordon.parent().unwrap();
    let path = format!("{}:{}", programs_directory.display(), std::env::var("PATH").unwrap());
    let sessions = sessions();
    assert!(sessions.len() >= 5, "{sessions:?}");
    for (text, expected) in sessions {
        let here = text
            .replace("/run/cordon", &up.directory().to_string_lossy())
            .replace("127.0.0.1:3800", &format!("127.0.0.1:{}", up.port));
        let mut command = Command::new("bash");
        command.args(["-c", &format!("exec 2>&1; {here}")]).current_dir(repository());
        command.env("PATH", &path).env("CORDON_SOCKET", &up.socket).env("PYTHONDONTWRITEBYTECODE", "1");
        let found = process::run(command, &[]).text();
        let lines: Vec<_> = found.lines().collect();
        let same = lines.len() == expected.len() && expected.iter().zip(&lines).all(|(e, l)| matches(e, l));
        assert!(same, "{text}\nshows {expected:#?}\nprints {lines:#?}");
    }
}

#[test]
fn the_profile_of_the_example_is_taken() {
    let text = &blocks(&read(PAGE), "toml")[0];
    let executor = Executor::start(text);
    let profiles = blocking::profiles(&executor.socket, "test").unwrap();
    let build = profiles.iter().find(|p| p.name == "build").unwrap();
    let memory = build.limits.iter().find(|l| l.name == "memory").unwrap();
    assert_eq!((build.network.as_str(), build.concurrency, memory.default.as_str()), ("host", 4, "1G"));
    let script = "echo $MAKEFLAGS; test -e /etc/ssh || echo hidden";
    assert_eq!(executor.inside_profile("build", script), "-j2\nhidden\n");
}
