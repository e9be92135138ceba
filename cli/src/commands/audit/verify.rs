//! `cordon audit verify`: whether the trail is the one that was written, and what ran what its texts say.

use super::{
    files::{self, Both, Part},
    losses::{Anchors, Loss, parse_head},
    texts::{Compared, LOST, Recorded, Scope},
    unreadable,
};
use crate::{exit_status, failure::Failure, output};
use cordon_protocol::{
    audit::{Entry, Head, Walk},
    counted,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// What to check.
#[derive(Debug)]
pub(super) struct Check<'a> {
    /// The trail; older files are beside it.
    pub(super) trail: &'a Path,
    /// The texts, likewise.
    pub(super) texts: &'a Path,
    /// Where the executor keeps the head.
    pub(super) head: Option<&'a Path>,
    /// What the executor logged.
    pub(super) anchors: Option<&'a Path>,
    /// Older and newer files may be elsewhere.
    pub(super) partial: bool,
}

/// Looks before what may be of a moment is believed.
const LOOKS: usize = 10;
/// Between two of them. The executor writes a text, the line of its launch and the head one after the other, and does
/// not tell when all are there.
const PAUSE: Duration = Duration::from_millis(50);

/// Checks the trail, then the texts against it, also while the executor writes both.
pub(super) fn execute(check: &Check<'_>) -> Result<u8, Failure> {
    let next = "name a file with the executor's log, or - for standard input";
    let unread = |file: &Path, e| Failure::new(format!("reading the anchors {}", file.display()), e, next);
    let anchors = check.anchors.map(|file| Anchors::read(file).map_err(|e| unread(file, e)));
    let anchors = anchors.transpose()?.unwrap_or_default();
    settled(|| Seen::look(check, &anchors), |seen| seen.may_pass(check.partial))?.tell(check)
}

/// The first look that found nothing which may pass, or the last of all.
fn settled<T>(
    mut look: impl FnMut() -> Result<T, Failure>,
    may_pass: impl Fn(&T) -> bool,
) -> Result<T, Failure> {
    let mut seen = look()?;
    for _ in 1..LOOKS {
        if !may_pass(&seen) {
            break;
        }
        thread::sleep(PAUSE);
        seen = look()?;
    }
    Ok(seen)
}

/// What is wrong with a file.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) file: PathBuf,
    pub(super) text: String,
    /// It may be so for a moment only, while the executor writes.
    pub(super) may_pass: bool,
}

/// What one look has found.
#[derive(Debug)]
struct Seen {
    walked: Walked,
    compared: Compared,
    has_head: bool,
}

impl Seen {
    fn look(check: &Check<'_>, anchors: &Anchors) -> Result<Self, Failure> {
        // Before the trail, which then has its line: the head is written last of all.
        let kept_in = head_file(check);
        let head = kept_in.as_deref().map(read_head).transpose()?;
        let Both { trail, texts } =
            files::both(check.trail, check.texts).map_err(|e| unreadable(check.trail, e))?;
        let mut walked = Walked { files: trail.len(), head, ..Walked::default() };
        walked.follow(trail, anchors)?;
        if walked.problems.is_empty() {
            let since = kept_in.as_deref().map(read_head).transpose()?;
            walked.finish(check, anchors, since);
        }
        // A trail that does not hold says nothing about texts.
        let mut compared = Compared::default();
        if walked.problems.is_empty() {
            let recorded = std::mem::take(&mut walked.recorded);
            let scope = Scope {
                gone: walked.walk.missing().last().map(|lines| *lines.end()),
                losses: &walked.losses,
                partial: check.partial,
            };
            compared = recorded.compare(check.texts, texts, scope)?;
        }
        Ok(Self { walked, compared, has_head: kept_in.is_some() })
    }

    fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.walked.problems.iter().chain(&self.compared.problems)
    }

    /// Whether another look may find less.
    fn may_pass(&self, partial: bool) -> bool {
        let older = !partial && !self.compared.older.is_empty();
        (older || self.problems().next().is_some()) && self.problems().all(|problem| problem.may_pass)
    }

    fn tell(self, check: &Check<'_>) -> Result<u8, Failure> {
        let tell = |file: &Path, text: &str| {
            output::complain(&output::visible(&format!("cordon: {}: {text}", file.display())));
        };
        if !self.has_head && !check.partial {
            output::complain(
                "cordon: note: no head was found to compare with, so that lines cut off the end are not missed; name it with --head",
            );
        }
        self.problems().for_each(|problem| tell(&problem.file, &problem.text));
        if self.problems().next().is_some() {
            return Ok(exit_status::FAILURE);
        }
        let Walked { walk, lines, files, unwritten, losses, lost_marks, .. } = self.walked;
        let Compared { whole, cut, mut older, without, lost, .. } = self.compared;
        for job in &cut {
            tell(check.texts, &format!("command {job}: its text was cut, and what is missing is not known"));
        }
        // Of a part nothing else is to be expected.
        older.retain(|(_, why)| !check.partial || *why == LOST);
        for (job, why) in &older {
            tell(check.texts, &format!("command {job}: {why}, and nothing says that it ran"));
        }
        let in_files = if files > 1 { format!(" in {files} files") } else { String::new() };
        let last = walk.head().seq;
        let (trail, texts) = (check.trail.display(), check.texts.display());
        let hold = if lines == 1 { "holds" } else { "hold" };
        let lines = counted(lines, "line");
        output::print(&format!("{trail}: {lines}{in_files} {hold}, up to number {last}\n"))?;
        for missing in walk.missing() {
            let (from, to) = (missing.start(), missing.end());
            output::complain(&format!(
                "cordon: note: {trail}: numbers {from} to {to} are in no file: they were gone when the executor began the trail \
                 anew; verify what was moved away by itself, with --partial --file"
            ));
        }
        for Loss { found, known, .. } in losses.iter().filter(|loss| loss.known > loss.found) {
            let from = found + 1;
            output::complain(&format!(
                "cordon: note: {trail}: numbers {from} to {known} were lost when the host went down, and given again from {from} on"
            ));
        }
        if lost_marks > 0 {
            let marks = counted(lost_marks, "mark");
            output::complain(&format!("cordon: note: {marks} of the log of lines that were lost then"));
        }
        if lost > 0 {
            let commands = counted(lost, "command");
            output::complain(&format!(
                "cordon: note: {commands} without a text: it was lost when the host went down, as far as the trail knows"
            ));
        }
        if unwritten > 0 {
            let lines = counted(unwritten, "line");
            output::complain(&format!(
                "cordon: note: {trail}: {lines} could not be written at the time, as ends of commands while the disk was full"
            ));
        }
        if without > 0 {
            let commands = counted(without, "command");
            output::complain(&format!(
                "cordon: note: {commands} without a text: it was rotated away or is elsewhere"
            ));
        }
        let cut_too = match cut.len() {
            0 => String::new(),
            1 => ", and 1 was cut, so that it could not be compared".to_owned(),
            cut => format!(", and {cut} were cut, so that they could not be compared"),
        };
        let are = if whole == 1 { "is" } else { "are" };
        let whole = counted(whole, "text");
        output::print(&format!("{texts}: {whole} {are} of what ran{cut_too}\n"))?;
        let none_lost = lost == 0 && losses.iter().all(|loss| loss.known <= loss.found);
        let all = cut.is_empty() && older.is_empty() && none_lost;
        Ok(if all { exit_status::SUCCESS } else { exit_status::UNPROVEN })
    }
}

