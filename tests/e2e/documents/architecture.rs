//! `docs/architecture.md`: launch order, files, and the messages between monitor and server; the filter's length.

use super::{assert_generated, cells, read, repository, table_after};
use crate::harness::{build::programs, process};
use cordon_executor::monitor::link::{
    AskedLimits, ConnectionRefusal, Deletion, Denial, LaunchRefusal, Message, Outcome, OutcomeEnforced,
    ToMonitor, ToServer,
};
use cordon_protocol::{CgroupMode, EndedBy, NetworkMode};
use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const PAGE: &str = "docs/architecture.md";

#[test]
fn the_launch_order_is_the_program_s() {
    let mut command = Command::new(&programs().executor);
    command.arg("--steps");
    let listed = process::run(command, &[]).text();
    let steps: Vec<_> = listed.lines().filter_map(|line| line.split_once(' ')).collect();
    assert!(steps.len() > 40, "{listed}");
    // The monitor's come first, then those of init, whose names say so, then the command's.
    let monitor = steps.iter().position(|(name, _)| name.starts_with("init_")).unwrap();
    let command = steps.iter().rposition(|(name, _)| name.starts_with("init_")).unwrap() + 1;
    let mut text = String::new();
    for (title, part) in [
        ("The monitor", &steps[..monitor]),
        ("init", &steps[monitor..command]),
        ("The command's process", &steps[command..]),
    ] {
        write!(text, "\n### {title}\n\n| | step | why here |\n|---|---|---|\n").unwrap();
        for (number, (name, why)) in part.iter().enumerate() {
            writeln!(text, "| {} | `{name}` | {} |", number + 1, why.trim()).unwrap();
        }
    }
    assert_generated(PAGE, "steps", &text);
}

#[test]
fn the_filter_is_as_long_as_its_page_says() {
    let length = cordon_executor::sandbox::seccomp::program().unwrap().len();
    let says = format!("{length} instructions");
    assert!(read("docs/seccomp.md").contains(&says), "docs/seccomp.md does not say: {says}");
}

/// Every file below a directory, in order.
fn below(directory: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(|e| e.unwrap().path()).collect();
    entries.sort();
    let (directories, mut files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|p| p.is_dir());
    files.extend(directories.iter().flat_map(|d| below(d)));
    files
}

/// The first sentence of what a file says about itself.
fn purpose(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let paragraph = lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    assert!(!paragraph.is_empty(), "{} does not say what it is for", path.display());
    let sentence = paragraph.split(". ").next().unwrap_or_default().trim_end_matches(['.', ':']);
    sentence.replace("[`", "`").replace("`]", "`")
}

#[test]
fn every_source_file_has_its_line() {
    let mut groups: BTreeMap<PathBuf, String> = BTreeMap::new();
    for name in ["protocol", "executor", "gateway", "cli", "tests"] {
        let source = repository().join(name).join("src");
        for path in below(&source) {
            let local = path.strip_prefix(repository()).unwrap();
            let shown = local.to_string_lossy();
            if shown.contains("tests") && name != "tests" {
                continue;
            }
            let directory = local.parent().unwrap();
            // One heading for each crate, and for each part of a large one.
            let group =
                directory.components().take(if name == "executor" { 3 } else { 2 }).collect::<PathBuf>();
            let inside = local.strip_prefix(&group).unwrap().display().to_string();
            let line = format!("- [{inside}](../{shown}): {}\n", purpose(&path));
            *groups.entry(group).or_default() += &line;
        }
    }
    let mut text = String::new();
    for (group, lines) in groups {
        write!(text, "\n### {}\n\n{lines}", group.display()).unwrap();
    }
    assert_generated(PAGE, "files", &text);
}

/// The number that a message begins with on the link.
fn number(message: &Message) -> String {
    u64::from_le_bytes(message[..8].try_into().unwrap()).to_string()
}

/// Number and name of rows, as the page has them.
fn numbered(rows: &[Vec<String>]) -> Vec<(String, String)> {
    rows.iter().map(|row| (row[0].clone(), row[1].clone())).collect()
}

