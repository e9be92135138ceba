//! Every limit of the protocol and the default profile, in one place.

use std::time::Duration;

/// Version of the protocol; a peer of another version is refused by name.
pub const PROTOCOL_VERSION: u32 = 1;

/// Largest payload of a frame a client may send: a whole argument list (2 MiB), files, and some room, bytes.
pub const REQUEST_FRAME_MAX: usize = 16 << 20;
/// Largest payload of a frame the executor sends: two captured streams at their ceiling in base64, bytes.
pub const EVENT_FRAME_MAX: usize = 32 << 20;
/// Largest piece of standard input or output in one frame, bytes.
pub const CHUNK_MAX: usize = 64 << 10;

/// Most bytes of arguments and environment together, terminators and pointers included
/// (execve(2): a quarter of the 8 MiB stack, less what the kernel itself puts there).
pub const ARGUMENTS_MAX_BYTES: usize = (2 << 20) - (64 << 10);
/// Longest single argument or environment entry, terminator included (execve(2), MAX_ARG_STRLEN), bytes.
pub const ARGUMENT_MAX_BYTES: usize = 128 << 10;
/// Longest working directory (PATH_MAX with its terminator, limits.h), bytes.
pub const CWD_MAX_BYTES: usize = 4095;
/// Profiles of one configuration, `default` among them: a peer's are a bit each.
pub const PROFILES_MAX: usize = 64;
/// Longest name of a profile, bytes.
pub const NAME_MAX_BYTES: usize = 64;
/// Largest sealed request that the monitor forwards, bytes.
pub const SEALED_REQUEST_MAX: u64 = 4 << 20;
/// Largest sealed content of files that the monitor forwards, bytes.
pub const SEALED_FILES_MAX: u64 = FILES_BYTES_MAX as u64;
/// Largest sealed list of patterns that the monitor forwards, bytes: [`COLLECT_PATTERNS_MAX`] of the longest.
pub const SEALED_PATTERNS_MAX: u64 = 512 << 10;

/// Longest name of a workspace, bytes.
pub const WORKSPACE_NAME_MAX: usize = 64;
/// Named workspaces of one peer.
pub const WORKSPACES_PER_PEER: usize = 1000;
/// Files that one request may bring, and as many may be collected.
pub const FILES_MAX: usize = 256;
/// Bytes in the files that one request brings, together.
pub const FILES_BYTES_MAX: usize = 12 << 20;
/// Bytes of one collected file; of a larger one the beginning is sent.
pub const COLLECTED_FILE_MAX: usize = 4 << 20;
/// Bytes of all collected files of one command together.
pub const COLLECTED_BYTES_MAX: usize = 16 << 20;
/// Patterns of one request.
pub const COLLECT_PATTERNS_MAX: usize = 64;
/// Time for collecting.
pub const COLLECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Services of one profile.
pub const SERVICES_MAX: usize = 16;
/// Connections of one command to its services at once.
pub const SERVICE_CONNECTIONS_MAX: usize = 64;
/// Time for a service of the host to take a connection.
pub const SERVICE_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for a client to send its hello and its request.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections one peer may hold open at once.
pub const CONNECTIONS_PER_PEER: usize = 512;
/// Connections of all peers together.
pub const CONNECTIONS_TOTAL: usize = 2048;
/// How long the report waits for a pipe that something else than the command keeps open.
pub const DRAIN_GRACE: Duration = Duration::from_millis(200);
/// Time for a sandbox to report ready.
pub const LAUNCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that running commands are given after SIGTERM to the executor.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// Port of the gateway on 127.0.0.1.
pub const GATEWAY_PORT: u16 = 3800;
/// Longest HTTP request body, bytes: the files that one request may bring in base64, a whole argument list, and
/// some standard input.
pub const HTTP_BODY_MAX: usize = 24 << 20;

/// Where the packaged executor listens.
pub const EXECUTOR_SOCKET: &str = "/run/cordon/executor.sock";
/// Where the packaged gateway listens beside its TCP port.
pub const GATEWAY_SOCKET: &str = "/run/cordon/gateway.sock";
/// Where the packaged executor keeps its audit trail.
pub const AUDIT_FILE: &str = "/var/log/cordon/audit.jsonl";
/// Environment variable that names the executor's socket to the command-line program.
pub const SOCKET_VARIABLE: &str = "CORDON_SOCKET";
/// Name of the profile that is used when none is named.
pub const DEFAULT_PROFILE: &str = "default";

/// Whether this is a workspace's name: lower-case letters, digits, `.`, `_` and `-`, the first one a letter or a
/// digit, at most [`WORKSPACE_NAME_MAX`] bytes. None of them is a path or hidden.
pub fn is_workspace_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let rest = |b: u8| plain(b) || matches!(b, b'.' | b'_' | b'-');
    name.len() <= WORKSPACE_NAME_MAX && name.bytes().next().is_some_and(plain) && name.bytes().all(rest)
}

/// What is to be done about a name that is none.
pub fn workspace_name_rule() -> String {
    format!(
        "use lower-case letters, digits, `.`, `_` and `-`, the first one a letter or a digit, at most \
         {WORKSPACE_NAME_MAX} characters"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_s_name_is_never_a_path() {
        let longest = "a".repeat(WORKSPACE_NAME_MAX);
        for name in ["a", "0", "my-project_2.1", &longest] {
            assert!(is_workspace_name(name), "{name}");
        }
        let longer = "a".repeat(WORKSPACE_NAME_MAX + 1);
        for name in ["", ".", "..", ".a", "-a", "a/b", "../a", "A", "ä", "a b", "a\0", "a\n", &longer] {
            assert!(!is_workspace_name(name), "{name:?}");
        }
    }
}
