//! Many short lines against the real daemon: hostile ones, of which none gets anywhere, and ordinary ones, of
//! which none is stopped. The lines are data, in `tests/corpora`.

mod hints;
mod line;
mod outcome;
mod place;

use crate::harness::{
    Executor, crowd, daemon,
    table::{assert_each, is_like, summary},
};
use cordon_protocol::EndedBy;
use line::Line;
use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    panic::catch_unwind,
    path::{Path, PathBuf},
    sync::OnceLock,
};

const MALICIOUS: &str = include_str!("../../corpora/malicious.toml");
const ORDINARY: &str = include_str!("../../corpora/ordinary.toml");

/// Commands at once.
const AT_ONCE: usize = 4;

/// Where the canaries are: a place that every user gets to and that a profile can show.
fn canaries() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = tempfile::Builder::new().prefix("cordon-e2e.").tempdir_in("/var/lib").unwrap().keep();
        fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
        daemon::remove_at_exit(&place);
        place
    })
}

/// An executor whose default profile shows the canaries too.
fn executor() -> &'static Executor {
    static SHARED: OnceLock<Option<Executor>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        let shown = canaries().display();
        let profile = format!(
            "[profiles.default]\nread = [\"/usr\", \"/etc\", \"/opt\", \"{shown}\"]\n\
             execute = [\"/usr\", \"/opt\", \"{shown}\"]\n"
        );
        let executor = catch_unwind(|| outcome::start(&profile)).ok()?;
        daemon::end_at_exit(executor.pid(), executor.directory());
        Some(executor)
    });
    shared
        .as_ref()
        .expect("the executor of the corpora did not start; the first test that wanted it says why")
}

fn lines<'a>(corpus: &'a BTreeMap<String, Vec<Line>>, kind: &str) -> &'a [Line] {
    corpus.get(kind).unwrap_or_else(|| panic!("no kind {kind}"))
}

/// Fails where a hostile line of the kind gets anywhere, and where its control shows nothing.
fn assert_stopped(kind: &str) {
    executor().assert_works();
    let corpus = line::parse(MALICIOUS);
    let lines = lines(&corpus, kind);
    let place = place::Place::make(canaries());
    assert_each(lines, AT_ONCE, |line| line.line.clone(), |line| outcome::confined(line, &place));
    let controlled: Vec<_> = lines.iter().filter_map(|line| Some((line, line.control?))).collect();
    assert!(!controlled.is_empty(), "{kind}: no control");
    assert_each(
        &controlled,
        AT_ONCE,
        |(line, _)| line.line.clone(),
        |(line, control)| match outcome::unconfined(line, *control, canaries()).is_empty() {
            true => {
                vec![format!("  the control ({control:?}): nothing is noticed where nothing confines it")]
            }
            false => Vec::new(),
        },
    );
    executor().assert_works();
}

#[test]
fn nothing_is_destroyed() {
    let _crowd = crowd::among_others();
    assert_stopped("destruction");
}

#[test]
fn nothing_is_stolen() {
    let _crowd = crowd::among_others();
    assert_stopped("theft");
}

#[test]
fn nothing_stays() {
    let _crowd = crowd::among_others();
    assert_stopped("persistence");
}

#[test]
fn nothing_gets_out() {
    let _crowd = crowd::among_others();
    assert_stopped("escape");
}

#[test]
fn nothing_is_denied_to_others() {
    let _crowd = crowd::alone();
    assert_stopped("denial");
}

#[test]
fn nothing_reaches_the_network() {
    let _crowd = crowd::among_others();
    assert_stopped("network");
}

#[test]
fn ordinary_lines_are_not_stopped() {
    let _crowd = crowd::among_others();
    for (kind, lines) in line::parse(ORDINARY) {
        let name = |line: &Line| format!("{kind}: {}", line.line);
        assert_each(&lines, AT_ONCE, name, |line| {
            let report = executor().events(crate::harness::client::line(&line.line)).report;
            let (stdout, stderr) = (report.stdout.as_deref(), report.stderr.as_deref());
            let stdout = stdout.unwrap_or_default();
            let both = format!("{stdout}{}", stderr.unwrap_or_default());
            let expected = line.exit.unwrap_or(0);
            let right = report.ended_by == EndedBy::Exit
                && report.exit_code == Some(expected)
                && report.limits_hit.is_empty()
                && report.hint.is_none()
                && line.out.as_deref().is_none_or(|out| out == stdout)
                && line.like.as_deref().is_none_or(|pattern| is_like(&both, pattern));
            if right {
                return Vec::new();
            }
            let wanted = (expected, line.out.as_deref(), line.like.as_deref());
            vec![format!("  expected {wanted:?}"), summary(&report)]
        });
    }
}