#[test]
fn the_messages_to_the_monitor_are_those_of_the_code() {
    let launch = ToMonitor::Launch {
        connection: 1,
        profile: "p".into(),
        workspace: String::new(),
        stdin: false,
        files: false,
        adds: false,
        collect: false,
        limits: AskedLimits::default(),
    };
    let all = [
        launch,
        ToMonitor::Cancel(1),
        ToMonitor::OutputExceeded(1),
        ToMonitor::KillJob { connection: 1, job: 1 },
        ToMonitor::Drained(1),
        ToMonitor::Closed(1),
        ToMonitor::Pong,
        ToMonitor::Collect(1),
        ToMonitor::ListWorkspaces(1),
        ToMonitor::DeleteWorkspace { connection: 1, name: String::new() },
        ToMonitor::Services { connection: 1, counts: vec![] },
        ToMonitor::Refused { connection: 1, profile: "p".into(), denial: Denial::Busy },
        ToMonitor::CheckTrail(1),
    ];
    // A message without a line here does not compile.
    let name = |message: &ToMonitor| match message {
        ToMonitor::Launch { .. } => "Launch",
        ToMonitor::Cancel(_) => "Cancel",
        ToMonitor::OutputExceeded(_) => "OutputExceeded",
        ToMonitor::KillJob { .. } => "KillJob",
        ToMonitor::Drained(_) => "Drained",
        ToMonitor::Closed(_) => "Closed",
        ToMonitor::Pong => "Pong",
        ToMonitor::Collect(_) => "Collect",
        ToMonitor::ListWorkspaces(_) => "ListWorkspaces",
        ToMonitor::DeleteWorkspace { .. } => "DeleteWorkspace",
        ToMonitor::Services { .. } => "Services",
        ToMonitor::Refused { .. } => "Refused",
        ToMonitor::CheckTrail(_) => "CheckTrail",
    };
    let rows = table_after(PAGE, "Server to monitor");
    let expected: Vec<_> = all.iter().map(|m| (number(&m.encode()), name(m).to_owned())).collect();
    assert_eq!(numbered(&rows), expected);
    // The state in which each is allowed is what its handler's file says, and the handlers are there.
    let source = read("executor/src/monitor/requests.rs");
    let code: Vec<_> =
        source.lines().filter_map(|l| l.strip_prefix("//! |")).map(|l| cells(&format!("|{l}"))).collect();
    for row in &rows {
        let of_code = code.iter().find(|c| c[0].split(", ").any(|name| name == row[1])).unwrap();
        assert_eq!(row[3], of_code[1], "{}", row[1]);
        for handler in row[4].split(", ").filter(|h| *h != "–") {
            assert!(source.contains(handler.trim_matches('`')), "{handler}");
        }
    }
}

#[test]
fn the_messages_to_the_server_are_those_of_the_code() {
    let outcome = Outcome {
        ended_by: EndedBy::Exit,
        exit_code: Some(0),
        signal: None,
        step: None,
        errno: 0,
        detail: String::new(),
        wall_us: 0,
        cpu_us: 0,
        peak_memory_bytes: None,
        limits_hit: vec![],
        threads_seen: 0,
        unrouted: false,
        enforced: OutcomeEnforced {
            uid: 1,
            cgroup: CgroupMode::V2,
            landlock_abi: 0,
            seccomp: true,
            namespaces: vec![],
            network: NetworkMode::None,
            capabilities: 0,
        },
    };
    let all = [
        ToServer::Connection { connection: 1, uid: 1, profiles: 1 },
        ToServer::Launched { connection: 1, job: 1, output_bytes: 1, capture_bytes: 1 },
        ToServer::Executed(1),
        ToServer::Ended { connection: 1, outcome },
        ToServer::LaunchRefused { connection: 1, refusal: LaunchRefusal::OutOfOrder },
        ToServer::KillAnswer { connection: 1, found: true },
        ToServer::Drain,
        ToServer::Ping,
        ToServer::TurnedAway(ConnectionRefusal::Nobody),
        ToServer::Collecting(1),
        ToServer::Workspaces(1),
        ToServer::WorkspaceDeleted { connection: 1, deletion: Deletion::Done },
        ToServer::Services { connection: 1, ports: vec![] },
        ToServer::Policy,
        ToServer::Trail { connection: 1, errno: None, detail: String::new() },
    ];
    let name = |message: &ToServer| match message {
        ToServer::Connection { .. } => "Connection",
        ToServer::Launched { .. } => "Launched",
        ToServer::Executed(_) => "Executed",
        ToServer::Ended { .. } => "Ended",
        ToServer::LaunchRefused { .. } => "LaunchRefused",
        ToServer::KillAnswer { .. } => "KillAnswer",
        ToServer::Drain => "Drain",
        ToServer::Ping => "Ping",
        ToServer::TurnedAway(_) => "TurnedAway",
        ToServer::Collecting(_) => "Collecting",
        ToServer::Workspaces(_) => "Workspaces",
        ToServer::WorkspaceDeleted { .. } => "WorkspaceDeleted",
        ToServer::Services { .. } => "Services",
        ToServer::Policy => "Policy",
        ToServer::Trail { .. } => "Trail",
    };
    let expected: Vec<_> = all.iter().map(|m| (number(&m.encode()), name(m).to_owned())).collect();
    assert_eq!(numbered(&table_after(PAGE, "Monitor to server")), expected);
}
