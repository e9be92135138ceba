//! Kinds of runs through the gateway.

use super::{
    doors::{Doors, expect},
    mix::Kind,
};
use crate::Failure;
use cordon_protocol::{EndedBy, FullReport};
use serde_json::json;

const JSON: &str = "Content-Type: application/json\r\n";
const STREAM: &str = "Content-Type: application/json\r\nAccept: text/event-stream\r\n";
const EXEC: &str = "POST /v1/exec";

/// Those of this file.
pub(super) const KINDS: &[Kind] = &[
    Kind { name: "HTTP", share: 8, run: several },
    Kind { name: "HTTP, streamed", share: 3, run: streamed },
    Kind { name: "HTTP, connection closed", share: 3, run: closed },
    Kind { name: "HTTP, output flood", share: 2, run: flood },
    Kind { name: "HTTP, files in and out", share: 2, run: files },
    Kind { name: "HTTP, refused", share: 2, run: refused },
];

/// On one connection.
fn several(doors: &Doors, _: usize) -> Result<(), Failure> {
    let mut http = doors.http()?;
    for status in [0, 3] {
        let report = http.exec(&json!({"command": format!("exit {status}")}).to_string())?;
        expect(Some(status), report.exit_code)?;
    }
    Ok(())
}

fn streamed(doors: &Doors, _: usize) -> Result<(), Failure> {
    let mut http = doors.http()?;
    http.send(EXEC, STREAM, &json!({"command": "seq 5000; exit 3"}).to_string())?;
    expect(200, http.answer()?.status)?;
    while let Some(line) = http.line()? {
        if line.starts_with("data:") && line.contains("\"exit_code\":3") {
            return Ok(());
        }
    }
    Err("the stream ended without a report".into())
}

fn closed(doors: &Doors, number: usize) -> Result<(), Failure> {
    let mut http = doors.http()?;
    let request = json!({"command": "echo started; (setsid sleep 600 &); sleep 600; :"}).to_string();
    if number.is_multiple_of(2) {
        return http.send(EXEC, JSON, &request);
    }
    http.send(EXEC, STREAM, &request)?;
    expect(200, http.answer()?.status)?;
    while http.line()?.is_some_and(|line| !line.contains("stdout")) {}
    Ok(())
}

fn flood(doors: &Doors, _: usize) -> Result<(), Failure> {
    let request = json!({"argv": ["yes"], "output_bytes": 1 << 20});
    expect(EndedBy::OutputLimit, doors.http()?.exec(&request.to_string())?.ended_by)
}

fn files(doors: &Doors, _: usize) -> Result<(), Failure> {
    let request = json!({
        "command": "mkdir out && cp in/a out",
        "files": [{"path": "in/a", "content": "x".repeat(10_000)}],
        "collect": ["out/*"],
    });
    let mut http = doors.http()?;
    http.send(EXEC, JSON, &request.to_string())?;
    let answer: FullReport = serde_json::from_slice(&http.answer()?.body)?;
    expect(Some(1), answer.collected.map(|files| files.iter().filter(|f| f.problem.is_none()).count()))
}

fn refused(doors: &Doors, number: usize) -> Result<(), Failure> {
    let mut http = doors.http()?;
    let body = match number % 3 {
        0 => "{",
        1 => r#"{"argv": ["true"], "profile": "nobody-has-it"}"#,
        _ => r#"{"argv": ["true"], "nobody-knows-it": 1}"#,
    };
    http.send(EXEC, JSON, body)?;
    expect(4, http.answer()?.status / 100)
}
