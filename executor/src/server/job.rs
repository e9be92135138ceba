//! One command: a place in the queue, the launch, its streams, its end.
//!
//! While the command runs three things go on in the connection's one task: notices of the monitor are
//! taken, what the client sends is passed on (and its close is seen), and output is read ([`Pump`]).

use super::{
    Launched, Notice, Server,
    check::{CheckedRun, check},
    collect::collect,
    connection::Peer,
    frames::Frames,
    hint::Ran,
    jobs::Listed,
    pump::{Pump, Stage},
    queue::Place,
    refusal::{bad_frame, from_launch, internal, out_of_order, queue_full, shutting_down},
    report::{Asked, Streams, report},
    services::Services,
    socket::Socket,
};
use crate::{
    monitor::link::{ConnectionId, Outcome, ServiceCounts, ToMonitor},
    sealed::encode_files,
    sys::memfd,
};
use cordon_protocol::{
    EndedBy, Event, Refusal, Request, RunRequest,
    codec::{FrameError, decode_payload},
    limits,
};
use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    os::fd::OwnedFd,
};
use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe,
    sync::{mpsc::UnboundedReceiver, watch},
};

/// Largest frame after the request: a piece of standard input with its variant and length, bytes.
const INPUT_FRAME_MAX: usize = limits::CHUNK_MAX + 4 + 8;

/// What the parts of a running command's task share.
#[derive(Debug)]
pub(super) struct Run<'a> {
    server: &'a Server,
    connection: ConnectionId,
    /// The client's socket.
    pub(super) socket: &'a Socket,
    cancelled: Cell<bool>,
    /// The command has ended: there is nothing left that the monitor could end.
    over: Cell<bool>,
    violation: RefCell<Option<Refusal>>,
}

impl Run<'_> {
    /// Ends the command, once.
    pub(super) async fn cancel(&self) {
        if !self.over.get() && !self.cancelled.replace(true) {
            self.server.send(ToMonitor::Cancel(self.connection)).await;
        }
    }

    /// Tells the monitor that there was more output than may be.
    pub(super) async fn report_exceeded(&self) {
        if !self.over.get() {
            self.server.send(ToMonitor::OutputExceeded(self.connection)).await;
        }
    }

    /// The client broke the protocol, or the streams could not be served: only the refusal is still sent.
    pub(super) fn is_violated(&self) -> bool {
        self.violation.borrow().is_some()
    }
}

/// Runs a command and gives the last event: the report. None when the client left before the launch. The
/// command's place in the queue is left in `kept`, to be given back when the client has its report.
pub(super) async fn run(
    server: &Server,
    peer: Peer,
    socket: &Socket,
    mut frames: Frames,
    mut mailbox: UnboundedReceiver<Notice>,
    request: RunRequest,
    kept: &mut Option<Place>,
) -> Result<Option<Event>, Refusal> {
    let checked = check(request, &server.config, peer.profiles, peer.door)?;
    let listed = server.jobs.list(peer.connection, peer.uid, &checked.profile.name, checked.display.clone());
    *kept = wait_for_place(server, peer, socket, &checked).await?;
    if kept.is_none() {
        return Ok(None);
    }
    let launched = launch(server, peer, &mut mailbox, &listed, &checked).await?;
    frames.set_limit(INPUT_FRAME_MAX);
    let run = Run {
        server,
        connection: peer.connection,
        socket,
        cancelled: Cell::new(false),
        over: Cell::new(false),
        violation: RefCell::new(None),
    };
    let job = launched.job;
    let (outcome, streams, counts) = run.carry(launched, frames, &mut mailbox, &listed, &checked).await;
    // What never ran has left nothing; whoever has gone wants nothing.
    let wanted =
        !checked.collect.is_empty() && outcome.ended_by != EndedBy::LaunchFailed && !run.cancelled.get();
    if wanted && !run.is_violated() {
        collect(server, peer, socket, &mut mailbox, checked.collect).await?;
    } else {
        server.send(ToMonitor::Drained(peer.connection)).await;
    }
    drop(listed);
    if let Some(refusal) = run.violation.into_inner() {
        return Err(refusal);
    }
    let ran = Ran::new(&checked.sealed, checked.workspace.is_some(), &server.config, &server.landmarks);
    let asked = Asked { profile: checked.profile, limits: &checked.limits, door: peer.door, ran: &ran };
    Ok(Some(Event::Exited(Box::new(report(job, outcome, streams, &counts, asked)))))
}

/// A place in the queue; none when the client has left it.
async fn wait_for_place(
    server: &Server,
    peer: Peer,
    socket: &Socket,
    checked: &CheckedRun<'_>,
) -> Result<Option<Place>, Refusal> {
    tokio::select! {
        biased;
        () = server.drained() => Err(shutting_down()),
        place = server.queue.place(peer.uid, checked.profile) => {
            place.map(Some).map_err(|full| queue_full(checked.profile, full))
        }
        () = socket.closed() => Ok(None),
    }
}

/// A memory file that can no longer be changed.
pub(super) fn seal(bytes: &[u8]) -> Result<OwnedFd, Refusal> {
    memfd::sealed(bytes).map_err(|e| internal(format!("memory file for the request: {e}")))
}

