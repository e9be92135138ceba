//! What init and command tell the monitor: ready with what holds, or the step that failed. Fixed layout.

use super::steps::FailedStep;
use nix::errno::Errno;

/// Bytes of every message.
pub const REPORT_LEN: usize = 320;
const NAME_AT: usize = 16;
const NAME_LEN: usize = 32;
const DETAIL_AT: usize = NAME_AT + NAME_LEN;
const DETAIL_LEN: usize = REPORT_LEN - DETAIL_AT - 1;

/// A message from a sandbox's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// All locks hold.
    Ready(Held),
    /// The listening sockets of the profile's services come with this as descriptors.
    Services,
    /// A step failed; the process has ended.
    Failed {
        /// Name of the step.
        step: String,
        /// Cause.
        errno: i32,
        /// What it was about.
        detail: String,
    },
}

/// What a process read back about its own locks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Landlock ABI in force.
    pub landlock_abi: u8,
    /// Filter loaded.
    pub seccomp: bool,
    /// Union of all capability sets, as in `/proc/PID/status`.
    pub capabilities: u64,
}

impl Report {
    /// The bytes that travel.
    pub fn encode(&self) -> [u8; REPORT_LEN] {
        let mut bytes = [0; REPORT_LEN];
        match self {
            Self::Ready(held) => {
                bytes[0] = 1;
                bytes[1] = held.landlock_abi;
                bytes[2] = u8::from(held.seccomp);
                bytes[8..16].copy_from_slice(&held.capabilities.to_le_bytes());
            }
            Self::Services => bytes[0] = 3,
            Self::Failed { step, errno, detail } => {
                bytes[0] = 2;
                bytes[4..8].copy_from_slice(&errno.to_le_bytes());
                put(&mut bytes[NAME_AT..DETAIL_AT], step);
                put(&mut bytes[DETAIL_AT..DETAIL_AT + DETAIL_LEN], detail);
            }
        }
        bytes
    }

    /// The message in these bytes; none when they are not one. Text is made printable: it may have been
    /// written by a process that has read what a client sent.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REPORT_LEN] = bytes.try_into().ok()?;
        match bytes[0] {
            1 => Some(Self::Ready(Held {
                landlock_abi: bytes[1],
                seccomp: bytes[2] == 1,
                capabilities: u64::from_le_bytes(bytes[8..16].try_into().ok()?),
            })),
            2 => Some(Self::Failed {
                step: take(&bytes[NAME_AT..DETAIL_AT]),
                errno: i32::from_le_bytes(bytes[4..8].try_into().ok()?),
                detail: take(&bytes[DETAIL_AT..]),
            }),
            3 => Some(Self::Services),
            _ => None,
        }
    }
}

impl From<FailedStep> for Report {
    fn from(failed: FailedStep) -> Self {
        let errno = failed.fault.errno as i32;
        Self::Failed { step: failed.name.to_owned(), errno, detail: failed.fault.detail }
    }
}

impl Report {
    /// Step, errno and detail of a failure. Ready where it should not be is one of the protocol.
    pub fn failure(&self) -> (String, i32, String) {
        match self {
            Self::Failed { step, errno, detail } => (step.clone(), *errno, detail.clone()),
            Self::Ready(_) | Self::Services => ("ready".to_owned(), Errno::EPROTO as i32, String::new()),
        }
    }

    /// Whether it fails only because the other process has: the pair with it closed, before it read what was
    /// sent (`ECONNRESET`, unix(7)) or after, or its end took this one along.
    pub fn is_consequence(&self) -> bool {
        let consequences = [Errno::EPIPE, Errno::ECONNRESET, Errno::ECHILD].map(|errno| errno as i32);
        matches!(self, Self::Failed { errno, .. } if consequences.contains(errno))
    }

    /// A failure whose process could not say anything.
    pub fn died(step: &str) -> Self {
        Self::Failed { step: step.to_owned(), errno: Errno::ECHILD as i32, detail: String::new() }
    }
}

/// As much of the text as fits.
fn put(room: &mut [u8], text: &str) {
    let length = text.len().min(room.len());
    room[..length].copy_from_slice(&text.as_bytes()[..length]);
}

/// The text up to its padding.
fn take(room: &[u8]) -> String {
    let end = room.iter().position(|b| *b == 0).unwrap_or(room.len());
    let text = String::from_utf8_lossy(&room[..end]);
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_others_are_none() {
        let ready = Report::Ready(Held { landlock_abi: 7, seccomp: true, capabilities: 1 << 40 });
        let failed = Report::Failed { step: "exec".into(), errno: 2, detail: "/no/such".into() };
        for report in [ready, failed, Report::Services] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        assert_eq!(Report::decode(&[0; REPORT_LEN]), None);
        assert_eq!(Report::decode(&[1; 3]), None);
        let long = Report::Failed { step: "s".repeat(99), errno: 1, detail: "d\n".repeat(999) };
        let Some(Report::Failed { step, detail, .. }) = Report::decode(&long.encode()) else { panic!() };
        assert!(step.len() == NAME_LEN && !detail.contains('\n'));
    }
}
