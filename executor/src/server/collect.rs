//! What a command left in its workspace, sent to the client after the command's end.
//!
//! A process of the sandbox reads the files, as confined as the command was: what it writes is believed no more
//! than what the command wrote. It is a row of frames, each and all of them bounded here.

use super::{
    Notice, Server,
    connection::Peer,
    frames::Frames,
    job::seal,
    refusal::{internal, shortened},
    socket::Socket,
};
use crate::{monitor::link::ToMonitor, sealed::SealedRequest};
use cordon_protocol::{
    CollectedFile, Event, Refusal,
    codec::{decode_payload, encode_frame},
    limits,
};
use std::os::fd::OwnedFd;
use tokio::sync::mpsc::UnboundedReceiver;

/// Room in a frame beside a file's content, bytes.
const FRAME_ROOM: usize = 16 << 10;
/// Longest path that is passed on, characters.
const PATH_MAX: usize = 4096;
/// Longest reason that is passed on, characters.
const PROBLEM_MAX: usize = 256;
/// Files and reasons for none that are passed on: each pattern may come to nothing. And the word that these are all.
const EVENTS_MAX: usize = limits::FILES_MAX + limits::COLLECT_PATTERNS_MAX + 1;

/// Has the files collected and sends each as it comes. The sandbox ends with it, whatever comes of it.
///
/// # Errors
/// Cordon's own failure; a client that has gone is none.
pub(super) async fn collect(
    server: &Server,
    peer: &Peer,
    socket: &Socket,
    mailbox: &mut UnboundedReceiver<Notice>,
    patterns: Vec<String>,
) -> Result<(), Refusal> {
    let request = SealedRequest::collecting(patterns);
    let sealed = seal(&request.encode().map_err(internal)?)?;
    server.send_with(ToMonitor::Collect(peer.connection), vec![sealed]).await;
    let from = loop {
        match mailbox.recv().await {
            Some(Notice::Collecting(from)) => break from,
            // What was on its way.
            Some(_) => {}
            None => break None,
        }
    };
    let sent = match from {
        Some(from) => pass_on(from, socket).await,
        None => Err("the sandbox's files could not be collected".to_owned()),
    };
    server.send(ToMonitor::Drained(peer.connection)).await;
    if let Err(problem) = sent {
        send(socket, &failed(problem)).await;
    }
    Ok(())
}

/// Reads frames to the one that ends them and sends each.
async fn pass_on(from: OwnedFd, socket: &Socket) -> Result<(), String> {
    let from = Socket::new(from).map_err(|error| format!("collecting failed: {error}"))?;
    let mut frames = Frames::new(limits::COLLECTED_FILE_MAX + FRAME_ROOM);
    let mut room = limits::COLLECTED_BYTES_MAX;
    for _ in 0..EVENTS_MAX {
        let payload = tokio::select! {
            payload = frames.next(&from) => payload.map_err(|error| format!("collecting failed: {error}"))?,
            () = socket.closed() => return Ok(()),
        };
        // Out of time, of memory, or killed.
        let payload = payload.ok_or("collecting was ended before all files had come")?;
        let file: CollectedFile =
            decode_payload(&payload).map_err(|error| format!("collecting failed: {error}"))?;
        if file.path.is_empty() && file.problem.is_none() {
            return Ok(());
        }
        room = room.checked_sub(file.content.len()).ok_or("more was collected than may be")?;
        send(socket, &sanitized(file)).await;
    }
    Err("more was collected than may be".to_owned())
}

/// The file with texts of bounded length.
fn sanitized(file: CollectedFile) -> CollectedFile {
    let path = file.path.chars().take(PATH_MAX).collect();
    let problem = file.problem.map(|problem| shortened(&problem, PROBLEM_MAX));
    CollectedFile { path, problem, mode: file.mode & 0o777, ..file }
}

fn failed(problem: String) -> CollectedFile {
    let (path, problem) = (String::new(), Some(problem));
    CollectedFile { path, mode: 0, size: 0, content: Vec::new(), truncated: false, problem }
}

/// Sends an event; a client that has gone is noticed elsewhere.
async fn send(socket: &Socket, file: &CollectedFile) {
    if let Ok(frame) = encode_frame(&Event::File(file.clone()), limits::EVENT_FRAME_MAX) {
        tokio::select! {
            _ = socket.write_all(&frame) => {}
            () = socket.closed() => {}
        }
    }
}
