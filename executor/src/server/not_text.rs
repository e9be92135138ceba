//! Which text of a request is not UTF-8: the decoder only says that one is not.
//!
//! What it did not take is read once more into the same shape with bytes where the text should be.

use super::{
    door::Door,
    refusal::{quoted, refuse},
};
use cordon_protocol::{LimitRequest, Refusal, RefusalCode, codec::decode_payload};
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use std::{fmt, str::from_utf8};

/// Text as it came, or other bytes.
struct Raw(Vec<u8>);

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl Visitor<'_> for Bytes {
            type Value = Raw;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Raw, E> {
                Ok(Raw(bytes.to_vec()))
            }

            fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Raw, E> {
                Ok(Raw(bytes))
            }
        }

        deserializer.deserialize_byte_buf(Bytes)
    }
}

/// [`cordon_protocol::Request`], variant by variant and field by field.
#[derive(Deserialize)]
enum Request {
    Hello { _version: u32, client: Raw },
    Run(Box<Run>),
    Stdin { _piece: Raw },
    StdinEnd,
    Ps,
    Kill { id: Raw },
    Profiles,
    Doctor,
    Workspaces,
    DeleteWorkspace { name: Raw },
}

#[derive(Deserialize)]
struct Run {
    profile: Option<Raw>,
    action: Action,
    cwd: Option<Raw>,
    env: Vec<(Raw, Raw)>,
    _stdin: bool,
    _stream: bool,
    _limits: LimitRequest,
    workspace: Option<Raw>,
    files: Vec<File>,
    collect: Vec<Raw>,
}

#[derive(Deserialize)]
struct File {
    path: Raw,
    _content: Raw,
    _mode: Option<u32>,
}

#[derive(Deserialize)]
enum Action {
    Argv(Vec<Raw>),
    Line(Raw),
    Write { path: Raw, _mode: Option<u32> },
    Read { path: Raw },
    Measure,
    Nothing,
}

/// Names the text that is the reason why the decoder did not take this payload; none where it is another.
pub(super) fn refused_text(payload: &[u8], door: Door) -> Option<Refusal> {
    let request: Request = decode_payload(payload).ok()?;
    let (field, Raw(bytes)) =
        texts(&request, door).into_iter().find(|(_, Raw(text))| from_utf8(text).is_err())?;
    let wrong = from_utf8(bytes).err()?.valid_up_to();
    let byte = bytes.get(wrong)?;
    let shown = quoted(&String::from_utf8_lossy(bytes));
    let message = format!("{field}: is not UTF-8: byte {wrong} of {shown} is 0x{byte:02x}");
    let hint = format!("send text as UTF-8, and other bytes as standard input or {}", door.files());
    Some(refuse(RefusalCode::BadRequest, message, hint))
}

/// Every text of a request, and what it is called.
fn texts(request: &Request, door: Door) -> Vec<(String, &Raw)> {
    let named = |name: &str| name.to_owned();
    match request {
        Request::Hello { client, .. } => vec![(named("client"), client)],
        Request::Run(run) => texts_of_run(run, door),
        Request::Kill { id } => vec![(named("id"), id)],
        Request::DeleteWorkspace { name } => vec![(named("name"), name)],
        Request::Stdin { .. }
        | Request::StdinEnd
        | Request::Ps
        | Request::Profiles
        | Request::Doctor
        | Request::Workspaces => Vec::new(),
    }
}

fn texts_of_run(run: &Run, door: Door) -> Vec<(String, &Raw)> {
    let mut texts = Vec::new();
    texts.extend(run.profile.iter().map(|name| (door.profile().to_owned(), name)));
    match &run.action {
        Action::Argv(argv) => {
            texts.extend(argv.iter().enumerate().map(|(index, argument)| (door.argument(index), argument)));
        }
        Action::Line(line) => texts.push((door.line().to_owned(), line)),
        Action::Write { path, .. } | Action::Read { path } => texts.push(("path".to_owned(), path)),
        Action::Measure | Action::Nothing => {}
    }
    texts.extend(run.cwd.iter().map(|cwd| (door.cwd().to_owned(), cwd)));
    for (name, value) in &run.env {
        let shown = quoted(&String::from_utf8_lossy(&name.0));
        texts.push((door.env().to_owned(), name));
        texts.push((format!("{} {shown}", door.env()), value));
    }
    texts.extend(run.workspace.iter().map(|name| ("workspace".to_owned(), name)));
    texts.extend(run.files.iter().enumerate().map(|(i, file)| (format!("files[{i}].path"), &file.path)));
    texts.extend(run.collect.iter().enumerate().map(|(i, glob)| (format!("collect[{i}]"), glob)));
    texts
}

