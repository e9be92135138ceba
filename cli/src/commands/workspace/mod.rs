//! `cordon workspace`: one's own named workspaces, and files into and out of them.

mod errand;
mod get;
mod list;
mod put;

use super::CLIENT;
use crate::{exit_status, failure::Failure, output};
use cordon_protocol::{client::blocking, limits};
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  cordon workspace list
  cordon workspace show proj --json | jq .bytes
  cordon workspace put proj src Cargo.toml
  cordon workspace put proj big.bin --to data/big.bin
  cordon run --workspace proj -- make
  cordon workspace get proj 'out/*.log' data --into results
  cordon workspace delete proj

A named workspace is the home directory of every command that names it with `cordon run --workspace NAME`, and stays. \
It is made when it is first named. Each user has workspaces of their own; all HTTP clients together are one user.

Exit status: 0; 125 when Cordon failed or refused, or something was not put or got; 2 for arguments that are not \
understood.";

/// What to do with which.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List them, with the time of the last change
    #[command(after_help = EXAMPLES)]
    List(list::Args),
    /// Show how much is in one
    // Left to itself, clap takes a CORDON_SOCKET in the environment for an argument that was given.
    #[command(after_help = EXAMPLES, override_usage = "cordon workspace show [OPTIONS] <NAME>")]
    Show(list::ShowArgs),
    /// Delete one with all that is in it; refused while a command uses it
    #[command(after_help = EXAMPLES, override_usage = "cordon workspace delete [OPTIONS] <NAME>")]
    Delete {
        /// Its name
        name: String,
    },
    /// Put local files and directories into one, which is made where there is none
    #[command(after_help = put::EXAMPLES, override_usage = "cordon workspace put [OPTIONS] <NAME> <LOCAL>...")]
    Put(put::Args),
    /// Get files and directories out of one
    #[command(after_help = get::EXAMPLES, override_usage = "cordon workspace get [OPTIONS] <NAME> <PATH>...")]
    Get(get::Args),
}

impl Args {
    /// Whether the answer is to be JSON.
    pub(super) fn json(&self) -> bool {
        match &self.action {
            Action::List(args) => args.json,
            Action::Show(args) => args.json,
            Action::Delete { .. } | Action::Put(_) | Action::Get(_) => false,
        }
    }
}

/// Does it.
pub(crate) fn execute(args: &Args, socket: &Path) -> Result<u8, Failure> {
    match &args.action {
        Action::List(args) => list::execute(args, socket),
        Action::Show(args) => list::show(args, socket),
        Action::Delete { name } => delete(name, socket),
        Action::Put(args) => put::execute(args, socket),
        Action::Get(args) => get::execute(args, socket),
    }
}

fn delete(name: &str, socket: &Path) -> Result<u8, Failure> {
    check_name(name)?;
    let failed = |error| Failure::of_client("workspace delete", socket, error);
    blocking::delete_workspace(socket, CLIENT, name).map_err(failed)?;
    Ok(exit_status::SUCCESS)
}

/// A workspace's name, as an option has it.
pub(crate) fn name(text: &str) -> Result<String, String> {
    if limits::is_workspace_name(text) {
        return Ok(text.to_owned());
    }
    Err(format!("not a name: {}", limits::workspace_name_rule()))
}

fn check_name(name: &str) -> Result<(), Failure> {
    if limits::is_workspace_name(name) {
        return Ok(());
    }
    let problem = format!("workspace: `{}` is not a name", output::visible(name));
    Err(Failure::bad_request(problem, limits::workspace_name_rule()))
}
