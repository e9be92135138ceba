//! The format of the corpora: a command line and what must be true, one inline table a line.

use cordon_protocol::{Bytes, EndedBy, LimitRequest, Millis};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// A command line with what must come of it. `@NAME@` in it stands for something of the host's, see
/// [`super::place::Place::fill`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    /// For `bash -c`.
    pub(super) line: String,
    /// Exit status.
    pub(super) exit: Option<i32>,
    /// It must not exit with 0.
    #[serde(default)]
    pub(super) fails: bool,
    /// All of standard output.
    pub(super) out: Option<String>,
    /// A regular expression that is found in standard output, standard error behind it.
    pub(super) like: Option<String>,
    /// Regular expressions that are not found there.
    #[serde(default)]
    pub(super) lacks: Vec<String>,
    /// What may have ended it.
    #[serde(default)]
    pub(super) ended_by: Vec<EndedBy>,
    /// Paths of the host that must not be there afterwards.
    #[serde(default)]
    pub(super) absent: Vec<String>,
    /// A second command, which must find nothing of the first.
    pub(super) next: Option<String>,
    /// Standard output of the second.
    pub(super) next_out: Option<String>,
    /// Exit status of the second.
    #[serde(default)]
    pub(super) next_exit: i32,
    /// Where the same line must be noticed when nothing confines it.
    pub(super) control: Option<Control>,
    wall: Option<Millis>,
    cpu: Option<Millis>,
    memory: Option<Bytes>,
    pids: Option<u64>,
    output: Option<Bytes>,
}

/// How a line is run without Cordon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Control {
    /// By root.
    Host,
    /// By root in mount, pid, network, ipc and uts namespaces of its own.
    Apart,
    /// By a user that is nobody here.
    Nobody,
}

impl Line {
    /// Limits of the request; time, where the line names none, is `wall_ms`.
    pub(super) fn limits(&self, wall_ms: u64) -> LimitRequest {
        LimitRequest {
            wall_ms: Some(self.wall.map_or(wall_ms, |m| m.0)),
            cpu_time_ms: self.cpu.map(|m| m.0),
            memory_bytes: self.memory.map(|b| b.0),
            pids: self.pids,
            output_bytes: self.output.map(|b| b.0),
            ..LimitRequest::default()
        }
    }

    /// Whether the line goes on for ever when nothing ends it.
    pub(super) fn is_endless(&self) -> bool {
        !self.ended_by.is_empty()
    }

    fn expects_something(&self) -> bool {
        self.exit.is_some() || self.fails || self.out.is_some() || self.like.is_some() || self.is_endless()
    }
}

/// Lines by kind; fails on one that is there twice in a kind, and on one that expects nothing.
pub(super) fn parse(text: &str) -> BTreeMap<String, Vec<Line>> {
    let corpus: BTreeMap<String, Vec<Line>> = toml::from_str(text).unwrap_or_else(|e| panic!("{e}"));
    for (kind, lines) in &corpus {
        let mut seen = BTreeSet::new();
        for line in lines {
            assert!(line.expects_something(), "{kind}: nothing is said about what comes of: {}", line.line);
            assert!(seen.insert((&line.line, line.limits(0).cpu_time_ms)), "{kind}: twice: {}", line.line);
        }
    }
    corpus
}
