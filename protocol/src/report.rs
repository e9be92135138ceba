//! The exit report: the same fields on the socket, in the CLI's `--json` and over HTTP.

use crate::response::CollectedFile;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};
use std::fmt;

/// How a command ended and what held while it ran.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExitReport {
    /// Unique name of the run.
    pub id: String,
    /// What was recorded first as the cause of the end.
    pub ended_by: EndedBy,
    /// Exit status where the command exited; 126 or 127 where it could not be executed.
    pub exit_code: Option<i32>,
    /// Name of the signal that ended the command's first process (`SIGTERM`).
    pub signal: Option<String>,
    /// On `launch_failed` the launch step that failed.
    pub step: Option<String>,
    /// Captured standard output; none where it was streamed.
    pub stdout: Option<String>,
    /// Captured standard error; none where it was streamed.
    pub stderr: Option<String>,
    /// How `stdout` is to be read.
    pub stdout_encoding: Encoding,
    /// How `stderr` is to be read.
    pub stderr_encoding: Encoding,
    /// Bytes of standard output produced.
    pub stdout_bytes: u64,
    /// Bytes of standard error produced.
    pub stderr_bytes: u64,
    /// More than `capture` was produced: head and tail are kept.
    pub stdout_truncated: bool,
    /// More than `capture` was produced: head and tail are kept.
    pub stderr_truncated: bool,
    /// Time by the clock from the word to start to the end, milliseconds.
    pub wall_ms: f64,
    /// Processor time of the whole tree, milliseconds.
    pub cpu_ms: f64,
    /// Highest memory of the whole tree, bytes; none where unknown.
    pub peak_memory_bytes: Option<u64>,
    /// Limits that were reached, each from a kernel counter or the executor's own clock. `file_size` is told of the
    /// command's first process alone (SIGXFSZ ended it): the kernel counts nothing of others.
    pub limits_hit: Vec<LimitName>,
    /// What held while the command ran.
    pub enforced: Enforced,
    /// How the services of the profile were used; empty where there are none, or where they are reached without being
    /// relayed (`enforced.network` is not `services`). In JSON the field is only there with something in it.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub services: Vec<ServiceUse>,
    /// What probably stood in the way, and what to change.
    pub hint: Option<Hint>,
}

/// In JSON `services` is there only where the profile names some; on the wire every field is.
impl Serialize for ExitReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let services = !serializer.is_human_readable() || !self.services.is_empty();
        let mut fields = serializer.serialize_struct("ExitReport", 19 + usize::from(services))?;
        fields.serialize_field("id", &self.id)?;
        fields.serialize_field("ended_by", &self.ended_by)?;
        fields.serialize_field("exit_code", &self.exit_code)?;
        fields.serialize_field("signal", &self.signal)?;
        fields.serialize_field("step", &self.step)?;
        fields.serialize_field("stdout", &self.stdout)?;
        fields.serialize_field("stderr", &self.stderr)?;
        fields.serialize_field("stdout_encoding", &self.stdout_encoding)?;
        fields.serialize_field("stderr_encoding", &self.stderr_encoding)?;
        fields.serialize_field("stdout_bytes", &self.stdout_bytes)?;
        fields.serialize_field("stderr_bytes", &self.stderr_bytes)?;
        fields.serialize_field("stdout_truncated", &self.stdout_truncated)?;
        fields.serialize_field("stderr_truncated", &self.stderr_truncated)?;
        fields.serialize_field("wall_ms", &self.wall_ms)?;
        fields.serialize_field("cpu_ms", &self.cpu_ms)?;
        fields.serialize_field("peak_memory_bytes", &self.peak_memory_bytes)?;
        fields.serialize_field("limits_hit", &self.limits_hit)?;
        fields.serialize_field("enforced", &self.enforced)?;
        if services {
            fields.serialize_field("services", &self.services)?;
        }
        fields.serialize_field("hint", &self.hint)?;
        fields.end()
    }
}

/// A report with what was collected: what the command line's `--json` and HTTP give.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FullReport {
    /// The report.
    #[serde(flatten)]
    pub report: ExitReport,
    /// Files that `collect` asked for; absent where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collected: Option<Vec<Collected>>,
}

/// A collected file for people and programs that read JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Collected {
    /// Path relative to the workspace; the pattern, where nothing matched it; empty, where not all could be collected.
    pub path: String,
    /// Permission bits in octal, as `chmod` takes them.
    #[cfg_attr(feature = "openapi", schema(example = "0644"))]
    pub mode: String,
    /// Its size, bytes.
    pub size: u64,
    /// What is in it, as far as it fits; none where `problem` says why, or where it was written to a file.
    pub content: Option<String>,
    /// How `content` is to be read.
    pub encoding: Encoding,
    /// There is more in it than `content` has.
    pub truncated: bool,
    /// Why there is no content.
    pub problem: Option<String>,
}

