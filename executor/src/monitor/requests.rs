//! What the server may ask, in which state, and what the monitor does: anything else is refused.
//!
//! `allowed.rs` says when, message by message; what is not allowed then is answered as if there were nothing
//! of that number, or not at all: an end can cross a message on its way.
//!
//! | message | allowed when | does |
//! |---|---|---|
//! | Launch | the connection is open and has launched nothing | checks everything again, launches |
//! | Cancel, OutputExceeded | the connection's command lives | ends it |
//! | Cancel | the connection's launch waits | ends it before it begins |
//! | KillJob | the connection is open; the command is of the same uid | ends it |
//! | Drained | the connection's command has ended | kills what is left |
//! | Collect | the connection's command has ended, and it was to be collected from | ends what is left, collects |
//! | ListWorkspaces, DeleteWorkspace | the connection is open | with the peer's own ones |
//! | CheckTrail | the connection is open | says whether launches can be recorded |
//! | Services | the connection is open, its command does not live | records them, once |
//! | Refused | the connection is open and has launched nothing | records it, once |
//! | Closed | the connection is open | ends its command, forgets the number |
//! | Pong | always | feeds systemd's watchdog, where it was asked for |

use super::{
    Monitor, MonitorError,
    allowed::is_allowed,
    arriving::fingerprint,
    job::{Job, Stage},
    link::{ConnectionId, Deletion, JobId, LaunchRefusal, MESSAGE_LEN, Outcome, ToMonitor, ToServer},
    policy::check_sealed,
};
use crate::sys::{memfd, scm};
use cordon_protocol::{EndedBy, audit::Entry, counted, limits};
use nix::errno::Errno;
use std::{
    fmt,
    os::fd::{AsFd, OwnedFd},
};

/// The step before all others; it has no process and no resource of its own to undo.
pub(super) const AUDIT_STEP: (&str, &str) = ("audit", "first of all: what cannot be recorded does not run");
/// The step that makes a named workspace.
pub(super) const WORKSPACE_STEP: (&str, &str) =
    ("workspace", "a named workspace is there, and nobody else's, before anything is made for the command");
/// Messages of the server that are taken in one round; each may be a launch.
const MESSAGES: usize = 16;
/// Lines of the log about messages of the server that are none, or come out of order.
const COMPLAINTS_MAX: u32 = 100;

impl Monitor {
    /// Takes in what the server says: not all at once, so that one that never stops does not keep the
    /// monitor from its deadlines.
    pub(super) fn take_messages(&mut self) -> Result<(), MonitorError> {
        let mut buffer = [0; MESSAGE_LEN + 1];
        for _ in 0..MESSAGES {
            match scm::receive_now(self.link.as_fd(), &mut buffer) {
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
                Err(errno) => return Err(MonitorError::System("link", errno.into())),
                Ok(received) if received.length == 0 => return Err(MonitorError::ServerGone),
                Ok(received) if received.truncated => {
                    self.complain(format_args!("oversize message refused"));
                    self.keep(received.descriptors);
                }
                Ok(received) => self.handle(&buffer[..received.length], received.descriptors),
            }
        }
        Ok(())
    }

    /// Does what one message asks, or refuses it.
    pub(super) fn handle(&mut self, bytes: &[u8], descriptors: Vec<OwnedFd>) {
        let Ok(message) = ToMonitor::decode(bytes) else {
            self.keep(descriptors);
            return self
                .complain(format_args!("malformed message of {} refused", counted(bytes.len(), "byte")));
        };
        self.take_up(message, descriptors);
    }

    fn take_up(&mut self, message: ToMonitor, descriptors: Vec<OwnedFd>) {
        let named = message.connection();
        let connection = named.and_then(|number| self.connections.get(number)).map(|found| found.stage);
        let command = self.jobs.values().find(|job| Some(job.connection) == named).map(|job| job.stage);
        if let ToMonitor::Cancel(number) = message
            && self.cancel_waiting(number)
        {
            self.keep(descriptors);
        } else if !is_allowed(&message, connection, command) {
            self.refuse(message);
            self.keep(descriptors);
        } else if matches!(message, ToMonitor::Launch { .. }) {
            self.take_in(message, descriptors);
        } else {
            self.obey(message, descriptors);
        }
    }

