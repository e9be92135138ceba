//! What a command has left in its named workspace: told in its report where it may be too much, and remembered for the
//! next one.

use super::{
    Monitor,
    arriving::Arrived,
    job::{Job, Stage},
    link::{JobId, Outcome, ToMonitor, ToServer},
    policy::{authorize, resolve},
    resources::caps_of,
};
use cordon_protocol::{EndedBy, LimitName};
use std::time::{Duration, Instant};

/// Longest that a launch waits for one in a workspace of which something is known: others that start and end there all the
/// time would hold it up for ever.
pub(super) const LOOK_WAIT: Duration = Duration::from_secs(2);
/// Longest that a report waits for the last look.
const HELD: Duration = Duration::from_secs(1);

/// An outcome that waits for the last look at the workspace.
#[derive(Debug)]
pub(super) struct HeldReport {
    /// How the command ended.
    pub(super) outcome: Outcome,
    /// Told then, whatever is known.
    pub(super) until: Instant,
}

impl Monitor {
    /// Takes in how a command ended. Where the disk says that it may have left too much, that is looked at first.
    pub(super) fn hold_report(&mut self, id: JobId, outcome: Outcome, now: Instant) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let known = matches!(outcome.ended_by, EndedBy::DiskLimit | EndedBy::LaunchFailed);
        let looks = !known && job.disk.as_mut().is_some_and(|disk| disk.look_back(now));
        let until = if looks { now + HELD } else { now };
        if looks {
            // The time of its pipes is the server's too, which begins with the report.
            job.schedule.end(until);
        }
        job.held_report = Some(HeldReport { outcome, until });
    }

    /// Tells how a command ended, once nothing is to be waited for.
    pub(super) fn report_held(&mut self, id: JobId, now: Instant) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let looks = job.disk.as_mut().is_some_and(|disk| disk.is_looking_back(now));
        let Some(HeldReport { mut outcome, .. }) =
            job.held_report.take_if(|held| !looks || now >= held.until)
        else {
            return;
        };
        if job.stage == Stage::Ended {
            job.schedule.end(now);
        }
        let is_over = job.disk.as_ref().is_some_and(|disk| {
            // One that was let add nothing and failed may have failed of that, even where it has made room meanwhile.
            disk.exceeds() || disk.began_full() && outcome.exit_code != Some(0)
        });
        if is_over && !outcome.limits_hit.contains(&LimitName::Disk) {
            outcome.limits_hit.push(LimitName::Disk);
        }
        let connection = job.connection;
        self.record_end(id, &outcome);
        self.outbox.push(&ToServer::Ended { connection, outcome }, Vec::new());
    }

    /// Remembers what a command's watch has found.
    pub(super) fn remember_found(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let (Some(disk), Some(name)) = (&mut job.disk, &job.workspace) else { return };
        if let Some(found) = disk.take_found() {
            self.resources.workspaces.remember(job.peer_uid, name, found);
        }
    }

    /// Forgets a command of which nothing is left, and has what it left in its workspace counted.
    pub(super) fn look_after(&mut self, id: JobId) {
        let Some(job) = self.jobs.remove(&id) else { return };
        if let Some(name) = &job.workspace {
            self.resources.workspaces.look(job.peer_uid, name, caps_of(&job.plan.profile));
            self.resources.workspaces.go_on();
        }
    }

    /// When the time of a launch is over, which begins when it is taken; none for one that will be refused.
    pub(super) fn time_is_over_at(&self, arrived: &Arrived) -> Option<Instant> {
        let ToMonitor::Launch { connection, profile, limits, .. } = arrived.message() else { return None };
        let peer = &self.connections.get(*connection)?.peer;
        let plan = authorize(&self.plans, profile, peer).ok()?;
        let limits = resolve(&plan.profile, limits).ok()?;
        Some(arrived.since + Duration::from_millis(limits.wall_ms))
    }

    /// Whether a launch has to wait until it is known how much is in its workspace.
    pub(super) fn awaits_look(&mut self, arrived: &Arrived) -> bool {
        let ToMonitor::Launch { connection, profile, workspace, files, adds, .. } = arrived.message() else {
            return false;
        };
        if workspace.is_empty() {
            return false;
        }
        let Some(peer) = self.connections.get(*connection).map(|found| &found.peer) else { return false };
        // What is refused does not wait.
        let Ok(plan) = authorize(&self.plans, profile, peer) else { return false };
        let (uid, caps) = (peer.uid, caps_of(&plan.profile));
        let ends =
            |job: &Job| !job.is_live() && job.peer_uid == uid && job.workspace.as_ref() == Some(workspace);
        let ends = self.jobs.values().any(ends);
        let patient = arrived.since.elapsed() < LOOK_WAIT;
        let waits =
            self.resources.workspaces.awaits_look((uid, workspace), caps, ends, *files || *adds, patient);
        self.resources.workspaces.go_on();
        waits
    }
}
