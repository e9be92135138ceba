//! One client: hello, one request, its answer, the close.

use super::{
    Notice, Server,
    budget::{ALWAYS, BUDGET, BUDGET_OF_PEER, Room, Share},
    check::profiles_of,
    denied::Denied,
    door::Door,
    frames::Frames,
    job,
    jobs::parse_id,
    not_text::refused_text,
    queue::Ticket,
    refusal::{
        bad_frame, bad_version, internal, no_room, out_of_order, quoted, refuse, report_lost, shutting_down,
        timed_out, turned_away,
    },
    socket::Socket,
    workspaces,
};
use crate::{
    config::Config,
    monitor::link::{ConnectionId, ConnectionRefusal, LimitField, ToMonitor},
    recording,
};
use cordon_protocol::{
    Event, Refusal, RefusalCode, Request,
    codec::{FrameError, decode_payload, encode_frame},
    limits,
};
use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, send},
};
use std::{
    os::fd::{AsRawFd, OwnedFd},
    rc::Rc,
    time::Duration,
};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, timeout, timeout_at},
};

/// How long a large last event waits for others to be taken.
const ROOM_TIME: Duration = Duration::from_secs(10);

/// Who is connected, as the monitor says.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// Number of the connection.
    pub(super) connection: ConnectionId,
    /// The peer's uid.
    pub(super) uid: u32,
    /// Profiles it may use, a bit each, of the configuration in force when it connected.
    pub(super) profiles: u64,
    /// That configuration.
    pub(super) config: Rc<Config>,
    /// How it names things, once its hello has said what it is.
    pub(super) door: Door,
}

impl Peer {
    /// Profiles of this configuration that it may use, as far as is known here, a bit each.
    pub(super) fn profiles_in(&self, config: &Config) -> u64 {
        let known: Vec<_> = profiles_of(&self.config, self.profiles).map(|profile| &profile.name).collect();
        let names = config.profiles.keys().take(limits::PROFILES_MAX).enumerate();
        names.fold(0, |bits, (i, name)| bits | u64::from(known.contains(&name)) << i)
    }
}

/// Serves one connection to its end and tells the monitor, once, that it is closed.
pub(super) async fn serve(
    server: Rc<Server>,
    peer: Peer,
    socket: OwnedFd,
    mailbox: UnboundedReceiver<Notice>,
) {
    let connection = peer.connection;
    // A descriptor that cannot be watched is closed: there is no way to say more.
    if let Ok(socket) = Socket::new(socket) {
        converse(&server, peer, socket, mailbox).await;
    }
    server.mailboxes.borrow_mut().remove(&connection);
    server.send(ToMonitor::Closed(connection)).await;
}

