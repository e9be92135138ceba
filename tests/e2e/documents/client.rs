//! `docs/examples/client.py` against the real daemon: what it says is what `cordon` says of the same command.

use super::repository;
use crate::harness::{
    PATIENCE, eventually, marker,
    process::{self, Ran, sandboxed},
    shared,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use std::process::{Command, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.arg("-B").arg(repository().join("docs/examples/client.py")).arg(&shared().socket).args(arguments);
    command
}

fn client(arguments: &[&str], input: &[u8]) -> Ran {
    process::run(command(arguments), input)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// The report less what differs between two runs of one command; of that only the kind.
fn comparable(mut report: Value) -> Value {
    for name in ["id", "wall_ms", "cpu_ms", "peak_memory_bytes"] {
        let kind = match &report[name] {
            Value::String(text) => format!("text of {}", text.len()),
            Value::Number(_) if name == "peak_memory_bytes" => "null or a number".to_owned(),
            Value::Null => "null or a number".to_owned(),
            Value::Number(number) => format!("number, {}", if number.is_f64() { "real" } else { "whole" }),
            other => panic!("{name}: {other}"),
        };
        report[name] = kind.into();
    }
    // In the words of each door.
    if let Some(remedy) = report["hint"].get_mut("remedy") {
        *remedy = remedy.is_string().into();
    }
    report
}

#[test]
fn its_report_is_that_of_cordon_run() {
    let cases: [(&[&str], &[&str]); 7] = [
        (&["-c", "echo out; echo err >&2; exit 3"], &["-c", "echo out; echo err >&2; exit 3"]),
        (&["--", "printf", "\\377\\0"], &["--", "printf", "\\377\\0"]),
        (&["--", "/no/such"], &["--", "/no/such"]),
        (&["-c", "kill -TERM $$"], &["-c", "kill -TERM $$"]),
        (&["--timeout", "300ms", "--", "sleep", "9"], &["--wall-ms", "300", "--", "sleep", "9"]),
        (&["--output", "1K", "--", "yes"], &["--output-bytes", "1024", "--", "yes"]),
        (
            &["--cwd", "/tmp", "--env", "A=ä", "-c", "pwd; echo $A"],
            &["--cwd", "/tmp", "--env", "A=ä", "-c", "pwd; echo $A"],
        ),
    ];
    for (ours, theirs) in cases {
        let mut expected = json(&shared().run(&[&["--json", "-n"], ours].concat()).text());
        let ran = client(&[&["run"], theirs].concat(), &[]);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        let mut found = json(&ran.text());
        if found["ended_by"] == "output_limit" {
            // How much came before the end is chance.
            for report in [&mut expected, &mut found] {
                assert!(report["stdout_bytes"].as_u64() > Some(1024));
                report["stdout_bytes"] = 0.into();
            }
        }
        assert_eq!(comparable(found), comparable(expected), "{theirs:?}");
    }
}

#[test]
fn input_goes_in_and_output_comes_as_events() {
    let input: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let arguments = ["run", "--stdin", "--events", "--output-bytes", "9000000", "--", "cat"];
    let ran = client(&arguments, &input);
    let events: Vec<Value> = ran.text().lines().map(json).collect();
    use base64::{Engine, engine::general_purpose::STANDARD};
    let pieces = events.iter().filter_map(|e| e["Stdout"].as_str());
    let output: Vec<u8> = pieces.flat_map(|piece| STANDARD.decode(piece).unwrap()).collect();
    assert!(output == input, "{} bytes of {}", output.len(), input.len());
    let (first, last) = (events.first().unwrap(), events.last().unwrap());
    assert_eq!(first["Started"]["id"], last["Exited"]["id"]);
    assert_eq!((&last["Exited"]["exit_code"], &last["Exited"]["stdout"]), (&0.into(), &Value::Null));
}

#[test]
fn files_go_in_and_come_out_of_a_workspace_that_it_lists_and_deletes() {
    let program = repository().join("docs/examples/client.py");
    let file = format!("in/copy={}", program.display());
    let script = "cp in/copy out; printf '\\377' > b; chmod 640 b";
    let arguments = [
        "run",
        "--workspace",
        "client-py",
        "--file",
        &file,
        "--collect",
        "o*",
        "--collect",
        "b",
        "-c",
        script,
    ];
    let report = json(&client(&arguments, &[]).text());
    use base64::{Engine, engine::general_purpose::STANDARD};
    let content =
        |index: usize| STANDARD.decode(report["collected"][index]["content"].as_str().unwrap()).unwrap();
    assert_eq!(content(0), std::fs::read(program).unwrap(), "{report}");
    assert_eq!((content(1), &report["collected"][1]["mode"]), (vec![0xff], &0o640.into()));
    let list = || json(&client(&["workspaces"], &[]).text()).to_string();
    assert!(list().contains("\"client-py\""), "{}", list());
    assert_eq!(json(&client(&["delete-workspace", "client-py"], &[]).text())["name"], "client-py");
    assert!(!list().contains("\"client-py\""), "{}", list());
}

#[test]
fn half_a_close_cancels_and_the_report_still_comes() {
    let marker = marker();
    let mut child = command(&["run", "--", "sleep", &marker]);
    let child = child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("it runs", PATIENCE, || !sandboxed(&marker).is_empty());
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let report = json(&process::finish(child, "client.py").text());
    assert_eq!(report["ended_by"], "cancelled");
    eventually("it is gone", PATIENCE, || sandboxed(&marker).is_empty());
}

#[test]
fn questions_have_the_answers_of_cordon() {
    for question in ["profiles", "doctor"] {
        let expected = process::run(shared().cordon(&[question, "--json"]), &[]).text();
        assert_eq!(json(&client(&[question], &[]).text()), json(&expected), "{question}");
    }
    assert!(json(&client(&["ps"], &[]).text()).is_array());
    assert!(json(&client(&["workspaces"], &[]).text()).is_array());
    for (arguments, code) in
        [(["delete-workspace", "client-none"], "not_found"), (["delete-workspace", "../x"], "bad_request")]
    {
        let refused = client(&arguments, &[]);
        assert_eq!((refused.status, &json(&refused.text())["code"]), (1, &code.into()));
    }
    let refused = client(&["kill", "0000000000000000"], &[]);
    assert_eq!((refused.status, &json(&refused.text())["code"]), (1, &"not_found".into()));
    let refused = client(&["run", "--pids", "999999", "--", "true"], &[]);
    assert_eq!((refused.status, &json(&refused.text())["code"]), (1, &"limit_refused".into()));
}
