//! `cordon kill`: ends one of one's own commands.

use super::CLIENT;
use crate::{exit_status, failure::Failure};
use cordon_protocol::client::blocking;
use std::path::Path;

const EXAMPLES: &str = "\
Example:
  cordon kill 6d600fee00000001     an ID as `cordon ps` lists it";

/// What to end.
#[derive(Debug, clap::Args)]
// Left to itself, clap takes a CORDON_SOCKET in the environment for an argument that was given.
#[command(after_help = EXAMPLES, override_usage = "cordon kill [OPTIONS] <ID>")]
pub(crate) struct Args {
    /// The command's ID, as `cordon ps` lists it
    id: String,
}

/// Ends the command with its whole tree; its report says `cancelled`.
pub(crate) fn execute(args: &Args, socket: &Path) -> Result<u8, Failure> {
    blocking::kill(socket, CLIENT, &args.id).map_err(|e| Failure::of_client("kill", socket, e))?;
    Ok(exit_status::SUCCESS)
}
