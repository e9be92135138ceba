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
        ToMonitor::Launch { .. } => connection == Some(peers::Stage::Open),
        ToMonitor::Cancel(_) | ToMonitor::OutputExceeded(_) => command.is_some_and(job::Stage::is_live),
        ToMonitor::KillJob { .. } | ToMonitor::Closed(_) => connection.is_some(),
        // Also of a connection that is closed: its command has still to go.
        ToMonitor::Drained(_) => command == Some(job::Stage::Ended),
        ToMonitor::Pong => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::link::AskedLimits;
    use job::Stage::{Dying, Ended, Launching, Running, Told};
    use peers::Stage::{Open, Used};

    /// Every message; a line each for a connection that is not there, is open, is used up; a column each for
    /// no command, and for one that is being launched, told to go, running, ended, going away.
    const TABLE: [(&str, [&str; 3]); 7] = [
        ("Launch", ["......", "xxxxxx", "......"]),
        ("Cancel", [".xxx..", ".xxx..", ".xxx.."]),
        ("OutputExceeded", [".xxx..", ".xxx..", ".xxx.."]),
        ("KillJob", ["......", "xxxxxx", "xxxxxx"]),
        ("Drained", ["....x.", "....x.", "....x."]),
        ("Closed", ["......", "xxxxxx", "xxxxxx"]),
        ("Pong", ["xxxxxx", "xxxxxx", "xxxxxx"]),
    ];

    #[test]
    fn every_message_is_allowed_where_the_table_says_so_and_nowhere_else() {
        let (profile, limits) = (String::new(), AskedLimits::default());
        let messages = [
            ToMonitor::Launch { connection: 1, profile, stdin: false, limits },
            ToMonitor::Cancel(1),
            ToMonitor::OutputExceeded(1),
            ToMonitor::KillJob { connection: 1, job: 2 },
            ToMonitor::Drained(1),
            ToMonitor::Closed(1),
            ToMonitor::Pong,
        ];
        let connections = [None, Some(Open), Some(Used)];
        let commands = [None, Some(Launching), Some(Told), Some(Running), Some(Ended), Some(Dying)];
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
