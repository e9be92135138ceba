//! The subcommands, one file each, all of the same shape: `Args` says what can be asked for, `execute`
//! does it and returns the exit status.

mod audit;
mod completions;
mod config;
mod doctor;
mod kill;
mod profiles;
mod ps;
pub(crate) mod run;
mod up;
mod workspace;

use crate::{exit_status, failure::Failure};
use clap::Parser;
use std::{ffi::OsString, path::Path};

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
    /// List, show and delete your named workspaces, and move files in and out
    Workspace(workspace::Args),
    /// List the profiles you may use, with their limits
    Profiles(profiles::Args),
    /// Show what this host enforces, layer by layer
    Doctor(doctor::Args),
    /// Show the audit trail, or check that nobody has changed it
    Audit(audit::Args),
    /// Check a configuration file before a daemon is given it
    Config(config::Args),
    /// Start executor and gateway in the foreground and send one command the whole way (root)
    Up(up::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
}

impl Command {
    /// Does it; the exit status.
    pub(crate) fn execute(self, socket: &Path) -> Result<u8, Failure> {
        match self {
            Self::Run(args) => run::execute(args, socket),
            Self::Ps(args) => ps::execute(&args, socket),
            Self::Kill(args) => kill::execute(&args, socket),
            Self::Workspace(args) => workspace::execute(&args, socket),
            Self::Profiles(args) => profiles::execute(&args, socket),
            Self::Doctor(args) => doctor::execute(&args, socket),
            Self::Audit(args) => audit::execute(&args, socket),
            Self::Config(args) => config::execute(&args),
            Self::Up(args) => up::execute(&args),
            Self::Completions(args) => completions::execute(&args),
        }
    }

    /// Whether its failure is told in JSON, too: where its answer would be one JSON value.
    pub(crate) fn answers_in_json(&self) -> bool {
        match self {
            Self::Run(args) => args.json,
            Self::Ps(args) => args.json,
            Self::Workspace(args) => args.json(),
            Self::Profiles(args) => args.json,
            Self::Doctor(args) => args.json,
            // Of a trail each line is one, as it was written.
            Self::Kill(_) | Self::Audit(_) | Self::Config(_) | Self::Up(_) | Self::Completions(_) => false,
        }
    }

    /// The exit status when it fails.
    pub(crate) fn failure_status(&self) -> u8 {
        match self {
            Self::Run(_) | Self::Workspace(_) | Self::Config(_) => exit_status::CORDON_FAILED,
            _ => exit_status::FAILURE,
        }
    }
}

/// The step of `cordon up` that becomes a daemon. No subcommand, so that neither help nor completions offer it.
#[derive(Debug, Parser)]
#[command(name = "cordon launch-daemon")]
struct Launch {
    #[command(flatten)]
    args: up::launcher::Args,
}

/// Becomes a daemon where the arguments ask for that, and comes back with the exit status only when that fails.
pub(crate) fn launch_daemon(arguments: &[OsString]) -> Option<u8> {
    let rest = arguments.get(1..).filter(|rest| rest.first().is_some_and(|word| word == "launch-daemon"))?;
    let failed = |failure: Failure| failure.report(exit_status::FAILURE);
    Some(match Launch::try_parse_from(rest) {
        Ok(launch) => up::launcher::execute(&launch.args).unwrap_or_else(failed),
        Err(error) => failed(Failure::new("reading the arguments", error, "this is a step of `cordon up`")),
    })
}
