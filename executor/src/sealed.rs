//! What is to be run, as it travels from the server to the command's own process in a sealed memfd.
//!
//! The monitor forwards it unread; it is decoded after lock-down, with no more rights than the command.

use cordon_protocol::codec::{FrameError, decode_payload, encode_payload};
use serde::{Deserialize, Serialize};

/// Arguments, environment and working directory of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedRequest {
    /// Program and arguments; for a shell line already `[shell, "-c", line]`.
    pub argv: Vec<String>,
    /// Entries beside the standard ones and the profile's.
    pub env: Vec<(String, String)>,
    /// Working directory; none is the workspace.
    pub cwd: Option<String>,
}

impl SealedRequest {
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
