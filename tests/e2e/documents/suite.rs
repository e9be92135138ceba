//! What judges the tests, and could excuse them: the table's script, a second run in the guest, a file that nothing names.

use super::{read, repository};
use crate::{
    escape::probes,
    harness::process::{self, Ran},
};
use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

/// Each probe's line of a table, as this verdict has it, for one kernel.
fn lines(verdict: &str) -> Vec<String> {
    probes().iter().map(|p| format!("{} | {} | 6.0 | 6 | {verdict}\n", p.row, p.test)).collect()
}

/// `tests/escape-table` on these tables.
fn table(texts: &[String]) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(repository().join("tests/escape-table"));
    for (number, text) in texts.iter().enumerate() {
        let file = directory.path().join(number.to_string());
        fs::write(&file, text).unwrap();
        command.arg(file);
    }
    process::run(command, &[])
}

#[test]
fn the_table_fails_for_what_is_open_and_for_what_has_not_run() {
    let closed = lines("closed by a layer");
    let whole = table(&[closed.concat()]);
    assert_eq!(whole.status, 0, "the control: {}", whole.text());
    assert_eq!(whole.text().lines().filter(|line| line.contains("closed (")).count(), 31, "{}", whole.text());
    let other = closed.concat().replace("6.0", "7.0");
    let fails = |texts: &[String], word: &str| {
        let ran = table(texts);
        let text = ran.text();
        assert!(ran.status == 1 && text.contains(word), "{word}: {}\n{text}", ran.status);
    };
    for gone in [0, closed.len() / 2, closed.len() - 1] {
        let mut fewer = closed.clone();
        let word = format!("MISSING: {}", probes()[gone].test);
        fewer.remove(gone);
        fails(&[fewer.concat()], &word);
        fails(&[other.clone(), fewer.concat()], &word);
    }
    fails(&[closed[0].clone()], "MISSING: ");
    assert_eq!(table(&[String::new()]).status, 1);
    // Open once is open, before and after a run in which it was not.
    let open = lines("OPEN, or the test failed")[3].clone();
    fails(&[format!("{}{open}", closed.concat())], "OPEN: ");
    fails(&[open, closed.concat()], "OPEN: ");
    fails(&[closed.concat().replacen("closed by a layer", "?", 1)], "OPEN: ");
    let known = table(&[closed.concat().replacen("closed by a layer", "open but for a mode", 1)]);
    assert!(known.status == 0 && known.text().contains("open but for a mode"), "{}", known.text());
}

/// `tests/vm/in-guest` with a test program that fails these tests in its first run, and none in its second.
fn in_guest(failed: &[&str], last: &str) -> (Ran, String) {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let list: String = failed.iter().map(|name| format!("    {name}\n")).collect();
    // The first list is what a test has printed.
    let said = format!("\nfailures:\n\n    some::test\n\nfailures:\n{list}\n{last}\n");
    fs::write(at("said"), said).unwrap();
    let place = directory.path().display();
    let program = format!(
        "#!/bin/bash\necho \"ran $* into $CORDON_TEST_TABLE\" >>{place}/runs\n\
         [ -e {place}/second ] || {{ touch {place}/second; cat {place}/said; exit 101; }}\necho well\n"
    );
    fs::write(at("program"), program).unwrap();
    fs::set_permissions(at("program"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(at("final"), "escape::\nfault::one\ngateway::own\n").unwrap();
    let mut command = Command::new(repository().join("tests/vm/in-guest"));
    command.args([at("program"), at("final")]).arg("asked").env("CORDON_TEST_TABLE", at("first"));
    let ran = process::run(command, &[]);
    (ran, fs::read_to_string(at("runs")).unwrap())
}

#[test]
fn a_second_run_excuses_no_way_out_and_writes_no_table() {
    let ended = "test result: FAILED. 3 passed; 1 failed; 0 ignored";
    let (ran, runs) = in_guest(&["limits::one", "streams::two"], ended);
    assert_eq!((ran.status, runs.lines().count()), (0, 2), "the control: {}\n{runs}", ran.text());
    let [first, second] = [0, 1].map(|n| runs.lines().nth(n).unwrap().rsplit_once(" into ").unwrap());
    assert_eq!(first.0, "ran asked");
    assert!(first.1.ends_with("/first"), "{runs}");
    assert_eq!(second.0, "ran --exact --test-threads 1 limits::one streams::two");
    assert!(!second.1.is_empty() && second.1 != first.1, "{runs}");
    for failed in [
        &["escape::r01_terminal::one"][..],
        &["limits::one", "escape::pools::two"],
        &["fault::one"],
        &["gateway::own::one", "limits::one"],
        &["limits::one", "limits::two", "limits::three"],
        &[],
    ] {
        let (ran, runs) = in_guest(failed, ended);
        assert_eq!((ran.status, runs.lines().count()), (101, 1), "{failed:?}: {}", ran.text());
    }
    // One that was ended in the middle has told nothing.
    assert_eq!(in_guest(&["limits::one"], "").0.status, 101);
}

#[test]
fn the_guest_is_given_the_escape_suite_as_what_no_second_run_excuses() {
    let run = read("tests/vm/run");
    let line = run.lines().find(|line| line.starts_with("mapfile -t final < <(")).expect("what is final");
    let line = format!(
        "{line}\n{}\nprintf '%s\\n' \"${{final[@]}}\"",
        run.lines().skip_while(|l| *l != line).nth(1).unwrap()
    );
    let mut shell = Command::new("bash");
    shell.args(["-c", &line]).current_dir(repository());
    let text = process::run(shell, &[]).text();
    let named: Vec<_> = text.lines().collect();
    for test in probes().iter().map(|probe| probe.test).chain(["witnesses::any"]) {
        let is =
            |name: &&str| *test == **name || test.starts_with(&format!("{}::", name.trim_end_matches("::")));
        assert!(named.iter().any(is), "{test} is not in {named:?}");
    }
    assert!(!named.iter().any(|name| "limits::running_out".starts_with(name)), "{named:?}");
}

/// Fails for a file of tests below this one that no module has.
fn assert_all_are_modules(directory: &Path, of: &str) -> usize {
    let whole = fs::read_to_string(directory.join(of)).unwrap();
    let mut seen = 0;
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        let (module, below) = (name.trim_end_matches(".rs"), path.join("mod.rs"));
        if name == of || !(name.ends_with(".rs") || below.exists()) {
            continue;
        }
        let is = |line: &str| line.trim_start_matches("pub(crate) ") == format!("mod {module};");
        assert!(whole.lines().any(is), "{}: not in {of}, so that nothing of it runs", path.display());
        let code = fs::read_to_string(&path).unwrap_or_default();
        if directory.ends_with("escape")
            && code.contains("[Probe] = &[\n    Probe {\n")
            && module != "elsewhere"
        {
            let listed = format!(" {module}::PROBES,");
            assert!(whole.contains(&listed), "{}: its PROBES are not in `probes()`", path.display());
            let [tests, verdicts] = ["#[test]\n", "probe!();\n"].map(|text| code.matches(text).count());
            assert_eq!(tests, verdicts, "{}: tests, and those that begin with probe!()", path.display());
        }
        seen += 1 + if below.exists() { assert_all_are_modules(&path, "mod.rs") } else { 0 };
    }
    seen
}

#[test]
fn no_file_of_tests_is_forgotten() {
    let seen = assert_all_are_modules(&repository().join("tests/e2e"), "main.rs");
    assert!(seen > 100, "{seen}");
    assert!(assert_all_are_modules(&repository().join("tests/package"), "main.rs") > 8);
}
