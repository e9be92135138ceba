//! A peer's named workspaces: what there is, and deleting one. The monitor does both; what it says of names is
//! read here.

use super::{
    Notice, Server,
    check::check_workspace,
    connection::Peer,
    refusal::{internal, quoted, refuse},
};
use crate::monitor::link::{Deletion, ToMonitor};
use cordon_protocol::{Event, Refusal, RefusalCode, WorkspaceInfo};
use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
};
use tokio::sync::mpsc::UnboundedReceiver;

/// Longest list, bytes: more than all names that a peer may have come to.
const LIST_MAX: u64 = 1 << 20;

/// Lists the peer's workspaces.
pub(super) async fn list(
    server: &Server,
    peer: &Peer,
    mailbox: &mut UnboundedReceiver<Notice>,
) -> Result<Event, Refusal> {
    server.send(ToMonitor::ListWorkspaces(peer.connection)).await;
    match mailbox.recv().await {
        Some(Notice::Workspaces(Some(file))) => read_list(file)
            .map(|text| Event::Workspaces(text.lines().filter_map(line).collect()))
            .map_err(|error| internal(format!("list of workspaces: {error}"))),
        _ => Err(internal("the workspaces could not be listed")),
    }
}

fn read_list(file: OwnedFd) -> io::Result<String> {
    let mut text = String::new();
    File::from(file).take(LIST_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// `NAME SECONDS`.
fn line(line: &str) -> Option<WorkspaceInfo> {
    let (name, modified) = line.split_once(' ')?;
    Some(WorkspaceInfo { name: name.to_owned(), modified: modified.parse().ok()? })
}

/// Deletes one of the peer's workspaces.
pub(super) async fn delete(
    server: &Server,
    peer: &Peer,
    mailbox: &mut UnboundedReceiver<Notice>,
    name: String,
) -> Result<Event, Refusal> {
    check_workspace(&name)?;
    server.send(ToMonitor::DeleteWorkspace { connection: peer.connection, name: name.clone() }).await;
    let Some(Notice::WorkspaceDeleted(deletion)) = mailbox.recv().await else {
        return Err(internal("the monitor gave no answer"));
    };
    match deletion {
        Deletion::Done => Ok(Event::WorkspaceDeleted { name }),
        Deletion::NotFound => {
            let message = format!("workspace: this user has none of the name {}", quoted(&name));
            Err(refuse(RefusalCode::NotFound, message, peer.door.workspaces()))
        }
        Deletion::InUse => {
            let message = format!("workspace: a command uses {}", quoted(&name));
            Err(refuse(RefusalCode::Busy, message, peer.door.end_command()))
        }
        Deletion::Failed => Err(internal("the workspace could not be moved away")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_line_by_line_and_what_is_no_line_is_left_out() {
        let info = |name: &str, modified| WorkspaceInfo { name: name.into(), modified };
        assert_eq!(line("work 17"), Some(info("work", 17)));
        for bad in ["", "work", "work x", "work "] {
            assert_eq!(line(bad), None, "{bad}");
        }
    }
}
