//! What the executor sends: events of a command, or the answer to a question.

use crate::report::ExitReport;
use serde::{Deserialize, Serialize};

/// One frame from the executor. The order of the variants is part of the wire format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The command's program has been executed.
    Started {
        /// Unique name of this run.
        id: String,
    },
    /// A piece of standard output.
    Stdout(#[serde(with = "serde_bytes")] Vec<u8>),
    /// A piece of standard error.
    Stderr(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The last event of a command.
    Exited(Box<ExitReport>),
    /// The request was refused; the connection closes.
    Refused(Refusal),
    /// Answer to `Ps`.
    Jobs(Vec<JobInfo>),
    /// Answer to `Kill`.
    Killed {
        /// The command that was told to end.
        id: String,
    },
    /// Answer to `Profiles`.
    Profiles(Vec<ProfileInfo>),
    /// Answer to `Doctor`.
    Doctor(Vec<LayerReport>),
    /// A command waits for its turn; sent again whenever its position has changed.
    Queued {
        /// 1 is the next one of this peer and profile.
        position: u32,
    },
    /// A file that `collect` asked for, before `Exited`.
    File(CollectedFile),
    /// Answer to `Workspaces`, in the order of names.
    Workspaces(Vec<WorkspaceInfo>),
    /// Answer to `DeleteWorkspace`.
    WorkspaceDeleted {
        /// Its name.
        name: String,
    },
}

/// A file of the workspace after a command's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectedFile {
    /// Path relative to the workspace; the pattern, where `problem` says that nothing matched it; empty, where it says
    /// that not all could be collected.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Its size, bytes.
    pub size: u64,
    /// What is in it, as far as it fits ([`crate::limits::COLLECTED_FILE_MAX`]).
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
    /// There is more in it than `content` has.
    pub truncated: bool,
    /// Why there is no content.
    pub problem: Option<String>,
}

impl CollectedFile {
    /// The `problem` of a pattern that no file matches.
    pub const NO_MATCH: &str = "no file matches";
    /// The `problem` of a pattern that directories match, and no file.
    pub const ONLY_DIRECTORIES: &str =
        "only directories match; a pattern that ends in `/` stands for all that is in them";
    /// The `problem` of a pattern that ends in `/` where there is no file in the directories.
    pub const EMPTY: &str = "no file is in the directories that match";
}

/// A named workspace, as its own peer sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkspaceInfo {
    /// Its name.
    pub name: String,
    /// When a name in its top directory last changed, seconds since 1970.
    pub modified: u64,
}

/// A named workspace with what it takes: the same for the command line's `--json` and over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkspaceDetail {
    /// Its name.
    pub name: String,
    /// When a name in its top directory last changed, seconds since 1970.
    pub modified: u64,
    /// What it takes on the disk, bytes.
    pub bytes: u64,
    /// Files, directories and whatever else has a name of its own in it.
    pub files: u64,
    /// Directories closed to their owner (`chmod 300`): what is in them is not counted here, but against the limits.
    pub closed: u64,
}

impl WorkspaceDetail {
    /// The workspace with the answer to `Action::Measure`; none where that is none.
    pub fn measured(workspace: WorkspaceInfo, answer: &str) -> Option<Self> {
        let mut numbers = answer.strip_suffix('\n')?.split(' ').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let (bytes, files, closed) = (next()?, next()?, next()?);
        let none_more = numbers.next().is_none();
        none_more.then_some(Self { name: workspace.name, modified: workspace.modified, bytes, files, closed })
    }
}

/// Why nothing was run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people: what is wrong, naming field, value and limit.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Kinds of refusal. The order of the variants is part of the wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// A field is malformed.
    BadRequest,
    /// A frame is oversize, truncated or not understood.
    BadFrame,
    /// The peer speaks another version of the protocol.
    BadVersion,
    /// A frame came in a state in which it is not allowed.
    OutOfOrder,
    /// No profile of that name is there for this peer.
    UnknownProfile,
    /// A limit is above the profile's ceiling.
    LimitRefused,
    /// The peer may not use this executor.
    NotAllowed,
    /// No such command of this peer.
    NotFound,
    /// Too many at once; try again.
    Busy,
    /// The request did not arrive in time.
    Timeout,
    /// The executor is ending.
    ShuttingDown,
    /// Cordon's own failure.
    Internal,
}

impl RefusalCode {
    /// The name used in JSON (`bad_request` …).
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::BadFrame => "bad_frame",
            Self::BadVersion => "bad_version",
            Self::OutOfOrder => "out_of_order",
            Self::UnknownProfile => "unknown_profile",
            Self::LimitRefused => "limit_refused",
            Self::NotAllowed => "not_allowed",
            Self::NotFound => "not_found",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::ShuttingDown => "shutting_down",
            Self::Internal => "internal",
        }
    }
}

/// One running command, as its own peer sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Unique name of the run.
    pub id: String,
    /// Profile it runs under.
    pub profile: String,
    /// What was asked for, shortened for display.
    pub command: String,
    /// `queued`, `launching` or `running`.
    pub state: String,
    /// While it is queued: 1 is the next one of this peer and profile.
    pub position: Option<u32>,
    /// Time since the request, milliseconds.
    pub age_ms: u64,
}

/// A profile, as a peer that may use it sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileInfo {
    /// Name to ask for.
    pub name: String,
    /// Shell for `-c`.
    pub shell: String,
    /// `none`, `services` or `host`.
    pub network: String,
    /// Ports of the host's loopback interface that can be reached; empty but for `services`.
    pub services: Vec<u32>,
    /// Paths that may be read.
    pub read: Vec<String>,
    /// Paths that may be written, beside the workspace and /tmp.
    pub write: Vec<String>,
    /// Paths from which programs may be executed.
    pub execute: Vec<String>,
    /// Every limit with default and ceiling, in the order of the manual.
    pub limits: Vec<LimitInfo>,
    /// Commands of one peer that may run at once.
    pub concurrency: u32,
}

/// One limit of a profile, as text (`512M`, `60s`, `none`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitInfo {
    /// Name as in the configuration.
    pub name: String,
    /// Used when a request names none.
    pub default: String,
    /// Most that a request may ask for.
    pub ceiling: String,
}

/// What one layer's probe found on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerReport {
    /// Name of the layer (`cgroup`, `landlock` …).
    pub layer: String,
    /// Whether it holds.
    pub health: Health,
    /// What was tried and seen.
    pub detail: String,
    /// What to do where it does not hold.
    pub remedy: Option<String>,
}

/// Result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// The layer holds in full.
    Ok,
    /// A lesser form of it holds.
    Lesser,
    /// It does not hold.
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_is_three_numbers_and_nothing_else() {
        let workspace = || WorkspaceInfo { name: "w".into(), modified: 7 };
        let detail = WorkspaceDetail { name: "w".into(), modified: 7, bytes: 4096, files: 12, closed: 1 };
        assert_eq!(WorkspaceDetail::measured(workspace(), "4096 12 1\n"), Some(detail));
        for answer in
            ["", "\n", "4096\n", "4096 12\n", "4096 12 1", "4096 12 1 1\n", "-1 2 0\n", "a 2 0\n", "1  2 0\n"]
        {
            assert_eq!(WorkspaceDetail::measured(workspace(), answer), None, "{answer:?}");
        }
    }
}
