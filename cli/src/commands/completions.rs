//! `cordon completions`: a script that lets a shell complete our arguments.

use crate::{Cli, exit_status, failure::Failure, output};
use clap::CommandFactory;

const EXAMPLES: &str = "\
Examples:
  cordon completions bash > /etc/bash_completion.d/cordon
  cordon completions fish > ~/.config/fish/completions/cordon.fish";

/// For which shell.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, override_usage = "cordon completions [OPTIONS] <SHELL>")]
pub(crate) struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

/// Prints the script.
pub(crate) fn execute(args: &Args) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "cordon", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(exit_status::SUCCESS)
}
