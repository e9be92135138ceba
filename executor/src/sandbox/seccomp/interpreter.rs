//! What the kernel does with a program, for tests: checks it as at loading, and runs it on a call.

use super::tree;
use seccompiler::sock_filter;

/// `struct seccomp_data` (linux/seccomp.h).
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) number: u32,
    pub(super) arch: u32,
    pub(super) pointer: u64,
    pub(super) arguments: [u64; 6],
}

impl Call {
    /// The word at this offset, as a little-endian machine has it in memory.
    fn word(&self, offset: u32) -> Option<u32> {
        let word = |value: u64, upper: bool| {
            u32::try_from(if upper { value >> 32 } else { value & u64::from(u32::MAX) }).ok()
        };
        match offset {
            tree::NUMBER_AT => Some(self.number),
            tree::ARCH_AT => Some(self.arch),
            8 | 12 => word(self.pointer, offset == 12),
            16..64 if offset.is_multiple_of(4) => {
                let index = usize::try_from((offset - 16) / 8).ok()?;
                word(self.arguments[index], offset % 8 == 4)
            }
            _ => None,
        }
    }
}

/// Runs it: the answer, or none where it leaves the program or has an unknown instruction.
pub(super) fn run(program: &[sock_filter], call: &Call) -> Option<u32> {
    walk(program, call).map(|(answer, _)| answer)
}

/// Instructions that it runs for a call, or none as for [`run`].
pub(super) fn steps(program: &[sock_filter], call: &Call) -> Option<usize> {
    walk(program, call).map(|(_, steps)| steps)
}

fn walk(program: &[sock_filter], call: &Call) -> Option<(u32, usize)> {
    let mut accumulator = 0;
    let mut at = 0;
    // Every jump goes forward, so that no run is longer than the program.
    for step in 1..=program.len() {
        let instruction = program.get(at)?;
        let branch = |holds: bool| usize::from(if holds { instruction.jt } else { instruction.jf });
        let k = instruction.k;
        at += 1;
        match instruction.code {
            tree::LOAD => accumulator = call.word(k)?,
            tree::AND => accumulator &= k,
            tree::RETURN => return Some((k, step)),
            tree::JUMP => at += usize::try_from(k).ok()?,
            tree::JUMP_EQUAL => at += branch(accumulator == k),
            tree::JUMP_AT_LEAST => at += branch(accumulator >= k),
            tree::JUMP_ANY_BIT => at += branch(accumulator & k != 0),
            _ => return None,
        }
    }
    None
}

/// Where an instruction can go on; none for a return.
pub(super) fn successors(program: &[sock_filter], at: usize) -> Vec<usize> {
    let instruction = &program[at];
    match instruction.code {
        tree::RETURN => Vec::new(),
        tree::JUMP => vec![at + 1 + usize::try_from(instruction.k).unwrap()],
        tree::LOAD | tree::AND => vec![at + 1],
        _ => vec![at + 1 + usize::from(instruction.jt), at + 1 + usize::from(instruction.jf)],
    }
}

/// The longest way from the first instruction to an answer: instructions, and comparisons among them.
pub(super) fn longest(program: &[sock_filter]) -> (usize, usize) {
    let mut ways = vec![(0, 0); program.len()];
    for at in (0..program.len()).rev() {
        let after = successors(program, at);
        let instructions = after.iter().map(|next| ways[*next].0).max().unwrap_or(0);
        let comparisons = after.iter().map(|next| ways[*next].1).max().unwrap_or(0);
        ways[at] = (instructions + 1, comparisons + usize::from(after.len() == 2));
    }
    ways[0]
}

#[test]
fn an_interpreter_reads_the_words_the_kernel_shows() {
    let call = Call {
        number: 1,
        arch: 2,
        pointer: 0x0000_0004_0000_0003,
        arguments: [0x0000_0006_0000_0005, 0, 0, 0, 0, 0x0000_0010_0000_000f],
    };
    let load = |k| [sock_filter { code: tree::LOAD, jt: 0, jf: 0, k }];
    for (offset, word) in [(0, 1), (4, 2), (8, 3), (12, 4), (16, 5), (20, 6), (56, 15), (60, 16)] {
        assert_eq!(call.word(offset), Some(word));
        assert_eq!(run(&load(offset), &call), None, "a program that ends without an answer");
    }
    assert_eq!((call.word(64), call.word(2)), (None, None));
}
