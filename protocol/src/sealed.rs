//! What is to be run, as it travels to the command's own process in a sealed memory file, and as its hash stands in
//! the audit trail.
//!
//! Here, so that whoever checks a trail makes the same bytes from the readable text.

use crate::codec::{FrameError, decode_payload, encode_payload};
use serde::{Deserialize, Serialize};

/// What is to be done, in which environment and directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedRequest {
    /// A program, or an errand.
    pub work: Work,
    /// Entries beside the standard ones and the profile's.
    pub env: Vec<(String, String)>,
    /// Working directory; none is the workspace.
    pub cwd: Option<String>,
    /// Files that are put into the workspace first. Their content comes in a memory file of its own, one after the other
    /// in this order.
    pub files: Vec<FileHead>,
}

/// What is said of a file that a request brings, beside its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHead {
    /// Relative to the workspace.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
}

/// A program, or an errand for which the command's own process needs none. The order of the variants is part of
/// what the audit trail's fingerprint covers, their names are in its readable text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Program and arguments; for a shell line already `[shell, "-c", line]`.
    Program(Vec<String>),
    /// Standard input to a file of the workspace, with these permission bits.
    Write {
        /// Relative to the workspace.
        path: String,
        /// Permission bits.
        mode: u32,
    },
    /// A file of the workspace to standard output.
    Read {
        /// Relative to the workspace.
        path: String,
    },
    /// Bytes and number of files of the workspace to standard output.
    Measure,
    /// Nothing but the files that came along.
    Nothing,
    /// The files that match these patterns to standard output, as frames of [`crate::CollectedFile`].
    Collect(Vec<String>),
}

impl SealedRequest {
    /// What collects the files that match these patterns.
    pub fn collecting(patterns: Vec<String>) -> Self {
        Self::of(Work::Collect(patterns))
    }

    /// This work, with nothing beside it.
    pub fn of(work: Work) -> Self {
        Self { work, env: Vec::new(), cwd: None, files: Vec::new() }
    }

    /// The bytes for the memory file.
    ///
    /// # Errors
    /// When it is larger than a memory file may be.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        encode_payload(self)
    }

    /// The request in these bytes.
    ///
    /// # Errors
    /// When they are not exactly one.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        decode_payload(bytes)
    }
}