    /// Takes over descriptors that are not needed. Sealed memory is closed; whatever else a server has got hold
    /// of can make whoever closes it last wait as long as its other end likes.
    pub(super) fn keep(&mut self, descriptors: Vec<OwnedFd>) {
        let waits = |fd: &OwnedFd| memfd::sealed_length(fd.as_fd()).is_none();
        self.kept.extend(descriptors.into_iter().filter(waits));
    }

    /// Whether something of a command that has ended is still there and in the next one's way: only its uid tells
    /// it from another's, so that what ends it would end the next command too; or it has the open files that the
    /// next one needs.
    pub(super) fn is_clearing_up(&self) -> bool {
        let short = self.jobs.len() >= self.connections.commands();
        let in_the_way =
            |job: &Job| !job.is_live() && job.plan.host.one_at_a_time || short && job.stage == Stage::Dying;
        self.jobs.values().any(in_the_way)
    }

    /// Answers what is not allowed now, where an answer is waited for.
    pub(super) fn refuse(&mut self, message: ToMonitor) {
        match message {
            ToMonitor::Launch { connection, profile, .. } => {
                self.refuse_launch(connection, profile, LaunchRefusal::OutOfOrder);
            }
            ToMonitor::KillJob { connection, .. } => {
                self.outbox.push(&ToServer::KillAnswer { connection, found: false }, Vec::new());
            }
            ToMonitor::Collect(connection) => {
                self.outbox.push(&ToServer::Collecting(connection), Vec::new());
            }
            _ => {}
        }
    }

    pub(super) fn refuse_launch(
        &mut self,
        connection: ConnectionId,
        profile: String,
        refusal: LaunchRefusal,
    ) {
        self.record_refusal(connection, profile, refusal);
        self.outbox.push(&ToServer::LaunchRefused { connection, refusal }, Vec::new());
    }

    fn obey(&mut self, message: ToMonitor, descriptors: Vec<OwnedFd>) {
        let checked = match &message {
            ToMonitor::Collect(_) => check_sealed(descriptors, &[limits::SEALED_PATTERNS_MAX]),
            _ => Err(descriptors),
        };
        let (sealed, others) = match checked {
            Ok(sealed) => (Some(sealed), Vec::new()),
            Err(others) => (None, others),
        };
        self.keep(others);
        match message {
            // Taken in already.
            ToMonitor::Launch { .. } => {}
            ToMonitor::Cancel(connection) => self.end_of(connection, EndedBy::Cancelled),
            ToMonitor::OutputExceeded(connection) => self.end_of(connection, EndedBy::OutputLimit),
            ToMonitor::KillJob { connection, job } => {
                let found = self.kill_job(connection, job);
                self.outbox.push(&ToServer::KillAnswer { connection, found }, Vec::new());
            }
            ToMonitor::Drained(connection) => {
                self.jobs.values_mut().filter(|job| job.connection == connection).for_each(Job::tear_down);
            }
            ToMonitor::Collect(connection) => self.collect(connection, sealed),
            ToMonitor::ListWorkspaces(connection) => self.list_workspaces(connection),
            ToMonitor::DeleteWorkspace { connection, name } => self.delete_workspace(connection, &name),
            ToMonitor::Services { connection, counts } => self.record_services(connection, &counts),
            ToMonitor::Refused { connection, profile, denial } => {
                self.record_denial(connection, profile, denial);
            }
            ToMonitor::Closed(connection) => {
                self.end_of(connection, EndedBy::Cancelled);
                self.relayed.remove(&connection);
                self.connections.close(connection);
            }
            ToMonitor::CheckTrail(connection) => self.check_trail(connection),
            ToMonitor::Pong => self.server_answered(),
        }
    }

    /// Logs what an honest server never does. One that is not could fill the log with it.
    pub(super) fn complain(&mut self, of: fmt::Arguments<'_>) {
        if self.complaints < COMPLAINTS_MAX {
            self.complaints += 1;
            crate::log!("server: {of}");
        }
    }

    fn end_of(&mut self, connection: ConnectionId, cause: EndedBy) {
        self.jobs.values_mut().filter(|job| job.connection == connection).for_each(|job| job.end(cause));
    }

