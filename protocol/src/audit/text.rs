//! The readable text of a launch, beside the trail: one JSON line for each, in a file of its own.
//!
//! The executor's unprivileged half writes what was asked for; number, user and the hash of the request that was
//! sealed stand around it in the monitor's own words, and the trail has the hash of the whole line. So a line that
//! was changed later is found by that, and a text that said something else than what ran by the request's.

use super::{Entry, sha256};
use crate::sealed::{FileHead, SealedRequest, Work};
use serde::{Deserialize, Serialize};

/// Longest text, bytes; what is longer is cut.
pub const TEXT_MAX: usize = 64 << 10;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    /// The program with its arguments, or the errand.
    pub work: Work,
    /// Environment entries of the request, name and value.
    pub env: Vec<(String, String)>,
    /// Working directory; none is the workspace.
    pub cwd: Option<String>,
    /// Named workspace; none is a private one.
    pub workspace: Option<String>,
    /// Files that the request brought.
    pub files: Vec<FileHead>,
    /// Patterns of what is collected in the end.
    pub collect: Vec<String>,
    /// There was more than a text may have; what is here cannot be compared with what ran. Believed only of a text
    /// that has no room for more ([`compare`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// What stands around a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// Number of the command, as in the trail.
    pub job: String,
    /// Uid of the peer, from the kernel.
    pub uid: u32,
    /// SHA-256 of the sealed request, hexadecimal.
    pub request: String,
    /// The peer had too many long texts: only the beginning of this one is kept, as a string.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begun: bool,
}

/// Between both.
const BETWEEN: &str = ",\"text\":";

/// The line for a text, its newline included.
///
/// # Errors
/// Never for the types above.
pub fn text_line(about: &About, text: &str) -> serde_json::Result<String> {
    let body = serde_json::to_string(about)?;
    Ok(format!("{}{BETWEEN}{text}}}\n", body.strip_suffix('}').unwrap_or(&body)))
}

/// The line for a text of which only this beginning is kept, its newline included.
///
/// # Errors
/// Never for the types above.
pub fn begun_line(about: &About, beginning: &str) -> serde_json::Result<String> {
    text_line(&About { begun: true, ..about.clone() }, &serde_json::to_string(beginning)?)
}

/// The hash of a line, without its newline, as it stands in the trail.
pub fn line_hash(line: &str) -> String {
    sha256(line.strip_suffix('\n').unwrap_or(line).as_bytes())
}

/// What stands around the text of a line, and the text; none when it is no such line.
pub fn read_text_line(line: &str) -> Option<(About, &str)> {
    let (about, text) = line.split_once(BETWEEN)?;
    let about = serde_json::from_str(&format!("{about}}}")).ok()?;
    Some((about, text.strip_suffix('}')?))
}

/// How a text stands to the trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextProblem {
    /// The trail names another hash.
    #[error("its text was changed")]
    Changed,
    /// No text in the form of one.
    #[error("its text is not one")]
    Malformed,
    /// The request's hash is not that of what the text says.
    #[error("what ran was not what its text says")]
    OtherRequest,
    /// Workspace, files or patterns are not those of the trail.
    #[error("its text differs in workspace, files or patterns")]
    OtherFiles,
    /// It says that it was cut, and has room for more.
    #[error("its text says that it was cut, and is too short for that: it hides what ran")]
    CutWithoutNeed,
}

