//! `cordon audit verify`: whether the trail is the one that was written, and what ran what its texts say.

use super::unreadable;
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

/// Checks the trail, then the texts against it.
pub(super) fn execute(
    path: &Path,
    texts: &Path,
    head: Option<&Path>,
    anchors: Option<&Path>,
) -> Result<u8, Failure> {
    let text = fs::read_to_string(path).map_err(|e| unreadable(path, e))?;
    let anchors = anchors.map(read_anchors).transpose()?.unwrap_or_default();
    let mut walk = Walk::default();
    let mut problems = Vec::new();
    let whole = text.is_empty() || text.ends_with('\n');
    let mut recorded = Recorded::default();
    for line in text.lines() {
        match walk.step(line) {
            Ok(line) => recorded.add(line),
            Err(broken) => {
                problems.push(broken.to_string());
                break;
            }
        }
        let here = walk.head();
        if let Some(other) = anchors.iter().find(|anchor| anchor.seq == here.seq && anchor.hash != here.hash)
        {
            problems.push(format!(
                "number {} is not the line that the log names: the trail was replaced",
                other.seq
            ));
            break;
        }
    }
    if problems.is_empty() {
        let default = path.with_file_name("state").join("executor/audit.head");
        let candidates = [default, PathBuf::from("/var/lib/cordon/executor/audit.head")];
        let kept = head.map(Path::to_owned).or_else(|| candidates.into_iter().find(|file| file.exists()));
        let kept = kept.map(|file| read_head(&file)).transpose()?;
        let last = anchors.into_iter().max_by_key(|anchor| anchor.seq);
        if let Some(kept) = &kept {
            problems.extend(walk.finish(kept).err().map(|broken| broken.to_string()));
        }
        if let Some(last) = last.filter(|last| last.seq > walk.head().seq) {
            problems.push(format!(
                "the log names number {}, the trail ends with {}",
                last.seq,
                walk.head().seq
            ));
        }
        if !whole {
            problems.push("the last line is cut off".to_owned());
        }
        if kept.is_none() {
            output::complain(
                "cordon: note: no head was found to compare with, so that lines cut off the end are not missed; name it with --head",
            );
        }
    }
    // A trail that does not hold says nothing about texts.
    let mut compared = Compared::default();
    if problems.is_empty() {
        compared = recorded.compare(texts)?;
    }
    if problems.is_empty() && compared.problems.is_empty() {
        let last = walk.head().seq;
        let lines = text.lines().count();
        let hold = if lines == 1 { "holds" } else { "hold" };
        let lines = counted(lines, "line");
        output::print(&format!("{}: {lines} {hold}, up to number {last}\n", path.display()))?;
        let cut = match compared.cut {
            0 => String::new(),
            1 => ", and 1 was cut, so that only a part could be compared".to_owned(),
            cut => format!(", and {cut} were cut, so that only a part could be compared"),
        };
        let are = if compared.whole == 1 { "is" } else { "are" };
        let whole = counted(compared.whole, "text");
        output::print(&format!("{}: {whole} {are} of what ran{cut}\n", texts.display()))?;
        return Ok(exit_status::SUCCESS);
    }
    for (file, problems) in [(path, problems), (texts, compared.problems)] {
        for problem in problems {
            output::complain(&format!("cordon: {}: {problem}", file.display()));
        }
    }
    Ok(exit_status::FAILURE)
}

/// What the trail says of the texts.
#[derive(Debug, Default)]
struct Recorded {
    /// Launches that have a text, by the number of their command.
    launches: BTreeMap<String, Entry>,
    /// The hash of the patterns of what was collected.
    collected: HashMap<String, String>,
    /// Number of the first line: lines before it were moved away.
    first: Option<u64>,
}

/// How the texts stand to it.
#[derive(Debug, Default)]
struct Compared {
    whole: u64,
    cut: u64,
    problems: Vec<String>,
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
            _ => {}
        }
    }

    /// Compares every text with its launch. Both files are moved away by turns: texts before the first that the
    /// trail knows are no matter where it has lost its beginning.
    fn compare(mut self, path: &Path) -> Result<Compared, Failure> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(unreadable(path, error)),
        };
        let mut compared = Compared::default();
        let mut older = self.first.is_some_and(|first| first > 1);
        for (at, line) in text.lines().enumerate() {
            let Some((about, _)) = read_text_line(line) else {
                compared.problems.push(format!("line {}: not the text of a command", at + 1));
                continue;
            };
            let job = about.job;
            let Some(launch) = self.launches.remove(&job) else {
                if !older {
                    compared.problems.push(format!("command {job}: there is a text and no launch of it"));
                }
                continue;
            };
            older = false;
            match compare(line, &launch, self.collected.get(&job).map(String::as_str)) {
                Ok(true) => compared.whole += 1,
                Ok(false) => compared.cut += 1,
                Err(problem) => compared.problems.push(format!("command {job}: {problem}")),
            }
        }
        let missing = self.launches.into_keys().map(|job| format!("command {job}: its text is missing"));
        compared.problems.extend(missing);
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
            "only root may read it; the group may read the trail alone",
            "verify as root: `sudo cordon audit verify`, with the same options; `cordon audit show` needs no root",
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