    fn kill_job(&mut self, connection: ConnectionId, id: JobId) -> bool {
        let Some(asking) = self.connections.get(connection) else { return false };
        match self.jobs.get_mut(&id) {
            Some(job) if job.peer_uid == asking.peer.uid && job.is_live() => {
                job.end(EndedBy::Cancelled);
                true
            }
            _ => false,
        }
    }

    /// Begins to collect from the connection's ended command.
    fn collect(&mut self, connection: ConnectionId, sealed: Option<Vec<OwnedFd>>) {
        let request = sealed.and_then(|mut sealed| sealed.pop());
        let job =
            self.jobs.values_mut().find(|job| job.connection == connection && job.stage == Stage::Ended);
        // The one attempt there is goes first: a line in the trail and a hash are made once for each launch.
        let begun = request.zip(job).and_then(|(request, job)| Some((job.reentry.take()?, request, job)));
        let Some((namespaces, request, job)) = begun else {
            self.complain(format_args!("connection {connection}: nothing is to be collected, or not again"));
            return self.outbox.push(&ToServer::Collecting(connection), Vec::new());
        };
        let entry = fingerprint(&request).map(|request| Entry::Collected { job: name_of(job.id), request });
        let recorded = entry.and_then(|entry| self.audit.record(entry));
        let started = recorded.and_then(|()| job.collect(&self.resources, namespaces, request));
        let ends = started.map_err(|fault| {
            crate::log!("collecting failed: {}: {}", fault.detail, fault.errno.desc());
        });
        self.outbox.push(&ToServer::Collecting(connection), ends.into_iter().collect());
    }

    fn check_trail(&mut self, connection: ConnectionId) {
        let problem = self.audit.try_out().err();
        let errno = problem.as_ref().map(|fault| fault.errno as i32);
        let detail = problem.map(|fault| fault.to_string()).unwrap_or_default();
        self.outbox.push(&ToServer::Trail { connection, errno, detail }, Vec::new());
    }

    fn list_workspaces(&mut self, connection: ConnectionId) {
        let Some(uid) = self.connections.get(connection).map(|found| found.peer.uid) else { return };
        let list = self.resources.workspaces.list(uid).map_err(|fault| {
            crate::log!("listing workspaces failed: {}: {}", fault.detail, fault.errno.desc());
        });
        self.outbox.push(&ToServer::Workspaces(connection), list.into_iter().collect());
    }

    fn delete_workspace(&mut self, connection: ConnectionId, name: &str) {
        let Some(uid) = self.connections.get(connection).map(|found| found.peer.uid) else { return };
        // What is going away can do no harm: a name that it still makes is deleted like the others.
        let uses = |job: &Job| {
            job.stage != Stage::Dying && job.peer_uid == uid && job.workspace.as_deref() == Some(name)
        };
        let deletion = if self.jobs.values().any(uses) {
            Deletion::InUse
        } else {
            self.resources.workspaces.delete(uid, name)
        };
        if deletion == Deletion::Done {
            self.note(Entry::WorkspaceDeleted { uid, workspace: name.to_owned() });
        }
        self.outbox.push(&ToServer::WorkspaceDeleted { connection, deletion }, Vec::new());
    }

    /// Records how a command ended.
    pub(super) fn record_end(&mut self, id: JobId, outcome: &Outcome) {
        self.note(Entry::Ended {
            job: name_of(id),
            ended_by: outcome.ended_by,
            exit_code: outcome.exit_code,
            signal: outcome.signal,
            step: outcome.step.clone(),
            wall_ms: milliseconds(outcome.wall_us),
            cpu_ms: milliseconds(outcome.cpu_us),
            limits_hit: outcome.limits_hit.clone(),
        });
    }

    /// Records what has happened already: a failure is logged, and the next launch will fail by it.
    pub(super) fn note(&mut self, entry: Entry) {
        self.audit.note(entry);
    }

    /// As above, for whoever counts what cannot be; whether it is recorded.
    pub(super) fn try_to_note(&mut self, entry: Entry) -> bool {
        self.audit.record(entry).is_ok()
    }
}

/// A command's number as reports and the trail write it.
pub(super) fn name_of(id: JobId) -> String {
    format!("{id:016x}")
}

fn milliseconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1000.0
}
