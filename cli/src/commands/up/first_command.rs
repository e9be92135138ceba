//! One real command the whole way: HTTP, gateway, socket, executor, sandbox and back.

use super::{
    directory::Directory,
    events::{Event, Events},
};
use crate::failure::Failure;
use cordon_protocol::{EndedBy, ExitReport};
use serde_json::json;
use std::time::Duration;

/// What is run.
const LINE: &str = "echo \"hello from $(id -un)\"; uname -sr";
/// Time for the whole exchange; the command itself takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends it from a thread of its own; its report comes as an event.
pub(super) fn send(port: u16, token: &str, events: &Events) -> Result<(), Failure> {
    let token = token.to_owned();
    events.feed("first command", move |sender| {
        // When nobody waits any more we are being stopped.
        let _ = sender.send(Event::Answer(exchange(port, &token)));
    })
}

fn exchange(port: u16, token: &str) -> Result<Box<ExitReport>, Failure> {
    let url = format!("http://127.0.0.1:{port}/v1/exec");
    let failed = |cause: String| {
        Failure::new(format!("the first command (POST {url})"), cause, "the daemons' logs are above")
    };
    // No proxy, whatever the environment says: this is loopback and carries the token.
    let agent = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .proxy(None)
        .http_status_as_error(false)
        .build()
        .new_agent();
    let request = agent.post(&url).header("Authorization", format!("Bearer {token}"));
    let mut response = request.send_json(json!({ "command": LINE })).map_err(|e| failed(e.to_string()))?;
    let body = response.body_mut().read_to_string().map_err(|e| failed(e.to_string()))?;
    let status = response.status();
    if !status.is_success() {
        return Err(failed(format!("the gateway answered {status}: {body}")));
    }
    serde_json::from_str(&body).map_err(|e| failed(format!("the answer is not a report: {e}")))
}

/// Whether the report says that the command ran and ended well.
pub(super) fn is_good(report: &ExitReport) -> bool {
    report.ended_by == EndedBy::Exit && report.exit_code == Some(0)
}

/// What to try next, to be copied into a shell.
pub(super) fn invitation(directory: &Directory, port: u16) -> String {
    let token = quoted(&directory.token_file().to_string_lossy());
    let socket = quoted(&directory.executor_socket().to_string_lossy());
    // The program may not be in PATH.
    let program =
        std::env::current_exe().map_or_else(|_| "cordon".into(), |path| path.to_string_lossy().into_owned());
    let program = quoted(&program);
    format!(
        "\nTry next while it serves, as root or in the group cordon:\n  curl -sS -H \"Authorization: Bearer $(cat {token})\" \
         -H 'Content-Type: application/json' -d '{{\"command\":\"id\"}}' http://127.0.0.1:{port}/v1/exec\n  \
         {program} run --socket {socket} -- id\n"
    )
}

/// A word for the shell, also inside `$(…)`.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::run::sample;
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    fn answered(answer: String) -> (Result<Box<ExitReport>, Failure>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            let mut buffer = [0; 4096];
            while !asked.ends_with(b"}") {
                let n = stream.read(&mut buffer).unwrap();
                asked.extend_from_slice(&buffer[..n]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(asked).unwrap()
        });
        (exchange(port, "secret"), server.join().unwrap())
    }

    #[test]
    fn the_request_carries_token_and_command_and_the_report_comes_back() {
        let sent = ExitReport { exit_code: Some(0), ..sample() };
        let body = serde_json::to_string(&sent).unwrap();
        let (report, asked) =
            answered(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        assert_eq!(*report.unwrap(), sent);
        assert!(asked.starts_with("POST /v1/exec HTTP/1.1\r\n"), "{asked}");
        let lower = asked.to_lowercase();
        assert!(lower.contains("authorization: bearer secret\r\n"), "{asked}");
        assert!(lower.contains("content-type: application/json") && asked.contains("hello from"), "{asked}");
    }

    #[test]
    fn an_answer_that_is_no_report_is_told_with_its_text() {
        for (answer, says) in [
            ("HTTP/1.1 503 Away\r\ncontent-length: 4\r\n\r\naway", "503 Service Unavailable: away"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "not a report"),
        ] {
            let (report, _) = answered(answer.to_owned());
            let Err(Failure::Told { problem, .. }) = report else { panic!("{report:?}") };
            assert!(problem.contains(says), "{problem}");
        }
    }

    #[test]
    fn only_an_exit_with_0_is_good() {
        for (ended_by, exit_code, good) in [
            (EndedBy::Exit, Some(0), true),
            (EndedBy::Exit, Some(1), false),
            (EndedBy::Signal, None, false),
            (EndedBy::LaunchFailed, Some(0), false),
        ] {
            assert_eq!(is_good(&ExitReport { ended_by, exit_code, ..sample() }), good);
        }
    }

    #[test]
    fn a_path_is_one_word_for_the_shell() {
        assert_eq!(quoted("/run/cordon/token"), "/run/cordon/token");
        assert_eq!(quoted("/a b/it's"), "'/a b/it'\\''s'");
    }
}
