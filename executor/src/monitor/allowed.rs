//! Which message of the server is allowed in which state of what it names.

use super::{job, link::ToMonitor, peers};

/// Whether the message may be obeyed now: `connection` and `command` are how far the connection that it
/// names has come and its command; none where there is none (any more).
pub(super) fn is_allowed(
    message: &ToMonitor,
    connection: Option<peers::Stage>,
    command: Option<job::Stage>,
) -> bool {
    match message {
        ToMonitor::Launch { .. } | ToMonitor::Refused { .. } => connection == Some(peers::Stage::Open),
        ToMonitor::Cancel(_) | ToMonitor::OutputExceeded(_) => command.is_some_and(job::Stage::is_live),
        ToMonitor::KillJob { .. } | ToMonitor::Closed(_) => connection.is_some(),
        // Also of a connection that is closed: its command has still to go.
        ToMonitor::Drained(_) => matches!(command, Some(job::Stage::Ended | job::Stage::Collecting)),
        ToMonitor::Collect(_) => command == Some(job::Stage::Ended),
        ToMonitor::ListWorkspaces(_) | ToMonitor::DeleteWorkspace { .. } | ToMonitor::CheckTrail(_) => {
            connection.is_some()
        }
        // Also when what is left of it has gone already.
        ToMonitor::Services { .. } => connection.is_some() && !command.is_some_and(job::Stage::is_live),
        ToMonitor::Pong => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::link::{AskedLimits, Denial};
    use job::Stage::{Collecting, Dying, Ended, Launching, Running, Told};
    use peers::Stage::{Open, Used};

    /// Every message; a line each for a connection that is not there, is open, is used up; a column each for
    /// no command, and for one that is being launched, told to go, running, ended, collected from, going away.
    const TABLE: [(&str, [&str; 3]); 13] = [
        ("Launch", [".......", "xxxxxxx", "......."]),
        ("Cancel", [".xxx...", ".xxx...", ".xxx..."]),
        ("OutputExceeded", [".xxx...", ".xxx...", ".xxx..."]),
        ("KillJob", [".......", "xxxxxxx", "xxxxxxx"]),
        ("Drained", ["....xx.", "....xx.", "....xx."]),
        ("Collect", ["....x..", "....x..", "....x.."]),
        ("ListWorkspaces", [".......", "xxxxxxx", "xxxxxxx"]),
        ("DeleteWorkspace", [".......", "xxxxxxx", "xxxxxxx"]),
        ("Closed", [".......", "xxxxxxx", "xxxxxxx"]),
        ("Services", [".......", "x...xxx", "x...xxx"]),
        ("Refused", [".......", "xxxxxxx", "......."]),
        ("CheckTrail", [".......", "xxxxxxx", "xxxxxxx"]),
        ("Pong", ["xxxxxxx", "xxxxxxx", "xxxxxxx"]),
    ];

    #[test]
    fn every_message_is_allowed_where_the_table_says_so_and_nowhere_else() {
        let (name, limits) = (String::new, AskedLimits::default());
        let launch = ToMonitor::Launch {
            connection: 1,
            profile: name(),
            workspace: name(),
            stdin: false,
            files: false,
            adds: false,
            collect: false,
            limits,
        };
        let messages = [
            launch,
            ToMonitor::Cancel(1),
            ToMonitor::OutputExceeded(1),
            ToMonitor::KillJob { connection: 1, job: 2 },
            ToMonitor::Drained(1),
            ToMonitor::Collect(1),
            ToMonitor::ListWorkspaces(1),
            ToMonitor::DeleteWorkspace { connection: 1, name: name() },
            ToMonitor::Closed(1),
            ToMonitor::Services { connection: 1, counts: Vec::new() },
            ToMonitor::Refused { connection: 1, profile: name(), denial: Denial::Busy },
            ToMonitor::CheckTrail(1),
            ToMonitor::Pong,
        ];
        let connections = [None, Some(Open), Some(Used)];
        let commands =
            [None, Some(Launching), Some(Told), Some(Running), Some(Ended), Some(Collecting), Some(Dying)];
        for (message, (name, rows)) in messages.iter().zip(TABLE) {
            assert!(format!("{message:?}").starts_with(name), "{message:?} is not {name}");
            for (connection, row) in connections.into_iter().zip(rows) {
                let found = commands.map(|command| is_allowed(message, connection, command));
                let found: String = found.map(|allowed| if allowed { 'x' } else { '.' }).iter().collect();
                assert_eq!(found, row, "{name} where the connection is {connection:?}");
            }
        }
    }
}
