//! How a command ended, as the monitor saw it.

use super::{
    Malformed,
    wire::{Reader, Writer},
};
use cordon_protocol::{CgroupMode, EndedBy, LimitName, NamespaceName, NetworkMode};

/// How a command ended, as the monitor saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Cause recorded first.
    pub ended_by: EndedBy,
    /// Exit status, where it exited or could not be executed.
    pub exit_code: Option<i32>,
    /// Signal number.
    pub signal: Option<i32>,
    /// Launch step that failed.
    pub step: Option<String>,
    /// errno of that step; 0 where there is none.
    pub errno: i32,
    /// What the step says about it (a path), cut to fit; from the command's own process: not to be trusted.
    pub detail: String,
    /// Microseconds by the clock.
    pub wall_us: u64,
    /// Microseconds of processor time.
    pub cpu_us: u64,
    /// Bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Limits that were reached.
    pub limits_hit: Vec<LimitName>,
    /// Most threads that were seen at once where they are sampled; 0 where they are counted.
    pub threads_seen: u64,
    /// Something in its network, which leads nowhere, wanted out, or asked a name server that is not there, and the command
    /// failed.
    pub unrouted: bool,
    /// What held.
    pub enforced: OutcomeEnforced,
}

/// What held while a command ran, in numbers; `capabilities` is a bit set as in `/proc/PID/status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeEnforced {
    /// Uid of the command.
    pub uid: u32,
    /// Mode.
    pub cgroup: CgroupMode,
    /// ABI; 0 is none.
    pub landlock_abi: u32,
    /// Filter loaded.
    pub seccomp: bool,
    /// Namespaces of its own.
    pub namespaces: Vec<NamespaceName>,
    /// What of the network it reached.
    pub network: NetworkMode,
    /// Union of all sets.
    pub capabilities: u64,
}

pub(super) const STEP_LEN: usize = 32;
pub(super) const DETAIL_LEN: usize = 256;
/// The values of each enumeration by their number on the link.
const ENDED_BY: [EndedBy; 9] = [
    EndedBy::Exit,
    EndedBy::Signal,
    EndedBy::WallTimeout,
    EndedBy::CpuTimeout,
    EndedBy::OutOfMemory,
    EndedBy::OutputLimit,
    EndedBy::DiskLimit,
    EndedBy::Cancelled,
    EndedBy::LaunchFailed,
];
const LIMIT_NAMES: [LimitName; 7] = [
    LimitName::Memory,
    LimitName::Pids,
    LimitName::CpuTime,
    LimitName::Wall,
    LimitName::Output,
    LimitName::Disk,
    LimitName::FileSize,
];
pub(super) const NAMESPACES: [NamespaceName; 5] =
    [NamespaceName::Pid, NamespaceName::Mount, NamespaceName::Ipc, NamespaceName::Uts, NamespaceName::Net];
const CGROUPS: [CgroupMode; 3] = [CgroupMode::V2, CgroupMode::Sampled, CgroupMode::None];
const NETWORKS: [NetworkMode; 3] = [NetworkMode::None, NetworkMode::Services, NetworkMode::Host];

impl Outcome {
    pub(super) fn write(&self, writer: &mut Writer) {
        writer.index(&ENDED_BY, &self.ended_by);
        writer.optional_i32(self.exit_code);
        writer.optional_i32(self.signal);
        writer.text(self.step.as_deref().unwrap_or_default(), STEP_LEN);
        writer.optional_i32(Some(self.errno));
        writer.text(&self.detail, DETAIL_LEN);
        writer.number(self.wall_us);
        writer.number(self.cpu_us);
        writer.optional(self.peak_memory_bytes);
        writer.set(&LIMIT_NAMES, &self.limits_hit);
        writer.number(self.threads_seen);
        writer.number(u64::from(self.unrouted));
        let enforced = &self.enforced;
        writer.number(u64::from(enforced.uid));
        writer.index(&CGROUPS, &enforced.cgroup);
        writer.number(u64::from(enforced.landlock_abi));
        writer.number(u64::from(enforced.seccomp));
        writer.set(&NAMESPACES, &enforced.namespaces);
        writer.index(&NETWORKS, &enforced.network);
        writer.number(enforced.capabilities);
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            ended_by: reader.index(&ENDED_BY)?,
            exit_code: reader.optional_i32()?,
            signal: reader.optional_i32()?,
            step: Some(reader.text(STEP_LEN)?).filter(|s| !s.is_empty()),
            errno: reader.optional_i32()?.ok_or(Malformed)?,
            detail: reader.text(DETAIL_LEN)?,
            wall_us: reader.number()?,
            cpu_us: reader.number()?,
            peak_memory_bytes: reader.optional()?,
            limits_hit: reader.set(&LIMIT_NAMES)?,
            threads_seen: reader.number()?,
            unrouted: reader.flag()?,
            enforced: OutcomeEnforced {
                uid: reader.number_u32()?,
                cgroup: reader.index(&CGROUPS)?,
                landlock_abi: reader.number_u32()?,
                seccomp: reader.flag()?,
                namespaces: reader.set(&NAMESPACES)?,
                network: reader.index(&NETWORKS)?,
                capabilities: reader.number()?,
            },
        })
    }
}
