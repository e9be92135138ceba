//! `docs/protocol.md` and `docs/examples/wire.py`: types, limits, refusals and the example, byte for byte.

use super::{read, repository, table_after};
use crate::harness::process;
use cordon_protocol::{
    Action, CgroupMode, CollectedFile, Encoding, EndedBy, Enforced, Event, ExitReport, FileIn, Health, Hello,
    Hint, JobInfo, LayerReport, LimitInfo, LimitName, LimitRequest, NamespaceName, NetworkMode, ProfileInfo,
    Refusal, RefusalCode, Request, RunRequest, ServiceUse, WorkspaceInfo,
    codec::{FrameError, decode_payload, encode_frame, encode_payload, read_frame},
    limits,
};
use serde_json::Value;
use std::{collections::BTreeSet, process::Command};

const PAGE: &str = "docs/protocol.md";

/// The first block of code after a text.
fn block_after(page: &str, text: &str) -> String {
    let rest = &page[page.find(text).unwrap_or_else(|| panic!("no {text}"))..];
    let block = rest.split("```").nth(1).unwrap();
    block.split_once('\n').unwrap().1.trim_end().to_owned()
}

/// The variants of an enum as the page lists them, in order of their numbers.
fn variants(types: &str, name: &str) -> Vec<String> {
    let block = types.split("\n\n").find(|b| b.starts_with(&format!("enum {name}\n"))).unwrap();
    let variant = |(number, line): (usize, &str)| {
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some(number.to_string().as_str()), "{name}: {line}");
        words.next().unwrap().to_owned()
    };
    block.lines().skip(1).enumerate().map(variant).collect()
}

#[test]
fn the_page_and_the_example_have_the_same_types() {
    let program = read("docs/examples/wire.py");
    let types = program.split("TYPES = \"\"\"\n").nth(1).unwrap().split("\"\"\"").next().unwrap();
    assert_eq!(block_after(&read(PAGE), "## Types"), types.trim_end());
}

/// Every name of an enum without content has its number, and there is no further one.
macro_rules! assert_names {
    ($types:expr, $($name:ident)*) => {$({
        let names = variants($types, stringify!($name));
        for (number, name) in names.iter().enumerate() {
            let value = decode_payload::<$name>(&(number as u32).to_le_bytes());
            let value = value.unwrap_or_else(|e| panic!("{} {number}: {e}", stringify!($name)));
            assert_eq!(serde_json::to_value(value).unwrap(), Value::from(name.as_str()));
        }
        let further = decode_payload::<$name>(&(names.len() as u32).to_le_bytes());
        assert!(further.is_err(), "{} has more variants than the page", stringify!($name));
    })*};
}

#[test]
fn names_have_the_numbers_of_the_page() {
    let types = block_after(&read(PAGE), "## Types");
    assert_names!(&types, EndedBy Encoding LimitName CgroupMode NamespaceName NetworkMode RefusalCode Health);
    let codes: Vec<_> =
        table_after(PAGE, "## Refusals").iter().map(|row| row[0].trim_matches('`').to_owned()).collect();
    assert_eq!(codes, variants(&types, "RefusalCode"));
}

fn requests() -> Vec<Request> {
    let file = |path: &str, content: &[u8], mode| FileIn { path: path.into(), content: content.into(), mode };
    let limits = LimitRequest {
        wall_ms: Some(1),
        cpu_time_ms: Some(2),
        memory_bytes: None,
        pids: Some(u64::MAX),
        cpu_percent: Some(4),
        output_bytes: None,
        capture_bytes: Some(6),
    };
    let full = RunRequest {
        profile: Some("p".into()),
        action: Action::Argv(vec!["a".into(), String::new(), "ä€".into()]),
        cwd: Some("/tmp".into()),
        env: vec![("A".into(), "1".into()), ("B".into(), String::new())],
        stdin: true,
        stream: true,
        limits,
        workspace: Some("w-1".into()),
        files: vec![file("a/b", &[0, 255], Some(0o755)), file("c", &[], None)],
        collect: vec!["**/*.o".into(), ".ä".into()],
    };
    let errand = |action| Request::Run(Box::new(RunRequest::new(action)));
    let least = RunRequest::new(Action::Line("a | b".into()));
    vec![
        Request::Hello(Hello { version: 1, client: "x".into() }),
        Request::Run(Box::new(full)),
        Request::Run(Box::new(least)),
        errand(Action::Write { path: "a".into(), mode: Some(0o600) }),
        errand(Action::Write { path: "a".into(), mode: None }),
        errand(Action::Read { path: "a/b".into() }),
        errand(Action::Measure),
        errand(Action::Nothing),
        Request::Stdin(vec![0, 255, 10]),
        Request::Stdin(vec![]),
        Request::StdinEnd,
        Request::Ps,
        Request::Kill { id: "0123456789abcdef".into() },
        Request::Profiles,
        Request::Doctor,
        Request::Workspaces,
        Request::DeleteWorkspace { name: "w-1".into() },
    ]
}

