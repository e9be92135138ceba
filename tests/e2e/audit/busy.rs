//! The trail of an executor that goes on writing while it is checked.

use super::*;
use std::{
    fs::OpenOptions,
    os::unix::fs::FileExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// Launches without an end, beside what is done meanwhile.
fn beside_launches(executor: &Executor, act: impl FnOnce()) {
    /// Also where the act fails.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    let launches = || {
        while !over.load(Ordering::Relaxed) {
            let mut connection = blocking::run(&executor.socket, "test", line("true")).unwrap().0;
            while !matches!(connection.next_event().unwrap(), Event::Exited(_)) {}
        }
    };
    thread::scope(|scope| {
        let _stop = Stop(&over);
        for _ in 0..4 {
            scope.spawn(launches);
        }
        act();
    });
}

fn last_number(executor: &Executor) -> u64 {
    let text = fs::read_to_string(executor.directory().join("state/audit.head")).unwrap();
    text.split_once(' ').unwrap().0.parse().unwrap()
}

#[test]
fn a_trail_that_is_being_written_holds() {
    for configuration in ["", "audit_max_size = \"64K\"\naudit_keep = 2\n"] {
        let executor = Executor::start(configuration);
        beside_launches(&executor, || {
            for _ in 0..30 {
                let before = last_number(&executor);
                eventually("a command ran", PATIENCE, || last_number(&executor) > before);
                let verified = verify(&executor);
                assert_eq!(verified.status, 0, "{verified:?}");
            }
        });
        assert_eq!(verify(&executor).status, 0);
    }
}

#[test]
fn damage_is_found_while_it_is_being_written() {
    let executor = Executor::start("");
    executor.report(&["-c", "echo first"]);
    // As long as what was there, so that what is written meanwhile stays where it is.
    let change = |path: &Path, from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let at = fs::read_to_string(path).unwrap().find(from).unwrap();
        file.write_all_at(to.as_bytes(), at.try_into().unwrap()).unwrap();
    };
    let job = lines(&executor).iter().find_map(|line| Some(line["job"].as_str()?.to_owned())).unwrap();
    let (trail, texts) = (trail(&executor), texts(&executor));
    beside_launches(&executor, || {
        for (path, from, to, says) in [
            (&trail, "\"uid\":0", "\"uid\":7", "changed"),
            (&trail, "\"seq\":2,", "\"seq\":9,", "changed"),
            (&texts, "echo first", "echo other", "its text was changed"),
            (&texts, job.as_str(), "0123456789abcdef", "there is a text and no launch of it"),
            (&texts, job.as_str(), "0123456789abcdef", "its text is missing"),
        ] {
            change(path, from, to);
            let verified = verify(&executor);
            assert!(verified.status == 1 && verified.stderr.contains(says), "{says}: {verified:?}");
            change(path, to, from);
        }
        assert_eq!(verify(&executor).status, 0);
    });
}
