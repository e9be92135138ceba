//! What a policy can say about one system call: a verdict, or a list of cases that look at its arguments.
//!
//! A test of a value looks at the low 32 bits of an argument and at nothing else. The arguments that the policy
//! tests so are `int` or `unsigned int` in the kernel, or flags that all lie in the low word (clone's
//! `lower_32_bits(clone_flags)`, mmap's `MAP_*`): the kernel drops or ignores what a caller leaves in the
//! upper half, so a comparison of 64 bits could be passed by with a dirty one (CVE-2019-10063). Of a
//! pointer no more is asked than whether there is one, of all its bits: what it points to can change after the
//! decision.

use nix::errno::Errno;

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel carries it out.
    Allow,
    /// It fails with this errno and nothing has happened.
    Errno(Errno),
    /// It seems to have succeeded and nothing has happened.
    Ignore,
    /// The whole process ends with SIGSYS.
    KillProcess,
}

/// A question about one argument, mostly about its low 32 bits; `argument` is its position, 0 to 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// The value, cut down to the bits of `mask`, is one of `values`.
    Among {
        /// Position of the argument.
        argument: u8,
        /// Bits that count.
        mask: u32,
        /// What they may be.
        values: &'static [u32],
    },
    /// At least one bit of `mask` is set.
    AnyBit {
        /// Position of the argument.
        argument: u8,
        /// Bits asked for.
        mask: u32,
    },
    /// It is not null, of all 64 bits.
    Pointer {
        /// Position of the argument.
        argument: u8,
    },
}

/// One line of an argument-dependent rule: where all tests hold, this is the verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Tests, all of which must hold.
    pub tests: &'static [Test],
    /// Verdict where they do.
    pub verdict: Verdict,
}

/// What a policy says about a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Whatever its arguments are.
    Always(Verdict),
    /// The first case that holds.
    Cases {
        /// In the order in which they are tried.
        cases: &'static [Case],
        /// Verdict where none holds.
        otherwise: Verdict,
    },
}

impl Test {
    /// Whether the low word of argument `argument` is exactly one of `values`.
    pub const fn among(argument: u8, values: &'static [u32]) -> Self {
        Self::Among { argument, mask: u32::MAX, values }
    }

    /// Position of the argument it looks at, 0 to 5.
    pub fn argument(&self) -> u8 {
        match self {
            Self::Among { argument, .. } | Self::AnyBit { argument, .. } | Self::Pointer { argument } => {
                *argument
            }
        }
    }

    /// Whether it holds for these arguments; an argument that no call has never passes a test.
    pub fn holds(&self, arguments: &[u64; 6]) -> bool {
        let low = |position: u8| arguments.get(usize::from(position)).map(|value| low_word(*value));
        match self {
            Self::Among { argument, mask, values } => {
                low(*argument).is_some_and(|value| values.contains(&(value & mask)))
            }
            Self::AnyBit { argument, mask } => low(*argument).is_some_and(|value| value & mask != 0),
            Self::Pointer { argument } => {
                arguments.get(usize::from(*argument)).is_some_and(|value| *value != 0)
            }
        }
    }
}

impl Rule {
    /// What it says about a call with these arguments.
    pub fn verdict(&self, arguments: &[u64; 6]) -> Verdict {
        match self {
            Self::Always(verdict) => *verdict,
            Self::Cases { cases, otherwise } => {
                let applies = |case: &&Case| case.tests.iter().all(|test| test.holds(arguments));
                cases.iter().find(applies).map_or(*otherwise, |case| case.verdict)
            }
        }
    }
}

/// The low 32 bits, as the kernel reads an `int` or `unsigned int` argument.
fn low_word(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