/// How far the trail has been followed.
#[derive(Debug, Default)]
struct Walked {
    walk: Walk,
    lines: u64,
    files: usize,
    /// The head, as it was before the trail was opened.
    head: Option<Head>,
    /// Its line is there.
    has_head: bool,
    problems: Vec<Problem>,
    recorded: Recorded,
    /// Lines that it says could not be written.
    unwritten: u64,
    /// What it says was lost.
    losses: Vec<Loss>,
    /// Marks of the log that are of lines which were lost.
    lost_marks: u64,
}

impl Walked {
    /// Goes along all files as long as they were when they were opened, up to the first thing that is wrong.
    fn follow(&mut self, parts: Vec<Part>, anchors: &Anchors) -> Result<(), Failure> {
        for mut part in parts {
            self.walk.begin_file();
            while part.was_there() {
                let line = part.next().map_err(|e| unreadable(&part.path, e))?;
                // One that could not be written whole was taken back.
                let Some(line) = line else { break };
                self.lines += 1;
                if let Err(text) = self.step(&line, anchors) {
                    self.problems.push(Problem { file: part.path, text, may_pass: !line.whole });
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, line: &files::Read, anchors: &Anchors) -> Result<(), String> {
        let entry = self.walk.step(&line.text).map_err(|broken| broken.to_string())?;
        if let Entry::Unwritten { count } = entry.entry {
            self.unwritten += count;
        }
        let here = self.walk.head();
        self.losses.extend(Loss::of(&entry.entry, here));
        self.recorded.add(entry);
        self.lost_marks += anchors.lost_at(here, &self.losses)?;
        self.has_head |= self.head.as_ref().is_some_and(|head| head == here);
        if line.whole { Ok(()) } else { Err("the last line is cut off".to_owned()) }
    }

    /// Compares both ends with what is known of them; `since` is the head as it is after all was read.
    fn finish(&mut self, check: &Check<'_>, anchors: &Anchors, since: Option<Head>) {
        let end = self.walk.head();
        let mut problems = Vec::new();
        // What was added between both looks is no matter, if its head has come.
        let wrong = |head: &Head| self.walk.finish(head).err().map(|broken| (broken.to_string(), true));
        let before = self.head.as_ref().filter(|_| !self.has_head);
        let beyond = since.as_ref().filter(|since| since.seq <= end.seq);
        problems.extend(before.or(beyond).and_then(wrong));
        match anchors.lost_behind(end.seq, &self.losses) {
            Ok(lost) => self.lost_marks += lost,
            Err(problem) => problems.push((problem, false)),
        }
        let said = self.walk.missing().iter().any(|missing| *missing.start() == 1);
        if !check.partial && !said {
            problems.extend(self.recorded.missing_before().map(|problem| (problem, false)));
        }
        let problem = |(text, may_pass)| Problem { file: check.trail.to_owned(), text, may_pass };
        self.problems.extend(problems.into_iter().map(problem));
    }
}

/// Where the head is kept that is to be compared with.
fn head_file(check: &Check<'_>) -> Option<PathBuf> {
    let default = check.trail.with_file_name("state").join("executor/audit.head");
    let candidates = [default, PathBuf::from("/var/lib/cordon/executor/audit.head")];
    let mut usual = candidates.into_iter().filter(|_| !check.partial);
    check.head.map(Path::to_owned).or_else(|| usual.find(|file| file.exists()))
}

/// The head that the executor keeps: number and hash.
fn read_head(file: &Path) -> Result<Head, Failure> {
    let next = "read it as root; it is written anew when the executor starts";
    let failed = |cause: String| Failure::new(format!("reading the head {}", file.display()), cause, next);
    let text = fs::read_to_string(file).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::new(
            format!("reading the head {}", file.display()),
            "only root may read it",
            "verify as root: `sudo cordon audit verify`, with the same options",
        ),
        _ => failed(error.to_string()),
    })?;
    parse_head(text.trim_end()).ok_or_else(|| failed("not a number and a hash".to_owned()))
}

#[cfg(test)]
mod tests;
