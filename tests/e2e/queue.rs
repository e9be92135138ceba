//! More commands than may run: everybody is answered, nobody starves, and whoever waits knows where it stands.

use crate::harness::{
    Executor, PATIENCE,
    build::programs,
    client::{argv, collect, line, public_copy},
    daemon::{ensure_users, open_directory, write_configuration},
    eventually, host,
    lab::STRANGER,
    process, stretched,
    wire::Wire,
};
use cordon_protocol::{
    Event, RefusalCode, Request, RunRequest,
    client::blocking::{self, Connection, Stdin},
};
use std::process::{Command, Stdio};

/// A command that runs until its standard input ends, and whose turn has been awaited.
fn held(executor: &Executor) -> (Connection, Stdin) {
    let (mut connection, stdin) = asked(executor);
    assert!(matches!(connection.next_event().unwrap(), Event::Started { .. }));
    (connection, stdin)
}

/// As above, of which nothing has been heard yet.
fn asked(executor: &Executor) -> (Connection, Stdin) {
    let request = RunRequest { stdin: true, ..line("cat") };
    blocking::run(&executor.socket, "test", request).unwrap()
}

fn queued(connection: &mut Connection) -> u32 {
    match connection.next_event().unwrap() {
        Event::Queued { position } => position,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_burst_of_a_thousand_is_answered_to_the_last_one() {
    // Whoever may wait at all must have its turn, however slow the host is.
    let patience = stretched(PATIENCE).as_secs();
    let profile = format!("[profiles.default]\nconcurrency = 6\nqueue_timeout = \"{patience}s\"\n");
    let executor = Executor::start(&format!("max_commands = 8\n{profile}"));
    let request = Request::Run(Box::new(argv(&["true"])));
    let burst: Vec<_> = (0..1000)
        .map(|_| {
            let mut wire = Wire::greeted(&executor.socket);
            wire.send(&request);
            wire
        })
        .collect();
    let (mut reports, mut busy) = (0, 0);
    for mut wire in burst {
        loop {
            match wire.next().unwrap() {
                Some(Event::Exited(report)) => {
                    assert_eq!(report.exit_code, Some(0), "{report:?}");
                    reports += 1;
                    break;
                }
                Some(Event::Refused(refusal)) => {
                    assert_eq!(refusal.code, RefusalCode::Busy, "{refusal}");
                    busy += 1;
                    break;
                }
                Some(Event::Queued { .. } | Event::Started { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(reports + busy, 1000);
    // As many as may wait were not refused, and the rest was not kept waiting.
    assert!(reports >= 256 && busy > 0, "{reports} reports, {busy} refused");
    executor.assert_works();
}

#[test]
fn few_open_files_make_commands_wait_and_none_fail() {
    ensure_users();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "available", "");
    // Room for ten commands, and 32 connections of one peer.
    let mut command = process::tied("prlimit".as_ref());
    command.arg("--nofile=320:320").arg("--").arg(&programs().executor).arg("--config").arg(file);
    let mut executor = Executor::wait_ready(command, directory);
    for _ in 0..8 {
        // Those of the burst before may be there still: the executor learns a moment later that they are closed.
        let burst: Vec<_> = (0..15)
            .map(|n| {
                blocking::run(&executor.socket, "test", line(&format!("(sleep 60 &); echo {n}"))).unwrap()
            })
            .collect();
        for (n, (connection, _stdin)) in burst.into_iter().enumerate() {
            let report = collect(connection).unwrap().report;
            assert_eq!(report.stdout.as_deref(), Some(format!("{n}\n").as_str()), "{report:?}");
        }
    }
    assert!(executor.process().log().contains("max_commands: 10 at once on this host, not 128"));
}

#[test]
fn a_peer_that_floods_does_not_starve_another() {
    let executor = Executor::start("max_commands = 2\n");
    let running = [held(&executor), held(&executor)];
    let mut waiting: Vec<_> = (1..=20)
        .map(|position| {
            let (mut connection, stdin) = asked(&executor);
            assert_eq!(queued(&mut connection), position);
            (connection, stdin)
        })
        .collect();
    // None of the flood ever ends by itself: were one of it the next, the stranger would wait for ever.
    let cordon = public_copy(&programs().cordon, executor.directory());
    let stranger = |arguments: &[&str]| -> Command {
        let groups = [host::gid_of("cordon")];
        let mut command = host::as_user(STRANGER, STRANGER, &groups, &cordon.to_string_lossy());
        command.args(arguments).env("CORDON_SOCKET", &executor.socket).stdin(Stdio::null());
        command
    };
    let mut calm = stranger(&["run", "-n", "--", "echo", "calm"]);
    let calm = calm.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the stranger waits", PATIENCE, || {
        process::run(stranger(&["ps"]), &[]).text().contains("queued (1)")
    });
    let [(connection, stdin), _other] = running;
    stdin.end().unwrap();
    assert_eq!(collect(connection).unwrap().report.exit_code, Some(0));
    let ran = process::finish(calm, "the stranger's command");
    assert_eq!((ran.status, ran.text().as_str(), ran.stderr.as_str()), (0, "calm\n", ""));
    // Its place goes on to the flood, in order.
    assert!(matches!(waiting[0].0.next_event().unwrap(), Event::Started { .. }));
    assert_eq!(queued(&mut waiting[1].0), 1);
}

#[test]
fn whoever_waits_sees_its_position_and_one_that_leaves_frees_its_own() {
    let executor = Executor::start("[profiles.default]\nconcurrency = 1\nqueue = 3\n");
    let (connection, stdin) = held(&executor);
    let mut waiting: Vec<_> = (0..3).map(|_| asked(&executor)).collect();
    let seen: Vec<_> = waiting.iter_mut().map(|(connection, _)| queued(connection)).collect();
    assert_eq!(seen, [1, 2, 3]);
    let refusal = executor.refusal(line("echo one too many"));
    assert!(refusal.starts_with("busy: ") && refusal.contains("3 in the queue"), "{refusal}");
    let listing = process::run(executor.cordon(&["ps"]), &[]).text();
    assert!(["queued (1)", "queued (2)", "queued (3)"].iter().all(|row| listing.contains(row)), "{listing}");
    waiting.remove(0);
    assert_eq!(waiting.iter_mut().map(|(connection, _)| queued(connection)).collect::<Vec<_>>(), [1, 2]);
    // Its place in the queue is free.
    let (mut last, _stdin) = asked(&executor);
    assert_eq!(queued(&mut last), 3);
    stdin.end().unwrap();
    collect(connection).unwrap();
    assert!(matches!(waiting[0].0.next_event().unwrap(), Event::Started { .. }));
    assert_eq!((queued(&mut waiting[1].0), queued(&mut last)), (1, 2));
}

#[test]
fn whoever_waits_at_a_terminal_is_told_where_it_stands_and_nobody_else_is() {
    let executor = Executor::start("[profiles.default]\nconcurrency = 1\n");
    let (connection, stdin) = held(&executor);
    let code = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let mut terminal = process::tied("/usr/bin/python3".as_ref());
    terminal.args(["-c", code]).arg(&programs().cordon).env("CORDON_SOCKET", &executor.socket);
    terminal.args(["run", "-n", "--", "echo", "at a terminal"]);
    let mut terminal = process::Process::start(terminal);
    terminal.wait_for("waiting: position 1");
    let mut other = executor.cordon(&["run", "-n", "--", "echo", "elsewhere"]);
    let other = other.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the other one waits", PATIENCE, || {
        process::run(executor.cordon(&["ps"]), &[]).text().contains("queued (2)")
    });
    stdin.end().unwrap();
    collect(connection).unwrap();
    terminal.wait_for("at a terminal");
    assert!(terminal.wait(PATIENCE).success());
    assert_eq!(terminal.log().matches("waiting: ").count(), 1, "{}", terminal.log());
    let ran = process::finish(other, "the other command");
    assert_eq!((ran.status, ran.text().as_str(), ran.stderr.as_str()), (0, "elsewhere\n", ""));
}

#[test]
fn whoever_waits_too_long_is_refused_and_told_how_long_it_was() {
    let executor =
        Executor::start("[profiles.default]\nconcurrency = 1\nqueue_timeout = \"200ms\"\n[profiles.other]\n");
    let _running = held(&executor);
    let refusal = executor.refusal(line("echo waits"));
    let says = "no place came free within 200ms, for which this command has waited";
    assert!(refusal.starts_with("busy: ") && refusal.contains(says), "{refusal}");
    assert_eq!(executor.inside_profile("other", "echo works"), "works\n");
}