fn report() -> ExitReport {
    ExitReport {
        id: "0123456789abcdef".into(),
        ended_by: EndedBy::OutOfMemory,
        exit_code: Some(-3),
        signal: Some("SIGKILL".into()),
        step: Some("exec".into()),
        stdout: Some("aä".into()),
        stderr: None,
        stdout_encoding: Encoding::Utf8,
        stderr_encoding: Encoding::Base64,
        stdout_bytes: 3,
        stderr_bytes: u64::MAX,
        stdout_truncated: true,
        stderr_truncated: false,
        wall_ms: 1.5,
        cpu_ms: 0.25,
        peak_memory_bytes: Some(7),
        limits_hit: vec![LimitName::Memory, LimitName::FileSize],
        enforced: Enforced {
            uid: 993,
            cgroup: CgroupMode::Sampled,
            landlock_abi: 7,
            seccomp: true,
            namespaces: vec![NamespaceName::Pid, NamespaceName::Net],
            network: NetworkMode::Host,
            capabilities: vec!["CAP_CHOWN".into()],
        },
        services: vec![ServiceUse { port: 5432, connections: 3, refused: 1 }],
        hint: Some(Hint { layer: "l".into(), what: "w".into(), remedy: "r".into() }),
    }
}

fn events() -> Vec<Event> {
    let text = |t: &str| t.to_owned();
    let profile = ProfileInfo {
        name: text("default"),
        shell: text("/bin/sh"),
        network: text("services"),
        services: vec![5432],
        read: vec![text("/usr"), text("/etc")],
        write: vec![],
        execute: vec![text("/usr")],
        limits: vec![LimitInfo { name: text("wall"), default: text("1m"), ceiling: text("1h") }],
        concurrency: 32,
    };
    let job = JobInfo {
        id: text("-"),
        profile: text("default"),
        command: text("c"),
        state: text("queued"),
        position: Some(3),
        age_ms: 9,
    };
    let layer = LayerReport {
        layer: text("cgroup"),
        health: Health::Lesser,
        detail: text("d"),
        remedy: Some(text("r")),
    };
    let file = CollectedFile {
        path: text("a"),
        mode: 0o640,
        size: 9,
        content: vec![0, 255],
        truncated: true,
        problem: None,
    };
    let none = CollectedFile { content: vec![], problem: Some(text("no file matches")), ..file.clone() };
    let refusal = Refusal { code: RefusalCode::Busy, message: text("m"), hint: None };
    vec![
        Event::Started { id: text("1") },
        Event::Stdout(vec![1, 2, 255]),
        Event::Stderr(vec![]),
        Event::Exited(Box::new(report())),
        Event::Refused(refusal),
        Event::Jobs(vec![job.clone(), job]),
        Event::Killed { id: text("1") },
        Event::Profiles(vec![profile]),
        Event::Doctor(vec![layer]),
        Event::Queued { position: 3 },
        Event::File(file),
        Event::File(none),
        Event::Workspaces(vec![WorkspaceInfo { name: text("w"), modified: 7 }]),
        Event::WorkspaceDeleted { name: text("w") },
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes of streams and files in base64, as the example shows them.
fn with_base64(mut value: Value) -> Value {
    use base64::{Engine, engine::general_purpose::STANDARD};
    match &mut value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let bytes = ["Stdin", "Stdout", "Stderr", "content"].contains(&name.as_str());
                *field = match serde_json::from_value::<Vec<u8>>(field.clone()) {
                    Ok(raw) if bytes => STANDARD.encode(raw).into(),
                    _ => with_base64(field.take()),
                };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = with_base64(item.take())),
        _ => {}
    }
    value
}

/// What the example makes of lines.
fn wire(direction: &str, of: &str, lines: &[String]) -> Vec<String> {
    let mut command = Command::new("/usr/bin/python3");
    command.arg("-B").arg(repository().join("docs/examples/wire.py")).args([direction, of]);
    let ran = process::run(command, (lines.join("\n") + "\n").as_bytes());
    assert_eq!(ran.status, 0, "{direction} {of}: {}", ran.stderr);
    ran.text().lines().map(str::to_owned).collect()
}

/// The example decodes what the programs send, and encodes it to the same bytes.
fn assert_understood(of: &str, samples: Vec<(Vec<u8>, Value)>) {
    let payloads: Vec<_> = samples.iter().map(|(payload, _)| hex(payload)).collect();
    let decoded = wire("decode", of, &payloads);
    let values: Vec<Value> = decoded.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected: Vec<_> = samples.iter().map(|(_, value)| with_base64(value.clone())).collect();
    assert_eq!(values, expected);
    assert_eq!(wire("encode", of, &decoded), payloads);
    // Every variant was among them.
    let seen: BTreeSet<u8> = samples.iter().map(|(payload, _)| payload[0]).collect();
    let count = variants(&block_after(&read(PAGE), "## Types"), of).len();
    assert_eq!(seen.len(), count, "{of}: a variant has no sample");
}

