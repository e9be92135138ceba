//! Every message in both directions, and what is none.

use super::{outcome::*, *};
use cordon_protocol::{CgroupMode, EndedBy, LimitName, NetworkMode, limits};

fn outcome() -> Outcome {
    Outcome {
        ended_by: EndedBy::LaunchFailed,
        exit_code: Some(-3),
        signal: None,
        step: Some("exec".into()),
        errno: 2,
        detail: "/no/such".into(),
        wall_us: 1,
        cpu_us: 2,
        peak_memory_bytes: None,
        limits_hit: vec![LimitName::Pids, LimitName::FileSize],
        threads_seen: 3,
        unrouted: true,
        enforced: OutcomeEnforced {
            uid: 999,
            cgroup: CgroupMode::Sampled,
            landlock_abi: 7,
            seccomp: true,
            namespaces: NAMESPACES.to_vec(),
            network: NetworkMode::None,
            capabilities: 0,
        },
    }
}

#[test]
fn a_refusal_is_told_in_words_with_value_limit_and_remedy() {
    let limit = LimitField::Memory;
    for (refusal, expected) in [
        (
            LaunchRefusal::AboveCeiling { limit, value: 3 << 30, ceiling: 2 << 30 },
            "memory: 3G is above the ceiling, 2G; ask for less, or raise the profile's limits.memory.ceiling",
        ),
        (
            LaunchRefusal::BelowFloor { limit: LimitField::Wall, value: 0, floor: 1 },
            "wall: 0ms is below the least, 1ms; ask for more, or leave it out",
        ),
        (
            LaunchRefusal::Busy { concurrency: 32 },
            "concurrency: as many commands of this user run already as may at once (32); try again, or raise the \
             profile's concurrency",
        ),
        (
            LaunchRefusal::WorkspaceFull { bytes: 3 << 20, files: 7, bytes_max: 2 << 20, files_max: 9 },
            "workspace: 3M and 7 files are in it, and no more than 2M (named_workspace) and 9 files \
             (named_workspace_files) may be; remove some of them with a command in it, or raise the profile's limits",
        ),
        (
            LaunchRefusal::DiskFull { free: 1 << 20, floor: 1 << 30 },
            "free_space_min: 1M are free where workspaces lie, less than 1G; delete workspaces or free the disk",
        ),
    ] {
        assert_eq!(refusal.to_string(), expected);
    }
    use LaunchRefusal as R;
    for refusal in [
        R::OutOfOrder,
        R::UnknownProfile,
        R::BadRequestFile,
        R::OneAtATime,
        R::ShuttingDown,
        R::BadWorkspace,
        R::TooManyWorkspaces,
        R::Full { commands: 7 },
    ] {
        let said = refusal.to_string();
        // Problem and remedy, and no name of ours.
        assert!(said.contains("; ") && !said.contains(&format!("{refusal:?}")), "{said}");
    }
}

