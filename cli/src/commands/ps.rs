//! `cordon ps`: one's own running commands.

use super::CLIENT;
use crate::{exit_status, failure::Failure, output};
use cordon_protocol::{JobInfo, client::blocking};
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  cordon ps
  cordon ps --json | jq -r '.[].id'";

/// How to list.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print a JSON array
    #[arg(long)]
    pub(super) json: bool,
}

/// Lists the peer's own commands.
pub(crate) fn execute(args: &Args, socket: &Path) -> Result<u8, Failure> {
    let jobs = blocking::ps(socket, CLIENT).map_err(|e| Failure::of_client("ps", socket, e))?;
    if args.json {
        output::print_json(&jobs)?
    } else {
        output::print(&listing(&jobs))?
    }
    Ok(exit_status::SUCCESS)
}

fn listing(jobs: &[JobInfo]) -> String {
    let mut rows = vec![["ID", "PROFILE", "STATE", "SECONDS", "COMMAND"].map(str::to_owned)];
    for job in jobs {
        let seconds = format!("{}.{}", job.age_ms / 1000, job.age_ms % 1000 / 100);
        let state = match job.position {
            Some(position) => format!("{} ({position})", job.state),
            None => job.state.clone(),
        };
        let texts = [&job.id, &job.profile, &state, &seconds, &job.command];
        rows.push(texts.map(|text| output::visible(text)));
    }
    output::table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_cannot_steer_the_terminal() {
        let job = JobInfo {
            id: "7".into(),
            profile: "default".into(),
            command: "printf \x1b[2J".into(),
            state: "running".into(),
            position: None,
            age_ms: 12_345,
        };
        let expected =
            "ID  PROFILE  STATE    SECONDS  COMMAND\n7   default  running  12.3     printf \\u{1b}[2J\n";
        assert_eq!(listing(&[job]), expected);
    }
}
