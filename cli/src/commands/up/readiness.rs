//! How a daemon says that it is ready: `READY=1` to the socket in `NOTIFY_SOCKET` (sd_notify(3)).

use super::{
    directory::{Directory, set_owner},
    events::{Event, Events},
};
use crate::failure::Failure;
use std::{os::unix::net::UnixDatagram, path::PathBuf};

/// Listens for the daemon of that name, which runs as `user` or as root; the path to tell it.
pub(super) fn listen(
    name: &'static str,
    user: Option<&str>,
    directory: &Directory,
    events: &Events,
) -> Result<PathBuf, Failure> {
    let path = directory.notify_socket(name);
    let what = format!("listening at {}", path.display());
    let failed = |e| Failure::new(&what, e, "choose another directory with --dir");
    let socket = UnixDatagram::bind(&path).map_err(failed)?;
    // Nobody else may say that it is ready.
    set_owner(&path, user, None, 0o600)?;
    events.feed("readiness", move |sender| {
        let mut message = [0; 4096];
        // To the end, so that what a daemon says later (STOPPING=1) has a reader too.
        while let Ok(length) = socket.recv(&mut message) {
            if says_ready(&message[..length]) {
                let _ = sender.send(Event::Ready(name));
            }
        }
    })?;
    Ok(path)
}

fn says_ready(message: &[u8]) -> bool {
    message.split(|b| *b == b'\n').any(|line| line == b"READY=1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_a_line_of_its_own() {
        assert!(says_ready(b"READY=1") && says_ready(b"STATUS=up\nREADY=1\n"));
        assert!(!says_ready(b"STATUS=READY=1") && !says_ready(b"READY=0") && !says_ready(b""));
    }
}
