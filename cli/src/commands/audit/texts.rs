//! The texts of the commands, compared with what the trail says of them.

use super::{files::Part, losses::Loss, unreadable, verify::Problem};
use crate::failure::Failure;
use cordon_protocol::audit::{Entry, Line, compare, read_text_line};
use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

/// What the trail says of the texts.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// Launches that have a text, by the number of their command, with the number of their line.
    launches: BTreeMap<String, (u64, Entry)>,
    /// Texts are kept from this line on, after the last rotation that removed some.
    texts_from: Option<u64>,
    /// The hash of the patterns of what was collected.
    collected: HashMap<String, String>,
    /// Number of the first line.
    first: Option<u64>,
    /// What is kept begins with this number, after the last rotation that removed something.
    dropped_before: Option<u64>,
}

/// Why a text has no launch, where that need not be wrong: its line was before those that are there,
const OLDER: &str = "its text is older than the trail";
/// or among those that the trail says may be lost.
pub(super) const LOST: &str = "its line was lost when the host went down";

/// How much of what was written is there to be compared.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scope<'a> {
    /// What the trail says was lost, in its order.
    pub(super) losses: &'a [Loss],
    /// The last of the lines that are gone, where the trail says that some are.
    pub(super) gone: Option<u64>,
    /// Older and newer files may be elsewhere.
    pub(super) partial: bool,
}

/// How the texts stand to it.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// How many are whole, and of what ran.
    pub(super) whole: u64,
    /// Commands whose text was cut: nothing of it can be compared.
    pub(super) cut: Vec<String>,
    /// Commands before the first that the trail knows, or that it knows after lines that are gone, with the reason: a
    /// rotation that was broken off left them, their lines are gone, or they were added.
    pub(super) older: Vec<(String, &'static str)>,
    /// Launches whose text need not be there.
    pub(super) without: u64,
    /// Launches whose text is not there and may have been lost when the host went down, as the trail says.
    pub(super) lost: u64,
    pub(super) problems: Vec<Problem>,
}

impl Recorded {
    pub(super) fn add(&mut self, line: Line) {
        self.first.get_or_insert(line.seq);
        match line.entry {
            Entry::Launch { ref job, text: Some(_), .. } => {
                self.launches.insert(job.clone(), (line.seq, line.entry));
            }
            Entry::Collected { job, request } => {
                self.collected.insert(job, request);
            }
            Entry::TextsDropped { before } => {
                self.texts_from = self.launches.get(&before).map(|(seq, _)| *seq);
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

    /// Compares every text with its launch. Texts before the first that the trail knows may be left where it has lost
    /// its beginning, and before the first that it knows after lines that are gone, where it says so; where it says that
    /// the host went down, between the last that it knows before that and the first after it. A launch may be without its
    /// text before those that are kept, as the texts are moved aside by their own size too, and where the trail says that
    /// it may be lost. Of a part, neither end need have its counterpart.
    pub(super) fn compare(
        mut self,
        path: &Path,
        parts: Vec<Part>,
        Scope { losses, gone, partial }: Scope<'_>,
    ) -> Result<Compared, Failure> {
        let mut compared = Compared::default();
        let mut older = gone.is_some() || self.first.is_some_and(|first| first > 1);
        // Lines of the first and the last launch whose text is there; texts without a launch, and how many of them came
        // before that last.
        let (mut from, mut to) = (None, 0);
        let (mut unknown, mut between) = (Vec::new(), 0);
        let lost_between =
            |before: u64, next: u64| losses.iter().any(|loss| before < loss.at.seq && loss.at.seq < next);
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
                let problem = |text: String, may_pass| Problem { file: part.path.clone(), text, may_pass };
                let Some((about, _)) = read_text_line(&line.text) else {
                    if was_there || line.whole {
                        let text = format!("line {number}: not the text of a command");
                        compared.problems.push(problem(text, !line.whole));
                    }
                    continue;
                };
                let job = about.job;
                let Some((seq, launch)) = self.launches.remove(&job) else {
                    if older {
                        compared.older.push((job, OLDER));
                    } else if was_there {
                        // Its launch may be written just now.
                        let text = format!("command {job}: there is a text and no launch of it");
                        unknown.push((job, problem(text, true)));
                    }
                    continue;
                };
                older &= gone.is_some_and(|gone| seq <= gone);
                from.get_or_insert(seq);
                if lost_between(to, seq) {
                    compared.older.extend(unknown.drain(between..).map(|(job, _)| (job, LOST)));
                }
                (to, between) = (seq, unknown.len());
                match compare(&line.text, &launch, self.collected.get(&job).map(String::as_str)) {
                    Ok(true) => compared.whole += 1,
                    Ok(false) => compared.cut.push(job),
                    Err(wrong) => compared.problems.push(problem(format!("command {job}: {wrong}"), false)),
                }
            }
        }
        if lost_between(to, u64::MAX) {
            compared.older.extend(unknown.drain(between..).map(|(job, _)| (job, LOST)));
        }
        unknown.truncate(if partial { between } else { unknown.len() });
        compared.problems.extend(unknown.into_iter().map(|(_, problem)| problem));
        let kept = self.texts_from.unwrap_or(0);
        for (job, (seq, _)) in self.launches {
            if seq < kept || partial && (from.is_none_or(|from| seq < from) || seq > to) {
                compared.without += 1;
                continue;
            }
            if losses.iter().any(|loss| loss.may_have_taken_text_of(seq)) {
                compared.lost += 1;
                continue;
            }
            let text = format!("command {job}: its text is missing");
            compared.problems.push(Problem { file: path.to_owned(), text, may_pass: false });
        }
        Ok(compared)
    }
}
