//! Frames: a little-endian u32 length, then that many bytes of bincode. The only file that knows bincode.
//!
//! The encoding is bincode's fixed-width little-endian one (`legacy`): integers at their width, lengths
//! as u64, enum variants as u32 in the order of declaration, options as one byte. A length is checked
//! against a limit before anything is allocated, and a payload must be consumed to its last byte.

use crate::units::counted;
use bincode::{
    config::{Config, legacy},
    error::{DecodeError, EncodeError},
};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, Read};

/// Bytes of a frame's length field.
pub const HEADER_LEN: usize = 4;
/// No single value may claim more than this; frames are bounded before by their own, smaller limits.
const DECODE_LIMIT: usize = 64 << 20;

fn config() -> impl Config {
    legacy().with_limit::<DECODE_LIMIT>()
}

/// A frame that breaks the rules.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Announced more than is allowed.
    #[error("frame of {length} bytes is over the limit of {limit} bytes")]
    TooLarge {
        /// Announced length, bytes.
        length: usize,
        /// Most that is allowed, bytes.
        limit: usize,
    },
    /// Ended inside a frame.
    #[error("connection ended inside a frame")]
    Truncated,
    /// Not a value of the expected type, or with bytes left over.
    #[error("frame not understood: {0}")]
    Malformed(String),
    /// The transport failed.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
}

/// The value as a payload, without its length.
///
/// # Errors
/// `Malformed` when the value cannot be encoded, which only a value over the decode limit can cause.
pub fn encode_payload<T: Serialize>(value: &T) -> Result<Vec<u8>, FrameError> {
    bincode::serde::encode_to_vec(value, config()).map_err(not_encoded)
}

/// The value as a whole frame.
///
/// # Errors
/// `TooLarge` when the payload is over `limit` bytes.
pub fn encode_frame<T: Serialize>(value: &T, limit: usize) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; HEADER_LEN];
    bincode::serde::encode_into_std_write(value, &mut frame, config()).map_err(not_encoded)?;
    let length = frame.len() - HEADER_LEN;
    let header = u32::try_from(length).ok().filter(|_| length <= limit);
    let header = header.ok_or(FrameError::TooLarge { length, limit })?;
    frame[..HEADER_LEN].copy_from_slice(&header.to_le_bytes());
    Ok(frame)
}

/// The value in a payload, which must be consumed whole.
///
/// # Errors
/// `Malformed` when it is not a `T`, or longer than one.
pub fn decode_payload<T: DeserializeOwned>(payload: &[u8]) -> Result<T, FrameError> {
    let (value, used) = bincode::serde::decode_from_slice(payload, config()).map_err(not_decoded)?;
    if used == payload.len() {
        Ok(value)
    } else {
        Err(FrameError::Malformed(format!("{} left over", counted(payload.len() - used, "byte"))))
    }
}

/// What the decoder says, in words: it shows its own values.
fn not_decoded(error: DecodeError) -> FrameError {
    FrameError::Malformed(match error {
        DecodeError::UnexpectedEnd { .. } => "it ends before its last field".to_owned(),
        DecodeError::LimitExceeded => format!("a length in it is over the limit of {DECODE_LIMIT} bytes"),
        DecodeError::Utf8 { inner } => format!("a text in it is not UTF-8: {inner}"),
        DecodeError::InvalidBooleanValue(found) => format!("a boolean in it is {found}, not 0 or 1"),
        DecodeError::UnexpectedVariant { found, .. } => {
            format!("a field of it says that {found} is there, where 0 is nothing and 1 a value")
        }
        DecodeError::OutsideUsizeRange(length) => {
            format!("a length in it is {length}, which nothing can have")
        }
        DecodeError::Other(text) => text.to_owned(),
        DecodeError::OtherString(text) => text,
        _ => "it is not of the type that is expected".to_owned(),
    })
}

/// As [`not_decoded`].
fn not_encoded(error: EncodeError) -> FrameError {
    FrameError::Malformed(match error {
        EncodeError::Other(text) => text.to_owned(),
        EncodeError::OtherString(text) => text,
        EncodeError::Io { inner, .. } => inner.to_string(),
        _ => "the value cannot be encoded".to_owned(),
    })
}

/// The length announced by a frame's header, checked against `limit`.
///
/// # Errors
/// `TooLarge` when it is over `limit` bytes.
pub fn payload_length(header: [u8; HEADER_LEN], limit: usize) -> Result<usize, FrameError> {
    let length = usize::try_from(u32::from_le_bytes(header)).unwrap_or(usize::MAX);
    if length <= limit { Ok(length) } else { Err(FrameError::TooLarge { length, limit }) }
}

