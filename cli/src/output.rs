//! What the program itself says: results to standard output, complaints to standard error.

use crate::{failure::Failure, stdio};
use serde::Serialize;
use std::io;

/// Writes text to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let written = stdio::write_all(io::stdout(), text.as_bytes());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::BrokenPipe,
        _ => Failure::new("writing standard output", error, "look at where the output goes"),
    })
}

/// Writes a value to standard output as one line of JSON.
pub(crate) fn print_json<T: Serialize + ?Sized>(value: &T) -> Result<(), Failure> {
    print(&(json(serde_json::to_string(value))? + "\n"))
}

/// Writes a value to standard output as JSON for people.
pub(crate) fn print_json_pretty<T: Serialize + ?Sized>(value: &T) -> Result<(), Failure> {
    print(&(json(serde_json::to_string_pretty(value))? + "\n"))
}

fn json(text: serde_json::Result<String>) -> Result<String, Failure> {
    text.map_err(|e| Failure::new("writing JSON", e, "report this as a fault of cordon"))
}

/// Writes lines to standard error. Where that fails nobody is left to be told.
pub(crate) fn complain(lines: &str) {
    let _ = stdio::write_all(io::stderr(), format!("{lines}\n").as_bytes());
}

/// The text with its control characters written out: a name that a command chose must not steer the
/// terminal it is shown on.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// Whether a character changes how others are shown: control characters, line separators, and those that turn
/// the direction of writing or cannot be seen (Unicode, 23.2 and UAX 9), by which one text passes for another.
fn steers(c: char) -> bool {
    let unseen = matches!(c,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    c.is_control() || unseen
}

/// Rows as lines of aligned columns, two spaces between; the last column is as wide as it likes.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_not_sent() {
        assert_eq!(visible("a\x1b[2Jb\n\u{9b}ü"), "a\\u{1b}[2Jb\\n\\u{9b}ü");
        assert_eq!(
            visible("rm\u{202e}txt\u{2066}\u{200b}\u{feff}"),
            "rm\\u{202e}txt\\u{2066}\\u{200b}\\u{feff}"
        );
    }

    #[test]
    fn columns_line_up() {
        let rows = [["ID".into(), "STATE".into()], ["übung".into(), "x".into()]];
        assert_eq!(table(&rows), "ID     STATE\nübung  x\n");
    }
}
