//! The executor's socket byte by byte, for what no client of ours would send.

use super::stretched;
use cordon_protocol::{
    Event, Hello, Refusal, Request,
    codec::{FrameError, encode_frame, read_frame},
    limits,
};
use std::{io::Write, os::unix::net::UnixStream, path::Path, time::Duration};

/// A connection on which nothing has been said.
pub(crate) struct Wire {
    /// The socket itself.
    pub(crate) stream: UnixStream,
}

impl Wire {
    /// Connects; waits at most half a minute for any answer.
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        let patience = Some(stretched(Duration::from_secs(30)));
        stream.set_read_timeout(patience).unwrap();
        stream.set_write_timeout(patience).unwrap();
        Self { stream }
    }

    /// Connects and says hello.
    pub(crate) fn greeted(socket: &Path) -> Self {
        let mut wire = Self::connect(socket);
        wire.send(&hello(limits::PROTOCOL_VERSION));
        wire
    }

    /// Sends a frame. A connection that was closed meanwhile is no failure: the answer tells.
    pub(crate) fn send(&mut self, request: &Request) {
        let frame = encode_frame(request, 64 << 20).unwrap();
        self.send_bytes(&frame);
    }

    /// Sends bytes, as [`Wire::send`] does.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The next event; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Event>, FrameError> {
        read_frame(&mut self.stream, limits::EVENT_FRAME_MAX)
    }

    /// The refusal that must come next, after which the connection ends.
    pub(crate) fn refusal(&mut self) -> Refusal {
        let refusal = match self.next() {
            Ok(Some(Event::Refused(refusal))) => refusal,
            other => panic!("not refused: {other:?}"),
        };
        let end = self.next();
        let reset = matches!(&end, Err(FrameError::Io(e)) if e.kind() == std::io::ErrorKind::ConnectionReset);
        assert!(matches!(end, Ok(None)) || reset, "the connection goes on: {end:?}");
        refusal
    }
}

/// A hello of this version.
pub(crate) fn hello(version: u32) -> Request {
    Request::Hello(Hello { version, client: "test".to_owned() })
}

/// The bytes of a frame with this payload.
pub(crate) fn frame(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    [&length.to_le_bytes(), payload].concat()
}
