//! Frames from a client, put together from whatever pieces the socket gives.

use super::{
    budget::{ALWAYS, Room, Share},
    socket::Socket,
};
use cordon_protocol::codec::{FrameError, HEADER_LEN, payload_length};

/// Room that is made before anything is known of a frame, bytes.
const READ_FIRST: usize = 4 << 10;
/// Room that is made at once for the rest of a frame, bytes.
const READ_MAX: usize = 64 << 10;

/// Bytes of unfinished frames of one connection. Memory grows with what arrives, not with what is
/// announced, and never beyond one frame at its limit and one read. A large frame is read when there is room for
/// it among those of all connections.
#[derive(Debug)]
pub(super) struct Frames {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that have arrived; the rest is room.
    filled: usize,
    limit: usize,
    /// What all connections share; none for what is bounded elsewhere.
    room: Option<Room>,
    /// Room for the frame that has begun, or the last one.
    share: Option<Share>,
    waits_for_room: bool,
}

impl Frames {
    /// No bytes yet; payloads over `limit` bytes are refused.
    pub(super) fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), filled: 0, limit, room: None, share: None, waits_for_room: false }
    }

    /// As [`Self::new`]; large ones wait for room.
    pub(super) fn within(limit: usize, room: Room) -> Self {
        Self { room: Some(room), ..Self::new(limit) }
    }

    /// Gives back the room of the last frame, whose content is not in memory any more.
    pub(super) fn release(&mut self) {
        self.share = None;
    }

    /// Whether there was no room yet for the frame that is awaited.
    pub(super) fn waits_for_room(&self) -> bool {
        self.waits_for_room
    }

    /// Another limit for the frames that follow.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The next payload; none when the client closed between frames. Cancel safe.
    ///
    /// # Errors
    /// `TooLarge`, `Truncated` and `Io`.
    pub(super) async fn next(&mut self, socket: &Socket) -> Result<Option<Vec<u8>>, FrameError> {
        loop {
            let room = match self.announced()? {
                Some(whole) if self.filled >= whole => return Ok(Some(self.take(whole))),
                Some(whole) => {
                    self.make_room(whole).await?;
                    (whole - self.filled).min(READ_MAX)
                }
                None => READ_FIRST,
            };
            self.buffer.resize(self.filled + room, 0);
            let read = socket.read(&mut self.buffer[self.filled..]).await?;
            if read == 0 {
                return if self.filled == 0 { Ok(None) } else { Err(FrameError::Truncated) };
            }
            self.filled += read;
        }
    }

    /// Waits until there is room for a frame of so many bytes.
    async fn make_room(&mut self, whole: usize) -> Result<(), FrameError> {
        let Some(room) = self.room.as_ref().filter(|_| whole > ALWAYS && self.share.is_none()) else {
            return Ok(());
        };
        self.waits_for_room = true;
        self.share = room.take(whole - ALWAYS).await;
        self.waits_for_room = false;
        let never = FrameError::TooLarge { length: whole, limit: self.limit };
        self.share.as_ref().map(|_| ()).ok_or(never)
    }

    /// Bytes of the frame that has begun, its header included; none before there is a header.
    fn announced(&self) -> Result<Option<usize>, FrameError> {
        let header = self.buffer[..self.filled].first_chunk::<HEADER_LEN>();
        header.map(|h| payload_length(*h, self.limit).map(|length| HEADER_LEN + length)).transpose()
    }

    /// Takes a frame of `whole` bytes off the front and gives its payload.
    fn take(&mut self, whole: usize) -> Vec<u8> {
        let payload = self.buffer[HEADER_LEN..whole].to_vec();
        self.buffer.truncate(self.filled);
        self.buffer.drain(..whole);
        self.filled -= whole;
        // A large request leaves no large buffer behind.
        self.buffer.shrink_to(READ_MAX);
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::{super::budget::Budget, *};
    use std::{io::Write, os::unix::net::UnixStream, time::Duration};

    fn room() -> Room {
        Budget::of_requests().of(1)
    }

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend(payload);
        bytes
    }

    #[tokio::test]
    async fn frames_come_out_whole_however_they_come_in() {
        let (ours, mut client) = UnixStream::pair().unwrap();
        let socket = Socket::new(ours.into()).unwrap();
        let mut frames = Frames::within(1 << 20, room());
        let large: Vec<u8> = (0..300_000u32).map(|i| i.to_le_bytes()[0]).collect();
        let mut bytes = frame(b"one");
        bytes.extend(frame(b""));
        bytes.extend(frame(&large));
        // Cancelled in the middle of header and payload, and taken up again.
        for piece in [&bytes[..2], &bytes[2..5]] {
            client.write_all(piece).unwrap();
            let early = tokio::time::timeout(Duration::from_millis(5), frames.next(&socket)).await;
            assert!(early.is_err());
        }
        let sender = std::thread::spawn(move || client.write_all(&bytes[5..]).unwrap());
        assert_eq!(frames.next(&socket).await.unwrap().unwrap(), b"one");
        assert_eq!(frames.next(&socket).await.unwrap().unwrap(), b"");
        assert!(frames.next(&socket).await.unwrap().unwrap() == large);
        assert!(frames.buffer.capacity() <= 2 * READ_MAX);
        assert!(frames.next(&socket).await.unwrap().is_none());
        sender.join().unwrap();
    }

    #[tokio::test]
    async fn an_announcement_over_the_limit_is_refused_before_it_arrives() {
        let (ours, mut client) = UnixStream::pair().unwrap();
        let socket = Socket::new(ours.into()).unwrap();
        client.write_all(&u32::MAX.to_le_bytes()).unwrap();
        let mut frames = Frames::within(100, room());
        assert!(matches!(frames.next(&socket).await, Err(FrameError::TooLarge { limit: 100, .. })));
        assert!(frames.buffer.len() <= READ_FIRST);
    }

    #[tokio::test]
    async fn an_end_inside_a_frame_is_truncated() {
        let (ours, mut client) = UnixStream::pair().unwrap();
        let socket = Socket::new(ours.into()).unwrap();
        client.write_all(&[5, 0, 0, 0, 1]).unwrap();
        drop(client);
        assert!(matches!(Frames::within(100, room()).next(&socket).await, Err(FrameError::Truncated)));
    }
}
