//! Tables of commands with expected outcomes, kept as TOML beside the tests: what they share.

use cordon_protocol::ExitReport;
use regex_lite::Regex;
use std::{
    fmt::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Whether the regular expression is found in the text; `^` and `$` are the text's ends.
pub(crate) fn is_like(text: &str, pattern: &str) -> bool {
    Regex::new(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}")).is_match(text)
}

/// Runs a check of every case, several at once, and fails with all that did not pass.
///
/// A check returns what is wrong; one that panics fails alone.
pub(crate) fn assert_each<Case: Sync>(
    cases: &[Case],
    at_once: usize,
    name: impl Fn(&Case) -> String + Sync,
    check: impl Fn(&Case) -> Vec<String> + Sync,
) {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let wrong = catch_unwind(AssertUnwindSafe(|| check(case)))
                        .unwrap_or_else(|panic| vec![text_of(panic.as_ref())]);
                    if !wrong.is_empty() {
                        failed.lock().unwrap().push((name(case), wrong));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    let mut text = String::new();
    for (name, wrong) in &failed {
        let _ = writeln!(text, "--- {name}\n{}", wrong.join("\n"));
    }
    assert!(failed.is_empty(), "{} of {} cases failed:\n{text}", failed.len(), cases.len());
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned()
}

/// What a report says, short enough for a list of failures.
pub(crate) fn summary(report: &ExitReport) -> String {
    let part = |text: &Option<String>| {
        let text = text.as_deref().unwrap_or_default();
        let cut = text.char_indices().nth(1500).map_or(text.len(), |(at, _)| at);
        format!("{:?}", &text[..cut])
    };
    format!(
        "  ended by {:?}, exit {:?}, {:?}, {:?}, {} ms\n  stdout {}\n  stderr {}",
        report.ended_by,
        report.exit_code,
        report.signal,
        report.limits_hit,
        report.wall_ms,
        part(&report.stdout),
        part(&report.stderr)
    )
}
