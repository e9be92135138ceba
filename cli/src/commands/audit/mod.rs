//! `cordon audit`: shows the executor's audit trail with the text of each command, and checks both.

pub(super) mod files;
mod losses;
mod tail;
mod texts;
mod verify;

use crate::{exit_status, failure::Failure, output};
use cordon_protocol::{
    Bytes,
    audit::{About, Configuration, Entry, Half, Line, Text, read_line, read_text_line},
    counted, limits,
    sealed::Work,
};
use jiff::Timestamp;
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
};
use tail::{Changes, Tail};

const EXAMPLES: &str = "\
Examples:
  sudo cordon audit show
  sudo cordon audit show --follow --json | jq 'select(.event == \"refused\")'
  sudo cordon audit verify
  sudo cordon audit verify --anchors LOG     LOG holds what the executor logged (`-` is standard input)
  sudo cordon audit verify --partial --file audit.jsonl.3 --texts commands.jsonl.3

Both files are for root alone: the texts are what every user has run, with arguments, environment (values of --env, and so \
any secret given there), working directory and names of files.";

const STATUS: &str = "\
Exit status: 0 when all is as it was written, 1 when something is wrong. 3 when nothing is wrong, and some texts could \
not be compared, each of which is named: the text of a request that is longer than 64K is cut, of a user with many long \
ones the beginning alone is kept, and what is older than the trail, or was written when the host went down, has no launch \
there; of launches whose text went with the host, as the trail says (`lost`), it is the number. Of files that came along, path, \
size and permissions are compared; of their content the trail has one hash, `files` in the line of the launch, which \
`cat FILE… | sha256sum` gives of the same files in the same order. The executor may run meanwhile.";

/// Which trail, and what to do with it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// The trail [default: audit.jsonl beside the socket, else /var/log/cordon/audit.jsonl]
    #[arg(long, global = true, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The texts of the commands [default: commands.jsonl beside the trail]
    #[arg(long, global = true, value_name = "FILE")]
    texts: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Print the trail, one line each, and below a launch the text of its command
    #[command(after_help = EXAMPLES)]
    Show {
        /// Go on with what is added, also in the file that follows one that is moved away
        #[arg(long)]
        follow: bool,
        /// Print the lines as they are
        #[arg(long)]
        json: bool,
    },
    /// Check that no line was changed, taken out, moved or cut off, and that what ran is what the texts say; 1
    /// when not, 3 when not all could be compared
    #[command(after_help = format!("{EXAMPLES}\n\n{STATUS}"))]
    Verify {
        /// Where the executor keeps the head [default: where `cordon up` and the package put it]
        #[arg(long, value_name = "FILE")]
        head: Option<PathBuf>,
        /// Lines of the executor's log, whose `audit head` lines the trail must agree with; `-` is
        /// standard input
        #[arg(long, value_name = "FILE")]
        anchors: Option<PathBuf>,
        /// Check a part of a trail, whose older or newer files are elsewhere: it may begin anywhere, and its end is
        /// compared with a head that is named, and no other
        #[arg(long)]
        partial: bool,
    },
}

/// Name of the file with the texts, beside the trail.
const TEXTS: &str = "commands.jsonl";

/// Shows or checks the trail.
pub(crate) fn execute(args: &Args, socket: &Path) -> Result<u8, Failure> {
    let beside = socket.with_file_name("audit.jsonl");
    let default = || if beside.exists() { beside.clone() } else { PathBuf::from(limits::AUDIT_FILE) };
    let path = args.file.clone().unwrap_or_else(default);
    let texts = args.texts.clone().unwrap_or_else(|| path.with_file_name(TEXTS));
    match &args.action {
        Action::Show { follow, json } => show(&path, &texts, *follow, *json),
        Action::Verify { head, anchors, partial } => verify::execute(&verify::Check {
            trail: &path,
            texts: &texts,
            head: head.as_deref(),
            anchors: anchors.as_deref(),
            partial: *partial,
        }),
    }
}

fn unreadable(path: &Path, error: io::Error) -> Failure {
    let what = format!("reading the audit trail {}", path.display());
    if error.kind() == io::ErrorKind::PermissionDenied {
        let cause = "only root may read it: it has what every user has run, values of --env included";
        return Failure::new(
            what,
            cause,
            "read it as root: `sudo cordon audit`, with the same words after it",
        );
    }
    Failure::new(what, error, "see where the executor writes it (`audit`); name another with --file")
}

