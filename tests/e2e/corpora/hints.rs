//! Hints: nearly every command that a layer refused gets the right one, and none that failed by itself gets any.

use super::canaries;
use crate::harness::{
    Executor, client, crowd, daemon, process,
    table::{assert_each, summary},
};
use cordon_protocol::{EndedBy, ExitReport, Hint, LimitRequest, RunRequest, client::blocking};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    panic::catch_unwind,
    path::PathBuf,
    sync::{Mutex, OnceLock},
};

const CORPUS: &str = include_str!("../../corpora/hints.toml");
/// Commands at once.
const AT_ONCE: usize = 4;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Corpus {
    denials: BTreeMap<String, Vec<Denial>>,
    ordinary: BTreeMap<String, Vec<Ordinary>>,
}

/// A line that a layer refuses something.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Denial {
    line: String,
    profile: Option<String>,
    layer: String,
    /// Part of `what`.
    object: String,
    /// Part of `remedy`.
    setting: String,
}

/// A line that fails by itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ordinary {
    line: String,
    profile: Option<String>,
    /// It exits with 0 after all.
    #[serde(default)]
    succeeds: bool,
}

fn corpus() -> Corpus {
    toml::from_str(CORPUS).unwrap_or_else(|e| panic!("{e}"))
}

/// A directory of the host's that the profile `place` shows in part. It is there before the executor starts.
fn place() -> PathBuf {
    let place = canaries().join("hints");
    for directory in ["shown", "open"] {
        fs::create_dir_all(place.join(directory)).unwrap();
    }
    for file in ["shown/secret", "open/file"] {
        fs::write(place.join(file), "x\n").unwrap();
    }
    fs::write(place.join("script.source"), "#!/bin/sh\necho ran\n").unwrap();
    process::install(&place.join("script.source"), &place.join("shown/script"), 0o755);
    process::install("/bin/true".as_ref(), &place.join("shown/program"), 0o755);
    for directory in [".", "shown", "open"] {
        fs::set_permissions(place.join(directory), Permissions::from_mode(0o755)).unwrap();
    }
    place
}

fn executor() -> &'static Executor {
    static SHARED: OnceLock<Option<Executor>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| {
        let place = place().display().to_string();
        let profiles = PROFILES.replace("@place@", &place);
        let executor = catch_unwind(|| Executor::start(&profiles)).ok()?;
        daemon::end_at_exit(executor.pid(), executor.directory());
        Some(executor)
    });
    shared.as_ref().expect("the executor of the hints did not start; the first test that wanted it says why")
}

const PROFILES: &str = r#"
[profiles.default]

[profiles.place]
read = ["/usr", "/etc", "/opt", "@place@/shown"]
hide = ["/etc/cordon", "@place@/shown/secret"]

[profiles.tiny.limits]
file_size = "1M"
tmp = "8M"
workspace = "8M"

[profiles.few.limits]
pids = { default = 16, ceiling = 64 }

[profiles.hostnet]
network = "host"

[profiles.served]
network = "services"
services = [1, 2]
"#;

fn filled(text: &str) -> String {
    text.replace("@place@", &canaries().join("hints").display().to_string())
}

/// Runs a line as `cordon run` would ask for it; `stream` leaves nothing of its output in the report.
fn run(line: &str, profile: Option<&String>, stream: bool) -> ExitReport {
    ask(RunRequest { profile: profile.cloned(), stream, ..client::line(&filled(line)) })
}

fn ask(request: RunRequest) -> ExitReport {
    let line = format!("{:?}", request.action);
    let (connection, stdin) = blocking::run(&executor().socket, "cordon/1", request).unwrap();
    let report = client::collect(connection).unwrap_or_else(|e| panic!("{line}: {e}")).report;
    drop(stdin);
    report
}

