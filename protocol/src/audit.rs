//! The audit trail: one JSON line for each thing that happened ([`Entry`]), each with the hash of the one before.
//!
//! Every launch and every end of a command has a line, and every launch that is refused has one or is counted in one.
//! Who asked is the kernel's word, what happened the root half's; where a line has another's word, its entry says so.
//!
//! A line ends with `"hash"`, the SHA-256 of everything before that field, in which `"prev"` is the hash of
//! the line before. Changing, removing or reordering a line breaks the chain; cutting lines off the end is
//! seen from the head, which the executor keeps elsewhere and tells the journal.

mod older;
mod text;

pub use older::{older_number, older_path};
pub use text::{About, FileText, TEXT_MAX, Text, TextProblem, compare, line_hash, read_text_line, text_line};

use crate::{EndedBy, LimitName, ServiceUse};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Entry {
    /// The executor started.
    Started {
        /// Its version.
        version: String,
        /// The configuration that is in force.
        #[serde(flatten)]
        configuration: Configuration,
    },
    /// The configuration was to be read anew.
    Reloaded {
        /// It was taken over whole; otherwise what was in force before stays.
        taken_over: bool,
        /// The one that is in force from here on.
        #[serde(flatten)]
        configuration: Configuration,
    },
    /// A rotation removes older files: what is kept begins with this number.
    Dropped {
        /// Number of a line.
        before: u64,
    },
    /// A command was launched; written before anything of it runs.
    Launch {
        /// Number of the command, as in its report.
        job: String,
        /// Uid of the peer, from the kernel.
        uid: u32,
        /// Profile.
        profile: String,
        /// SHA-256 of the sealed request, hexadecimal.
        request: String,
        /// SHA-256 of the sealed files, hexadecimal; none where the request brought none.
        files: Option<String>,
        /// Named workspace of the peer.
        workspace: Option<String>,
        /// SHA-256 of the line with its readable text, hexadecimal; none where there was none yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Most time by the clock, milliseconds.
        wall_ms: u64,
        /// Most memory, bytes.
        memory_bytes: u64,
        /// Most processes.
        pids: u64,
    },
    /// A launch was refused; nothing ran.
    Refused {
        /// Uid of the peer, from the kernel; none where the connection was none.
        uid: Option<u32>,
        /// Number of the process that had connected, from the kernel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<i32>,
        /// Profile that was asked for.
        profile: String,
        /// Why.
        reason: String,
        /// Which half refused it, and so whose word profile and reason are.
        #[serde(default)]
        by: Half,
    },
    /// More launches of a peer were refused than there are lines for.
    AlsoRefused {
        /// Uid of the peer, from the kernel.
        uid: u32,
        /// How many, since the last line about one.
        count: u64,
    },
    /// A command ended.
    Ended {
        /// Number of the command.
        job: String,
        /// Cause recorded first.
        ended_by: EndedBy,
        /// Exit status.
        exit_code: Option<i32>,
        /// Number of the signal.
        signal: Option<i32>,
        /// Launch step that failed.
        step: Option<String>,
        /// Milliseconds by the clock.
        wall_ms: f64,
        /// Milliseconds of processor time.
        cpu_ms: f64,
        /// Limits that were reached.
        limits_hit: Vec<LimitName>,
    },
    /// How a command used the services of its profile, as the server half counted; written where it did.
    Services {
        /// Number of the command.
        job: String,
        /// Each service of the profile.
        services: Vec<ServiceUse>,
    },
    /// Connections of a command to a service that were refused.
    ServiceRefused {
        /// Number of the command.
        job: String,
        /// Port of the service.
        port: u32,
        /// There were too many at the same time.
        over_cap: u64,
        /// Nothing on the host took them.
        unreachable: u64,
    },
    /// What a command left is collected.
    Collected {
        /// Number of the command.
        job: String,
        /// SHA-256 of the sealed patterns, hexadecimal.
        request: String,
    },
    /// A peer's workspace was deleted.
    WorkspaceDeleted {
        /// Uid of the peer.
        uid: u32,
        /// Its name.
        workspace: String,
    },
    /// The executor ended in order.
    Stopped,
}

