//! `POST /v1/exec`: a command as JSON, its report as JSON or its events as a stream.

use super::{
    Gateway, answer,
    body::{Listed, Object, too_many},
    files::{FileField, into_files},
    stream,
};
use crate::{
    error::{ApiError, ErrorBody},
    executor::Finished,
    memory::Client,
    stall::Leisure,
};
use axum::{
    body::{Body, Bytes},
    extract::{Extension, State},
    http::{HeaderMap, header},
    response::Response,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use cordon_protocol::{Action, Collected, FullReport, LimitRequest, RunRequest, limits};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use std::{collections::BTreeMap, fmt};
use utoipa::ToSchema;

/// A command: exactly one of `command` and `argv`; everything else may be left out.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    /// A line for the profile's shell (`bash -c LINE`).
    #[schema(example = "echo hello; exit 3")]
    command: Option<String>,
    /// A program and its arguments, no shell between.
    #[schema(value_type = Option<Vec<String>>)]
    argv: Option<Listed<String, ARGV_MAX>>,
    /// Profile; `default` where none is named.
    profile: Option<String>,
    /// Named workspace, which stays when the command has ended and is made where there is none of that name; a
    /// private one that goes with the command where none is named.
    #[schema(example = "my-project")]
    workspace: Option<String>,
    /// Working directory inside the sandbox; the workspace where none is named.
    cwd: Option<String>,
    /// Environment entries beside the profile's.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    env: Option<Entries>,
    /// Standard input; `/dev/null` where there is none.
    stdin: Option<StdinField>,
    /// Files that are put into the workspace before the command starts: at most 256, of 12 MiB together.
    #[schema(value_type = Option<Vec<FileField>>)]
    files: Option<Listed<Object<FileField>, { limits::FILES_MAX }>>,
    /// Patterns of files, relative to the workspace, that come back after the command's end: `*`, `?`, `[a-z]`, and
    /// `**` for any directories, through no link; with `/` at the end directories with all that is in them. At most 64; they bring at most 256 files, of 4 MiB each and 16 MiB together.
    #[schema(value_type = Option<Vec<String>>, example = json!(["dist/*.tar", "**/*.log"]))]
    collect: Option<Listed<String, { limits::COLLECT_PATTERNS_MAX }>>,
    /// Time by the clock, milliseconds.
    timeout_ms: Option<u64>,
    /// Memory of all processes together, bytes.
    memory_bytes: Option<u64>,
    /// Processes and threads.
    pids: Option<u64>,
    /// Output of both streams after which the command is ended, bytes.
    output_bytes: Option<u64>,
    /// Output kept in the report, per stream, bytes.
    capture_bytes: Option<u64>,
}

/// Text as it is, or any bytes in base64.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected text or {\"base64\": text}")]
enum StdinField {
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Base64Field),
}

/// Bytes in base64 (RFC 4648, 4, with padding).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, from = "Object<RawBase64Field>")]
struct Base64Field {
    /// The bytes.
    base64: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBase64Field {
    base64: String,
}

impl From<Object<RawBase64Field>> for Base64Field {
    fn from(Object(raw): Object<RawBase64Field>) -> Self {
        Self { base64: raw.base64 }
    }
}

/// Environment entries, each name once: of two, serde would keep the later one and say nothing.
#[derive(Debug, Default)]
struct Entries(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;

        impl<'de> Visitor<'de> for Names {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of names to values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    if entries.contains_key(&name) {
                        return Err(A::Error::custom(format!("`{name}` is given twice")));
                    }
                    if entries.len() == ENV_MAX {
                        return Err(too_many(ENV_MAX));
                    }
                    entries.insert(name, value);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Names)
    }
}

impl ExecRequest {
    /// What the executor is asked, and the standard input.
    fn into_parts(self, stream: bool) -> Result<(RunRequest, Option<Bytes>), ApiError> {
        let action = match (self.command, self.argv) {
            (Some(line), None) => Action::Line(line),
            (None, Some(Listed(argv))) => Action::Argv(argv),
            (Some(_), Some(_)) => {
                return Err(ApiError::bad_request("command and argv: only one of them can be run")
                    .hint("send `command` for a shell line, or `argv` for a program with its arguments"));
            }
            (None, None) => {
                return Err(ApiError::bad_request("command or argv: one of them is needed")
                    .hint("send {\"command\": \"echo hello\"} or {\"argv\": [\"echo\", \"hello\"]}"));
            }
        };
        let stdin = self.stdin.map(StdinField::into_bytes).transpose()?;
        let request = RunRequest {
            profile: self.profile,
            workspace: self.workspace,
            files: into_files(self.files.unwrap_or_default().0)?,
            collect: self.collect.unwrap_or_default().0,
            cwd: self.cwd,
            env: self.env.unwrap_or_default().0.into_iter().collect(),
            stdin: stdin.is_some(),
            stream,
            limits: LimitRequest {
                wall_ms: self.timeout_ms,
                memory_bytes: self.memory_bytes,
                pids: self.pids,
                output_bytes: self.output_bytes,
                capture_bytes: self.capture_bytes,
                ..LimitRequest::default()
            },
            ..RunRequest::new(action)
        };
        check_size(&request)?;
        Ok((request, stdin))
    }
}

