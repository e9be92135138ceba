//! A client's socket: reads that try first, writes that wait, and a close that is seen under unread data.

use crate::sys::watched::watched;
use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, Shutdown, recv, send, shutdown},
};
use std::{
    convert::Infallible,
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    time::Duration,
};
use tokio::{
    io::{Interest, Ready, unix::AsyncFd},
    task::coop::consume_budget,
    time::timeout,
};

/// Most bytes of a client's that are thrown away so that it comes to read the last event.
const LINGER_BYTES: usize = 16 << 20;
/// Most time for that.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// How long a client may take nothing of the last event before it is given up.
const STALL_TIME: Duration = Duration::from_secs(30);

/// Bytes of the last event for each of which a client has that time.
const LAST_PIECE: usize = 256 << 10;
/// Lowest rate at which all of it may be taken, with that time beside, bytes a second.
const LAST_RATE: u32 = 64 << 10;

/// A connected client. Reading, writing and watching may be awaited at the same time.
#[derive(Debug)]
pub(super) struct Socket {
    stream: AsyncFd<OwnedFd>,
}

impl Socket {
    /// The client behind a descriptor that the monitor handed over.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { stream: watched(fd)? })
    }

    fn raw(&self) -> RawFd {
        self.stream.get_ref().as_raw_fd()
    }

    /// Reads what is there, 0 bytes at the end. Cancel safe.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // The call is tried before readiness is asked, so it must count itself against the task.
            consume_budget().await;
            match recv(self.raw(), buffer, MsgFlags::empty()) {
                Err(Errno::EAGAIN) => self.stream.readable().await?.clear_ready(),
                Err(Errno::EINTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Writes everything; waits while the client does not read. Not cancel safe.
    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            consume_budget().await;
            match send(self.raw(), bytes, MsgFlags::MSG_NOSIGNAL) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(Errno::EAGAIN) => self.stream.writable().await?.clear_ready(),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Waits until the client has closed its sending side, even where data is pending that nobody reads.
    ///
    /// Readability alone is no sign of it: it is taken back, which a later `read` does not mind because
    /// it tries first, until the kernel reports the end (EPOLLRDHUP, epoll_ctl(2)). Cancel safe.
    pub(super) async fn closed(&self) {
        loop {
            match self.stream.ready(Interest::READABLE).await {
                Ok(guard) if guard.ready().is_read_closed() => return,
                Ok(mut guard) => guard.clear_ready_matching(Ready::READABLE),
                // The runtime is ending, and the process with it.
                Err(_) => return,
            }
        }
    }

    /// As [`Self::write_all`], but gives up a client that takes nothing for [`STALL_TIME`], or too little at a time.
    async fn write_or_give_up(&self, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let most = STALL_TIME + Duration::from_secs(1) * length / LAST_RATE;
        let pieces = async {
            for piece in bytes.chunks(LAST_PIECE) {
                timeout(STALL_TIME, self.write_all(piece)).await.map_err(io::Error::from)??;
            }
            Ok(())
        };
        timeout(most, pieces).await.map_err(io::Error::from)?
    }

    /// Sends the last bytes and closes so that they arrive; `until_taken` is dropped when they are on their
    /// way, or the client is given up. Meanwhile what the client sends is thrown away:
    /// one that writes before it reads would otherwise wait for us while we wait for it, and closing a
    /// socket with unread data resets it (unix(7)).
    pub(super) async fn finish<T>(self, last: Vec<u8>, until_taken: T) {
        let for_ever = async {
            self.discard(usize::MAX).await;
            std::future::pending::<Infallible>().await
        };
        let written = tokio::select! {
            written = self.write_or_give_up(&last) => written,
            never = for_ever => match never {},
        };
        drop((last, until_taken));
        if written.is_ok() && shutdown(self.raw(), Shutdown::Write).is_ok() {
            // Whether the client was done in time or not, the socket closes now.
            let _ = timeout(LINGER_TIME, self.discard(LINGER_BYTES)).await;
        }
    }

    /// Reads and throws away until the end, an error or that many bytes.
    async fn discard(&self, mut left: usize) {
        let mut buffer = vec![0; 16 << 10];
        while left > 0 {
            match self.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(read) => left = left.saturating_sub(read),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        os::unix::net::UnixStream,
    };

    fn pair() -> (Socket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Socket::new(ours.into()).unwrap(), theirs)
    }

    #[tokio::test]
    async fn a_close_is_seen_under_unread_data() {
        let (socket, mut client) = pair();
        client.write_all(b"pending").unwrap();
        let early = timeout(Duration::from_millis(50), socket.closed()).await;
        assert!(early.is_err(), "open, with data pending");
        drop(client);
        timeout(Duration::from_secs(5), socket.closed()).await.unwrap();
        let mut buffer = [0; 16];
        assert_eq!(socket.read(&mut buffer).await.unwrap(), 7, "the data is still there");
    }

    #[tokio::test]
    async fn the_close_of_a_client_that_has_not_read_everything_is_seen() {
        let (socket, client) = pair();
        socket.write_all(b"unread").await.unwrap();
        drop(client);
        timeout(Duration::from_secs(5), socket.closed()).await.unwrap();
        let reset = socket.read(&mut [0; 16]).await.unwrap_err();
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn data_that_comes_after_watching_is_read() {
        let (socket, mut client) = pair();
        client.write_all(b"a").unwrap();
        assert!(timeout(Duration::from_millis(20), socket.closed()).await.is_err());
        let mut buffer = [0; 16];
        assert_eq!(socket.read(&mut buffer).await.unwrap(), 1);
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            client.write_all(b"bc").unwrap();
            client
        });
        assert_eq!(socket.read(&mut buffer).await.unwrap(), 2);
        drop(late.join().unwrap());
        assert_eq!(socket.read(&mut buffer).await.unwrap(), 0);
    }

    /// What a client gets of a last event that takes a piece of it after each pause.
    async fn taken(length: usize, pause: Duration) -> usize {
        let (socket, client) = pair();
        let client = Socket::new(client.into()).unwrap();
        let take = async {
            let (mut taken, mut buffer) = (0, vec![0; LAST_PIECE]);
            loop {
                tokio::time::sleep(pause).await;
                // All of a piece, so that its own time is enough.
                let mut left = LAST_PIECE;
                while left > 0 {
                    match client.read(&mut buffer[..left]).await {
                        Ok(0) | Err(_) => return taken,
                        Ok(read) => (taken, left) = (taken + read, left - read),
                    }
                }
            }
        };
        tokio::join!(socket.finish(vec![0; length], ()), take).1
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_the_last_event_in_drips_is_given_up() {
        let length = 8 << 20;
        assert!(taken(length, STALL_TIME - Duration::from_secs(5)).await < length);
        assert_eq!(taken(length, Duration::from_secs(1)).await, length);
    }

    #[tokio::test]
    async fn a_client_that_is_still_writing_reads_the_last_event() {
        let (socket, client) = pair();
        let mut writing = client.try_clone().unwrap();
        let writer = std::thread::spawn(move || writing.write_all(&vec![7; 4 << 20]).is_ok());
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            let mut client = client;
            std::thread::sleep(Duration::from_millis(30));
            client.read_to_string(&mut text).map(|_| text)
        });
        socket.finish(b"last".to_vec(), ()).await;
        assert_eq!(reader.join().unwrap().unwrap(), "last");
        assert!(writer.join().unwrap(), "everything was taken");
    }
}
