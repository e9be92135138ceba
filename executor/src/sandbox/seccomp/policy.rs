//! A checked policy: one row a system call, in order, and what is said about all other calls.

use super::{
    FilterError,
    rule::{Rule, Verdict},
    table::{self, Group},
};
use libc::c_long;
use nix::errno::Errno;

/// `AUDIT_ARCH_X86_64` (linux/audit.h): 64-bit, little-endian, ELF machine 62.
pub const ARCH_X86_64: u32 = 0xc000_003e;
/// Numbers with this bit are calls of the x32 ABI, under the same architecture (asm/unistd.h).
pub const X32_BIT: u32 = 0x4000_0000;

/// Calls of another architecture (`int 0x80`): no program of this machine makes them, so one that does is
/// looking for a way round.
pub const FOREIGN: Verdict = Verdict::KillProcess;
/// Calls of the x32 ABI: what a kernel without it says.
pub const X32: Verdict = Verdict::Errno(Errno::ENOSYS);

/// One system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Number.
    pub number: u32,
    /// Name without `SYS_`.
    pub name: &'static str,
    /// What happens.
    pub rule: Rule,
    /// Why.
    pub reason: &'static str,
}

/// Rows in the order of their numbers, none twice, each with a reason.
#[derive(Debug, Clone)]
pub struct Policy {
    rows: Vec<Row>,
    otherwise: Verdict,
}

/// From `start` up to the next one's start, all calls have this rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: u32,
    pub(super) rule: Rule,
}

impl Policy {
    /// The policy of a sandboxed command; calls that it does not name are answered like unknown ones.
    ///
    /// # Errors
    /// When the table has a row without a reason, twice, or with an impossible number.
    pub fn command() -> Result<Self, FilterError> {
        Self::from_groups(table::COMMAND, Verdict::Errno(Errno::ENOSYS))
    }

    /// A policy that allows these calls (number, reason) and answers every other one with `EPERM`.
    ///
    /// # Errors
    /// As for [`Policy::command`], and for a number that no call has.
    pub fn allow_list(calls: &[(c_long, &'static str)]) -> Result<Self, FilterError> {
        Self::of_rules(calls.iter().map(|(number, reason)| (*number, Rule::Always(Verdict::Allow), *reason)))
    }

    /// A policy of these calls, each with its rule and its reason; every other one is answered with `EPERM`.
    ///
    /// # Errors
    /// As for [`Policy::allow_list`].
    pub fn of_rules(
        calls: impl IntoIterator<Item = (c_long, Rule, &'static str)>,
    ) -> Result<Self, FilterError> {
        let row = |(number, rule, reason)| {
            let name = table::name_of(number).ok_or(FilterError::Number { number })?;
            Row::checked(number, name, rule, reason)
        };
        let rows: Result<_, _> = calls.into_iter().map(row).collect();
        Self::ordered(rows?, Verdict::Errno(Errno::EPERM))
    }

    /// A policy from a table.
    ///
    /// # Errors
    /// As for [`Policy::command`].
    pub fn from_groups(groups: &[Group], otherwise: Verdict) -> Result<Self, FilterError> {
        let rows: Result<_, _> = groups
            .iter()
            .flat_map(|group| group.calls.iter().map(move |(number, name)| (group, *number, *name)))
            .map(|(group, number, name)| Row::checked(number, name, group.rule, group.reason))
            .collect();
        Self::ordered(rows?, otherwise)
    }

    fn ordered(mut rows: Vec<Row>, otherwise: Verdict) -> Result<Self, FilterError> {
        rows.sort_by_key(|row| row.number);
        match rows.windows(2).find(|pair| pair[0].number == pair[1].number) {
            Some(pair) => Err(FilterError::Repeated { name: pair[0].name }),
            None => Ok(Self { rows, otherwise }),
        }
    }

    /// All rows, in the order of their numbers.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row of a call; none where the policy does not name it.
    pub fn row(&self, number: u32) -> Option<&Row> {
        self.rows.binary_search_by_key(&number, |row| row.number).ok().map(|index| &self.rows[index])
    }

    /// What happens to a call, straight from the rows: the measure for the compiled program.
    pub fn verdict(&self, arch: u32, number: u32, arguments: &[u64; 6]) -> Verdict {
        if arch != ARCH_X86_64 {
            return FOREIGN;
        }
        if number & X32_BIT != 0 {
            return X32;
        }
        self.row(number).map_or(self.otherwise, |row| row.rule.verdict(arguments))
    }

    /// Every number there is, as few ranges as possible, the first from 0.
    pub(super) fn ranges(&self) -> Vec<Range> {
        let otherwise = Rule::Always(self.otherwise);
        let mut ranges = Vec::new();
        let mut next = 0;
        for row in &self.rows {
            if row.number > next {
                ranges.push(Range { start: next, rule: otherwise });
            }
            ranges.push(Range { start: row.number, rule: row.rule });
            next = row.number + 1;
        }
        ranges.push(Range { start: next, rule: otherwise });
        // The bit is the second highest: half of the numbers above have it clear again.
        ranges.push(Range { start: X32_BIT, rule: Rule::Always(X32) });
        ranges.push(Range { start: X32_BIT << 1, rule: otherwise });
        ranges.push(Range { start: X32_BIT * 3, rule: Rule::Always(X32) });
        ranges.dedup_by_key(|range| range.rule);
        ranges
    }
}

impl Row {
    fn checked(
        number: c_long,
        name: &'static str,
        rule: Rule,
        reason: &'static str,
    ) -> Result<Self, FilterError> {
        let legal = u32::try_from(number).ok().filter(|n| *n < X32_BIT);
        let number = legal.ok_or(FilterError::Number { number })?;
        if reason.trim().is_empty() {
            return Err(FilterError::NoReason { name });
        }
        Ok(Self { number, name, rule, reason })
    }
}
