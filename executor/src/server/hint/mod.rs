//! Hints for commands that ran and failed: which layer refused what, and the setting to change.
//!
//! A wrong hint is worse than none. What a command prints is its own: it says where to look, and is never enough. Each
//! hint wants a second fact from somewhere else, be it the profile's lists, the network the sandbox had, the filter's
//! table, a counter of the kernel, or what the host was seen to have at start; `docs/decisions/0012-hints.md` has
//! them all. Nothing is asked of anybody: everything is there when the command has ended, and no more is looked at
//! than the last lines of what it wrote.

mod calls;
mod identity;
pub(crate) mod landmarks;
mod message;
mod network;
mod paths;
mod resources;
mod tail;
#[cfg(test)]
mod tests;

pub(super) use tail::{LastWords, Tail};

use super::{check::CheckedRun, report::Asked};
use crate::{monitor::link::Outcome, sealed::Work};
use cordon_protocol::{EndedBy, Hint};
use landmarks::Landmarks;
use std::{path::PathBuf, rc::Rc};

/// What was run, and where.
#[derive(Debug, Clone, Default)]
pub(super) struct Ran {
    /// The command line, or the arguments with blanks between them; shortened.
    line: String,
    /// Working directory that was asked for.
    cwd: Option<String>,
    /// No directory was asked for, and the configuration has one.
    by_default: bool,
    /// The named workspace it ran in.
    workspace: Option<String>,
    /// The home directory inside.
    home: PathBuf,
    /// The executor's own directory, in which commands work on hosts without namespaces.
    state_dir: Option<PathBuf>,
    /// What the host has.
    landmarks: Rc<Landmarks>,
}

/// A command that failed.
#[derive(Debug, Clone, Copy)]
struct Failure<'a> {
    outcome: &'a Outcome,
    asked: Asked<'a>,
    ran: &'a Ran,
}

impl Ran {
    /// Of a request that was checked.
    pub(super) fn new(
        checked: &CheckedRun<'_>,
        config: &crate::config::Config,
        landmarks: &Rc<Landmarks>,
    ) -> Self {
        let sealed = &checked.sealed;
        let words = match &sealed.work {
            // What the shell is told, not how it is called.
            Work::Program(argv) if argv.len() == 3 && argv[1] == "-c" => &argv[2..],
            Work::Program(argv) => argv,
            _ => &[],
        };
        Self {
            line: tail::joined(words),
            cwd: sealed.cwd.clone(),
            by_default: checked.starts_by_default,
            workspace: checked.workspace.clone(),
            home: config.home.clone(),
            state_dir: Some(config.state_dir.clone()),
            landmarks: Rc::clone(landmarks),
        }
    }

    /// The named workspace it ran in.
    pub(super) fn workspace(&self) -> Option<&str> {
        self.workspace.as_deref()
    }

    /// Whether it starts in the configuration's directory, as it named none.
    pub(super) fn starts_by_default(&self) -> bool {
        self.by_default
    }

    #[cfg(test)]
    pub(super) fn of_line(line: &str) -> Self {
        Self { line: line.to_owned(), ..Self::default() }
    }

    #[cfg(test)]
    pub(super) fn in_workspace(name: &str) -> Self {
        Self { workspace: Some(name.to_owned()), ..Self::default() }
    }

    #[cfg(test)]
    pub(super) fn by_default() -> Self {
        Self { by_default: true, ..Self::default() }
    }
}

impl Failure<'_> {
    /// Whether the command line has this program where one can stand.
    fn runs(&self, program: &str) -> bool {
        programs(&self.ran.line)
            .any(|word| word.strip_suffix(program).is_some_and(|b| b.is_empty() || b.ends_with('/')))
    }
}

/// The hint for a command that exited or was ended by a signal, or for its disk; none when it went well, and when
/// nothing shows that a layer was the cause.
pub(super) fn explain(outcome: &Outcome, asked: Asked<'_>, words: &LastWords) -> Option<Hint> {
    let failure = Failure { outcome, asked, ran: asked.ran };
    match outcome.ended_by {
        EndedBy::DiskLimit => return Some(resources::explain_disk(&failure)),
        EndedBy::Exit if outcome.exit_code == Some(0) => return None,
        EndedBy::Exit | EndedBy::Signal => {}
        _ => return None,
    }
    let complaints = words.complaints(&asked.ran.line);
    resources::explain(&failure, &complaints)
        .or_else(|| complaints.iter().find_map(|line| failure.explain_line(line)))
        .or_else(|| identity::explain(&failure, &complaints))
        .or_else(|| network::explain_silent(&failure))
}

/// The hint for a command that did not end in time, where it waited for a network that it does not have.
pub(super) fn explain_late(outcome: &Outcome, asked: Asked<'_>, words: &LastWords) -> Option<Hint> {
    let failure = Failure { outcome, asked, ran: asked.ran };
    network::explain_late(&failure, &words.complaints(&asked.ran.line))
}

/// Words of a command line that are programs, as far as that can be told without a shell: the first ones, those after
/// what ends a command or takes one; no comments.
fn programs(line: &str) -> impl Iterator<Item = &str> {
    line.split(['\n', ';', '&', '|', '(', '`']).flat_map(|command| {
        let mut first = true;
        let words = command.split_whitespace().take_while(|word| !word.starts_with('#'));
        words.filter_map(move |word| {
            let bare = word.trim_matches(['"', '\'', '\\', '{', '}', ')', '!']);
            let here = first && !bare.is_empty();
            // A variable of the command's own, or a word that another command follows.
            let takes_one = bare.is_empty() || TAKING.contains(&bare) || first && bare.contains('=');
            first = takes_one;
            here.then_some(bare)
        })
    })
}

/// Words that a command follows.
const TAKING: [&str; 20] = [
    "-c", "-m", "if", "then", "else", "elif", "do", "while", "until", "time", "exec", "env", "command",
    "nohup", "xargs", "sudo", "timeout", "nice", "setsid", "stdbuf",
];

impl Failure<'_> {
    fn explain_line(&self, line: &str) -> Option<Hint> {
        let kind = message::kind_of(line);
        network::explain(self, line)
            .or_else(|| calls::explain(self, line, kind))
            .or_else(|| paths::explain(self, line, kind?))
    }
}

fn hint(layer: &str, what: impl Into<String>, remedy: impl Into<String>) -> Hint {
    let text = |text: String| super::refusal::shortened(&text, TEXT_MAX);
    Hint { layer: layer.to_owned(), what: text(what.into()), remedy: text(remedy.into()) }
}

/// Longest text of a hint, characters.
const TEXT_MAX: usize = 512;
