//! The audit trail: one JSON line for each thing that happened ([`Entry`]), each with the hash of the one before.
//!
//! Every launch has a line, every end of a command and every launch that is refused has one or is counted in one.
//! Who asked is the kernel's word, what happened the root half's; where a line has another's word, its entry says so.
//!
//! A line ends with `"hash"`, the SHA-256 of everything before that field, in which `"prev"` is the hash of
//! the line before. Changing, removing or reordering a line breaks the chain; cutting lines off the end is
//! seen from the head, which the executor keeps elsewhere and tells the journal.

mod older;
mod text;
mod walk;

pub use older::{older_number, older_path};
pub use text::{
    About, TEXT_MAX, Text, TextProblem, begun_line, compare, line_hash, read_text_line, text_line,
};
pub use walk::{Broken, Walk};

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
    /// The first line of a trail that goes on after one that is not there any more: it was moved away, or removed. What
    /// it followed is the line before, as the head says; lines between that and the older files are missing.
    BegunAnew {
        /// Number with which the older files end; none where there is none that holds.
        found: Option<u64>,
    },
    /// The host went down without a clean end, and not all that was written may have reached the disk. Written by the
    /// next start, before anything else of it.
    Lost {
        /// Up to this number trail and texts were on the disk. Launches after it may be without their text.
        after: u64,
        /// The trail went on behind this number.
        found: u64,
        /// Up to this number there were lines, as far as the head knew: those after `found` are lost, their numbers are
        /// given again.
        known: u64,
    },
    /// A rotation removes older files: what is kept begins with this number.
    Dropped {
        /// Number of a line.
        before: u64,
    },
    /// A rotation removes older texts: those that are kept begin with that of this command.
    TextsDropped {
        /// Number of a command.
        before: String,
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
        /// SHA-256 of the content of the files that the request names, one after the other, hexadecimal; none where it
        /// brought none.
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
        /// Uid of the peer, from the kernel; none where the connections were none.
        uid: Option<u32>,
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
    /// Lines before this one that could not be written, as when the disk was full: of ends of commands, of what they used
    /// and the like. No launch is among them, nor a refusal, which is counted by its peer.
    Unwritten {
        /// How many.
        count: u64,
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
