//! `cordon audit verify`: whether the trail is the one that was written, and what ran what its texts say.

use super::{files, unreadable};
use crate::{exit_status, failure::Failure, output};
use cordon_protocol::{
    audit::{Entry, Head, Line, Walk, compare, read_text_line},
    counted,
};
use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::{Path, PathBuf},
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

/// Checks the trail, then the texts against it.
pub(super) fn execute(check: &Check<'_>) -> Result<u8, Failure> {
    let anchors = check.anchors.map(read_anchors).transpose()?.unwrap_or_default();
    let mut walked = Walked::default();
    walked.follow(check.trail, &anchors)?;
    if walked.problems.is_empty() {
        walked.finish(check, anchors)?;
    }
    // A trail that does not hold says nothing about texts.
    let Walked { walk, lines, files, problems, recorded } = walked;
    let mut compared = Compared::default();
    if problems.is_empty() {
        compared = recorded.compare(check.texts, !walk.missing().is_empty())?;
    }
    let problems: Vec<_> = problems.into_iter().chain(compared.problems).collect();
    for (file, problem) in &problems {
        output::complain(&format!("cordon: {}: {problem}", file.display()));
    }
    if !problems.is_empty() {
        return Ok(exit_status::FAILURE);
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
    let cut = match compared.cut {
        0 => String::new(),
        1 => ", and 1 was cut, so that only a part could be compared".to_owned(),
        cut => format!(", and {cut} were cut, so that only a part could be compared"),
    };
    let are = if compared.whole == 1 { "is" } else { "are" };
    let whole = counted(compared.whole, "text");
    output::print(&format!("{texts}: {whole} {are} of what ran{cut}\n"))?;
    Ok(exit_status::SUCCESS)
}

/// A file, and what is wrong with it.
type Problem = (PathBuf, String);

/// How far the trail has been followed.
#[derive(Debug, Default)]
struct Walked {
    walk: Walk,
    lines: u64,
    files: usize,
    problems: Vec<Problem>,
    recorded: Recorded,
}

impl Walked {
    /// Goes along all files, up to the first thing that is wrong.
    fn follow(&mut self, path: &Path, anchors: &[Head]) -> Result<(), Failure> {
        let parts = files::all(path).map_err(|e| unreadable(path, e))?;
        if parts.last().is_none_or(|last| last.path != path) {
            return Err(unreadable(path, io::Error::from(io::ErrorKind::NotFound)));
        }
        self.files = parts.len();
        for mut part in parts {
            self.walk.begin_file();
            while let Some(line) = part.next().map_err(|e| unreadable(&part.path, e))? {
                self.lines += 1;
                if let Err(problem) = self.step(&line, anchors) {
                    self.problems.push((part.path, problem));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, line: &files::Read, anchors: &[Head]) -> Result<(), String> {
        let entry = self.walk.step(&line.text).map_err(|broken| broken.to_string())?;
        self.recorded.add(entry);
        let here = self.walk.head();
        if anchors.iter().any(|anchor| anchor.seq == here.seq && anchor.hash != here.hash) {
            let seq = here.seq;
            return Err(format!("number {seq} is not the line that the log names: the trail was replaced"));
        }
        if line.whole { Ok(()) } else { Err("the last line is cut off".to_owned()) }
    }

    /// Compares both ends with what is known of them.
    fn finish(&mut self, check: &Check<'_>, anchors: Vec<Head>) -> Result<(), Failure> {
        let default = check.trail.with_file_name("state").join("executor/audit.head");
        let candidates = [default, PathBuf::from("/var/lib/cordon/executor/audit.head")];
        let mut usual = candidates.into_iter().filter(|_| !check.partial);
        let kept = check.head.map(Path::to_owned).or_else(|| usual.find(|file| file.exists()));
        let kept = kept.map(|file| read_head(&file)).transpose()?;
        let last = anchors.into_iter().max_by_key(|anchor| anchor.seq);
        let mut problems = Vec::new();
        if let Some(kept) = &kept {
            problems.extend(self.walk.finish(kept).err().map(|broken| broken.to_string()));
        }
        let end = self.walk.head().seq;
        if let Some(last) = last.filter(|last| last.seq > end) {
            problems.push(format!("the log names number {}, the trail ends with {end}", last.seq));
        }
        let said = self.walk.missing().iter().any(|missing| *missing.start() == 1);
        if !check.partial && !said {
            problems.extend(self.recorded.missing_before());
        }
        self.problems.extend(problems.into_iter().map(|problem| (check.trail.to_owned(), problem)));
        if kept.is_none() && !check.partial {
            output::complain(
                "cordon: note: no head was found to compare with, so that lines cut off the end are not missed; name it with --head",
            );
        }
        Ok(())
    }
}

/// What the trail says of the texts.
#[derive(Debug, Default)]
struct Recorded {
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
struct Compared {
    whole: u64,
    cut: u64,
    problems: Vec<Problem>,
}

impl Recorded {
    fn add(&mut self, line: Line) {
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
    fn missing_before(&self) -> Option<String> {
        let first = self.first.filter(|first| *first > self.dropped_before.unwrap_or(1))?;
        Some(format!(
            "it begins with number {first}, and says of no rotation that removed all before it: an older file is \
             missing; where it was moved away or is kept elsewhere, add --partial, which compares the end with a head \
             that --head names alone"
        ))
    }

    /// Compares every text with its launch. Both files are moved aside by turns: texts before the first that the
    /// trail knows are no matter where it has lost its beginning, nor is any where it says that lines are gone.
    fn compare(mut self, path: &Path, gone: bool) -> Result<Compared, Failure> {
        let mut compared = Compared::default();
        let mut older = self.first.is_some_and(|first| first > 1);
        let parts = match files::all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            parts => parts.map_err(|e| unreadable(path, e))?,
        };
        for mut part in parts {
            let mut number = 0;
            while let Some(line) = part.next().map_err(|e| unreadable(&part.path, e))? {
                number += 1;
                let mut wrong = |problem: String| compared.problems.push((part.path.clone(), problem));
                let Some((about, _)) = read_text_line(&line.text) else {
                    wrong(format!("line {number}: not the text of a command"));
                    continue;
                };
                let job = about.job;
                let Some(launch) = self.launches.remove(&job) else {
                    if !older && !gone {
                        wrong(format!("command {job}: there is a text and no launch of it"));
                    }
                    continue;
                };
                older = false;
                match compare(&line.text, &launch, self.collected.get(&job).map(String::as_str)) {
                    Ok(true) => compared.whole += 1,
                    Ok(false) => compared.cut += 1,
                    Err(problem) => wrong(format!("command {job}: {problem}")),
                }
            }
        }
        let missing = self.launches.into_keys().map(|job| format!("command {job}: its text is missing"));
        compared.problems.extend(missing.map(|problem| (path.to_owned(), problem)));
        Ok(compared)
    }
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

fn parse_head(text: &str) -> Option<Head> {
    let (seq, hash) = text.split_once(' ')?;
    Some(Head { seq: seq.parse().ok()?, hash: hash.to_owned() })
}

/// Every `audit head NUMBER HASH` in a log.
fn read_anchors(file: &Path) -> Result<Vec<Head>, Failure> {
    let next = "name a file with the executor's log, or - for standard input";
    let failed = |e| Failure::new(format!("reading the anchors {}", file.display()), e, next);
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).map_err(failed)?
    } else {
        fs::read_to_string(file).map_err(failed)?
    };
    let anchor = |line: &str| line.split_once("audit head ").and_then(|(_, rest)| parse_head(rest.trim()));
    Ok(text.lines().filter_map(anchor).collect())
}