impl From<CollectedFile> for Collected {
    fn from(file: CollectedFile) -> Self {
        let captured = Captured::from_bytes(file.content);
        Self {
            path: file.path,
            mode: format!("{:04o}", file.mode),
            size: file.size,
            content: file.problem.is_none().then_some(captured.text),
            encoding: captured.encoding,
            truncated: file.truncated,
            problem: file.problem,
        }
    }
}

/// Causes of an end. The order of the variants is part of the wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// It exited.
    Exit,
    /// A signal that Cordon did not send.
    Signal,
    /// Time by the clock.
    WallTimeout,
    /// Processor time.
    CpuTimeout,
    /// Memory.
    OutOfMemory,
    /// Output of both streams.
    OutputLimit,
    /// Space or files in the workspace.
    DiskLimit,
    /// The client went away, or asked.
    Cancelled,
    /// A launch step failed; nothing of the command ran.
    LaunchFailed,
}

/// As in JSON.
impl fmt::Display for EndedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::WallTimeout => "wall_timeout",
            Self::CpuTimeout => "cpu_timeout",
            Self::OutOfMemory => "out_of_memory",
            Self::OutputLimit => "output_limit",
            Self::DiskLimit => "disk_limit",
            Self::Cancelled => "cancelled",
            Self::LaunchFailed => "launch_failed",
        })
    }
}

/// Limits by their names in `limits_hit`. The order of the variants is part of the wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum LimitName {
    /// Memory.
    Memory,
    /// Processes and threads.
    Pids,
    /// Processor time.
    CpuTime,
    /// Time by the clock.
    Wall,
    /// Output.
    Output,
    /// Workspace.
    Disk,
    /// Size of one file.
    FileSize,
}

/// What held while a command ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Enforced {
    /// Real, effective and saved uid of the command.
    pub uid: u32,
    /// How memory, processes and time were bounded.
    pub cgroup: CgroupMode,
    /// Landlock ABI in force; 0 is none.
    pub landlock_abi: u32,
    /// The system-call filter was loaded.
    pub seccomp: bool,
    /// Namespaces of the command's own.
    pub namespaces: Vec<NamespaceName>,
    /// What of the network was reachable.
    pub network: NetworkMode,
    /// Capabilities left in any set, by name; normally empty.
    pub capabilities: Vec<String>,
}

/// How a command used a service of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ServiceUse {
    /// Port on the loopback interface.
    pub port: u32,
    /// Connections that were relayed.
    pub connections: u64,
    /// Connections that were closed at once: too many at the same time, or nothing listens on the host.
    pub refused: u64,
}

/// How a command's tree is bounded. The order of the variants is part of the wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CgroupMode {
    /// cgroup v2 with memory, pids and cpu.
    V2,
    /// cgroup v2 for tracking and ending, limits by sampling.
    Sampled,
    /// No cgroup v2: process tracking, limits by sampling.
    None,
}

/// As in JSON.
impl fmt::Display for CgroupMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V2 => "v2",
            Self::Sampled => "sampled",
            Self::None => "none",
        })
    }
}

/// Namespaces. The order of the variants is part of the wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum NamespaceName {
    Pid,
    Mount,
    Ipc,
    Uts,
    Net,
}

/// What of the network a profile lets a command reach. The order of the variants is part of the wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum NetworkMode {
    /// Its own loopback only.
    None,
    /// Named loopback ports of the host.
    Services,
    /// The host's network.
    Host,
}

/// How a captured stream is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Encoding {
    /// Text as it was.
    #[serde(rename = "utf-8")]
    Utf8,
    /// The captured bytes are not valid UTF-8.
    #[serde(rename = "base64")]
    Base64,
}

/// What stood in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hint {
    /// The layer that refused.
    pub layer: String,
    /// What it refused.
    pub what: String,
    /// What to change.
    pub remedy: String,
}

/// A stream's captured bytes in the form the report carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Text, or base64.
    pub text: String,
    /// Which of the two.
    pub encoding: Encoding,
}

impl Captured {
    /// Text where the bytes are valid UTF-8, base64 where not.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self { text, encoding: Encoding::Utf8 },
            Err(error) => Self { text: STANDARD.encode(error.as_bytes()), encoding: Encoding::Base64 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_the_words_of_the_report() {
        use EndedBy as E;
        for ended_by in [
            E::Exit,
            E::Signal,
            E::WallTimeout,
            E::CpuTimeout,
            E::OutOfMemory,
            E::OutputLimit,
            E::DiskLimit,
            E::Cancelled,
            E::LaunchFailed,
        ] {
            assert_eq!(serde_json::to_value(ended_by).unwrap(), ended_by.to_string());
        }
        for mode in [CgroupMode::V2, CgroupMode::Sampled, CgroupMode::None] {
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.to_string());
        }
    }
}
