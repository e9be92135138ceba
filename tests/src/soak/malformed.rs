//! What no client sends: bytes from a corpus and of valid requests, changed by a seed that is the run's number. Each
//! connection must be answered or closed, whatever came; nothing hangs.

use super::{
    doors::{Doors, expect},
    mix::Kind,
};
use crate::Failure;
use cordon_protocol::{
    Action, Event, Hello, Request, RunRequest,
    codec::{encode_frame, read_frame},
    limits::{EVENT_FRAME_MAX, PROTOCOL_VERSION, REQUEST_FRAME_MAX},
};
use fastrand::Rng;
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    time::Duration,
};

/// Those of this file.
pub(super) const KINDS: &[Kind] = &[
    Kind { name: "frames, as they are", share: 1, run: |doors, number| frames(doors, number, 0) },
    Kind { name: "frames, changed", share: 40, run: |doors, number| frames(doors, number, 4) },
    Kind { name: "HTTP, as it is", share: 1, run: |doors, number| http(doors, number, 0) },
    Kind { name: "HTTP, changed", share: 40, run: |doors, number| http(doors, number, 4) },
    Kind { name: "frames, connections dropped", share: 2, run: frames_dropped },
    Kind { name: "HTTP, connections dropped", share: 2, run: http_dropped },
    Kind { name: "a command meanwhile", share: 1, run: |doors, _| doors.exits(&argv(&["true"]), 0) },
];

/// Files of the corpus, with their names.
macro_rules! corpus {
    ($directory:literal, $($name:literal)*) => {
        &[$(($name, include_bytes!(concat!("../../corpus/", $directory, "/", $name)))),*]
    };
}

/// What is sent on a connection to the executor; each breaks one rule.
#[rustfmt::skip]
const FRAMES: &[(&str, &[u8])] = corpus!("frames",
    "a-list-of-all-the-memory" "byte-left-over" "hello-twice" "http" "length-without-payload" "nothing" "oversize"
    "stdin-before-a-command" "text-longer-than-all" "text-of-two-gigabytes" "text-that-is-no-utf8" "unknown-variant"
);

/// What is sent on a connection to the gateway; `{host}` and `{token}` stand for the instance's own.
#[rustfmt::skip]
const HTTP: &[(&str, &[u8])] = corpus!("http",
    "absolute-target" "chunk-without-end" "connect" "deep-json" "expect" "folded-header" "http10" "http2-preface"
    "huge-chunk" "huge-length" "length-and-chunks" "many-headers" "negative-length" "numbers" "path"
    "space-before-colon" "surrogate" "tls-hello" "two-lengths" "upgrade"
);

/// Longest time for an answer, or the end.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long an answer may take that may as well not come.
const GLANCE: Duration = Duration::from_millis(5);
/// Connections that one run drops.
const DROPPED: usize = 25;

fn argv(arguments: &[&str]) -> RunRequest {
    RunRequest::new(Action::Argv(arguments.iter().map(|a| (*a).to_owned()).collect()))
}

/// Requests that clients send, each after a hello.
fn valid_frames() -> Result<Vec<Vec<u8>>, Failure> {
    let mut asking = argv(&["cat"]);
    asking.stdin = true;
    asking.env = vec![("NAME".to_owned(), "value".to_owned())];
    asking.cwd = Some("/tmp".to_owned());
    let requests: [&[Request]; 5] = [
        &[Request::Run(Box::new(argv(&["true"])))],
        &[Request::Run(Box::new(asking)), Request::Stdin(b"some text".to_vec()), Request::StdinEnd],
        &[Request::Ps],
        &[Request::Kill { id: "0000000000000001".to_owned() }],
        &[Request::Profiles],
    ];
    let hello = Request::Hello(Hello { version: PROTOCOL_VERSION, client: "soak".to_owned() });
    let bytes = |requests: &&[Request]| {
        let all = std::iter::once(&hello).chain(requests.iter());
        let frames =
            all.map(|request| encode_frame(request, REQUEST_FRAME_MAX)).collect::<Result<Vec<_>, _>>();
        frames.map(|frames| frames.concat())
    };
    Ok(requests.iter().map(bytes).collect::<Result<_, _>>()?)
}