#[cfg(test)]
mod tests {
    use super::*;
    use cordon_protocol::{self as protocol, FileIn, Hello, RunRequest, codec::encode_payload};

    /// The payload with the only `Q` in it made a byte that no text has.
    fn spoilt(request: &protocol::Request) -> Vec<u8> {
        let mut payload = encode_payload(request).unwrap();
        let marks: Vec<_> = payload.iter().enumerate().filter(|(_, b)| **b == b'Q').map(|(i, _)| i).collect();
        let [mark] = marks[..] else { panic!("{marks:?}") };
        payload[mark] = 0xe9;
        payload
    }

    fn run(change: impl FnOnce(&mut RunRequest)) -> protocol::Request {
        let mut request = RunRequest {
            profile: Some("default".into()),
            cwd: Some("/tmp".into()),
            env: vec![("A".into(), "1".into()), ("B".into(), "2".into())],
            stdin: true,
            limits: LimitRequest { pids: Some(7), ..LimitRequest::default() },
            workspace: Some("w".into()),
            files: ["f", "g"].map(|p| FileIn { path: p.into(), content: vec![0xff], mode: Some(1) }).into(),
            collect: vec!["*".into(), "x".into()],
            ..RunRequest::new(protocol::Action::Argv(["a", "b", "c"].map(str::to_owned).into()))
        };
        change(&mut request);
        protocol::Request::Run(Box::new(request))
    }

    #[test]
    fn whichever_text_it_is_it_is_named() {
        use protocol::{Action, Request};
        let caf = || "cafQ".to_owned();
        let action = |action| run(|r| r.action = action);
        for (request, field) in [
            (Request::Hello(Hello { version: 1, client: caf() }), "client"),
            (Request::Kill { id: caf() }, "id"),
            (Request::DeleteWorkspace { name: caf() }, "name"),
            (run(|r| r.profile = Some(caf())), "profile"),
            (action(Action::Argv(vec!["a".into(), "b".into(), caf()])), "argv[2]"),
            (action(Action::Line(caf())), "command"),
            (action(Action::Write { path: caf(), mode: Some(1) }), "path"),
            (action(Action::Read { path: caf() }), "path"),
            (run(|r| r.cwd = Some(caf())), "cwd"),
            (run(|r| r.env[1].0 = caf()), "env"),
            (run(|r| r.env[1].1 = caf()), "env `B`"),
            (run(|r| r.workspace = Some(caf())), "workspace"),
            (run(|r| r.files[1].path = caf()), "files[1].path"),
            (run(|r| r.collect[1] = caf()), "collect[1]"),
        ] {
            let refusal = refused_text(&spoilt(&request), Door::Socket).unwrap();
            assert_eq!(refusal.code, RefusalCode::BadRequest);
            let expected = format!("{field}: is not UTF-8: byte 3 of `caf\u{fffd}` is 0xe9");
            assert_eq!(refusal.message, expected);
            assert_eq!(
                refusal.hint.as_deref(),
                Some("send text as UTF-8, and other bytes as standard input or in `files`")
            );
        }
        for action in [Action::Measure, Action::Nothing] {
            let request = run(|r| (r.action, r.cwd) = (action, Some(caf())));
            assert!(refused_text(&spoilt(&request), Door::Socket).is_some());
        }
    }

    #[test]
    fn what_is_refused_for_something_else_is_not_blamed_on_a_text() {
        let whole = encode_payload(&run(|_| {})).unwrap();
        assert!(refused_text(&whole, Door::Socket).is_none());
        let short = &spoilt(&run(|r| r.cwd = Some("Q".into())))[..60];
        assert!(refused_text(short, Door::Socket).is_none());
        assert!(refused_text(&[0xff; 64], Door::Socket).is_none());
    }
}