/// Compares the line of a text with its launch in the trail. True when it was compared whole; false for one that was
/// cut because it was too long. Of what ran there is but the hash of the whole, with which no part can be compared: such
/// a text is unproven, not good.
///
/// # Errors
/// What differs.
pub fn compare(line: &str, launch: &Entry, collected: Option<&str>) -> Result<bool, TextProblem> {
    let Entry::Launch { job, uid, request, files, workspace, text: Some(hash), .. } = launch else {
        return Err(TextProblem::Malformed);
    };
    if line_hash(line) != *hash {
        return Err(TextProblem::Changed);
    }
    let (about, text) = read_text_line(line).ok_or(TextProblem::Malformed)?;
    if about.job != *job || about.uid != *uid || about.request != *request {
        return Err(TextProblem::Changed);
    }
    if about.begun {
        return Ok(false);
    }
    let text: Text = serde_json::from_str(text).map_err(|_| TextProblem::Malformed)?;
    if text.workspace != *workspace || text.files.is_empty() == files.is_some() {
        return Err(TextProblem::OtherFiles);
    }
    if text.cut {
        return if text.is_full() { Ok(false) } else { Err(TextProblem::CutWithoutNeed) };
    }
    let hash = |sealed: SealedRequest| sealed.encode().map(|bytes| sha256(&bytes)).ok();
    if let Some(collected) = collected
        && hash(SealedRequest::collecting(text.collect)).as_deref() != Some(collected)
    {
        return Err(TextProblem::OtherFiles);
    }
    let Text { work, env, cwd, files, .. } = text;
    let sealed = SealedRequest { work, env, cwd, files };
    if hash(sealed).as_ref() == Some(request) { Ok(true) } else { Err(TextProblem::OtherRequest) }
}

impl Text {
    /// The text in JSON, cut where it is longer than [`TEXT_MAX`].
    ///
    /// # Errors
    /// Never for the types above.
    pub fn to_json(&self) -> serde_json::Result<String> {
        let whole = serde_json::to_string(self)?;
        if whole.len() <= TEXT_MAX { Ok(whole) } else { serde_json::to_string(&self.shortened()) }
    }

    /// As much of it as there is room for, in the order in which it is written.
    fn shortened(&self) -> Self {
        self.fitted().0
    }

    /// Whether it takes all the room there is, as one does that was cut.
    fn is_full(&self) -> bool {
        let (again, left) = self.fitted();
        again == *self && left < ENTRY
    }

    /// What fits, and the bytes that are left.
    fn fitted(&self) -> (Self, usize) {
        let mut room = Room(TEXT_MAX - FRAME);
        // Short, and compared also where the rest is not whole.
        let (workspace, cwd) = (self.workspace.clone(), self.cwd.as_ref().map(|cwd| room.text(cwd)));
        let first = self.files.first().map(|file| room.file(file));
        let work = match &self.work {
            Work::Program(argv) => Work::Program(room.texts(argv)),
            Work::Write { path, mode } => Work::Write { path: room.text(path), mode: *mode },
            Work::Read { path } => Work::Read { path: room.text(path) },
            Work::Measure => Work::Measure,
            Work::Nothing => Work::Nothing,
            Work::Collect(patterns) => Work::Collect(room.texts(patterns)),
        };
        let env = room.all(&self.env, |room, (name, value)| (room.text(name), room.text(value)));
        let rest = self.files.get(1..).unwrap_or_default();
        let files = first.into_iter().chain(room.all(rest, Room::file)).collect();
        let collect = room.texts(&self.collect);
        (Self { work, env, cwd, workspace, files, collect, cut: true }, room.0)
    }
}

/// Bytes for what is not counted: names of fields, the workspace, the last entry of each list.
const FRAME: usize = 2 << 10;
/// Bytes of an entry beside its text: quotes, commas, brackets, numbers.
const ENTRY: usize = 64;

/// Bytes that are left, as JSON writes them.
struct Room(usize);

impl Room {
    fn text(&mut self, text: &str) -> String {
        self.0 = self.0.saturating_sub(ENTRY);
        let mut shown = String::new();
        for c in text.chars() {
            let cost = match c {
                '"' | '\\' => 2,
                c if c.is_ascii_control() => 6,
                c => c.len_utf8(),
            };
            let Some(left) = self.0.checked_sub(cost) else {
                self.0 = 0;
                break;
            };
            self.0 = left;
            shown.push(c);
        }
        shown
    }

