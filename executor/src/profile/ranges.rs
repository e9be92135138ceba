//! Defaults, floors and ceilings of a profile's limits.

use super::{LimitRange, Profile};
use crate::monitor::link::LimitField;
use cordon_protocol::{Bytes, Millis};
use serde::Deserialize;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLimits {
    wall: Option<RawRange<Millis>>,
    cpu_time: Option<RawRange<Millis>>,
    memory: Option<RawRange<Bytes>>,
    pids: Option<RawRange<u64>>,
    cpu: Option<RawRange<u64>>,
    capture: Option<RawRange<Bytes>>,
    output: Option<RawRange<Bytes>>,
    pub(super) file_size: Option<Bytes>,
    pub(super) workspace: Option<Bytes>,
    pub(super) named_workspace: Option<Bytes>,
    pub(super) named_workspace_files: Option<u64>,
    pub(super) tmp: Option<Bytes>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: { default = …, ceiling = … }, either may be left out")]
struct RawRange<T> {
    default: Option<T>,
    ceiling: Option<T>,
}

pub(super) const MEBI: u64 = 1 << 20;
pub(super) const GIBI: u64 = 1 << 30;

/// Limits of the `default` profile, in the order of [`LimitField::ALL`].
const DEFAULT_LIMITS: [LimitRange; 7] = [
    LimitRange { default: Some(60_000), ceiling: 3_600_000 },
    LimitRange { default: None, ceiling: 3_600_000 },
    LimitRange { default: Some(512 * MEBI), ceiling: 2 * GIBI },
    LimitRange { default: Some(256), ceiling: 1024 },
    LimitRange { default: Some(200), ceiling: 200 },
    LimitRange { default: Some(MEBI), ceiling: 8 * MEBI },
    LimitRange { default: Some(64 * MEBI), ceiling: 16 * GIBI },
];

/// Least of each limit, in the order of [`LimitField::ALL`]: below it nothing could start.
pub(super) const FLOORS: [u64; 7] = [1, 1, 4 * MEBI, 1, 1, 0, 0];

/// Most that a configuration may give, in the order of [`LimitField::ALL`]: a year, a pebibyte, as many
/// processes as Linux numbers (PID_MAX_LIMIT), the processors it knows. Beyond that arithmetic ends.
pub(super) const MOST: [u64; 7] = [YEAR, YEAR, PEBI, 4 << 20, 8192 * 100, PEBI, PEBI];
pub(super) const YEAR: u64 = 365 * 24 * 3_600_000;
const PEBI: u64 = 1 << 50;

pub(super) fn position(field: LimitField) -> usize {
    LimitField::ALL.iter().position(|f| *f == field).unwrap_or(0)
}

impl RawLimits {
    pub(super) fn checked(&self) -> Result<[LimitRange; 7], (&'static str, String)> {
        let millis = |r: &RawRange<Millis>| (r.default.map(|v| v.0), r.ceiling.map(|v| v.0));
        let bytes = |r: &RawRange<Bytes>| (r.default.map(|v| v.0), r.ceiling.map(|v| v.0));
        let count = |r: &RawRange<u64>| (r.default, r.ceiling);
        let mut checked = DEFAULT_LIMITS;
        for (field, range) in LimitField::ALL.into_iter().zip(checked.iter_mut()) {
            let given = match field {
                LimitField::Wall => self.wall.as_ref().map(millis),
                LimitField::CpuTime => self.cpu_time.as_ref().map(millis),
                LimitField::Memory => self.memory.as_ref().map(bytes),
                LimitField::Pids => self.pids.as_ref().map(count),
                LimitField::Cpu => self.cpu.as_ref().map(count),
                LimitField::Capture => self.capture.as_ref().map(bytes),
                LimitField::Output => self.output.as_ref().map(bytes),
            };
            if let Some((default, ceiling)) = given {
                range.default = default.or(range.default);
                range.ceiling = ceiling.unwrap_or(range.ceiling);
            }
            let least = FLOORS[position(field)];
            let low = [range.default, Some(range.ceiling)].into_iter().flatten().find(|v| *v < least);
            if let Some(low) = low {
                let text = format!("{} is below the least, {}", field.show(low), field.show(least));
                return Err((field.name(), text));
            }
            let most = Profile::most(field);
            if range.ceiling > most {
                let text = format!("{} is above the most, {}", field.show(range.ceiling), field.show(most));
                return Err((field.name(), text));
            }
            if let Some(default) = range.default.filter(|default| *default > range.ceiling) {
                let (default, ceiling) = (field.show(default), field.show(range.ceiling));
                return Err((
                    field.name(),
                    format!("the default, {default}, is above the ceiling, {ceiling}"),
                ));
            }
        }
        Ok(checked)
    }
}
