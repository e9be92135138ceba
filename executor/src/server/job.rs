//! One command: a place in the queue, the launch, its streams, its end.
//!
//! While the command runs three things go on in the connection's one task: notices of the monitor are
//! taken, what the client sends is passed on (and its close is seen), and output is read ([`Pump`]).

use super::{
    Launched, Notice, Server,
    check::{CheckedRun, check},
    collect::collect,
    connection::Peer,
    denied::Denied,
    frames::Frames,
    hint::Ran,
    jobs::Listed,
    news::News,
    pump::{Pump, Stage},
    queue::{Ticket, Turn},
    refusal::{bad_frame, from_launch, internal, out_of_order, queue_full, shutting_down, waited_too_long},
    report::{Asked, Streams, report},
    services::Services,
    socket::Socket,
};
use crate::{
    monitor::link::{ConnectionId, Outcome, ServiceCounts, ToMonitor},
    profile::Profile,
    sealed::{self, CONTENT_END, SealedRequest, Work, piece_head},
    sys::memfd,
};
use cordon_protocol::{
    EndedBy, Event, Refusal, Request, RunRequest,
    codec::{FrameError, decode_payload, encode_frame},
    limits,
};
use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    future::{Future, pending},
    io,
    os::fd::OwnedFd,
    pin::pin,
    time::Duration,
};
use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe,
    sync::{mpsc::UnboundedReceiver, watch},
    time::{Instant, sleep, sleep_until},
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
    peer: &Peer,
    socket: &Socket,
    mut frames: Frames,
    mut mailbox: UnboundedReceiver<Notice>,
    request: RunRequest,
    kept: &mut Option<Ticket>,
) -> Result<Option<Event>, Refusal> {
    let config = server.config();
    let denied = Denied::new(server, peer, &request);
    let checked = check(request, &config, peer.profiles_in(&config), peer.door);
    let mut checked = denied.tell(checked).await?;
    // The request itself is let go of once it is launched.
    let ran = Ran::new(&checked, &config, &server.landmarks);
    let listed = server.jobs.list(peer.connection, peer.uid, &checked.profile.name, checked.display.clone());
    let place = wait_for_place(server, peer, socket, &listed, checked.profile).await;
    *kept = denied.tell(place).await?;
    if kept.is_none() {
        return Ok(None);
    }
    let content = denied.tell(seal_content(&mut checked)).await?;
    // What was asked is in the memory files now, and nowhere else.
    frames.release();
    let launched = launch(server, peer, socket, &mut mailbox, &listed, &checked, content).await?;
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
        let collected = collect(server, peer, socket, &mut mailbox, std::mem::take(&mut checked.collect));
        bounded(collected, kept).await?;
    } else {
        server.send(ToMonitor::Drained(peer.connection)).await;
    }
    drop(listed);
    if let Some(refusal) = run.violation.into_inner() {
        return Err(refusal);
    }
    let asked = Asked { profile: checked.profile, limits: &checked.limits, door: peer.door, ran: &ran };
    Ok(Some(Event::Exited(Box::new(report(job, outcome, streams, &counts, asked)))))
}

/// Waits for the collected files to be taken. The sandbox is not there any longer than for a time: then another
/// peer's command has its place, however slowly this client reads.
async fn bounded(
    collected: impl Future<Output = Result<(), Refusal>>,
    kept: &mut Option<Ticket>,
) -> Result<(), Refusal> {
    let mut collected = pin!(collected);
    tokio::select! {
        biased;
        done = &mut collected => return done,
        () = sleep(limits::COLLECT_TIMEOUT) => {}
    }
    kept.iter_mut().for_each(Ticket::end);
    collected.await
}