/// Reads one frame; none when the stream ended between frames.
///
/// # Errors
/// As [`FrameError`] says.
pub fn read_frame<T: DeserializeOwned>(
    reader: &mut impl Read,
    limit: usize,
) -> Result<Option<T>, FrameError> {
    let mut header = [0; HEADER_LEN];
    let mut filled = 0;
    while filled < HEADER_LEN {
        match reader.read(&mut header[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(FrameError::Truncated),
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    let mut payload = vec![0; payload_length(header, limit)?];
    reader.read_exact(&mut payload).map_err(truncated)?;
    decode_payload(&payload).map(Some)
}

/// An early end inside a frame, told apart from other failures.
fn truncated(error: io::Error) -> FrameError {
    if error.kind() == io::ErrorKind::UnexpectedEof { FrameError::Truncated } else { error.into() }
}

/// Reads one frame from a tokio stream; none when the stream ended between frames. Not cancel safe.
///
/// # Errors
/// As [`FrameError`] says.
#[cfg(feature = "tokio")]
pub async fn read_frame_async<T: DeserializeOwned>(
    reader: &mut (impl tokio::io::AsyncRead + Unpin),
    limit: usize,
) -> Result<Option<T>, FrameError> {
    let Some(length) = read_length_async(reader, limit).await? else { return Ok(None) };
    read_payload_async(reader, length).await.map(Some)
}

/// Reads the length of a frame's payload, which is to be read next; none when the stream ended between frames. Not
/// cancel safe.
///
/// # Errors
/// As [`FrameError`] says.
#[cfg(feature = "tokio")]
pub async fn read_length_async(
    reader: &mut (impl tokio::io::AsyncRead + Unpin),
    limit: usize,
) -> Result<Option<usize>, FrameError> {
    use tokio::io::AsyncReadExt;
    let mut header = [0; HEADER_LEN];
    let first = reader.read(&mut header).await?;
    if first == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut header[first..]).await.map_err(truncated)?;
    payload_length(header, limit).map(Some)
}

/// Reads a payload of that length. Not cancel safe.
///
/// # Errors
/// As [`FrameError`] says.
#[cfg(feature = "tokio")]
pub async fn read_payload_async<T: DeserializeOwned>(
    reader: &mut (impl tokio::io::AsyncRead + Unpin),
    length: usize,
) -> Result<T, FrameError> {
    use tokio::io::AsyncReadExt;
    let mut payload = vec![0; length];
    reader.read_exact(&mut payload).await.map_err(truncated)?;
    decode_payload(&payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Event, FileIn, Hello, Request, RunRequest, limits};
    use proptest::prelude::*;

    fn run() -> Request {
        let argv = Action::Argv(vec!["echo".into(), "a b".into()]);
        Request::Run(Box::new(RunRequest {
            env: vec![("A".into(), "1".into())],
            stream: true,
            files: vec![FileIn { path: "a".into(), content: vec![1, 2], mode: Some(0o600) }],
            ..RunRequest::new(argv)
        }))
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let hello = Request::Hello(Hello { version: 1, client: "x".into() });
        let frame = encode_frame(&hello, limits::REQUEST_FRAME_MAX).unwrap();
        assert_eq!(frame, [17, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, b'x']);
        let frame = encode_frame(&Event::Stdout(b"hi".to_vec()), limits::EVENT_FRAME_MAX).unwrap();
        assert_eq!(frame, [14, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, b'h', b'i']);
    }

    #[test]
    fn frames_round_trip_and_every_shorter_one_is_truncated() {
        let frame = encode_frame(&run(), limits::REQUEST_FRAME_MAX).unwrap();
        let read = |bytes: &[u8]| read_frame::<Request>(&mut &bytes[..], limits::REQUEST_FRAME_MAX);
        assert_eq!(read(&frame).unwrap(), Some(run()));
        assert!(read(&[]).unwrap().is_none());
        for end in 1..frame.len() {
            assert!(matches!(read(&frame[..end]), Err(FrameError::Truncated)), "{end}");
        }
    }

    #[test]
    fn oversize_is_refused_before_allocation_and_leftovers_are_refused() {
        let announced = u32::MAX.to_le_bytes();
        let read = read_frame::<Request>(&mut &announced[..], limits::REQUEST_FRAME_MAX);
        assert!(matches!(read, Err(FrameError::TooLarge { .. })));
        let mut payload = encode_payload(&Request::Ps).unwrap();
        payload.push(0);
        assert!(matches!(decode_payload::<Request>(&payload), Err(FrameError::Malformed(_))));
        // A string that claims 2^60 bytes must not be believed.
        let mut bomb = vec![0, 0, 0, 0, 1, 0, 0, 0];
        bomb.extend((1u64 << 60).to_le_bytes());
        assert!(matches!(decode_payload::<Request>(&bomb), Err(FrameError::Malformed(_))));
    }

    #[test]
    fn what_is_not_understood_is_told_in_words() {
        let payload = encode_payload(&run()).unwrap();
        let said = |payload: &[u8]| decode_payload::<Request>(payload).unwrap_err().to_string();
        let changed = |at: usize, to: u8| {
            let mut payload = payload.clone();
            payload[at] = to;
            said(&payload)
        };
        let at = payload.windows(4).position(|bytes| bytes == b"echo").unwrap();
        // After the variant's number: whether there is a profile.
        for (said, expected) in [
            (said(&payload[..9]), "it ends before its last field"),
            (said(&[9; 4]), "invalid value: integer `151587081`, expected variant index 0 <= i < 10"),
            (changed(at, 0xff), "a text in it is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0"),
            (changed(4, 7), "a field of it says that 7 is there, where 0 is nothing and 1 a value"),
            (changed(at - 1, 1), "a length in it is over the limit of 67108864 bytes"),
            (said(&[&payload[..], &[0]].concat()), "1 byte left over"),
        ] {
            assert_eq!(said, format!("frame not understood: {expected}"));
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = decode_payload::<Request>(&bytes);
            let _ = decode_payload::<Event>(&bytes);
        }
    }
}
