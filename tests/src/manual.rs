//! Help texts as manual pages (man(7)): the forms of clap, which the executor's own text has too.

use std::fmt::Write as _;

/// One page.
#[derive(Debug)]
pub struct Page {
    name: String,
    version: String,
    help: String,
}

/// Programs whose page is for administrators (section 8); others are commands of users (section 1).
const DAEMONS: [&str; 2] = ["cordon-executor", "cordon-gateway"];
/// From this column on a line of a list goes on with what the one before has begun.
const CONTINUED: usize = 8;

/// Names of the subcommands that a help text lists.
pub fn subcommands(help: &str) -> Vec<String> {
    let list = blocks(help).into_iter().find(|block| block[0] == "Commands:").unwrap_or_default();
    let names = items(list.get(1..).unwrap_or_default()).into_iter().map(|(term, _)| term);
    names.filter(|name| name != "help").collect()
}

impl Page {
    /// Of a program or subcommand, whose words are joined by hyphens.
    pub fn new(name: &str, version: &str, help: &str) -> Self {
        Self { name: name.to_owned(), version: version.to_owned(), help: help.to_owned() }
    }

    fn section(&self) -> u8 {
        if DAEMONS.contains(&self.name.as_str()) { 8 } else { 1 }
    }

    /// The file's name.
    pub fn file(&self) -> String {
        format!("{}.{}", self.name, self.section())
    }

    /// How other pages name it.
    pub fn reference(&self) -> String {
        format!("{}({})", self.name, self.section())
    }

    /// Its source; `all` are the references of every page.
    pub fn roff(&self, all: &[String]) -> String {
        let mut text = String::new();
        let title = self.name.to_uppercase();
        let _ = writeln!(text, ".TH {} {} \"\" \"cordon {}\"", escaped(&title), self.section(), self.version);
        let mut blocks = blocks(&self.help).into_iter();
        let about = blocks.next().map(|block| block.join(" ")).unwrap_or_default();
        let about = about.trim_end_matches('.');
        let _ = writeln!(text, ".SH NAME\n{} \\- {}", escaped(&self.name), escaped(about));
        let [mut described, mut lists, mut examples, mut status] = [const { String::new() }; 4];
        for block in blocks {
            let rest = block.get(1..).unwrap_or_default();
            match block[0] {
                "Arguments:" | "Options:" | "Commands:" => {
                    let _ = writeln!(lists, ".SH {}", block[0].trim_end_matches(':').to_uppercase());
                    for (term, about) in items(rest) {
                        let _ = writeln!(lists, ".TP\n\\fB{}\\fR\n{}", escaped(&term), escaped(&about));
                    }
                }
                "Examples:" => examples += &verbatim(rest),
                first => match (first.strip_prefix("Usage:"), first.strip_prefix("Exit status:")) {
                    (Some(first), _) => {
                        let lines: Vec<_> = std::iter::once(first).chain(rest.iter().copied()).collect();
                        let _ = write!(text, ".SH SYNOPSIS\n{}", verbatim(&lines));
                    }
                    (_, Some(_)) => {
                        status = block.join(" ").replacen("Exit status:", "", 1).trim().to_owned()
                    }
                    _ => {
                        let _ = writeln!(described, ".PP\n{}", escaped(&block.join(" ")));
                    }
                },
            }
        }
        if !described.is_empty() {
            let _ = write!(text, ".SH DESCRIPTION\n{described}");
        }
        text += &lists;
        for (title, content) in [("EXIT STATUS", escaped(&status)), ("EXAMPLES", examples)] {
            if !content.trim().is_empty() {
                let _ = writeln!(text, ".SH {title}\n{}", content.trim_end());
            }
        }
        let others: Vec<_> =
            all.iter().filter(|other| **other != self.reference()).map(|o| escaped(o)).collect();
        let _ = writeln!(text, ".SH SEE ALSO\n{}", others.join(",\n"));
        text
    }
}

/// The parts between empty lines.
fn blocks(help: &str) -> Vec<Vec<&str>> {
    let lines: Vec<_> = help.lines().collect();
    let blocks = lines.split(|line| line.trim().is_empty()).filter(|block| !block.is_empty());
    blocks.map(<[&str]>::to_vec).collect()
}

/// Terms and what is said of them.
fn items(lines: &[&str]) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in lines {
        let words = line.trim_start();
        if line.len() - words.len() >= CONTINUED {
            if let Some((_, about)) = found.last_mut() {
                let _ = write!(about, " {words}");
            }
            continue;
        }
        let (term, about) = words.split_once("  ").unwrap_or((words, ""));
        found.push((term.to_owned(), about.trim().to_owned()));
    }
    found
}

fn verbatim(lines: &[&str]) -> String {
    let lines: String = lines.iter().map(|line| format!("{}\n", escaped(line.trim_start()))).collect();
    format!(".nf\n{lines}.fi\n")
}

/// Text that troff takes for nothing else (groff_char(7)).
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('`', "\\(ga");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Run a thing.\n\nUsage: x run [OPTIONS] -- CMD\n       x run -c LINE\n\nCommands:\n  list  List\n  \
        help  Print this\n\nOptions:\n  -c <LINE>            Run a line [default:\n                       \
        none]\n      --socket <PATH>  Socket\n\nExamples:\n  x -c 'a\\b'\n\n.dots and\nmore\n\nExit status: 0, or\n1.\n";

    #[test]
    fn every_part_of_a_help_text_has_its_place() {
        let page = Page::new("x-run", "1.0", HELP);
        let roff = page.roff(&[page.reference(), "x(1)".into()]);
        for part in [
            ".TH X\\-RUN 1 \"\" \"cordon 1.0\"\n.SH NAME\nx\\-run \\- Run a thing\n",
            ".SH SYNOPSIS\n.nf\nx run [OPTIONS] \\-\\- CMD\nx run \\-c LINE\n.fi\n",
            ".TP\n\\fB\\-c <LINE>\\fR\nRun a line [default: none]\n",
            ".TP\n\\fB\\-\\-socket <PATH>\\fR\nSocket\n",
            ".SH EXAMPLES\n.nf\nx \\-c \\(aqa\\eb\\(aq\n.fi\n",
            ".SH DESCRIPTION\n.PP\n\\&.dots and more\n",
            ".SH EXIT STATUS\n0, or 1.\n",
            ".SH SEE ALSO\nx(1)\n",
        ] {
            assert!(roff.contains(part), "no {part:?} in\n{roff}");
        }
        assert_eq!(subcommands(HELP), ["list"]);
        assert_eq!(Page::new("cordon-gateway", "", "").file(), "cordon-gateway.8");
    }
}
