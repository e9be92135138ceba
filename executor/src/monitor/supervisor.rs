//! What systemd is told while the executor runs (sd_notify(3)). It is never waited for: a supervisor that does not
//! read must not keep the monitor from its deadlines.

use sd_notify::NotifyState;
use std::{
    ffi::OsStr,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

/// The configuration is being read anew; `ready` must follow.
pub(super) fn reloading() {
    let Ok(now) = NotifyState::monotonic_usec_now() else { return };
    tell(&[NotifyState::Reloading, now]);
}

/// It has been read, with this outcome, one line.
pub(super) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Both halves are alive.
pub(super) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Some(path) = std::env::var_os("NOTIFY_SOCKET") {
        let text: String = states.iter().map(|state| format!("{state}\n")).collect();
        // Nobody there, or no room: nothing depends on it.
        let _ = send(&path, text.as_bytes());
    }
}

fn send(path: &OsStr, message: &[u8]) -> std::io::Result<()> {
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(message, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_that_reads_hears_everything_and_one_that_does_not_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("cordon-supervisor-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), b"READY=1\n").unwrap();
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1\n");
        // As many as there is room for, and then one that would have to wait.
        let refused = (0..100_000).find_map(|_| send(path.as_os_str(), b"STATUS=x\n").err());
        assert_eq!(refused.map(|error| error.kind()), Some(std::io::ErrorKind::WouldBlock));
        drop(socket);
        assert!(send(path.as_os_str(), b"READY=1\n").is_err());
        std::fs::remove_file(path).unwrap();
    }
}
