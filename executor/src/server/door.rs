//! The words of whoever asks: each way in has its own names for what a request can say.
//!
//! A hello says which program the client is. Nothing but the wording of messages depends on it, so that it may be
//! believed.

use crate::monitor::link::LimitField;
use cordon_protocol::{Bytes, Millis};

/// The way in that a person used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// `cordon run` and its options.
    Cli,
    /// A JSON body for the gateway.
    Http,
    /// A program of its own on the socket.
    Socket,
}

impl Door {
    /// The door of a client that introduces itself so, as `cordon/1.2.3`.
    pub(super) fn of_client(name: &str) -> Self {
        match name.split_once('/').map(|(program, _)| program) {
            Some("cordon") => Self::Cli,
            Some("cordon-gateway") => Self::Http,
            _ => Self::Socket,
        }
    }

    /// What a limit is called here; none where it cannot be asked for.
    pub(super) fn limit(self, field: LimitField) -> Option<&'static str> {
        use LimitField as L;
        Some(match (self, field) {
            (Self::Cli, L::Wall) => "--timeout",
            (Self::Cli, L::Memory) => "--memory",
            (Self::Cli, L::Pids) => "--pids",
            (Self::Cli, L::Capture) => "--capture",
            (Self::Cli, L::Output) => "--output",
            (Self::Http, L::Wall) => "timeout_ms",
            (Self::Cli | Self::Http, L::CpuTime | L::Cpu) => return None,
            (Self::Socket, L::Wall) => "wall_ms",
            (Self::Socket, L::CpuTime) => "cpu_time_ms",
            (Self::Socket, L::Cpu) => "cpu_percent",
            (Self::Http | Self::Socket, L::Memory) => "memory_bytes",
            (Self::Http | Self::Socket, L::Pids) => "pids",
            (Self::Http | Self::Socket, L::Capture) => "capture_bytes",
            (Self::Http | Self::Socket, L::Output) => "output_bytes",
        })
    }

    /// A value of a limit as it would be written here, and as people read it.
    pub(super) fn value(self, field: LimitField, value: u64) -> String {
        let shown = match field {
            _ if self == Self::Cli => return field.show(value),
            LimitField::Wall | LimitField::CpuTime => Millis(value).to_string(),
            LimitField::Memory | LimitField::Capture | LimitField::Output => Bytes(value).to_string(),
            LimitField::Pids | LimitField::Cpu => return value.to_string(),
        };
        if shown == value.to_string() { shown } else { format!("{value} ({shown})") }
    }

    /// The line for the shell.
    pub(super) fn line(self) -> &'static str {
        if self == Self::Cli { "-c" } else { "command" }
    }

    /// All arguments together.
    pub(super) fn arguments(self) -> &'static str {
        if self == Self::Cli { "CMD" } else { "argv" }
    }

    /// One argument; the program is number 0.
    pub(super) fn argument(self, index: usize) -> String {
        match (self, index) {
            (Self::Cli, 0) => "CMD".to_owned(),
            (Self::Cli, index) => format!("ARG {index}"),
            _ => format!("argv[{index}]"),
        }
    }

    /// The environment.
    pub(super) fn env(self) -> &'static str {
        if self == Self::Cli { "--env" } else { "env" }
    }

    /// How one entry of the environment is written.
    pub(super) fn env_form(self) -> &'static str {
        match self {
            Self::Cli => "write each entry as NAME=VALUE",
            Self::Http => "write it as {\"NAME\": \"VALUE\"}",
            Self::Socket => "write each entry as a name and a value",
        }
    }

    /// The working directory.
    pub(super) fn cwd(self) -> &'static str {
        if self == Self::Cli { "--cwd" } else { "cwd" }
    }

    /// How a file comes along with a request.
    pub(super) fn files(self) -> &'static str {
        if self == Self::Cli { "with --file" } else { "in `files`" }
    }

    /// Permission bits as they are written here.
    pub(super) fn mode(self, mode: u32) -> String {
        match self {
            Self::Cli => format!("{mode:o}"),
            Self::Http => format!("\"{mode:04o}\""),
            Self::Socket => format!("{mode:#o}"),
        }
    }

    /// What shows which workspaces there are.
    pub(super) fn workspaces(self) -> &'static str {
        match self {
            Self::Cli => "`cordon workspace list` shows yours",
            Self::Http => "GET /v1/workspaces lists those there are",
            Self::Socket => "`Workspaces` lists this user's",
        }
    }

    /// How a workspace is named.
    pub(super) fn workspace(self) -> &'static str {
        if self == Self::Cli { "--workspace" } else { "workspace" }
    }

    /// How a workspace of this name that holds too much is made smaller, under the profile of that name.
    pub(super) fn smaller_workspace(self, profile: &str, name: &str) -> String {
        let in_it = "a command in it".to_owned();
        let (command, all) = match self {
            Self::Cli => (
                format!("`cordon run --workspace {name} -c 'rm …'`"),
                format!("`cordon workspace delete {name}`"),
            ),
            Self::Http => (in_it, format!("DELETE /v1/workspaces/{name}")),
            Self::Socket => (in_it, "`DeleteWorkspace`".to_owned()),
        };
        format!(
            "remove some of it with {command}, or all with {all}, or raise profiles.{profile}.limits.named_workspace or \
             .named_workspace_files"
        )
    }

    /// How one of several workspaces is got rid of.
    pub(super) fn fewer_workspaces(self) -> &'static str {
        match self {
            Self::Cli => {
                "delete those that are not needed: `cordon workspace list`, `cordon workspace delete NAME`"
            }
            Self::Http => {
                "delete those that are not needed: GET /v1/workspaces, DELETE /v1/workspaces/{name}"
            }
            Self::Socket => "delete those that are not needed: `Workspaces`, `DeleteWorkspace`",
        }
    }

    /// How a command that is in the way goes.
    pub(super) fn end_command(self) -> &'static str {
        match self {
            Self::Cli => "wait for its end, or end it: `cordon ps`, `cordon kill ID`",
            Self::Http => "wait for its end, or end it: close the connection that it was sent over",
            Self::Socket => "wait for its end, or end it: `Ps`, `Kill`",
        }
    }

    /// The profile.
    pub(super) fn profile(self) -> &'static str {
        if self == Self::Cli { "--profile" } else { "profile" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_known_by_its_program() {
        assert_eq!(Door::of_client("cordon/0.1.0"), Door::Cli);
        assert_eq!(Door::of_client("cordon-gateway/9"), Door::Http);
        for other in ["", "cordon", "client.py", "cordon-x/1", "x/cordon/1"] {
            assert_eq!(Door::of_client(other), Door::Socket, "{other}");
        }
    }

    #[test]
    fn every_limit_has_a_name_on_the_socket_and_values_are_written_as_they_are_sent() {
        for field in LimitField::ALL {
            assert!(
                Door::Socket.limit(field).is_some_and(|name| name.starts_with(field.name())),
                "{field:?}"
            );
        }
        assert_eq!(Door::Cli.value(LimitField::Memory, 2 << 30), "2G");
        assert_eq!(Door::Http.value(LimitField::Memory, 2 << 30), "2147483648 (2G)");
        assert_eq!(Door::Http.value(LimitField::Wall, 1500), "1500 (1500ms)");
        assert_eq!(Door::Socket.value(LimitField::Output, 10), "10");
        assert_eq!(Door::Socket.value(LimitField::Cpu, 150), "150");
    }
}