impl StdinField {
    fn into_bytes(self) -> Result<Bytes, ApiError> {
        match self {
            Self::Text(text) => Ok(text.into()),
            Self::Bytes(field) => STANDARD.decode(field.base64).map(Bytes::from).map_err(|error| {
                ApiError::bad_request(format!("stdin.base64: not base64: {error}"))
                    .hint("encode it as RFC 4648, 4 says, with padding, or send text as `stdin`")
            }),
        }
    }
}

/// What can never be executed does not travel: it might not even fit into a frame.
fn check_size(request: &RunRequest) -> Result<(), ApiError> {
    let cost = |text: &str| text.len() + ENTRY_COST;
    let action = match &request.action {
        Action::Line(line) => cost(line),
        Action::Argv(argv) => argv.iter().map(|argument| cost(argument)).sum(),
        Action::Write { .. } | Action::Read { .. } | Action::Measure | Action::Nothing => 0,
    };
    let env: usize = request.env.iter().map(|(name, value)| cost(name) + cost(value)).sum();
    let rest =
        request.cwd.iter().chain(&request.profile).chain(&request.workspace).map(String::len).sum::<usize>();
    let (total, most) = (action + env + rest, limits::ARGUMENTS_MAX_BYTES);
    if total > most {
        let field = if matches!(request.action, Action::Line(_)) { "command" } else { "argv" };
        let message = format!(
            "{field}, env, cwd, profile and workspace: {total} bytes are over the limit of {most} bytes"
        );
        return Err(ApiError::bad_request(message).hint("send large data as stdin"));
    }
    let paths: usize = request.files.iter().map(|file| cost(&file.path)).sum();
    let patterns: usize = request.collect.iter().map(|pattern| cost(pattern)).sum();
    let (total, most) = (paths + patterns, NAMES_MAX);
    if total > most {
        let message =
            format!("paths of files, and collect: {total} bytes are over the limit of {most} bytes");
        return Err(ApiError::bad_request(message).hint("a path has at most 4095 bytes"));
    }
    Ok(())
}

/// Bytes that an entry costs beside its own (execve(2)): a terminator and a pointer.
const ENTRY_COST: usize = 1 + size_of::<usize>();
/// Arguments that could be executed if each were empty: more are not even read.
const ARGV_MAX: usize = limits::ARGUMENTS_MAX_BYTES / ENTRY_COST;
/// The same, of environment entries.
const ENV_MAX: usize = limits::ARGUMENTS_MAX_BYTES / (2 * ENTRY_COST);

/// Paths and patterns together, as many and as long as the executor takes them, bytes.
const NAMES_MAX: usize = (limits::FILES_MAX + limits::COLLECT_PATTERNS_MAX) * (4 << 10);

/// Run a command.
///
/// The answer is 200 whatever ended the command; `ended_by` and `exit_code` say what did. With
/// `Accept: text/event-stream` it is a stream of events: `queued` (QueuedEvent) whenever its place among those that
/// wait has changed, `started` (StartedEvent), `stdout` and `stderr` (OutputEvent), `file` (Collected) for each
/// collected file, `exit` (ExitReport, with `stdout` and `stderr` null), or `error` (ErrorBody) where the end is not
/// known. A client that leaves ends the command.
#[utoipa::path(
    post,
    path = "/v1/exec",
    tag = "commands",
    security(("bearer" = []), ("key" = [])),
    request_body = ExecRequest,
    responses(
        (status = 200, description = "How it ended", content(
            (FullReport = "application/json"),
            (String = "text/event-stream"),
        )),
        (status = 400, description = "Malformed, or a limit or profile that is refused", body = ErrorBody),
        (status = 401, description = "Token missing or wrong", body = ErrorBody),
        (status = 403, description = "Host, Origin or the gateway itself is not allowed", body = ErrorBody),
        (status = 408, description = "The body did not arrive in time", body = ErrorBody),
        (status = 413, description = "The body is too large", body = ErrorBody),
        (status = 415, description = "The body is not JSON", body = ErrorBody),
        (status = 429, description = "Too many at once; see Retry-After", body = ErrorBody),
        (status = 500, description = "Cordon's own failure", body = ErrorBody),
        (status = 503, description = "The executor is away or ending; or the command has run, and its report found no room", body = ErrorBody),
    )
)]
pub async fn exec(
    State(gateway): State<Gateway>,
    Extension(client): Extension<Client>,
    Extension(leisure): Extension<Leisure>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let wants_stream = wants_stream(&headers);
    let parts = move |request: ExecRequest| {
        let wants_files = request.collect.is_some();
        request.into_parts(wants_stream).map(|(request, stdin)| (request, stdin, wants_files))
    };
    let ((request, stdin, wants_files), room) = gateway.body.read_json(&headers, body, parts).await?;
    let mut run = gateway.executor.run(request, stdin, room).await?;
    // The status is still open until the executor has taken the command or refused it.
    let first = run.next_event().await?;
    if wants_stream {
        return Ok(stream::respond(run, first, stream::Taker { reports: gateway.reports, client, leisure }));
    }
    let mut room = gateway.reports.room(client);
    let Finished { report, files, held } = run.finish(first, &mut room).await?;
    let collected = wants_files.then(|| files.into_iter().map(Collected::from).collect());
    answer::report(FullReport { report, collected }, held, room).await
}

