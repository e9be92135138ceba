//! The system-call filter: a policy with a reason for every row, compiled into one program.
//!
//! `table` says what a sandboxed command may call, `arguments` and `rule` how a call's arguments are looked
//! at, `policy` checks it and answers questions, `tree` compiles it. `docs/seccomp.md` explains the choices.
//! The program is compiled once, before anything is cloned, and loaded as the last step of a lock-down.

mod arguments;
pub mod policy;
pub mod rule;
pub mod table;
mod tree;

#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod interpreter;
#[cfg(test)]
mod live;
#[cfg(test)]
mod table_tests;

pub use policy::Policy;
pub use rule::Verdict;
pub use seccompiler::BpfProgram;
pub use tree::compile;

use crate::sys::prctl;
use libc::c_long;
use nix::errno::Errno;

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// A row that says nothing.
    #[error("system-call policy: {name} has no reason; give it one")]
    NoReason {
        /// The call.
        name: &'static str,
    },
    /// Two rows for one call.
    #[error("system-call policy: {name} is there twice; keep one row")]
    Repeated {
        /// The call.
        name: &'static str,
    },
    /// A number that no x86_64 call has.
    #[error("system-call policy: no call has the number {number}")]
    Number {
        /// The number.
        number: c_long,
    },
    /// More than the kernel takes.
    #[error("system-call policy: the program has {length} instructions and the kernel takes {most}")]
    TooLong {
        /// Instructions.
        length: usize,
        /// Most that the kernel takes.
        most: usize,
    },
    /// The kernel did not take the program.
    #[error("system-call filter: cannot load: {0}")]
    Load(#[from] seccompiler::Error),
    /// The state of the process cannot be read.
    #[error("system-call filter: cannot read back: {0}")]
    ReadBack(#[from] Errno),
    /// The kernel took the program and does not use it.
    #[error("system-call filter: not in force after loading: seccomp mode {mode}")]
    NotInForce {
        /// What the kernel says.
        mode: u32,
    },
}

/// The program for a sandboxed command.
///
/// # Errors
/// Never for the table as it is; see [`FilterError`].
pub fn program() -> Result<BpfProgram, FilterError> {
    compile(&Policy::command()?)
}

/// The program for a process that may make these calls (number, reason) only; anything else is `EPERM`.
/// The list needs `prctl`, or [`apply`] cannot read back what it has done.
///
/// # Errors
/// For a call without a reason, twice, or with a number that no call has.
pub fn allow_list(calls: &[(c_long, &'static str)]) -> Result<BpfProgram, FilterError> {
    compile(&Policy::allow_list(calls)?)
}

/// Loads the program for the calling thread and whatever it starts, sets no_new_privs, and reads back that it
/// is in force. There is no way back.
///
/// # Errors
/// When the kernel does not take it, or the program itself forbids the reading back; the caller must end.
pub fn apply(program: &BpfProgram) -> Result<(), FilterError> {
    seccompiler::apply_filter(program)?;
    match prctl::seccomp_mode()? {
        prctl::SECCOMP_MODE_FILTER => Ok(()),
        mode => Err(FilterError::NotInForce { mode }),
    }
}

/// What the policy of a sandboxed command says about a call of this machine's own ABI.
///
/// # Errors
/// As for [`program`].
pub fn verdict_of(number: u32, arguments: &[u64; 6]) -> Result<Verdict, FilterError> {
    Ok(Policy::command()?.verdict(policy::ARCH_X86_64, number, arguments))
}
