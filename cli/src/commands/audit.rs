//! `cordon audit`: shows the executor's audit trail and checks its chain.

use crate::{exit_status, failure::Failure, output};
use cordon_protocol::{
    audit::{Entry, Head, Line, Walk, read_line},
    limits,
};
use jiff::Timestamp;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

const EXAMPLES: &str = "\
Examples:
  sudo cordon audit show
  sudo cordon audit show --follow --json | jq 'select(.event == \"refused\")'
  sudo cordon audit verify
  sudo cordon audit verify --anchors LOG     LOG holds what the executor logged (`-` is standard input)";

/// Which trail, and what to do with it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// The trail [default: audit.jsonl beside the socket, else /var/log/cordon/audit.jsonl]
    #[arg(long, global = true, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print the trail, one line each
    #[command(after_help = EXAMPLES)]
    Show {
        /// Go on with what is added
        #[arg(long)]
        follow: bool,
        /// Print the lines as they are
        #[arg(long)]
        json: bool,
    },
    /// Check that no line was changed, taken out, moved or cut off; 1 when one was
    #[command(after_help = EXAMPLES)]
    Verify {
        /// Where the executor keeps the head [default: where `cordon up` and the package put it]
        #[arg(long, value_name = "FILE")]
        head: Option<PathBuf>,
        /// Lines of the executor's log, whose `audit head` lines the trail must agree with; `-` is
        /// standard input
        #[arg(long, value_name = "FILE")]
        anchors: Option<PathBuf>,
    },
}

/// Time between two looks at the end of the trail.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Shows or checks the trail.
pub(crate) fn execute(args: &Args, socket: &Path) -> Result<u8, Failure> {
    let beside = socket.with_file_name("audit.jsonl");
    let default = || if beside.exists() { beside.clone() } else { PathBuf::from(limits::AUDIT_FILE) };
    let path = args.file.clone().unwrap_or_else(default);
    match &args.action {
        Action::Show { follow, json } => show(&path, *follow, *json),
        Action::Verify { head, anchors } => verify(&path, head.as_deref(), anchors.as_deref()),
    }
}

fn unreadable(path: &Path, error: impl std::fmt::Display) -> Failure {
    let next = "read it as root or as a member of group cordon; name another with --file";
    Failure::new(format!("reading the audit trail {}", path.display()), error, next)
}

fn show(path: &Path, follow: bool, json: bool) -> Result<u8, Failure> {
    let mut reader = BufReader::new(File::open(path).map_err(|e| unreadable(path, e))?);
    let (mut text, mut number) = (String::new(), 0);
    loop {
        if reader.read_line(&mut text).map_err(|e| unreadable(path, e))? == 0 {
            if !follow {
                return Ok(exit_status::SUCCESS);
            }
            thread::sleep(FOLLOW_INTERVAL);
            continue;
        }
        // A line that is being written comes whole with the next look.
        let Some(line) = text.strip_suffix('\n') else { continue };
        number += 1;
        let shown = if json {
            line.to_owned()
        } else {
            read_line(line, number)
                .map_or_else(|broken| format!("!! {broken}"), |(line, _)| description(&line))
        };
        output::print(&format!("{}\n", output::visible(&shown)))?;
        text.clear();
    }
}

/// One line for people; times are UTC.
fn description(line: &Line) -> String {
    let what = match &line.entry {
        Entry::Started { version } => format!("executor {version} started"),
        Entry::Launch { job, uid, profile, request, workspace, .. } => {
            let workspace = workspace.as_ref().map(|name| format!(" workspace {name}")).unwrap_or_default();
            let request = request.get(..12).unwrap_or(request);
            format!("launch  {job} uid {uid} profile {profile}{workspace} request {request}")
        }
        Entry::Collected { job, .. } => format!("collect {job}"),
        Entry::WorkspaceDeleted { uid, workspace } => format!("deleted uid {uid} workspace {workspace}"),
        Entry::Refused { uid, profile, reason } => {
            let uid = uid.map_or_else(|| "?".to_owned(), |uid| uid.to_string());
            format!("refused uid {uid} profile {profile}: {reason}")
        }
        Entry::Ended { job, ended_by, exit_code, signal, step, wall_ms, .. } => {
            let how = serde_json::to_value(ended_by).ok();
            let how = how.as_ref().and_then(|v| v.as_str()).unwrap_or("?").to_owned();
            let code = exit_code.map(|code| format!(" status {code}")).unwrap_or_default();
            let signal = signal.map(|signal| format!(" signal {signal}")).unwrap_or_default();
            let step = step.as_ref().map(|step| format!(" in step {step}")).unwrap_or_default();
            format!("ended   {job} by {how}{code}{signal}{step} after {wall_ms} ms")
        }
        Entry::Services { job, services } => {
            let used = services.iter().map(|used| format!(" {}: {}", used.port, used.connections));
            format!("served  {job}{}", used.collect::<String>())
        }
        Entry::ServiceRefused { job, port, over_cap, unreachable } => {
            format!("refused {job} port {port}: {over_cap} too many at once, {unreachable} unreachable")
        }
        Entry::Stopped => "executor stopped".to_owned(),
    };
    format!("{:>6} {} {what}", line.seq, utc(line.time_ms))
}

/// `2026-11-30T04:05:06.007Z`.
fn utc(time_ms: u64) -> String {
    let time = i64::try_from(time_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| format!("{time_ms} ms"), |time| format!("{time:.3}"))
}

fn verify(path: &Path, head: Option<&Path>, anchors: Option<&Path>) -> Result<u8, Failure> {
    let text = fs::read_to_string(path).map_err(|e| unreadable(path, e))?;
    let anchors = anchors.map(read_anchors).transpose()?.unwrap_or_default();
    let mut walk = Walk::default();
    let mut problems = Vec::new();
    let whole = text.is_empty() || text.ends_with('\n');
    for line in text.lines() {
        if let Err(broken) = walk.step(line) {
            problems.push(broken.to_string());
            break;
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
    match problems.first() {
        None => {
            output::print(&format!(
                "{}: {} lines hold, up to number {}\n",
                path.display(),
                text.lines().count(),
                walk.head().seq
            ))?;
            Ok(exit_status::SUCCESS)
        }
        Some(problem) => {
            output::complain(&format!("cordon: {}: {problem}", path.display()));
            Ok(exit_status::FAILURE)
        }
    }
}

/// The head that the executor keeps: number and hash.
fn read_head(file: &Path) -> Result<Head, Failure> {
    let next = "read it as root; it is written anew when the executor starts";
    let failed = |cause: String| Failure::new(format!("reading the head {}", file.display()), cause, next);
    let text = fs::read_to_string(file).map_err(|e| failed(e.to_string()))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_400_007), "2000-02-29T00:00:00.007Z");
        assert_eq!(utc(1_796_013_904_000), "2026-11-30T04:45:04.000Z");
    }
}