#[test]
fn nearly_every_refusal_is_explained() {
    let _crowd = crowd::among_others();
    let corpus = corpus();
    let denials: Vec<_> =
        corpus.denials.iter().flat_map(|(kind, lines)| lines.iter().map(move |l| (kind, l))).collect();
    assert!(denials.len() >= 40, "{}", denials.len());
    let wrong = Mutex::new(BTreeMap::<&str, Vec<String>>::new());
    let indexed: Vec<_> = denials.iter().enumerate().collect();
    assert_each(
        &indexed,
        AT_ONCE,
        |(_, (kind, denial))| format!("{kind}: {}", denial.line),
        |(index, (kind, denial))| {
            // Every other one as a stream, of which nothing is captured.
            let report = run(&denial.line, denial.profile.as_ref(), index % 2 == 1);
            let right = report.hint.as_ref().is_some_and(|hint| {
                hint.layer == denial.layer
                    && hint.what.contains(&filled(&denial.object))
                    && hint.remedy.contains(&denial.setting)
            });
            if !right {
                let text = format!("{kind}: {}\n  hint {:?}\n{}", denial.line, report.hint, summary(&report));
                wrong.lock().unwrap().entry(kind).or_default().push(text);
            }
            Vec::new()
        },
    );
    let wrong = wrong.into_inner().unwrap();
    let text = wrong.values().flatten().cloned().collect::<Vec<_>>().join("\n");
    let count = wrong.values().flatten().count();
    eprintln!("{} of {} denials are explained\n{text}", denials.len() - count, denials.len());
    assert!(count * 10 <= denials.len(), "{count} of {} are not:\n{text}", denials.len());
    // Few wrong ones in all could be everything of one kind.
    for (kind, lines) in &corpus.denials {
        let count = wrong.get(kind.as_str()).map_or(0, Vec::len);
        assert!(count * 2 < lines.len(), "{kind}: {count} of {} are not:\n{text}", lines.len());
    }
}

#[test]
fn what_waits_for_a_network_until_its_time_is_up_is_told_of_the_network() {
    let _crowd = crowd::among_others();
    let silent = "python3 -c \"import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                  try: s.connect((\\\"192.0.\\\" + \\\"2.1\\\", 53))\nexcept OSError: time.sleep(60)\"";
    // A program of the name of one that fetches; it tries, and says nothing.
    let named = |line: &str| format!("npm() {{ {line}; }}; npm install x");
    let said = "echo 'npm warn retry: getaddrinfo EAI_AGAIN registry.example' >&2; sleep 60";
    let waits = "did not end within";
    let cases = [
        (named(silent), None, "what `npm` fetches from"),
        (said.to_owned(), None, "registry.example"),
        ("curl -s --retry 99 --retry-all-errors http://192.0.2.1/".to_owned(), None, "192.0.2.1"),
        // It has tried nothing, or could.
        (named("sleep 60"), None, waits),
        ("curl() { true; }; curl http://192.0.2.1/; sleep 60".to_owned(), None, waits),
        (said.to_owned(), Some("hostnet"), waits),
    ];
    assert_each(
        &cases,
        AT_ONCE,
        |(line, ..)| line.clone(),
        |(line, profile, what)| {
            let limits = LimitRequest { wall_ms: Some(4000), ..LimitRequest::default() };
            let report =
                ask(RunRequest { profile: profile.map(str::to_owned), limits, ..client::line(line) });
            let layer = if *what == waits { "limits" } else { "network" };
            let right = |hint: &Hint| hint.layer == layer && hint.what.contains(what);
            if report.ended_by == EndedBy::WallTimeout && report.hint.as_ref().is_some_and(right) {
                return Vec::new();
            }
            vec![format!("  hint {:?}", report.hint), summary(&report)]
        },
    );
}

#[test]
fn no_ordinary_failure_is_explained() {
    let _crowd = crowd::among_others();
    let corpus = corpus();
    let lines: Vec<_> =
        corpus.ordinary.iter().flat_map(|(kind, lines)| lines.iter().map(move |l| (kind, l))).collect();
    assert!(lines.iter().filter(|(_, line)| !line.succeeds).count() >= 100, "{}", lines.len());
    assert_each(
        &lines,
        AT_ONCE,
        |(kind, ordinary)| format!("{kind}: {}", ordinary.line),
        |(_, ordinary)| {
            let report = run(&ordinary.line, ordinary.profile.as_ref(), false);
            let succeeded = report.exit_code == Some(0);
            if report.hint.is_none() && succeeded == ordinary.succeeds {
                return Vec::new();
            }
            vec![format!("  hint {:?}", report.hint), summary(&report)]
        },
    );
}

#[test]
fn what_only_root_can_list_is_not_known_to_hints() {
    let _crowd = crowd::among_others();
    let mode = fs::metadata("/root").unwrap().permissions().mode();
    assert_eq!(mode & 0o007, 0, "/root is closed to others on every host that this was written for");
    // One that is there and one that is not: told in the same words.
    let there = fs::read_dir("/root").unwrap().next().unwrap().unwrap().file_name();
    for name in [there.to_str().unwrap(), "no-such-file"] {
        let hint = run(&format!("cat /root/{name}"), None, false).hint.unwrap();
        assert!(hint.remedy.starts_with("add `/root` to profiles.default.read"), "{name}: {hint:?}");
    }
}
