//! Turns a policy into the program that the kernel runs at every system call (seccomp(2), "classic" BPF).
//!
//! The kernel runs the program for every number when it is loaded, and for every call that depends on
//! arguments. So the numbers are found by bisection over ranges of equal rules, in about as many comparisons
//! as there are bits in the number of ranges, not by a list.
//!
//! Jumps go forward only and conditional ones at most 255 instructions far. Therefore the program is written
//! from its end: whatever a jump goes to is there already, and how far it is is known.

use super::{
    FilterError,
    policy::{ARCH_X86_64, FOREIGN, Policy, Range},
    rule::{Case, Rule, Test, Verdict},
};
use seccompiler::{BpfProgram, sock_filter};

/// Instructions (linux/bpf_common.h); `LOAD` takes a word of `struct seccomp_data`.
pub(super) const LOAD: u16 = 0x20;
pub(super) const AND: u16 = 0x54;
pub(super) const RETURN: u16 = 0x06;
pub(super) const JUMP: u16 = 0x05;
pub(super) const JUMP_EQUAL: u16 = 0x15;
pub(super) const JUMP_AT_LEAST: u16 = 0x35;
pub(super) const JUMP_ANY_BIT: u16 = 0x45;

/// Offsets in `struct seccomp_data` (linux/seccomp.h), bytes.
pub(super) const NUMBER_AT: u32 = 0;
pub(super) const ARCH_AT: u32 = 4;
pub(super) const ARGUMENTS_AT: u32 = 16;

/// Answers (linux/seccomp.h); an errno stands in the low half.
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL_PROCESS: u32 = 0x8000_0000;

/// Most instructions that the kernel takes (BPF_MAXINSNS).
pub(super) const LENGTH_MAX: usize = 4096;

/// Compiles a policy.
///
/// # Errors
/// When the program would be longer than the kernel takes.
pub fn compile(policy: &Policy) -> Result<BpfProgram, FilterError> {
    let mut code = Backwards::default();
    let tree = code.tree(&policy.ranges());
    let number = code.load(NUMBER_AT, tree);
    let arch = code.branch(JUMP_EQUAL, ARCH_X86_64, number, Target::Return(answer(FOREIGN)));
    code.load(ARCH_AT, arch);
    if code.instructions.len() > LENGTH_MAX {
        return Err(FilterError::TooLong { length: code.instructions.len(), most: LENGTH_MAX });
    }
    code.instructions.reverse();
    Ok(code.instructions)
}

/// The value that the program returns for a verdict.
pub(super) fn answer(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Allow => ALLOW,
        // No errno is success.
        Verdict::Ignore => ERRNO,
        Verdict::Errno(errno) => ERRNO | (errno as i32).unsigned_abs(),
        Verdict::KillProcess => KILL_PROCESS,
    }
}

/// Where a jump goes: an answer, wherever one stands, or an instruction by its index from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Return(u32),
    At(usize),
}

/// A program, its last instruction first.
#[derive(Debug, Default)]
struct Backwards {
    instructions: Vec<sock_filter>,
    /// Argument-dependent rules that stand somewhere.
    rules: Vec<(Rule, Target)>,
}

impl Backwards {
    /// Bisection over ranges, of which the first holds whatever is lower.
    fn tree(&mut self, ranges: &[Range]) -> Target {
        let (lower, upper) = ranges.split_at(ranges.len() / 2);
        match (lower, upper) {
            ([], [one]) => self.rule(one.rule),
            ([_, ..], [first, ..]) => {
                let at_least = self.tree(upper);
                let below = self.tree(lower);
                self.branch(JUMP_AT_LEAST, first.start, at_least, below)
            }
            // No range at all is no policy: nothing passes.
            _ => Target::Return(KILL_PROCESS),
        }
    }

    fn rule(&mut self, rule: Rule) -> Target {
        let (cases, otherwise) = match rule {
            Rule::Always(verdict) => return Target::Return(answer(verdict)),
            Rule::Cases { cases, otherwise } => (cases, otherwise),
        };
        if let Some((_, target)) = self.rules.iter().find(|(known, _)| *known == rule) {
            return *target;
        }
        let last = Target::Return(answer(otherwise));
        let target = cases.iter().rev().fold(last, |next, case| self.case(case, next));
        self.rules.push((rule, target));
        target
    }

    fn case(&mut self, case: &Case, next: Target) -> Target {
        let holds = Target::Return(answer(case.verdict));
        case.tests.iter().rev().fold(holds, |holds, test| self.test(test, holds, next))
    }

    fn test(&mut self, test: &Test, holds: Target, fails: Target) -> Target {
        // The low word comes first in memory.
        let (low, word) = (ARGUMENTS_AT + 8 * u32::from(test.argument()), 4);
        let question = match test {
            Test::Pointer { .. } => {
                let upper = self.branch(JUMP_ANY_BIT, u32::MAX, holds, fails);
                let upper = self.load(low + word, upper);
                self.branch(JUMP_ANY_BIT, u32::MAX, holds, upper)
            }
            Test::AnyBit { mask, .. } => self.branch(JUMP_ANY_BIT, *mask, holds, fails),
            Test::Among { mask, values, .. } => {
                let ask = |fails, value: &u32| self.branch(JUMP_EQUAL, *value, holds, fails);
                let first = values.iter().rev().fold(fails, ask);
                if *mask == u32::MAX { first } else { self.push(AND, *mask, first) }
            }
        };
        self.load(low, question)
    }

    fn load(&mut self, offset: u32, next: Target) -> Target {
        self.push(LOAD, offset, next)
    }

    /// An instruction that goes on to `next`.
    fn push(&mut self, code: u16, k: u32, next: Target) -> Target {
        if self.distance(next) != Some(0) {
            self.bring(next);
        }
        self.write(code, k, 0, 0)
    }

    /// A comparison; the first target is for where it holds.
    fn branch(&mut self, code: u16, k: u32, mut holds: Target, mut fails: Target) -> Target {
        loop {
            // Bringing one target near moves the other one away, perhaps just out of reach.
            match (self.distance(holds), self.distance(fails)) {
                (Some(jt), Some(jf)) => return self.write(code, k, jt, jf),
                (None, _) => holds = self.bring(holds),
                (_, None) => fails = self.bring(fails),
            }
        }
    }

    /// Instructions that a jump written now has to skip; none where that is more than it can.
    fn distance(&self, target: Target) -> Option<u8> {
        let skipped = match target {
            Target::At(index) => self.instructions.len() - 1 - index,
            Target::Return(value) => {
                let same = |found: &sock_filter| found.code == RETURN && found.k == value;
                self.instructions.iter().rev().take(usize::from(u8::MAX) + 1).position(same)?
            }
        };
        u8::try_from(skipped).ok()
    }

    /// Writes an instruction that does the same as what stands too far away.
    fn bring(&mut self, target: Target) -> Target {
        match target {
            Target::Return(value) => self.write(RETURN, value, 0, 0),
            Target::At(index) => {
                // Beyond what 32 bits hold the program is refused for its length long before.
                let skipped = u32::try_from(self.instructions.len() - 1 - index).unwrap_or(u32::MAX);
                self.write(JUMP, skipped, 0, 0)
            }
        }
    }

    fn write(&mut self, code: u16, k: u32, jt: u8, jf: u8) -> Target {
        self.instructions.push(sock_filter { code, jt, jf, k });
        Target::At(self.instructions.len() - 1)
    }
}