/// A place in the queue; none when the client has left it. Until then the client is told where it stands.
async fn wait_for_place(
    server: &Server,
    peer: &Peer,
    socket: &Socket,
    listed: &Listed<'_>,
    profile: &Profile,
) -> Result<Option<Ticket>, Refusal> {
    let mut ticket = server.queue.enter(peer.uid, profile).map_err(|full| queue_full(profile, full))?;
    let deadline = Instant::now() + Duration::from_millis(profile.queue_timeout);
    let mut news = News::new(Instant::now());
    while let Turn::Position(position) = ticket.turn() {
        listed.set_position(position);
        let (due, frame) = (news.due(position), Event::Queued { position });
        let frame = encode_frame(&frame, limits::EVENT_FRAME_MAX).map_err(internal)?;
        let tell = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
            socket.write_all(&frame).await
        };
        tokio::select! {
            biased;
            () = server.drained() => return Err(shutting_down()),
            () = ticket.changed() => {}
            () = socket.closed() => return Ok(None),
            () = sleep_until(deadline) => {
                return Err(waited_too_long(profile, server.queue.fullness(peer.uid, profile)));
            }
            // So few bytes go in one piece or not at all, so that leaving off here splits no frame. Where the
            // client has gone, its close tells.
            _ = tell => news.told(position, Instant::now()),
        }
    }
    Ok(Some(ticket))
}

/// A memory file that can no longer be changed.
pub(super) fn seal(bytes: &[u8]) -> Result<OwnedFd, Refusal> {
    memfd::sealed(bytes).map_err(|e| internal(format!("memory file for the request: {e}")))
}

/// The memory files with the request, its text for the audit, and the content of its files, which is taken out of it.
fn seal_content(checked: &mut CheckedRun<'_>) -> Result<Vec<OwnedFd>, Refusal> {
    let request = seal(&checked.sealed.encode().map_err(internal)?)?;
    let text = checked.text().to_json().map_err(internal)?;
    let mut descriptors = vec![request, seal(text.as_bytes())?];
    let files = std::mem::take(&mut checked.files);
    if !files.is_empty() {
        descriptors.push(seal(&sealed::join(&files))?);
    }
    checked.sealed = SealedRequest::of(Work::Nothing);
    Ok(descriptors)
}

/// Asks the monitor for the launch and waits for its answer. That does not wait for the sandbox, but it may for others
/// that put something into the workspace: a client that leaves meanwhile is reported, and its place is free with the answer.
async fn launch(
    server: &Server,
    peer: &Peer,
    socket: &Socket,
    mailbox: &mut UnboundedReceiver<Notice>,
    listed: &Listed<'_>,
    checked: &CheckedRun<'_>,
    content: Vec<OwnedFd>,
) -> Result<Launched, Refusal> {
    let launch = ToMonitor::Launch {
        connection: peer.connection,
        profile: checked.profile.name.clone(),
        workspace: checked.workspace.clone().unwrap_or_default(),
        stdin: checked.stdin,
        files: content.len() > 2,
        adds: checked.adds,
        collect: !checked.collect.is_empty(),
        limits: checked.limits,
    };
    listed.set_launching();
    server.send_with(launch, content).await;
    let answer = tokio::select! {
        biased;
        answer = mailbox.recv() => answer,
        () = socket.closed() => {
            server.send(ToMonitor::Cancel(peer.connection)).await;
            mailbox.recv().await
        }
    };
    match answer {
        Some(Notice::Launched(launched)) => {
            listed.set_number(launched.job);
            Ok(launched)
        }
        Some(Notice::LaunchRefused(refusal)) => {
            Err(from_launch(refusal, checked.profile, peer.door, checked.workspace.as_deref()))
        }
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
            never = self.serve_client(frames, input, checked) => match never {},
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
                None => pending().await,
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
        checked: &CheckedRun<'_>,
    ) -> Infallible {
        let mut more = checked.stdin;
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
                            written = pass_on(pipe, &data, checked.adds) => if written.is_err() { stdin = None },
                            () = self.socket.closed() => break None,
                        }
                    }
                }
                Ok(Request::StdinEnd) if more => {
                    more = false;
                    if let Some(pipe) = stdin.as_mut().filter(|_| checked.adds) {
                        tokio::select! {
                            _ = pipe.write_all(&CONTENT_END) => {}
                            () = self.socket.closed() => break None,
                        }
                    }
                    stdin = None;
                }
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
        // Its standard input stays open meanwhile: at its end, a program takes what came so far for the whole.
        self.cancel().await;
        pending().await
    }
}

/// Passes a piece of standard input on: as it is, or as one of a file's content.
async fn pass_on(pipe: &mut pipe::Sender, data: &[u8], content: bool) -> io::Result<()> {
    if content {
        let Some(head) = piece_head(data) else { return Ok(()) };
        pipe.write_all(&head).await?;
    }
    pipe.write_all(data).await
}
