//! What is to be run, as it travels from the server to the command's own process in sealed memfds: the request,
//! and the files it brings.
//!
//! The monitor forwards both unread; they are decoded after lock-down, with no more rights than the command.

use cordon_protocol::{
    FileIn,
    codec::{FrameError, decode_payload, encode_payload},
};

pub use cordon_protocol::sealed::{SealedRequest, Work};

/// The bytes of a memory file with these files.
///
/// # Errors
/// When they are larger than a memory file may be.
pub fn encode_files(files: &[FileIn]) -> Result<Vec<u8>, FrameError> {
    encode_payload(&files)
}

/// The files in these bytes.
///
/// # Errors
/// When they are not exactly such a list.
pub fn decode_files(bytes: &[u8]) -> Result<Vec<FileIn>, FrameError> {
    decode_payload(bytes)
}