#[test]
fn another_language_reads_and_writes_the_same_bytes() {
    let sample = |r: &Request| (encode_payload(r).unwrap(), serde_json::to_value(r).unwrap());
    assert_understood("Request", requests().iter().map(sample).collect());
    let sample = |e: &Event| (encode_payload(e).unwrap(), serde_json::to_value(e).unwrap());
    assert_understood("Event", events().iter().map(sample).collect());
}

#[test]
fn the_page_has_every_request_and_event() {
    let types = block_after(&read(PAGE), "## Types");
    // The decoder names how many there are when a number is beyond the last.
    let most = |error: Result<(), FrameError>| error.unwrap_err().to_string();
    let beyond = 1000_u32.to_le_bytes();
    for (name, error) in [
        ("Request", most(decode_payload::<Request>(&beyond).map(drop))),
        ("Event", most(decode_payload::<Event>(&beyond).map(drop))),
        ("Action", most(decode_payload::<Action>(&beyond).map(drop))),
    ] {
        let count = variants(&types, name).len();
        assert!(error.contains(&format!("0 <= i < {count}")), "{name}: {count} on the page, but {error}");
    }
}

#[test]
fn the_limits_of_the_page_are_those_of_the_code() {
    let millis = |d: std::time::Duration| d.as_millis() as u64;
    let expected = [
        ("PROTOCOL_VERSION", u64::from(limits::PROTOCOL_VERSION)),
        ("REQUEST_FRAME_MAX", limits::REQUEST_FRAME_MAX as u64),
        ("EVENT_FRAME_MAX", limits::EVENT_FRAME_MAX as u64),
        ("CHUNK_MAX", limits::CHUNK_MAX as u64),
        ("ARGUMENT_MAX_BYTES", limits::ARGUMENT_MAX_BYTES as u64),
        ("ARGUMENTS_MAX_BYTES", limits::ARGUMENTS_MAX_BYTES as u64),
        ("CWD_MAX_BYTES", limits::CWD_MAX_BYTES as u64),
        ("WORKSPACE_NAME_MAX", limits::WORKSPACE_NAME_MAX as u64),
        ("WORKSPACES_PER_PEER", limits::WORKSPACES_PER_PEER as u64),
        ("FILES_MAX", limits::FILES_MAX as u64),
        ("FILES_BYTES_MAX", limits::FILES_BYTES_MAX as u64),
        ("COLLECT_PATTERNS_MAX", limits::COLLECT_PATTERNS_MAX as u64),
        ("COLLECTED_FILE_MAX", limits::COLLECTED_FILE_MAX as u64),
        ("COLLECTED_BYTES_MAX", limits::COLLECTED_BYTES_MAX as u64),
        ("COLLECT_TIMEOUT", millis(limits::COLLECT_TIMEOUT)),
        ("HELLO_TIMEOUT", millis(limits::HELLO_TIMEOUT)),
        ("DRAIN_GRACE", millis(limits::DRAIN_GRACE)),
        ("CONNECTIONS_PER_PEER", limits::CONNECTIONS_PER_PEER as u64),
        ("CONNECTIONS_TOTAL", limits::CONNECTIONS_TOTAL as u64),
    ];
    let rows = table_after(PAGE, "## Limits");
    let found: Vec<_> = rows.iter().map(|r| (r[0].trim_matches('`'), r[1].parse().unwrap())).collect();
    assert_eq!(found, expected);
}

/// The bytes of the example's lines that begin so.
fn example(direction: &str) -> Vec<u8> {
    let page = read(PAGE);
    let block = block_after(&page, "## An exchange");
    let lines = block.lines().filter_map(|line| line.strip_prefix(direction));
    let words = lines.flat_map(|line| line.trim_start().split("  ").next().unwrap().split(' '));
    words.map(|word| u8::from_str_radix(word, 16).unwrap_or_else(|e| panic!("{word}: {e}"))).collect()
}

#[test]
fn the_exchange_of_the_page_is_a_real_one() {
    let hello = Request::Hello(Hello { version: 1, client: "x".into() });
    let run = RunRequest {
        profile: None,
        action: Action::Argv(vec!["printf".into(), "hi".into()]),
        cwd: None,
        env: vec![],
        stdin: false,
        stream: true,
        ..RunRequest::new(Action::Nothing)
    };
    let sent = [hello, Request::Run(Box::new(run))];
    let bytes: Vec<u8> =
        sent.iter().flat_map(|r| encode_frame(r, limits::REQUEST_FRAME_MAX).unwrap()).collect();
    assert_eq!(example(">"), bytes);
    let bytes = example("<");
    let mut rest = &bytes[..];
    let mut events = Vec::new();
    while let Some(event) = read_frame::<Event>(&mut rest, limits::EVENT_FRAME_MAX).unwrap() {
        events.push(event);
    }
    let [Event::Started { id }, Event::Stdout(data), Event::Exited(report)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((&data[..], id, report.exit_code), (&b"hi"[..], &report.id, Some(0)));
}
