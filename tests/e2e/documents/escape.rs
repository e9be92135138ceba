//! `docs/escape.md`: the probes of the escape suite, made from their registration.

use super::assert_generated;
use crate::escape::{ROWS, probes};
use std::fmt::Write;

#[test]
fn the_probes_are_those_of_the_suite() {
    let mut text = String::new();
    for (row, title) in (1..).zip(ROWS) {
        write!(
            text,
            "\n### {row}. {title}\n\n| tried inside | control | closed by | test |\n|---|---|---|---|\n"
        )
        .unwrap();
        for probe in probes().iter().filter(|probe| probe.row == row) {
            let (tried, control, closed_by, test) = (probe.tried, probe.control, probe.closed_by, probe.test);
            writeln!(text, "| {tried} | {control} | {closed_by} | `{test}` |").unwrap();
        }
    }
    assert_generated("docs/escape.md", "probes", &text);
}
