//! A configuration and an outcome for unit tests.

use crate::{
    config::{Account, Config, Require, Users},
    monitor::link::{Outcome, OutcomeEnforced},
    profile::{Profile, RawProfile},
};
use cordon_protocol::{CgroupMode, EndedBy, NamespaceName, NetworkMode};

/// Profile `default`, and `small` with one command at once and one that waits.
pub(crate) fn config() -> Config {
    let profile = |name: &str| Profile::from_raw(name, RawProfile::default(), 1).unwrap();
    let small = Profile { concurrency: 1, queue: 1, ..profile("small") };
    let account = |name: &str, id: u32| Account::of(name, id, id);
    Config {
        socket: "/run/cordon/executor.sock".into(),
        state_dir: "/var/lib/cordon/executor".into(),
        audit: "/nonexistent".into(),
        rotation: crate::monitor::Rotation { size: 0, keep: 1 },
        require: Require::Strict,
        landlock_abi_min: 2,
        users: Users {
            command: account("execuser", 901),
            server: account("cordon-exec", 902),
            init: account("cordon-init", 903),
            gateway: None,
            group: 904,
        },
        cwd: None,
        free_space_min: 0,
        home: "/home/execuser".into(),
        max_commands: 100,
        relays: crate::config::Relays::default(),
        profiles: [profile("default"), small].map(|p| (p.name.clone(), p)).into(),
        sha256: String::new(),
    }
}

/// An outcome with everything in force and nothing used.
pub(super) fn outcome(ended_by: EndedBy) -> Outcome {
    Outcome {
        ended_by,
        exit_code: None,
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
            uid: 901,
            cgroup: CgroupMode::V2,
            landlock_abi: 6,
            seccomp: true,
            namespaces: vec![NamespaceName::Pid],
            network: NetworkMode::None,
            capabilities: 0,
        },
    }
}
