//! The subcommands, one file each, all of the same shape: `Args` says what can be asked for, `execute`
//! does it and returns the exit status.

mod audit;
mod completions;
mod doctor;
mod kill;
mod profiles;
mod ps;
pub(crate) mod run;
mod up;

use crate::{exit_status, failure::Failure};
use std::path::Path;

/// How the program introduces itself to the executor, for its log.
const CLIENT: &str = concat!("cordon/", env!("CARGO_PKG_VERSION"));

/// What can be asked for.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Run a command in the sandbox
    Run(run::Args),
    /// List your running commands
    Ps(ps::Args),
    /// End one of your running commands
    Kill(kill::Args),
    /// List the profiles you may use, with their limits
    Profiles(profiles::Args),
    /// Show what this host enforces, layer by layer
    Doctor(doctor::Args),
    /// Show the audit trail, or check that nobody has changed it
    Audit(audit::Args),
    /// Start executor and gateway in the foreground and send one command the whole way (root)
    Up(up::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Become one of the daemons (used by `cordon up`)
    #[command(hide = true)]
    LaunchDaemon(up::launcher::Args),
}

impl Command {
    /// Does it; the exit status.
    pub(crate) fn execute(self, socket: &Path) -> Result<u8, Failure> {
        match self {
            Self::Run(args) => run::execute(args, socket),
            Self::Ps(args) => ps::execute(&args, socket),
            Self::Kill(args) => kill::execute(&args, socket),
            Self::Profiles(args) => profiles::execute(&args, socket),
            Self::Doctor(args) => doctor::execute(&args, socket),
            Self::Audit(args) => audit::execute(&args, socket),
            Self::Up(args) => up::execute(&args),
            Self::Completions(args) => completions::execute(&args),
            Self::LaunchDaemon(args) => up::launcher::execute(&args),
        }
    }

    /// The exit status when it fails.
    pub(crate) fn failure_status(&self) -> u8 {
        match self {
            Self::Run(_) => exit_status::CORDON_FAILED,
            _ => exit_status::FAILURE,
        }
    }
}