/// Whether the client lists `text/event-stream` among what it accepts.
fn wants_stream(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = values.flat_map(|value| value.split(',')).filter_map(|item| item.split(';').next());
    types.any(|name| name.trim().eq_ignore_ascii_case("text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(json: &str) -> Result<(RunRequest, Option<Bytes>), ApiError> {
        serde_json::from_str::<ExecRequest>(json).unwrap().into_parts(false)
    }

    #[test]
    fn every_field_arrives() {
        let (request, stdin) = parts(
            r#"{"argv":["a",""],"profile":"p","cwd":"/tmp","env":{"B":"2","A":"1"},"stdin":{"base64":"/wA="},
                "timeout_ms":1,"memory_bytes":2,"pids":3,"output_bytes":4,"capture_bytes":5}"#,
        )
        .unwrap();
        assert_eq!(stdin.as_deref(), Some(&[0xff, 0][..]));
        let limits = LimitRequest {
            wall_ms: Some(1),
            memory_bytes: Some(2),
            pids: Some(3),
            output_bytes: Some(4),
            capture_bytes: Some(5),
            ..LimitRequest::default()
        };
        let wanted = RunRequest {
            profile: Some("p".into()),
            cwd: Some("/tmp".into()),
            env: vec![("A".into(), "1".into()), ("B".into(), "2".into())],
            stdin: true,
            limits,
            ..RunRequest::new(Action::Argv(vec!["a".into(), String::new()]))
        };
        assert_eq!(request, wanted);
        let (request, stdin) = parts(r#"{"command":"ls","stdin":""}"#).unwrap();
        assert!(request.stdin && stdin.is_some_and(|s| s.is_empty()), "empty is not the same as none");
    }

    #[test]
    fn what_cannot_be_run_is_refused_here() {
        for (json, word) in [
            ("{}", "command or argv"),
            (r#"{"command":"x","argv":["x"]}"#, "only one"),
            (r#"{"command":"x","stdin":{"base64":"?"}}"#, "stdin.base64"),
        ] {
            let error = parts(json).unwrap_err();
            assert!(error.status == 400 && error.message.contains(word), "{error}");
        }
        let many = serde_json::json!({ "argv": vec!["x"; 210_000] }).to_string();
        assert!(parts(&many).unwrap_err().message.starts_with("argv"));
        let long = serde_json::json!({ "command": "x".repeat(limits::ARGUMENTS_MAX_BYTES) }).to_string();
        assert!(parts(&long).unwrap_err().message.starts_with("command"));
    }

    #[test]
    fn of_a_list_no_more_is_read_than_can_be_run() {
        // After the entry too many there is no JSON any more, which nobody comes to see.
        let list = |entry: &str, most: usize, open: &str| {
            format!("{open}{} nonsense", format!("{entry},").repeat(most + 1))
        };
        let object = r#""A":"""#;
        let numbered: String = (0..=ENV_MAX).map(|i| format!(r#""{i}":"","#)).collect();
        for (body, most) in [
            (list(r#""""#, ARGV_MAX, r#"{"argv":["#), ARGV_MAX),
            (list(r#"{"path":"a"}"#, limits::FILES_MAX, r#"{"files":["#), limits::FILES_MAX),
            (list(r#""*""#, limits::COLLECT_PATTERNS_MAX, r#"{"collect":["#), limits::COLLECT_PATTERNS_MAX),
            (format!(r#"{{"env":{{{numbered} nonsense"#), ENV_MAX),
        ] {
            let error = serde_json::from_str::<ExecRequest>(&body).unwrap_err().to_string();
            assert!(error.contains(&format!("more entries than the limit of {most}")), "{error}");
        }
        assert!(serde_json::from_str::<ExecRequest>(&format!(r#"{{"env":{{{object}}}}}"#)).is_ok());
    }

    #[test]
    fn accept_is_a_list() {
        let wants =
            |value: &str| wants_stream(&HeaderMap::from_iter([(header::ACCEPT, value.parse().unwrap())]));
        assert!(wants("text/event-stream") && wants("application/json, Text/Event-Stream;q=0.5"));
        assert!(!wants("*/*") && !wants("application/json") && !wants("text/event-streams"));
    }
}