/// Requests that clients send, with the same places for host and token as the corpus.
fn valid_http() -> Vec<Vec<u8>> {
    let head = "Host: {host}\r\nAuthorization: Bearer {token}\r\n";
    let post = |headers: &str, body: &str| {
        let length = body.len();
        let json = "Content-Type: application/json";
        format!("POST /v1/exec HTTP/1.1\r\n{head}{headers}{json}\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let texts = [
        post("", r#"{"argv": ["true"], "env": {"A": "b"}, "timeout_ms": 5000, "stdin": {"base64": "eA=="}}"#),
        post("Accept: text/event-stream\r\n", r#"{"command": "echo x", "collect": ["*.txt"]}"#),
        post("", r#"{"command": "cat in", "files": [{"path": "in", "content": "x", "mode": "0600"}]}"#),
        format!("GET /v1/workspaces HTTP/1.1\r\n{head}\r\n"),
        "GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".to_owned(),
    ];
    texts.map(String::into_bytes).to_vec()
}

/// One of these, changed in up to so many places.
fn changed(random: &mut Rng, from: &[Vec<u8>], most: usize) -> Vec<u8> {
    let pick = |random: &mut Rng| from.get(random.usize(..from.len())).cloned().unwrap_or_default();
    let mut bytes = pick(random);
    for _ in 0..random.usize(..=most) {
        let at = random.usize(..=bytes.len());
        let end = bytes.len().min(at + random.usize(..=16));
        match random.u8(..8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => drop(bytes.splice(
                at..end,
                random.choice([&[0_u8; 8], &[0xff; 8], &[0x80; 8]]).copied().unwrap_or_default(),
            )),
            3 => drop(bytes.splice(at..end, std::iter::repeat_with(|| random.u8(..)).take(end - at))),
            4 => {
                let again = bytes.get(at..end).unwrap_or_default().to_vec();
                bytes.splice(at..at, again.iter().copied().cycle().take(again.len() * random.usize(1..64)));
            }
            5 => {
                let other = pick(random);
                bytes.extend(other.get(random.usize(..=other.len())..).unwrap_or_default());
            }
            6 => {
                // A number of this width, as lengths are.
                let value = random.choice([0_u64, 1, 0x7f, 0xffff, 1 << 24, 1 << 31, u64::MAX]).unwrap_or(0);
                let width = *random.choice(&[1_usize, 2, 4, 8]).unwrap_or(&4);
                for (place, byte) in
                    bytes.iter_mut().skip(at).zip(value.to_le_bytes().into_iter().take(width))
                {
                    *place = byte;
                }
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.u8(..8);
                }
            }
        }
    }
    bytes
}

/// Whether a connection was closed by the other side while something was still on its way.
fn hung_up(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::NotConnected)
}

fn unless_hung_up(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if hung_up(&error) { Ok(()) } else { Err(error) })
}

/// Sends bytes to the executor: what comes back is events, and then the end.
fn frames(doors: &Doors, number: usize, most: usize) -> Result<(), Failure> {
    let mut random = Rng::with_seed(number as u64);
    let mut from = valid_frames()?;
    from.extend(FRAMES.iter().map(|(_, bytes)| bytes.to_vec()));
    let bytes = changed(&mut random, &from, most);
    let mut stream = UnixStream::connect(&doors.socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let seen = (|| {
        unless_hung_up(stream.write_all(&bytes))?;
        unless_hung_up(stream.shutdown(Shutdown::Write))?;
        while read_frame::<Event>(&mut stream, EVENT_FRAME_MAX)?.is_some() {}
        Ok::<_, Failure>(())
    })();
    match seen {
        Err(error) if !ended(error.as_ref()) => {
            Err(format!("{number}, {}: {error}", bytes.escape_ascii()).into())
        }
        _ => Ok(()),
    }
}

/// Whether it says that the connection was closed, between frames or not.
fn ended(error: &(dyn std::error::Error + 'static)) -> bool {
    use cordon_protocol::codec::FrameError;
    match error.downcast_ref::<FrameError>() {
        Some(FrameError::Io(error)) => hung_up(error),
        _ => false,
    }
}

/// Sends bytes to the gateway: what comes back is HTTP, or nothing, and then the end.
fn http(doors: &Doors, number: usize, most: usize) -> Result<(), Failure> {
    let mut random = Rng::with_seed(number as u64);
    let mut from = valid_http();
    from.extend(HTTP.iter().map(|(_, bytes)| bytes.to_vec()));
    let bytes = doors.named(&changed(&mut random, &from, most));
    let mut stream = doors.tcp()?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut answer = Vec::new();
    unless_hung_up(stream.write_all(&bytes))?;
    // What is not closed now waits for more.
    stream.set_read_timeout(Some(GLANCE))?;
    let early = stream.read_to_end(&mut answer);
    stream.set_read_timeout(Some(PATIENCE))?;
    unless_hung_up(stream.shutdown(Shutdown::Write))?;
    let late = stream.read_to_end(&mut answer).map(drop);
    let context = |what: String| Failure::from(format!("{number}, {}: {what}", bytes.escape_ascii()));
    drop(early);
    unless_hung_up(late).map_err(|error| context(error.to_string()))?;
    let well = answer.is_empty() || answer.starts_with(b"HTTP/1.");
    expect(true, well).map_err(|_| context(answer.escape_ascii().to_string()))?;
    expect(false, answer.starts_with(b"HTTP/1.1 500")).map_err(|_| context(answer.escape_ascii().to_string()))
}

/// Connections of which some have said something, all closed without waiting for an answer.
fn frames_dropped(doors: &Doors, number: usize) -> Result<(), Failure> {
    let mut random = Rng::with_seed(number as u64);
    let from = valid_frames()?;
    let mut held = Vec::with_capacity(DROPPED);
    for _ in 0..DROPPED {
        let mut stream = UnixStream::connect(&doors.socket)?;
        let bytes = changed(&mut random, &from, 1);
        unless_hung_up(stream.write_all(bytes.get(..random.usize(..=bytes.len())).unwrap_or_default()))?;
        held.push(stream);
    }
    Ok(())
}

/// The same at the gateway.
fn http_dropped(doors: &Doors, number: usize) -> Result<(), Failure> {
    let mut random = Rng::with_seed(number as u64);
    let from = valid_http();
    let mut held: Vec<TcpStream> = Vec::with_capacity(DROPPED);
    for _ in 0..DROPPED {
        let mut stream = doors.tcp()?;
        let bytes = doors.named(&changed(&mut random, &from, 1));
        unless_hung_up(stream.write_all(bytes.get(..random.usize(..=bytes.len())).unwrap_or_default()))?;
        held.push(stream);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    #[test]
    fn every_file_of_the_corpus_is_sent() {
        for (directory, files) in [("frames", FRAMES), ("http", HTTP)] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(directory);
            let there = fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
            let named: BTreeSet<_> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
            assert_eq!(there.collect::<BTreeSet<_>>(), named, "{directory}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
        let from = valid_frames().unwrap();
        let bytes = |seed| changed(&mut Rng::with_seed(seed), &from, 4);
        let all: BTreeSet<_> = (0..1000).map(bytes).collect();
        assert!(all.len() > 500, "{}", all.len());
        assert_eq!(bytes(7), bytes(7));
    }
}
