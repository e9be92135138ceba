//! One real command the whole way: HTTP, gateway, socket, executor, sandbox and back.

use super::{
    directory::Directory,
    events::{Event, Events},
};
use crate::failure::Failure;
use serde_json::{Value, json};
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

fn exchange(port: u16, token: &str) -> Result<Value, Failure> {
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
    serde_json::from_str(&body).map_err(|e| failed(format!("the report is not JSON: {e}")))
}

/// Whether the report says that the command ran and ended well.
pub(super) fn is_good(report: &Value) -> bool {
    report["ended_by"] == "exit" && report["exit_code"] == 0
}

/// What to try next, to be copied into a shell.
pub(super) fn invitation(directory: &Directory, port: u16) -> String {
    let token = quoted(&directory.token_file().to_string_lossy());
    let socket = quoted(&directory.executor_socket().to_string_lossy());
    format!(
        "\nServing until Ctrl-C. Try next:\n  curl -sS -H \"Authorization: Bearer $(cat {token})\" \
         -H 'Content-Type: application/json' -d '{{\"command\":\"id\"}}' http://127.0.0.1:{port}/v1/exec\n  \
         cordon run --socket {socket} -- id\n"
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
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    fn answered(answer: &'static str) -> (Result<Value, Failure>, String) {
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
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 34\r\n\r\n{\"ended_by\":\"exit\",\"exit_code\":0}\n";
        let (report, asked) = answered(answer);
        assert!(is_good(&report.unwrap()));
        assert!(asked.starts_with("POST /v1/exec HTTP/1.1\r\n"), "{asked}");
        let lower = asked.to_lowercase();
        assert!(lower.contains("authorization: bearer secret\r\n"), "{asked}");
        assert!(lower.contains("content-type: application/json") && asked.contains("hello from"), "{asked}");
    }

    #[test]
    fn a_refusal_of_the_gateway_is_told_with_its_text() {
        let (report, _) = answered("HTTP/1.1 503 Away\r\ncontent-length: 4\r\n\r\naway");
        let Err(Failure::Told { problem, .. }) = report else { panic!("{report:?}") };
        assert!(problem.contains("503") && problem.ends_with(": away"), "{problem}");
    }

    #[test]
    fn only_an_exit_with_0_is_good() {
        assert!(is_good(&json!({"ended_by": "exit", "exit_code": 0})));
        for report in
            [json!({"ended_by": "exit", "exit_code": 1}), json!({"ended_by": "signal"}), json!(null)]
        {
            assert!(!is_good(&report));
        }
    }

    #[test]
    fn a_path_is_one_word_for_the_shell() {
        assert_eq!(quoted("/run/cordon/token"), "/run/cordon/token");
        assert_eq!(quoted("/a b/it's"), "'/a b/it'\\''s'");
    }
}