    /// As many of them as there is room for.
    fn all<T, S>(&mut self, of: &[T], show: impl Fn(&mut Self, &T) -> S) -> Vec<S> {
        let mut shown = Vec::new();
        for one in of {
            if self.0 == 0 {
                break;
            }
            shown.push(show(self, one));
        }
        shown
    }

    fn texts(&mut self, texts: &[String]) -> Vec<String> {
        self.all(texts, |room, text| room.text(text))
    }

    fn file(&mut self, file: &FileHead) -> FileHead {
        FileHead { path: self.text(&file.path), ..*file }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Text {
        Text {
            work: Work::Program(vec!["/bin/bash".into(), "-c".into(), "echo \"a\" ,\"text\":{}".into()]),
            env: vec![("A".into(), "ü\n".into())],
            cwd: Some("/tmp".into()),
            workspace: Some("w".into()),
            files: vec![FileHead { path: "a".into(), size: 1, mode: 0o644 }],
            collect: vec!["*.o".into()],
            cut: false,
        }
    }

    /// The line and the launch of it.
    fn recorded(text: &Text) -> (String, Entry) {
        let Text { work, env, cwd, files, .. } = text.clone();
        let sealed = SealedRequest { work, env, cwd, files };
        let request = sha256(&sealed.encode().unwrap());
        let about = About { job: "j".into(), uid: 7, request: request.clone(), begun: false };
        let line = text_line(&about, &text.to_json().unwrap()).unwrap();
        let launch = Entry::Launch {
            job: "j".into(),
            uid: 7,
            profile: "p".into(),
            request,
            files: Some(String::new()),
            workspace: Some("w".into()),
            text: Some(line_hash(&line)),
            wall_ms: 1,
            memory_bytes: 1,
            pids: 1,
        };
        (line.trim_end().to_owned(), launch)
    }

    #[test]
    fn what_ran_is_what_the_text_says_and_anything_else_is_found() {
        let (line, launch) = recorded(&text());
        let patterns = sha256(&SealedRequest::collecting(vec!["*.o".into()]).encode().unwrap());
        assert_eq!(compare(&line, &launch, Some(&patterns)), Ok(true));
        assert_eq!(compare(&line, &launch, Some("other")), Err(TextProblem::OtherFiles));
        assert_eq!(compare(&line.replace("/tmp", "/etc"), &launch, None), Err(TextProblem::Changed));
        // One that was written so: its own hash fits, that of the request does not.
        let changed = |change: fn(&mut Text)| {
            let mut other = text();
            change(&mut other);
            let (_, truth) = recorded(&text());
            let Entry::Launch { request, .. } = &truth else { panic!() };
            let about = About { job: "j".into(), uid: 7, request: request.clone(), begun: false };
            let lie = text_line(&about, &other.to_json().unwrap()).unwrap();
            let hash = line_hash(&lie);
            let mut launch = truth.clone();
            if let Entry::Launch { text, .. } = &mut launch {
                *text = Some(hash);
            }
            compare(lie.trim_end(), &launch, None)
        };
        assert_eq!(changed(|t| t.work = Work::Program(vec!["x".into()])), Err(TextProblem::OtherRequest));
        assert_eq!(changed(|t| t.env.clear()), Err(TextProblem::OtherRequest));
        assert_eq!(changed(|t| t.cwd = None), Err(TextProblem::OtherRequest));
        assert_eq!(changed(|t| t.workspace = None), Err(TextProblem::OtherFiles));
        assert_eq!(changed(|t| t.files.clear()), Err(TextProblem::OtherFiles));
        assert_eq!(changed(|t| t.files[0].path = "b".into()), Err(TextProblem::OtherRequest));
        assert_eq!(changed(|t| t.files[0].size = 2), Err(TextProblem::OtherRequest));
        assert_eq!(changed(|t| t.files[0].mode = 0o755), Err(TextProblem::OtherRequest));
        assert_eq!(changed(|t| t.files.push(t.files[0].clone())), Err(TextProblem::OtherRequest));
        assert_eq!(changed(|_| {}), Ok(true));
    }

    #[test]
    fn of_a_beginning_only_the_monitor_s_word_makes_a_text() {
        let (whole, launch) = recorded(&text());
        let (about, json) = read_text_line(&whole).unwrap();
        let launched = |line: &str| {
            let mut launch = launch.clone();
            if let Entry::Launch { text, .. } = &mut launch {
                *text = Some(line_hash(line));
            }
            compare(line.trim_end(), &launch, None)
        };
        let begun = begun_line(&about, &json[..20]).unwrap();
        assert_eq!(launched(&begun), Ok(false));
        // A server that says so itself, in any place.
        let beginning = serde_json::to_string(&json[..20]).unwrap();
        for lie in [beginning, format!("{},\"begun\":true}}", json.strip_suffix('}').unwrap())] {
            let line = text_line(&about, &lie).unwrap();
            assert_ne!(launched(&line), Ok(false), "{line}");
        }
        assert_eq!(launched(&text_line(&about, json).unwrap()), Ok(true));
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        for filler in ["a", "\u{1}", "\"", "ä", "𝄞"] {
            let mut long = text();
            long.work = Work::Program(vec![filler.repeat(30_000); 3]);
            long.env = vec![(filler.repeat(100), filler.repeat(100)); 500];
            long.files = vec![FileHead { path: filler.repeat(200), size: u64::MAX, mode: 0o777 }; 256];
            long.collect = vec![filler.repeat(100); 64];
            let json = long.to_json().unwrap();
            assert!(json.len() <= TEXT_MAX && json.len() > TEXT_MAX / 2, "{filler}: {}", json.len());
            let read: Text = serde_json::from_str(&json).unwrap();
            assert!(read.cut && !read.files.is_empty());
            assert!(read.is_full(), "{filler}");
            let Work::Program(argv) = read.work else { panic!() };
            assert!(argv[0].starts_with(filler));
        }
        let argv = vec!["/bin/echo".into(), "x".repeat(2 * TEXT_MAX)];
        let (line, mut launch) = recorded(&Text { work: Work::Program(argv), ..text() });
        assert_eq!(compare(&line, &launch, None), Ok(false));
        if let Entry::Launch { workspace, .. } = &mut launch {
            *workspace = None;
        }
        assert_eq!(compare(&line, &launch, None), Err(TextProblem::OtherFiles));
    }

    #[test]
    fn a_text_is_cut_only_where_it_is_full() {
        // Whatever it is that was too long, and in entries however short.
        let many = |text: &str| vec![text.to_owned(); 40_000];
        let pair = ("a".to_owned(), "b".to_owned());
        let file = FileHead { path: "f".into(), size: 1, mode: 0 };
        for long in [
            Text { work: Work::Program(many("a")), ..text() },
            Text { work: Work::Program(vec!["\n".repeat(100_000)]), ..text() },
            Text { work: Work::Read { path: "ä".repeat(50_000) }, ..text() },
            Text { env: vec![pair; 20_000], ..text() },
            Text { files: vec![file; 5_000], ..text() },
            Text { collect: many(""), ..text() },
            Text { cwd: Some("\\".repeat(90_000)), ..text() },
        ] {
            let (line, launch) = recorded(&long);
            assert!(line.len() < TEXT_MAX + 512, "{}", line.len());
            assert_eq!(compare(&line, &launch, None), Ok(false), "{}", line.len());
        }
        // One that says so of itself, and has room.
        for short in ["true", &"x".repeat(TEXT_MAX / 2)] {
            let work = Work::Program(vec![short.to_owned()]);
            let (line, launch) = recorded(&Text { work, cut: true, ..text() });
            assert_eq!(compare(&line, &launch, None), Err(TextProblem::CutWithoutNeed), "{}", line.len());
        }
    }
}
