//! The texts of the commands, compared with what the trail says of them.

use super::{files::Part, unreadable, verify::Problem};
use crate::failure::Failure;
use cordon_protocol::audit::{Entry, Line, compare, read_text_line};
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

/// What the trail says of the texts.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// Launches that have a text, by the number of their command.
    launches: BTreeMap<String, Entry>,
    /// The hash of the patterns of what was collected.
    collected: HashMap<String, String>,
    /// Number of the first line.
    first: Option<u64>,
    /// What is kept begins with this number, after the last rotation that removed something.
    dropped_before: Option<u64>,
}

/// How the texts stand to it.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// How many are whole, and of what ran.
    pub(super) whole: u64,
    /// Commands whose text was cut: nothing of it can be compared.
    pub(super) cut: Vec<String>,
    /// Commands before the first that the trail knows: a rotation that was broken off left them, or they were added.
    pub(super) older: Vec<String>,
    pub(super) problems: Vec<Problem>,
}

impl Recorded {
    pub(super) fn add(&mut self, line: Line) {
        self.first.get_or_insert(line.seq);
        match line.entry {
            Entry::Launch { ref job, text: Some(_), .. } => {
                self.launches.insert(job.clone(), line.entry);
            }
            Entry::Collected { job, request } => {
                self.collected.insert(job, request);
            }
            Entry::Dropped { before } => self.dropped_before = Some(before),
            _ => {}
        }
    }

    /// Lines that no rotation has removed, and that are not there.
    pub(super) fn missing_before(&self) -> Option<String> {
        let first = self.first.filter(|first| *first > self.dropped_before.unwrap_or(1))?;
        Some(format!(
            "it begins with number {first}, and says of no rotation that removed all before it: an older file is \
             missing; where it was moved away or is kept elsewhere, add --partial, which compares the end with a head \
             that --head names alone"
        ))
    }

    /// Compares every text with its launch. Both files are moved aside by turns: texts before the first that the trail
    /// knows may be left where it has lost its beginning; any may where it says that lines are gone.
    pub(super) fn compare(mut self, path: &Path, parts: Vec<Part>, gone: bool) -> Result<Compared, Failure> {
        let mut compared = Compared::default();
        let mut older = self.first.is_some_and(|first| first > 1);
        for mut part in parts {
            let mut number = 0;
            loop {
                // What came later may have come after the launches that were read; without it theirs may be missing.
                let was_there = part.was_there();
                if !was_there && self.launches.is_empty() {
                    break;
                }
                let Some(line) = part.next().map_err(|e| unreadable(&part.path, e))? else { break };
                number += 1;
                let mut wrong = |text: String, may_pass| {
                    compared.problems.push(Problem { file: part.path.clone(), text, may_pass });
                };
                let Some((about, _)) = read_text_line(&line.text) else {
                    if was_there || line.whole {
                        wrong(format!("line {number}: not the text of a command"), !line.whole);
                    }
                    continue;
                };
                let job = about.job;
                let Some(launch) = self.launches.remove(&job) else {
                    if older && !gone {
                        compared.older.push(job);
                    } else if was_there && !gone {
                        // Its launch may be written just now.
                        wrong(format!("command {job}: there is a text and no launch of it"), true);
                    }
                    continue;
                };
                older = false;
                match compare(&line.text, &launch, self.collected.get(&job).map(String::as_str)) {
                    Ok(true) => compared.whole += 1,
                    Ok(false) => compared.cut.push(job),
                    Err(problem) => wrong(format!("command {job}: {problem}"), false),
                }
            }
        }
        compared.problems.extend(self.launches.into_keys().map(|job| Problem {
            file: path.to_owned(),
            text: format!("command {job}: its text is missing"),
            may_pass: false,
        }));
        Ok(compared)
    }
}
