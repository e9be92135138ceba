//! What runs need of a running Cordon: its socket, its gateway, a service of the host.

use crate::{
    Failure,
    up::{Http, Up},
};
use cordon_protocol::{
    EndedBy, Event, ExitReport, RefusalCode, RunRequest,
    client::{ClientError, blocking},
};
use std::{
    fmt::Debug,
    io,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Longest time for a workspace to be left by the commands that used it.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(50);

/// The ways in.
pub(super) struct Doors<'a> {
    /// The executor's socket.
    pub(super) socket: PathBuf,
    /// Port of a service of the host that sends back what it gets.
    pub(super) service: u16,
    up: &'a Up,
    alone: Mutex<()>,
}

impl<'a> Doors<'a> {
    /// Those of an instance whose services are at this port.
    pub(super) fn of(up: &'a Up, service: u16) -> Self {
        Self { socket: up.socket(), service, up, alone: Mutex::new(()) }
    }

    /// A new connection to the gateway.
    ///
    /// # Errors
    /// As [`Http::connect`] says.
    pub(super) fn http(&self) -> Result<Http, Failure> {
        Http::connect(self.up)
    }

    /// A new connection to the gateway on which nothing is said yet.
    ///
    /// # Errors
    /// What connect(2) says.
    pub(super) fn tcp(&self) -> Result<TcpStream, Failure> {
        Ok(TcpStream::connect(("127.0.0.1", self.up.port))?)
    }

    /// The bytes with the instance's own host and token in their places.
    pub(super) fn named(&self, bytes: &[u8]) -> Vec<u8> {
        let host = format!("127.0.0.1:{}", self.up.port);
        replaced(&replaced(bytes, b"{host}", host.as_bytes()), b"{token}", self.up.token.as_bytes())
    }

    /// For what must not be beside another of its kind.
    pub(super) fn alone(&self) -> MutexGuard<'_, ()> {
        self.alone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The report of a request.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn report(&self, request: &RunRequest) -> Result<ExitReport, Failure> {
        let (mut connection, _stdin) = blocking::run(&self.socket, "soak", request.clone())?;
        ended(&mut connection)
    }

    /// Runs what ends so.
    ///
    /// # Errors
    /// Another end.
    pub(super) fn ends(&self, request: &RunRequest, by: EndedBy) -> Result<(), Failure> {
        let report = self.report(request)?;
        if report.ended_by == by { Ok(()) } else { Err(told(&report).into()) }
    }

    /// Runs what exits with this status.
    ///
    /// # Errors
    /// Another end.
    pub(super) fn exits(&self, request: &RunRequest, status: i32) -> Result<(), Failure> {
        let report = self.report(request)?;
        if report.exit_code == Some(status) { Ok(()) } else { Err(told(&report).into()) }
    }

    /// Runs it and counts the files that come back with their content.
    ///
    /// # Errors
    /// There is no report.
    pub(super) fn collected(&self, request: RunRequest) -> Result<usize, Failure> {
        let (mut connection, _stdin) = blocking::run(&self.socket, "soak", request)?;
        let mut files = 0;
        loop {
            match connection.next_event()? {
                Event::File(file) => files += usize::from(file.problem.is_none()),
                Event::Exited(_) => return Ok(files),
                _ => {}
            }
        }
    }

    /// Deletes a workspace as soon as nothing uses it any more.
    ///
    /// # Errors
    /// Any other refusal.
    pub(super) fn delete_workspace(&self, name: &str) -> Result<(), Failure> {
        eventually(PATIENCE, || match blocking::delete_workspace(&self.socket, "soak", name) {
            Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::Busy => {
                Ok(Err(refusal.to_string()))
            }
            other => Ok(Ok(other?)),
        })
    }
}

fn replaced(bytes: &[u8], place: &[u8], by: &[u8]) -> Vec<u8> {
    let mut made = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, others)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(place) {
            made.extend(by);
            rest = after;
        } else {
            made.push(*first);
            rest = others;
        }
    }
    made
}

/// Waits for the report on a connection.
///
/// # Errors
/// There is none.
pub(super) fn ended(connection: &mut blocking::Connection) -> Result<ExitReport, Failure> {
    loop {
        if let Event::Exited(report) = connection.next_event()? {
            return Ok(*report);
        }
    }
}

/// What a report says about the end, in a line that is the same for all that ended so.
fn told(report: &ExitReport) -> String {
    let error: String = report.stderr.iter().flat_map(|text| text.chars().take(200)).collect();
    format!("{:?}, {:?}, step {:?}: {error}", report.ended_by, report.exit_code, report.step)
}

/// Fails unless both are the same.
///
/// # Errors
/// They are not.
pub(super) fn expect<T: PartialEq + Debug>(expected: T, found: T) -> Result<(), Failure> {
    if expected == found { Ok(()) } else { Err(format!("{found:?}, not {expected:?}").into()) }
}

/// Asks until there is a value, or as long as patience lasts.
///
/// # Errors
/// What `ask` says, or why there was no value at last.
pub(super) fn eventually<T>(
    patience: Duration,
    mut ask: impl FnMut() -> Result<Result<T, String>, Failure>,
) -> Result<T, Failure> {
    let start = Instant::now();
    loop {
        match ask()? {
            Ok(value) => return Ok(value),
            Err(why) if start.elapsed() > patience => return Err(why.into()),
            Err(_) => thread::sleep(LOOK),
        }
    }
}

/// A service of the host that sends back what it gets, on a port of the loopback interface.
///
/// # Errors
/// There is no port.
pub(super) fn echo() -> Result<u16, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || io::copy(&mut &stream, &mut &stream));
        }
    });
    Ok(port)
}
