//! Standard input, output and error as bare descriptors: no buffer, no lock, and patience with
//! descriptors that somebody else made non-blocking.

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::{read, write},
};
use std::{io, os::fd::AsFd};

/// Reads what is there, at most a buffer full; waits until something is. 0 is the end.
pub(crate) fn read_some(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match read(&fd, buffer) {
            Ok(n) => return Ok(n),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => wait(&fd, PollFlags::POLLIN)?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes all of it; waits while nobody reads.
pub(crate) fn write_all(fd: impl AsFd, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        match write(&fd, data) {
            Ok(n) => data = &data[n..],
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => wait(&fd, PollFlags::POLLOUT)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait(fd: impl AsFd, what: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::new(fd.as_fd(), what)], PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::net::UnixStream, thread, time::Duration};

    #[test]
    fn a_non_blocking_descriptor_is_waited_for() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let sent: Vec<u8> = (0..1_000_000u32).map(|i| i.to_le_bytes()[0]).collect();
        let expected = sent.clone();
        let reader = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            let mut got = Vec::new();
            let mut buffer = [0; 4096];
            while got.len() < expected.len() {
                let n = read_some(&theirs, &mut buffer).unwrap();
                got.extend_from_slice(&buffer[..n]);
            }
            assert!(got == expected);
            write_all(&theirs, b"done").unwrap();
        });
        write_all(&ours, &sent).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(read_some(&ours, &mut buffer).unwrap(), 4);
        reader.join().unwrap();
        assert_eq!(read_some(&ours, &mut buffer).unwrap(), 0);
    }
}
