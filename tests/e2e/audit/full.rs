//! A disk that is full: nothing runs, and what could not be written is counted.

use super::*;
use std::io::Read as _;

/// An executor whose trail lies on a file system of 64 KiB.
fn on_a_small_disk() -> Executor {
    let script = "mount -t tmpfs -o size=64k,mode=755 none log && exec \"$@\"";
    with_own_log(&["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", script, "sh"])
}

#[test]
fn nothing_runs_while_the_disk_is_full_and_no_half_of_a_launch_is_left() {
    let mut executor = on_a_small_disk();
    executor.assert_works();
    let fill = log_of(&executor).join("fill");
    // As many whole pages as there are; some commands still fit into what is begun.
    let _ = fs::write(&fill, vec![0; 1 << 20]);
    // The end of each still fits, a long text does not: the log says so once.
    let long = "a".repeat(20_000);
    for _ in 0..3 {
        assert_eq!(executor.report(&["-c", &format!(": {long}")]).step.as_deref(), Some("audit"));
    }
    let log = executor.process().log();
    assert_eq!(log.matches("nothing runs until it can be written again").count(), 1, "{log}");
    assert_eq!(log.matches("audit: it is written again").count(), 0, "{log}");
    let report = |_| executor.report(&["-c", "echo ran"]);
    let refused = (0..100).map(report).find(|report| report.step.is_some()).unwrap();
    assert_eq!(
        (refused.step.as_deref(), refused.stdout.as_deref()),
        (Some("audit"), Some("")),
        "{refused:?}"
    );
    // Of the trail, and what to do about it; `cordon doctor` knows nothing of it.
    let hint = refused.hint.as_ref().unwrap();
    assert!(hint.what.contains("/log/") && hint.remedy.contains("make room"), "{hint:?}");
    fs::remove_file(fill).unwrap();
    executor.assert_works();
    let verified = verify_log(&executor, &[]);
    assert_eq!(verified.status, 0, "{verified:?}");
}

#[test]
fn ends_that_could_not_be_written_are_counted_when_there_is_room_again_and_before_the_end() {
    /// The ends of more take more than what is left of a page.
    const COMMANDS: u64 = 24;
    for stop in [false, true] {
        let mut executor = on_a_small_disk();
        let mut running: Vec<_> = (0..COMMANDS)
            .map(|_| {
                let (mut connection, stdin) =
                    blocking::run(&executor.socket, "test", RunRequest { stdin: true, ..line("cat") })
                        .unwrap();
                assert!(matches!(connection.next_event().unwrap(), Event::Started { .. }));
                (connection, stdin)
            })
            .collect();
        let fill = log_of(&executor).join("fill");
        let _ = fs::write(&fill, vec![0; 1 << 20]);
        for (mut connection, stdin) in running.drain(..) {
            stdin.end().unwrap();
            while !matches!(connection.next_event().unwrap(), Event::Exited(_)) {}
        }
        // Open: with the executor its file system goes.
        let mut file = fs::File::open(log_of(&executor).join("audit.jsonl")).unwrap();
        let mut text = String::new();
        let mut read = || {
            file.read_to_string(&mut text).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
        };
        let ends = |lines: &[Value]| lines.iter().filter(|line| line["event"] == "ended").count() as u64;
        let missing =
            |lines: &[Value]| -> u64 { lines.iter().filter_map(|line| line["count"].as_u64()).sum() };
        let told = |lines: &[Value]| ends(lines) + missing(lines) == COMMANDS;
        let full = read();
        assert!(ends(&full) + 1 < COMMANDS && !told(&full), "{full:?}");
        fs::remove_file(fill).unwrap();
        if stop {
            executor.process().signal(Signal::SIGTERM);
            assert!(executor.process().wait(PATIENCE).success());
            let lines = read();
            assert!(told(&lines), "{lines:?}");
            assert_eq!(lines.last().unwrap()["event"], "stopped", "{lines:?}");
        } else {
            // Though nothing else happens.
            eventually("all are told", PATIENCE, || told(&read()));
            let verified = verify_log(&executor, &[]);
            let says = format!("{} lines could not be written", missing(&read()));
            assert!(verified.status == 0 && verified.stderr.contains(&says), "{verified:?}");
        }
    }
}