/// Tells a client that it is not served. What does not fit into an unused socket is not waited for.
pub(super) fn turn_away(socket: &OwnedFd, refusal: ConnectionRefusal) {
    let frame = last_frame(&Event::Refused(turned_away(refusal)), Door::Socket);
    let _ = send(socket.as_raw_fd(), &frame, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
}

async fn converse(server: &Server, mut peer: Peer, socket: Socket, mailbox: UnboundedReceiver<Notice>) {
    let room = server.budget.of(peer.uid);
    let mut frames = Frames::within(limits::REQUEST_FRAME_MAX, room);
    let mut place: Option<Ticket> = None;
    let answer = match opening(&socket, &mut frames, &mut peer.door).await {
        Ok(Some(request)) => answer(server, &peer, &socket, frames, mailbox, request, &mut place).await,
        Ok(None) => return,
        Err(refusal) => Err(refusal),
    };
    let event = match answer {
        Ok(Some(event)) => event,
        Ok(None) => return,
        Err(refusal) => Event::Refused(refusal),
    };
    let frame = last_frame(&event, peer.door);
    drop(event);
    // Other peers' commands do not wait for whoever reads slowly.
    place.iter_mut().for_each(Ticket::end);
    // A report may be large: a peer that does not read its reports gets no further ones.
    let Some((frame, share)) = with_room(&server.answers.of(peer.uid), frame, peer.door, &socket).await
    else {
        return;
    };
    socket.finish(frame, (place, share)).await;
}

/// The last frame with the memory that it needs beside what each may have, or what is said in its place where others
/// have that for too long; none when the client has gone.
async fn with_room(
    room: &Room,
    frame: Vec<u8>,
    door: Door,
    socket: &Socket,
) -> Option<(Vec<u8>, Option<Share>)> {
    let more = frame.len().saturating_sub(ALWAYS);
    if more == 0 {
        return Some((frame, None));
    }
    tokio::select! {
        share = timeout(ROOM_TIME, room.take(more)) => Some(match share.ok().flatten() {
            Some(share) => (frame, Some(share)),
            None => (last_frame(&Event::Refused(report_lost()), door), None),
        }),
        () = socket.closed() => None,
    }
}

/// The last event's bytes; where it is too large to be sent, a refusal that says so.
fn last_frame(event: &Event, door: Door) -> Vec<u8> {
    let encode = |event: &Event| encode_frame(event, limits::EVENT_FRAME_MAX);
    let too_large = |error: FrameError| {
        let field = door.limit(LimitField::Capture).unwrap_or_default();
        let hint = format!("ask for less captured output ({field}), or stream it");
        encode(&Event::Refused(refuse(RefusalCode::Internal, format!("the answer: {error}"), hint)))
    };
    // A refusal of two short lines always fits.
    encode(event).or_else(too_large).unwrap_or_default()
}

/// The hello, which says the door, and the request; none when the client closed without one.
async fn opening(socket: &Socket, frames: &mut Frames, door: &mut Door) -> Result<Option<Request>, Refusal> {
    let deadline = Instant::now() + limits::HELLO_TIMEOUT;
    let Some(payload) = within(deadline, "Hello", frames, socket).await? else {
        return Ok(None);
    };
    match decode_payload(&payload) {
        Ok(Request::Hello(hello)) if hello.version == limits::PROTOCOL_VERSION => {
            *door = Door::of_client(&hello.client);
        }
        Ok(Request::Hello(hello)) => return Err(bad_version(hello.version)),
        Ok(other) => return Err(out_of_order(&other, "Hello")),
        Err(error) => {
            return Err(foreign_version(&payload)
                .map_or_else(|| not_understood(&error, &payload, *door), bad_version));
        }
    }
    frames.release();
    let Some(payload) = within(deadline, "request", frames, socket).await? else {
        return Ok(None);
    };
    decode_payload(&payload).map(Some).map_err(|error| not_understood(&error, &payload, *door))
}

/// A frame that is whole and no request.
fn not_understood(error: &FrameError, payload: &[u8], door: Door) -> Refusal {
    refused_text(payload, door).unwrap_or_else(|| bad_frame(error))
}

/// The version in a hello whose other fields are not ours to understand; none when it is no such thing.
fn foreign_version(payload: &[u8]) -> Option<u32> {
    let (variant, rest) = payload.split_first_chunk::<4>()?;
    let version = u32::from_le_bytes(*rest.first_chunk::<4>()?);
    (*variant == [0; 4] && version != limits::PROTOCOL_VERSION).then_some(version)
}

/// A frame that arrives before the deadline. A connection that fails is one that has ended.
async fn within(
    deadline: Instant,
    expected: &str,
    frames: &mut Frames,
    socket: &Socket,
) -> Result<Option<Vec<u8>>, Refusal> {
    match timeout_at(deadline, frames.next(socket)).await {
        Ok(Ok(payload)) => Ok(payload),
        Ok(Err(FrameError::Io(_))) => Ok(None),
        Ok(Err(error)) => Err(bad_frame(&error)),
        Err(_) if frames.waits_for_room() => Err(no_room(BUDGET, BUDGET_OF_PEER)),
        Err(_) => Err(timed_out(expected)),
    }
}

/// The last event for this request; none when there is nobody left to tell.
async fn answer(
    server: &Server,
    peer: &Peer,
    socket: &Socket,
    frames: Frames,
    mut mailbox: UnboundedReceiver<Notice>,
    request: Request,
    place: &mut Option<Ticket>,
) -> Result<Option<Event>, Refusal> {
    match request {
        Request::Hello(_) | Request::Stdin(_) | Request::StdinEnd => Err(out_of_order(&request, "a request")),
        Request::Run(run) if server.is_draining() => {
            Denied::new(server, peer, &run).tell(Err(shutting_down())).await
        }
        _ if server.is_draining() => Err(shutting_down()),
        Request::Run(run) => job::run(server, peer, socket, frames, mailbox, *run, place).await,
        Request::Ps => Ok(Some(Event::Jobs(server.jobs.of(peer.uid)))),
        Request::Kill { id } => kill(server, peer, &mut mailbox, id).await.map(Some),
        Request::Profiles => {
            let config = server.config();
            let bits = peer.profiles_in(&config);
            let profiles = profiles_of(&config, bits).map(|p| p.info()).collect();
            Ok(Some(Event::Profiles(profiles)))
        }
        Request::Doctor => doctor(server, peer, &mut mailbox).await.map(Some),
        Request::Workspaces => workspaces::list(server, peer, &mut mailbox).await.map(Some),
        Request::DeleteWorkspace { name } => {
            workspaces::delete(server, peer, &mut mailbox, name).await.map(Some)
        }
    }
}

/// What this host has of each layer, as it was found at start, and whether launches can be recorded now.
async fn doctor(
    server: &Server,
    peer: &Peer,
    mailbox: &mut UnboundedReceiver<Notice>,
) -> Result<Event, Refusal> {
    server.send(ToMonitor::CheckTrail(peer.connection)).await;
    let Some(Notice::Trail(errno, detail)) = mailbox.recv().await else {
        return Err(internal("the monitor gave no answer"));
    };
    let trail = server.config.borrow().audit.clone();
    let trail = recording::layer(&trail, errno.map(|errno| (Errno::from_raw(errno), &*detail)));
    Ok(Event::Doctor(server.layers.iter().cloned().chain([trail]).collect()))
}

async fn kill(
    server: &Server,
    peer: &Peer,
    mailbox: &mut UnboundedReceiver<Notice>,
    id: String,
) -> Result<Event, Refusal> {
    let hint = "`cordon ps` lists your commands with their ids";
    let Some(job) = parse_id(&id) else {
        let message = format!("id: {} is not sixteen hexadecimal digits", quoted(&id));
        return Err(refuse(RefusalCode::BadRequest, message, hint));
    };
    server.send(ToMonitor::KillJob { connection: peer.connection, job }).await;
    match mailbox.recv().await {
        Some(Notice::KillAnswer(true)) => Ok(Event::Killed { id }),
        Some(Notice::KillAnswer(false)) => {
            let message = format!("id: no command {} of this user is running", quoted(&id));
            Err(refuse(RefusalCode::NotFound, message, hint))
        }
        _ => Err(internal("the monitor gave no answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::budget::Budget, *};
    use std::os::unix::net::UnixStream;

    #[tokio::test(start_paused = true)]
    async fn large_last_events_of_a_peer_have_so_much_memory_and_small_ones_need_none() {
        let budget = Budget::of_answers();
        let (ours, client) = UnixStream::pair().unwrap();
        let socket = Socket::new(ours.into()).unwrap();
        let large = || vec![0; 16 << 20];
        let room = |uid, frame| {
            let (room, socket) = (budget.of(uid), &socket);
            async move { with_room(&room, frame, Door::Socket, socket).await }
        };
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(room(1, large()).await.unwrap());
        }
        assert!(held.iter().all(|(frame, share)| frame.len() == 16 << 20 && share.is_some()));
        let (said, share) = room(1, large()).await.unwrap();
        assert!(share.is_none() && String::from_utf8_lossy(&said).contains("report is lost"));
        assert_eq!(room(1, vec![0; ALWAYS]).await.unwrap().0.len(), ALWAYS);
        assert!(room(2, large()).await.unwrap().1.is_some(), "another peer's");
        held.pop();
        assert!(room(1, large()).await.unwrap().1.is_some());
        drop(client);
    }
}