/// A configuration that is in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Path of the file.
    #[serde(default)]
    pub file: String,
    /// SHA-256 of the file's bytes, as they were read, hexadecimal.
    #[serde(default)]
    pub sha256: String,
}

/// A half of the executor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// The root half, which writes the trail.
    #[default]
    Monitor,
    /// The one without privilege, which reads what clients write.
    Server,
}

/// A line, without its hash.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Counts from 1.
    pub seq: u64,
    /// When, milliseconds since 1970 (UTC).
    pub time_ms: u64,
    /// What.
    #[serde(flatten)]
    pub entry: Entry,
    /// Hash of the line before; zeros for the first.
    pub prev: String,
}

/// Where the chain stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Number of the last line; 0 before the first.
    pub seq: u64,
    /// Its hash, hexadecimal.
    pub hash: String,
}

impl Default for Head {
    fn default() -> Self {
        Self { seq: 0, hash: "0".repeat(HASH_LEN) }
    }
}

/// Hexadecimal digits of a hash.
const HASH_LEN: usize = 64;

/// What is wrong with a trail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Not a line of a trail, or without its end.
    #[error("line {line}: not a whole audit line: it was cut off or overwritten")]
    Malformed {
        /// Counts from 1.
        line: u64,
    },
    /// The hash is not that of the text.
    #[error("line {line} (number {seq}): changed: its hash does not fit its text")]
    Changed {
        /// Counts from 1.
        line: u64,
        /// Its own number.
        seq: u64,
    },
    /// It does not follow the one before.
    #[error("line {line}: number {found} where {expected} was expected: a line is missing, doubled or moved")]
    OutOfOrder {
        /// Counts from 1.
        line: u64,
        /// Number that follows.
        expected: u64,
        /// Number that is there.
        found: u64,
    },
    /// Right number, wrong chain.
    #[error("line {line} (number {seq}): does not follow the line before it")]
    Unchained {
        /// Counts from 1.
        line: u64,
        /// Its own number.
        seq: u64,
    },
    /// The trail ends before, or otherwise than, its head says.
    #[error(
        "the trail ends with number {found}, its head is number {expected}: lines are cut off or replaced"
    )]
    CutOff {
        /// Last number that is there.
        found: u64,
        /// Number of the head.
        expected: u64,
    },
}

