//! Failing closed: a fault in any step of a launch ends it there, by name, and nothing of the command runs.

use crate::harness::{
    Executor,
    build::fault_executor,
    client::{argv, line},
    daemon::ensure_users,
    lab::{profiles, writable},
    marker,
};
use crate::teardown::{assert_restored, at_rest};
use cordon_protocol::EndedBy;
use std::{collections::BTreeSet, process::Command};

/// The names of the steps of a launch, as the program lists them.
fn steps() -> Vec<String> {
    let out = Command::new(fault_executor()).arg("--steps").output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().map(|l| l.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn every_step_has_a_name_of_its_own_and_a_reason() {
    let out = Command::new(fault_executor()).arg("--steps").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    for line in text.lines() {
        let reason = line.split_once(char::is_whitespace).map_or("", |(_, reason)| reason.trim());
        assert!(reason.len() > 10, "no reason: {line}");
    }
    let steps = steps();
    assert!(steps.len() >= 20, "{steps:?}");
    assert!(steps.iter().any(|s| s == "exec"), "{steps:?}");
    assert_eq!(steps.iter().collect::<BTreeSet<_>>().len(), steps.len(), "{steps:?}");
}

#[test]
fn a_fault_in_any_step_fails_the_launch_runs_nothing_and_leaves_nothing() {
    let _verdict = crate::escape::probe!();
    ensure_users();
    let directory = writable();
    let mut wrong = Vec::new();
    for step in steps() {
        let file = directory.join(format!("fault-{step}-{}", marker()));
        let executor = Executor::start_with_fault(&step, &profiles());
        let before = at_rest(executor.pid());
        for mut request in
            [line(&format!("echo ran > {}", file.display())), argv(&["touch", &file.to_string_lossy()])]
        {
            request.profile = Some("writer".to_owned());
            match executor.ask(request) {
                Ok(events) => {
                    let report = events.report;
                    let named = report.step.as_deref() == Some(step.as_str());
                    if report.ended_by != EndedBy::LaunchFailed || !named || events.started.is_some() {
                        wrong.push(format!("{step}: {:?} in step {:?}", report.ended_by, report.step));
                    }
                    if report.stdout_bytes + report.stderr_bytes != 0 {
                        wrong.push(format!("{step}: it wrote something"));
                    }
                }
                Err(error) => wrong.push(format!("{step}: no report: {error}")),
            }
        }
        assert_restored(&before, executor.pid(), &step);
        if file.exists() {
            wrong.push(format!("{step}: the command ran"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_process_that_ends_before_it_takes_the_word_to_go_has_executed_nothing() {
    let executor = Executor::start_with_fault("go", "");
    // Often: it ends before, while and after the word is sent.
    for round in 0..200 {
        let events = executor.events(argv(&["true"]));
        let seen = (events.report.ended_by, events.report.step.as_deref(), events.started.is_some());
        assert_eq!(seen, (EndedBy::LaunchFailed, Some("go"), false), "round {round}: {:?}", events.report);
    }
}

#[test]
fn without_network_namespaces_only_what_needs_one_fails_and_says_so() {
    // Neither the stock nor a launch can make one.
    let executor = Executor::start_with_fault("network_namespace", &profiles());
    for _ in 0..3 {
        let events = executor.events(argv(&["true"]));
        let report = events.report;
        assert_eq!((report.ended_by, report.step.as_deref()), (EndedBy::LaunchFailed, Some("network")));
        assert!(events.started.is_none());
        let hint = report.hint.expect("a hint").what;
        assert!(hint.contains("network namespace"), "{hint}");
        assert_eq!(executor.inside_profile("hostnet", "echo works"), "works\n");
    }
}

#[test]
fn without_a_fault_the_same_build_runs_the_same_command() {
    ensure_users();
    let file = writable().join(format!("no-fault-{}", marker()));
    let executor = Executor::start_with_fault("", &profiles());
    executor.inside_profile("writer", &format!("echo ran > {}", file.display()));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "ran\n");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn the_normal_build_knows_no_faults() {
    ensure_users();
    let mut command = crate::harness::daemon::in_scope(&crate::harness::build::programs().executor);
    let directory = crate::harness::daemon::open_directory();
    let file = crate::harness::daemon::write_configuration(directory.path(), "available", "");
    command.arg("--config").arg(file).env("CORDON_FAULT", "exec");
    Executor::wait_ready(command, directory).assert_works();
}
