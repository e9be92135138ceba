//! Services of a profile: the sandbox's listening sockets on their way to the server half, which relays what comes
//! by them, and its word on how they were used.
//!
//! The numbers are the server half's own: the monitor relays nothing. What it knows itself is whose they are.

use super::{
    Monitor,
    job::Job,
    link::{ConnectionId, JobId, ServiceCounts, ToServer},
    requests::name_of,
};
use crate::sandbox::message::Report;
use cordon_protocol::audit::Entry;
use nix::errno::Errno;
use std::{collections::HashMap, os::fd::OwnedFd};

/// Commands whose connections the server relays or has relayed, until it has said how many, or has let go of the
/// client.
pub(super) type Relayed = HashMap<ConnectionId, (JobId, Vec<u16>)>;

impl Job {
    /// Takes the listening sockets that init has made; each service has one, or one for each kind of address.
    pub(super) fn take_listening(&mut self, listening: Vec<OwnedFd>) {
        let services = self.plan.profile.services.len();
        if services > 0 && [services, 2 * services].contains(&listening.len()) {
            self.listening = listening;
        } else {
            let (step, errno) = ("init_services".to_owned(), Errno::EPROTO as i32);
            self.verdict.fail(Report::Failed { step, errno, detail: String::new() });
        }
    }
}

impl Monitor {
    /// Hands a command's listening sockets to the server, once.
    pub(super) fn hand_over_listening(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.listening.is_empty()) else { return };
        let listening = std::mem::take(&mut job.listening);
        let services = job.plan.profile.services.clone();
        let ports = services.iter().cycle().take(listening.len()).copied().collect();
        let connection = job.connection;
        if self.connections.get(connection).is_none() {
            // It has let go of the client: nobody is left to relay for.
            return;
        }
        self.relayed.insert(connection, (id, services));
        self.outbox.push(&ToServer::Services { connection, ports }, listening);
    }

    /// Records what the server says of an ended command's services, once.
    pub(super) fn record_services(&mut self, connection: ConnectionId, counts: &[ServiceCounts]) {
        let Some((id, ports)) = self.relayed.remove(&connection) else {
            return self.complain(format_args!("numbers of services that nobody used"));
        };
        if counts.len() != ports.len() {
            return self.complain(format_args!(
                "numbers of {} services, not of {}",
                counts.len(),
                ports.len()
            ));
        }
        let used = ports.iter().zip(counts);
        let services = used.clone().map(|(port, counts)| counts.of(*port)).collect();
        self.note(Entry::Services { job: name_of(id), services });
        for (port, counts) in used.filter(|(_, counts)| counts.refused() > 0) {
            let ServiceCounts { over_cap, unreachable, .. } = *counts;
            self.note(Entry::ServiceRefused {
                job: name_of(id),
                port: (*port).into(),
                over_cap,
                unreachable,
            });
        }
    }
}