/// SHA-256, hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Digits of a digest.
pub fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().fold(String::with_capacity(HASH_LEN), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The text of the next line, its newline included, and the head after it.
///
/// # Errors
/// Never for the types above.
pub fn append(head: &Head, time_ms: u64, entry: Entry) -> serde_json::Result<(String, Head)> {
    let line = Line { seq: head.seq + 1, time_ms, entry, prev: head.hash.clone() };
    let body = serde_json::to_string(&line)?;
    let hash = sha256(body.as_bytes());
    let open = body.strip_suffix('}').unwrap_or(&body);
    Ok((format!("{open},\"hash\":\"{hash}\"}}\n"), Head { seq: line.seq, hash }))
}

/// Reads one line and checks its hash; `number` is its place in the file, for the error.
///
/// # Errors
/// `Malformed` or `Changed`.
pub fn read_line(text: &str, number: u64) -> Result<(Line, String), Broken> {
    let malformed = || Broken::Malformed { line: number };
    let (open, rest) = text.rsplit_once(",\"hash\":\"").ok_or_else(malformed)?;
    let hash = rest.strip_suffix("\"}").filter(|hash| hash.len() == HASH_LEN).ok_or_else(malformed)?;
    let body = format!("{open}}}");
    let line: Line = serde_json::from_str(&body).map_err(|_| malformed())?;
    if sha256(body.as_bytes()) != hash {
        return Err(Broken::Changed { line: number, seq: line.seq });
    }
    Ok((line, hash.to_owned()))
}

/// A walk along a trail, line by line.
#[derive(Debug, Default)]
pub struct Walk {
    head: Head,
    /// Lines of the file that is walked along now.
    lines: u64,
    begun: bool,
}

impl Walk {
    /// From here on lines are those of the next file, which goes on where the last one ended.
    pub fn begin_file(&mut self) {
        self.lines = 0;
    }

    /// The next line of the file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn step(&mut self, text: &str) -> Result<Line, Broken> {
        self.lines += 1;
        let number = self.lines;
        let (line, hash) = read_line(text, number)?;
        // A trail whose older lines were rotated away begins anywhere.
        let first = !std::mem::replace(&mut self.begun, true);
        if !first && line.seq != self.head.seq + 1 {
            return Err(Broken::OutOfOrder { line: number, expected: self.head.seq + 1, found: line.seq });
        }
        if !first && line.prev != self.head.hash {
            return Err(Broken::Unchained { line: number, seq: line.seq });
        }
        self.head = Head { seq: line.seq, hash };
        Ok(line)
    }

    /// Where the walk stands.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Compares the end of the trail with a head kept elsewhere.
    ///
    /// # Errors
    /// `CutOff`.
    pub fn finish(&self, kept: &Head) -> Result<(), Broken> {
        if self.head == *kept {
            return Ok(());
        }
        Err(Broken::CutOff { found: self.head.seq, expected: kept.seq })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trail() -> (Vec<String>, Head) {
        let mut head = Head::default();
        let mut lines = Vec::new();
        for n in 0..5 {
            let entry = Entry::Refused {
                uid: Some(n),
                pid: None,
                profile: "}\"p,\"hash\":\"".into(),
                reason: "r".into(),
                by: Half::Server,
            };
            let (text, next) = append(&head, 1000 + u64::from(n), entry).unwrap();
            lines.push(text.trim_end().to_owned());
            head = next;
        }
        (lines, head)
    }

    fn walk(lines: &[String], head: &Head) -> Result<(), Broken> {
        let mut walk = Walk::default();
        lines.iter().try_for_each(|line| walk.step(line).map(drop))?;
        walk.finish(head)
    }

    #[test]
    fn a_whole_trail_holds() {
        let (lines, head) = trail();
        assert_eq!(walk(&lines, &head), Ok(()));
        // Rotation takes lines from the front.
        assert_eq!(walk(&lines[2..], &head), Ok(()));
        // In the next file lines are counted anew, and the chain goes on.
        let mut walk = Walk::default();
        for file in [&lines[..2], &lines[3..]] {
            walk.begin_file();
            let walked = file.iter().try_for_each(|line| walk.step(line).map(drop));
            let missing = Err(Broken::OutOfOrder { line: 1, expected: 3, found: 4 });
            assert_eq!(walked, if file.len() == 2 && file[0] == lines[0] { Ok(()) } else { missing });
        }
    }

    #[test]
    fn every_change_is_found() {
        let (lines, head) = trail();
        let mut changed = lines.clone();
        changed[2] = changed[2].replace("\"uid\":2", "\"uid\":7");
        assert_eq!(walk(&changed, &head), Err(Broken::Changed { line: 3, seq: 3 }));
        let missing = [&lines[..2], &lines[3..]].concat();
        assert_eq!(walk(&missing, &head), Err(Broken::OutOfOrder { line: 3, expected: 3, found: 4 }));
        let mut moved = lines.clone();
        moved.swap(1, 2);
        assert!(matches!(walk(&moved, &head), Err(Broken::OutOfOrder { line: 2, .. })));
        let cut = &lines[..4];
        assert_eq!(walk(cut, &head), Err(Broken::CutOff { found: 4, expected: 5 }));
        let mut half = lines.clone();
        half[4].truncate(60);
        assert_eq!(walk(&half, &head), Err(Broken::Malformed { line: 5 }));
        // A line made anew with a hash of its own does not fit the next.
        let (forged, _) = append(&Head { seq: 2, hash: head.hash.clone() }, 5, Entry::Stopped).unwrap();
        let mut replaced = lines;
        replaced[2] = forged.trim_end().to_owned();
        assert_eq!(walk(&replaced, &head), Err(Broken::Unchained { line: 3, seq: 3 }));
    }
}
