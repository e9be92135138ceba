//! The table of commands, for `ps`: what each connection has running or waiting.

use crate::monitor::link::{ConnectionId, JobId};
use cordon_protocol::JobInfo;
use std::{cell::RefCell, collections::BTreeMap};
use tokio::time::Instant;

/// Shown where a command has no number yet.
const NO_ID: &str = "-";
/// Digits of an id.
const ID_LEN: usize = 16;

/// A command's number as clients see it: sixteen hexadecimal digits.
pub(super) fn id_of(job: JobId) -> String {
    format!("{job:016x}")
}

/// The number behind an id; none when it is not one.
pub(super) fn parse_id(id: &str) -> Option<JobId> {
    let digits = id.len() == ID_LEN && id.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| JobId::from_str_radix(id, 16).ok()).flatten()
}

/// Every command by its connection, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    entries: RefCell<BTreeMap<ConnectionId, Entry>>,
}

#[derive(Debug)]
struct Entry {
    uid: u32,
    profile: String,
    command: String,
    state: &'static str,
    position: Option<u32>,
    since: Instant,
    job: Option<JobId>,
}

/// A command's line in the table, for as long as this lives.
#[derive(Debug)]
pub(super) struct Listed<'a> {
    jobs: &'a Jobs,
    connection: ConnectionId,
}

impl Jobs {
    /// Lists a command as queued.
    pub(super) fn list(
        &self,
        connection: ConnectionId,
        uid: u32,
        profile: &str,
        command: String,
    ) -> Listed<'_> {
        let profile = profile.to_owned();
        let entry = Entry {
            uid,
            profile,
            command,
            state: "queued",
            position: None,
            since: Instant::now(),
            job: None,
        };
        self.entries.borrow_mut().insert(connection, entry);
        Listed { jobs: self, connection }
    }

    /// The commands of one peer.
    pub(super) fn of(&self, uid: u32) -> Vec<JobInfo> {
        let show = |entry: &Entry| JobInfo {
            id: entry.job.map_or_else(|| NO_ID.to_owned(), id_of),
            profile: entry.profile.clone(),
            command: entry.command.clone(),
            state: entry.state.to_owned(),
            position: entry.position,
            age_ms: u64::try_from(entry.since.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        self.entries.borrow().values().filter(|e| e.uid == uid).map(show).collect()
    }
}

impl Listed<'_> {
    fn change(&self, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.jobs.entries.borrow_mut().get_mut(&self.connection) {
            change(entry);
        }
    }

    /// Where it stands among those that wait.
    pub(super) fn set_position(&self, position: u32) {
        self.change(|entry| entry.position = Some(position));
    }

    /// The monitor has been asked.
    pub(super) fn set_launching(&self) {
        self.change(|entry| (entry.state, entry.position) = ("launching", None));
    }

    /// The monitor has given it a number.
    pub(super) fn set_number(&self, job: JobId) {
        self.change(|entry| entry.job = Some(job));
    }

    /// Its program has been executed.
    pub(super) fn set_running(&self) {
        self.change(|entry| entry.state = "running");
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.jobs.entries.borrow_mut().remove(&self.connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_sixteen_digits_both_ways() {
        assert_eq!(parse_id(&id_of(0x1f)), Some(0x1f));
        assert_eq!(id_of(u64::MAX), "ffffffffffffffff");
        for bad in ["", "1f", "+00000000000001f", "00000000000000001", "000000000000000g", "00000000000000ä"]
        {
            assert_eq!(parse_id(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_peer_sees_its_own_in_order_while_they_live() {
        let jobs = Jobs::default();
        let first = jobs.list(1, 7, "default", "a".into());
        let other = jobs.list(2, 8, "default", "b".into());
        let last = jobs.list(3, 7, "default", "c".into());
        first.set_position(1);
        last.set_position(2);
        first.set_launching();
        first.set_number(5);
        first.set_running();
        let shown: Vec<_> = jobs.of(7).into_iter().map(|j| (j.id, j.command, j.state, j.position)).collect();
        let row = |id: &str, command: &str, state: &str, at| (id.into(), command.into(), state.into(), at);
        let rows = [row("0000000000000005", "a", "running", None), row("-", "c", "queued", Some(2))];
        assert_eq!(shown, rows);
        drop((first, last));
        assert!(jobs.of(7).is_empty());
        drop(other);
        assert!(jobs.entries.borrow().is_empty());
    }
}