fn show(path: &Path, texts: &Path, follow: bool, json: bool) -> Result<u8, Failure> {
    // Before the first look, so that nothing is missed between one and the wait for more.
    let changes = if follow { Some(Changes::beside(path).map_err(|e| unreadable(path, e))?) } else { None };
    let mut trail = Tail::open(path).map_err(|e| unreadable(path, e))?;
    let mut texts = Texts::open(texts);
    let mut number = 0;
    loop {
        while let Some(line) = trail.next().map_err(|e| unreadable(path, e))? {
            number += 1;
            let read = read_line(&line, number);
            let text = match &read {
                Ok((Line { entry: Entry::Launch { job, text: Some(_), .. }, .. }, _)) => texts.of(job)?,
                _ => None,
            };
            let shown = match (json, read) {
                (true, _) => line,
                (false, Ok((line, _))) => description(&line),
                (false, Err(broken)) => format!("!! {broken}"),
            };
            let text = text.map(|text| if json { text } else { format!("         {}", text_of(&text)) });
            for line in [shown].into_iter().chain(text) {
                output::print(&format!("{}\n", output::visible(&line)))?;
            }
        }
        match &changes {
            None => return Ok(exit_status::SUCCESS),
            Some(changes) => changes.wait().map_err(|e| unreadable(path, e))?,
        }
    }
}

/// The texts beside a trail, as far as they have been read.
struct Texts {
    path: PathBuf,
    tail: Option<Tail>,
    /// By the number of their command.
    read: HashMap<String, String>,
}

impl Texts {
    fn open(path: &Path) -> Self {
        Self { path: path.to_owned(), tail: None, read: HashMap::new() }
    }

    /// The line with the text of this command, which is written before its launch.
    fn of(&mut self, job: &str) -> Result<Option<String>, Failure> {
        if self.tail.is_none() {
            self.tail = Tail::open(&self.path).ok();
        }
        while let (false, Some(tail)) = (self.read.contains_key(job), &mut self.tail) {
            let Some(line) = tail.next().map_err(|e| unreadable(&self.path, e))? else { break };
            if let Some((about, _)) = read_text_line(&line) {
                self.read.insert(about.job, line);
            }
        }
        Ok(self.read.remove(job))
    }
}

/// A text for people, on one line.
fn text_of(line: &str) -> String {
    let read = read_text_line(line);
    if let Some((About { begun: true, .. }, text)) = &read {
        return serde_json::from_str(text).unwrap_or_else(|_| (*text).to_owned()) + " … (cut)";
    }
    let text = read.and_then(|(_, text)| serde_json::from_str::<Text>(text).ok());
    let Some(text) = text else { return "!! its text is not one".to_owned() };
    let mut shown = match &text.work {
        Work::Program(argv) => argv.iter().map(|argument| quoted(argument)).collect::<Vec<_>>().join(" "),
        Work::Write { path, mode } => format!("(write {} {mode:o})", quoted(path)),
        Work::Read { path } => format!("(read {})", quoted(path)),
        Work::Measure => "(measure)".to_owned(),
        Work::Nothing => "(files)".to_owned(),
        Work::Collect(patterns) => format!("(collect {})", patterns.join(" ")),
    };
    for (name, value) in &text.env {
        shown.push_str(&format!(" env {}", quoted(&format!("{name}={value}"))));
    }
    if let Some(cwd) = &text.cwd {
        shown.push_str(&format!(" cwd {}", quoted(cwd)));
    }
    for file in &text.files {
        shown.push_str(&format!(" file {} ({}, {:o})", quoted(&file.path), Bytes(file.size), file.mode));
    }
    for pattern in &text.collect {
        shown.push_str(&format!(" collect {}", quoted(pattern)));
    }
    if text.cut { shown + " … (cut)" } else { shown }
}

/// As a shell would need it.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Whose connection it was; `?` where it was none.
fn name_of(uid: Option<u32>) -> String {
    uid.map_or_else(|| "?".to_owned(), |uid| uid.to_string())
}