/// Asks the monitor for the launch and waits for its answer, which does not wait for the sandbox.
async fn launch(
    server: &Server,
    peer: Peer,
    mailbox: &mut UnboundedReceiver<Notice>,
    listed: &Listed<'_>,
    checked: &CheckedRun<'_>,
) -> Result<Launched, Refusal> {
    let mut descriptors = vec![seal(&checked.sealed.encode().map_err(internal)?)?];
    if !checked.files.is_empty() {
        descriptors.push(seal(&encode_files(&checked.files).map_err(internal)?)?);
    }
    let launch = ToMonitor::Launch {
        connection: peer.connection,
        profile: checked.profile.name.clone(),
        workspace: checked.workspace.clone().unwrap_or_default(),
        stdin: checked.stdin,
        files: !checked.files.is_empty(),
        collect: !checked.collect.is_empty(),
        limits: checked.limits,
    };
    listed.set_launching();
    server.send_with(launch, descriptors).await;
    match mailbox.recv().await {
        Some(Notice::Launched(launched)) => {
            listed.set_number(launched.job);
            Ok(launched)
        }
        Some(Notice::LaunchRefused(refusal)) => Err(from_launch(refusal, checked.profile, peer.door)),
        _ => Err(internal("the monitor answered the launch with something else")),
    }
}

impl Run<'_> {
    /// From the launch to the end of the output.
    async fn carry(
        &self,
        launched: Launched,
        frames: Frames,
        mailbox: &mut UnboundedReceiver<Notice>,
        listed: &Listed<'_>,
        checked: &CheckedRun<'_>,
    ) -> (Outcome, Streams, Vec<ServiceCounts>) {
        let services = Services::new(&checked.profile.services, &self.server.relayed);
        let stage = watch::Sender::new(Stage::Launching);
        let mut pump = Pump::new(self, &launched, checked.stream);
        let input = launched.stdin.map(pipe::Sender::from_owned_fd).transpose();
        let input = match (pump.open(launched.stdout, launched.stderr), input) {
            (Ok(()), Ok(input)) => input,
            (Err(error), _) | (_, Err(error)) => {
                *self.violation.borrow_mut() = Some(internal(format!("pipes of the command: {error}")));
                self.cancel().await;
                None
            }
        };
        let used = async {
            let counts = services.finish(stage.subscribe()).await;
            if counts.iter().any(|counts| *counts != ServiceCounts::default()) {
                let (connection, counts) = (self.connection, counts.clone());
                self.server.send(ToMonitor::Services { connection, counts }).await;
            }
            counts
        };
        let following = self.follow(mailbox, &stage, listed, &services);
        let command = async { tokio::join!(following, pump.run(stage.subscribe()), used) };
        tokio::select! {
            biased;
            ended = command => ended,
            never = self.serve_client(frames, input, checked.stdin) => match never {},
        }
    }

    /// Takes the monitor's notices until the end.
    async fn follow(
        &self,
        mailbox: &mut UnboundedReceiver<Notice>,
        stage: &watch::Sender<Stage>,
        listed: &Listed<'_>,
        services: &Services,
    ) -> Outcome {
        loop {
            match mailbox.recv().await {
                Some(Notice::Executed) => {
                    listed.set_running();
                    stage.send_replace(Stage::Executed);
                }
                Some(Notice::Services(sockets)) => {
                    if let Err(error) = services.open(sockets, stage) {
                        let refusal = internal(format!("listening sockets of the services: {error}"));
                        *self.violation.borrow_mut() = Some(refusal);
                        self.cancel().await;
                    }
                }
                Some(Notice::Ended(outcome)) => {
                    self.over.set(true);
                    let executed = *stage.borrow() == Stage::Executed;
                    stage.send_replace(Stage::Ended { executed });
                    return outcome;
                }
                // An answer to a question that this connection has not asked says nothing about it.
                Some(_) => {}
                // The box is only taken away with the process.
                None => std::future::pending().await,
            }
        }
    }

    /// Passes standard input on, one frame at a time, and ends the command when the client closes or
    /// breaks the protocol. Never ready: the command's end is seen elsewhere.
    ///
    /// A client that has asked for standard input may send it though nothing takes it any more, or ever
    /// did: the launch may have failed.
    async fn serve_client(
        &self,
        mut frames: Frames,
        mut stdin: Option<pipe::Sender>,
        mut more: bool,
    ) -> Infallible {
        let violation = loop {
            let payload = match frames.next(self.socket).await {
                Ok(Some(payload)) => payload,
                // A client that dies in the middle of a frame has left like any other.
                Ok(None) | Err(FrameError::Io(_) | FrameError::Truncated) => break None,
                Err(error) => break Some(bad_frame(&error)),
            };
            match decode_payload(&payload) {
                Ok(Request::Stdin(data)) if more => {
                    if let Some(pipe) = &mut stdin {
                        tokio::select! {
                            // A command that has closed its standard input does not miss the rest.
                            written = pipe.write_all(&data) => if written.is_err() { stdin = None },
                            () = self.socket.closed() => break None,
                        }
                    }
                }
                Ok(Request::StdinEnd) if more => (more, stdin) = (false, None),
                Ok(other) => {
                    let expected = if more { "Stdin or StdinEnd" } else { "nothing but the close" };
                    break Some(out_of_order(&other, expected));
                }
                Err(error) => break Some(bad_frame(&error)),
            }
        };
        if let Some(refusal) = violation {
            *self.violation.borrow_mut() = Some(refusal);
        }
        drop(stdin);
        self.cancel().await;
        std::future::pending().await
    }
}
