//! What a client sends: a hello, then one command or one question.

use serde::{Deserialize, Serialize};

/// One frame from a client. The order of the variants is part of the wire format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Always the first frame.
    Hello(Hello),
    /// Run a command; the connection carries its events until the report.
    Run(Box<RunRequest>),
    /// A piece of standard input (at most [`crate::limits::CHUNK_MAX`] bytes), after `Run` with `stdin`.
    Stdin(#[serde(with = "serde_bytes")] Vec<u8>),
    /// End of standard input.
    StdinEnd,
    /// The peer's own commands: answered by `Jobs`.
    Ps,
    /// End one of the peer's own commands: answered by `Killed`.
    Kill {
        /// The command's `id`, as in its `Started` event.
        id: String,
    },
    /// The profiles that the peer may use: answered by `Profiles`.
    Profiles,
    /// What this host enforces: answered by `Doctor`.
    Doctor,
    /// The peer's own workspaces: answered by `Workspaces`.
    Workspaces,
    /// Delete one of the peer's own workspaces, which no command may be using: answered by `WorkspaceDeleted`.
    DeleteWorkspace {
        /// Its name.
        name: String,
    },
}

/// Who speaks, and in which version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::limits::PROTOCOL_VERSION`] of the client.
    pub version: u32,
    /// Name and version of the client's program, for the log.
    pub client: String,
}

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// Profile; none is [`crate::limits::DEFAULT_PROFILE`].
    pub profile: Option<String>,
    /// What to run.
    pub action: Action,
    /// Working directory inside the sandbox; none is the workspace.
    pub cwd: Option<String>,
    /// Environment entries beside the profile's, name and value.
    pub env: Vec<(String, String)>,
    /// True when `Stdin` frames and a `StdinEnd` follow; otherwise standard input is `/dev/null`.
    pub stdin: bool,
    /// True: output comes as events and the report has none. False: the report holds it, no events.
    pub stream: bool,
    /// Limits that differ from the profile's defaults.
    pub limits: LimitRequest,
    /// Named workspace (see [`crate::limits::is_workspace_name`]); none is a private one that goes with the
    /// command.
    pub workspace: Option<String>,
    /// Files to be there before the command starts, at most [`crate::limits::FILES_MAX`].
    pub files: Vec<FileIn>,
    /// Patterns (`*`, `?`, `[a-z]`, `**`), relative to the workspace, of the files that are sent after the
    /// command's end as `File` events.
    pub collect: Vec<String>,
}

impl RunRequest {
    /// This action under the default profile, its output in the report.
    pub fn new(action: Action) -> Self {
        Self {
            profile: None,
            action,
            cwd: None,
            env: Vec::new(),
            stdin: false,
            stream: false,
            limits: LimitRequest::default(),
            workspace: None,
            files: Vec::new(),
            collect: Vec::new(),
        }
    }
}

/// A file that is put into the workspace before the command starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIn {
    /// Path relative to the workspace, without `..`; missing directories are made.
    pub path: String,
    /// What is to be in it; a file that is there is replaced.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
    /// Permission bits; none is 0644.
    pub mode: Option<u32>,
}

/// What is to be run: a program with its arguments, a line for the profile's shell, or a small errand in the
/// workspace for which no program is needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Program and arguments, no shell between.
    Argv(Vec<String>),
    /// One line for the shell (`bash -c LINE`).
    Line(String),
    /// Write standard input to a file of the workspace.
    Write {
        /// Path relative to the workspace.
        path: String,
        /// Permission bits; none is 0644.
        mode: Option<u32>,
    },
    /// Write a file of the workspace to standard output.
    Read {
        /// Path relative to the workspace.
        path: String,
    },
    /// Write the workspace's size to standard output: bytes and number of files and directories, in decimal, with
    /// a space between.
    Measure,
    /// Nothing but `files` and `collect`.
    Nothing,
}

/// Limits a request asks for; none is the profile's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRequest {
    /// Time by the clock, milliseconds.
    pub wall_ms: Option<u64>,
    /// Processor time of all processes together, milliseconds.
    pub cpu_time_ms: Option<u64>,
    /// Memory of all processes together, bytes.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Processor share, percent of one processor.
    pub cpu_percent: Option<u64>,
    /// Output of both streams together after which the command is ended, bytes.
    pub output_bytes: Option<u64>,
    /// Output kept in the report, per stream, bytes.
    pub capture_bytes: Option<u64>,
}