#[test]
fn every_message_round_trips() {
    let asked = AskedLimits { wall_ms: Some(5), pids: Some(7), ..AskedLimits::default() };
    let launch = ToMonitor::Launch {
        connection: 4,
        profile: "p".repeat(limits::NAME_MAX_BYTES),
        workspace: "w".repeat(limits::WORKSPACE_NAME_MAX),
        stdin: true,
        files: false,
        adds: true,
        collect: true,
        limits: asked,
    };
    let delete = ToMonitor::DeleteWorkspace { connection: 5, name: "work".into() };
    let kill = ToMonitor::KillJob { connection: 1, job: 9 };
    let more = [ToMonitor::Cancel(1), ToMonitor::OutputExceeded(2), ToMonitor::Drained(3), ToMonitor::Pong];
    let counts = ServiceCounts { connections: u64::MAX, over_cap: 2, unreachable: 3 };
    let counts = vec![counts; limits::SERVICES_MAX];
    let services = ToMonitor::Services { connection: 9, counts };
    let refused = ToMonitor::Refused { connection: 10, profile: "ä".into(), denial: Denial::Internal };
    let check = ToMonitor::CheckTrail(11);
    let after = [ToMonitor::Collect(6), ToMonitor::ListWorkspaces(7), delete, services, refused, check];
    for message in [launch, kill, ToMonitor::Closed(8)].into_iter().chain(after).chain(more) {
        assert_eq!(ToMonitor::decode(&message.encode()), Ok(message));
    }
    let above = LaunchRefusal::AboveCeiling { limit: LimitField::Memory, value: 9, ceiling: 8 };
    for message in [
        ToServer::Connection { connection: 1, uid: 1000, profiles: 5 },
        ToServer::Launched { connection: 1, job: 2, output_bytes: 3, capture_bytes: 4 },
        ToServer::Executed(3),
        ToServer::Ended { connection: 1, outcome: outcome() },
        ToServer::LaunchRefused { connection: 1, refusal: above },
        ToServer::LaunchRefused { connection: 1, refusal: LaunchRefusal::Busy { concurrency: 32 } },
        ToServer::LaunchRefused { connection: 2, refusal: LaunchRefusal::OneAtATime },
        ToServer::LaunchRefused { connection: 1, refusal: LaunchRefusal::Full { commands: 585 } },
        ToServer::KillAnswer { connection: 1, found: true },
        ToServer::Drain,
        ToServer::TurnedAway(ConnectionRefusal::Nobody),
        ToServer::TurnedAway(ConnectionRefusal::Busy { per_peer: 1, total: 2 }),
        ToServer::Ping,
        ToServer::LaunchRefused { connection: 3, refusal: LaunchRefusal::DiskFull { free: 1, floor: 2 } },
        ToServer::LaunchRefused {
            connection: 3,
            refusal: LaunchRefusal::WorkspaceFull { bytes: 1, files: 2, bytes_max: 3, files_max: 4 },
        },
        ToServer::Collecting(4),
        ToServer::Workspaces(5),
        ToServer::Policy,
        ToServer::WorkspaceDeleted { connection: 6, deletion: Deletion::InUse },
        ToServer::Trail { connection: 8, errno: None, detail: String::new() },
        ToServer::Trail { connection: 9, errno: Some(28), detail: "d".repeat(DETAIL_LEN) },
        ToServer::Services { connection: 7, ports: vec![u16::MAX; 2 * limits::SERVICES_MAX] },
    ] {
        assert_eq!(ToServer::decode(&message.encode()), Ok(message));
    }
}

#[test]
fn other_lengths_kinds_and_trailing_bytes_are_refused() {
    let message = ToMonitor::Cancel(1).encode();
    assert_eq!(ToMonitor::decode(&message[1..]), Err(Malformed));
    assert_eq!(ToMonitor::decode(&[0; MESSAGE_LEN]), Err(Malformed));
    // More than there can be, of which a message would have room for fewer.
    let mut many = ToMonitor::Services { connection: 1, counts: Vec::new() }.encode();
    many[16] = 17;
    assert_eq!(ToMonitor::decode(&many), Err(Malformed));
    // No such reason.
    let profile = "p".to_owned();
    let mut forged = ToMonitor::Refused { connection: 1, profile, denial: Denial::Internal }.encode();
    forged[16 + limits::NAME_MAX_BYTES] += 1;
    assert_eq!(ToMonitor::decode(&forged), Err(Malformed));
    let mut trailing = message;
    trailing[MESSAGE_LEN - 1] = 1;
    assert_eq!(ToMonitor::decode(&trailing), Err(Malformed));
}

#[test]
fn text_is_cut_between_characters_and_the_largest_message_fits() {
    let long = Outcome { detail: "ä".repeat(300), step: Some("s".repeat(99)), ..outcome() };
    let message = ToServer::Ended { connection: u64::MAX, outcome: long };
    let ToServer::Ended { outcome, .. } = ToServer::decode(&message.encode()).unwrap() else { panic!() };
    assert_eq!(outcome.detail, "ä".repeat(DETAIL_LEN / 2));
    assert_eq!(outcome.step.unwrap().len(), STEP_LEN);
    assert_eq!(outcome.enforced.namespaces.len(), 5);
}