/// One line for people; times are UTC.
fn description(line: &Line) -> String {
    let what = match &line.entry {
        Entry::Started { version, configuration } => {
            format!("executor {version} started{}", configuration_of(configuration))
        }
        Entry::Reloaded { taken_over: true, configuration } => {
            format!("configuration read anew{}", configuration_of(configuration))
        }
        Entry::Reloaded { taken_over: false, configuration } => {
            format!("configuration refused, as before{}", configuration_of(configuration))
        }
        Entry::BegunAnew { found: Some(last) } => {
            format!("begun anew: what was here is gone, older files end with {last}")
        }
        Entry::BegunAnew { found: None } => "begun anew: what was here is gone".to_owned(),
        Entry::Lost { after, found, known } => {
            let texts = match found {
                found if found > after => format!("texts of numbers {} to {found} may be missing", after + 1),
                _ => "no text of what is there is missing".to_owned(),
            };
            let lost = if known > found {
                format!(", numbers {} to {known} are lost", found + 1)
            } else {
                String::new()
            };
            format!("the host went down: {texts}{lost}")
        }
        Entry::Dropped { before } => format!("rotation: lines before {before} are removed"),
        Entry::TextsDropped { before } => format!("rotation: texts before that of {before} are removed"),
        Entry::Launch { job, uid, profile, request, workspace, .. } => {
            let workspace = workspace.as_ref().map(|name| format!(" workspace {name}")).unwrap_or_default();
            let request = request.get(..12).unwrap_or(request);
            format!("launch  {job} uid {uid} profile {profile}{workspace} request {request}")
        }
        Entry::Collected { job, .. } => format!("collect {job}"),
        Entry::WorkspaceDeleted { uid, workspace } => format!("deleted uid {uid} workspace {workspace}"),
        Entry::Services { job, services } => {
            let used = services.iter().map(|used| format!(" {}: {}", used.port, used.connections));
            format!("served  {job}{}", used.collect::<String>())
        }
        Entry::ServiceRefused { job, port, over_cap, unreachable } => {
            format!("refused {job} port {port}: {over_cap} too many at once, {unreachable} unreachable")
        }
        Entry::Refused { uid, pid, profile, reason, by } => {
            let uid = name_of(*uid);
            let pid = pid.map(|pid| format!(" pid {pid}")).unwrap_or_default();
            let by = if *by == Half::Server { ", as the server half says" } else { "" };
            format!("refused uid {uid}{pid} profile {profile}: {reason}{by}")
        }
        Entry::AlsoRefused { uid, count } => format!("refused uid {}: {count} more", name_of(*uid)),
        Entry::Unwritten { count } => format!("{} could not be written", counted(*count, "line")),
        Entry::Ended { job, ended_by, exit_code, signal, step, wall_ms, .. } => {
            let how = serde_json::to_value(ended_by).ok();
            let how = how.as_ref().and_then(|v| v.as_str()).unwrap_or("?").to_owned();
            let code = exit_code.map(|code| format!(" status {code}")).unwrap_or_default();
            let signal = signal.map(|signal| format!(" signal {signal}")).unwrap_or_default();
            let step = step.as_ref().map(|step| format!(" in step {step}")).unwrap_or_default();
            format!("ended   {job} by {how}{code}{signal}{step} after {wall_ms} ms")
        }
        Entry::Stopped => "executor stopped".to_owned(),
    };
    format!("{:>6} {} {what}", line.seq, utc(line.time_ms))
}

/// Which configuration is in force; lines of older versions do not say.
fn configuration_of(configuration: &Configuration) -> String {
    let Configuration { file, sha256 } = configuration;
    if file.is_empty() { String::new() } else { format!(" with {file} sha256 {sha256}") }
}

/// `2026-11-30T04:05:06.007Z`.
fn utc(time_ms: u64) -> String {
    let time = i64::try_from(time_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| format!("{time_ms} ms"), |time| format!("{time:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_for_people() {
        let line = r#"{"job":"1","uid":0,"request":"r","text":{"work":{"program":["/bin/bash","-c","echo 'a'; b"]},"env":[["A","x y"]],"cwd":"/tmp","workspace":null,"files":[{"path":"f","size":1024,"mode":420}],"collect":["*.o"],"cut":true}}"#;
        let shown =
            "/bin/bash -c 'echo '\\''a'\\''; b' env 'A=x y' cwd /tmp file f (1K, 644) collect '*.o' … (cut)";
        assert_eq!(text_of(line), shown);
        assert_eq!(text_of("{}"), "!! its text is not one");
    }

    /// What has ends of lines of its own is wrapped once more by a narrower terminal, after each of them.
    #[test]
    fn the_exit_status_is_one_paragraph_for_the_terminal_to_wrap() {
        assert!(!STATUS.contains('\n'));
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc(951_782_400_007), "2000-02-29T00:00:00.007Z");
        assert_eq!(utc(1_796_013_904_000), "2026-11-30T04:45:04.000Z");
    }
}
