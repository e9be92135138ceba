//! Our standard input on its way to the command.

use crate::{failure::Failure, stdio};
use cordon_protocol::{
    client::blocking::{Canceller, Stdin},
    limits::CHUNK_MAX,
};
use std::{
    io,
    sync::{Arc, OnceLock},
    thread,
};

/// Starts a thread that reads standard input and sends it on, as fast as the command takes it.
///
/// The thread is never waited for: it may sit in a read of a terminal when the command has long ended,
/// and the process ends around it. When reading fails, the command is ended and `failed` is set: going
/// on with part of the input would look like success.
pub(super) fn pass_on(
    mut input: Stdin,
    canceller: Arc<Canceller>,
    failed: Arc<OnceLock<io::Error>>,
) -> Result<(), Failure> {
    let body = move || {
        let mut buffer = vec![0; CHUNK_MAX];
        loop {
            match stdio::read_some(io::stdin(), &mut buffer) {
                // A send that fails means that the command has ended; the main thread hears why.
                Ok(0) => return drop(input.end()),
                Ok(n) => match input.send(&buffer[..n]) {
                    Ok(()) => {}
                    Err(_) => return,
                },
                Err(error) => {
                    let _ = failed.set(error);
                    return canceller.cancel();
                }
            }
        }
    };
    let started = thread::Builder::new().name("stdin".into()).spawn(body);
    let next = "end other programs, or raise the limit on processes (ulimit -u)";
    started.map(drop).map_err(|error| Failure::new("starting a thread", error, next))
}
