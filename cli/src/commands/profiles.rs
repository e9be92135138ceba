//! `cordon profiles`: the profiles one may use, with their limits.

use super::CLIENT;
use crate::{exit_status, failure::Failure, output};
use cordon_protocol::{ProfileInfo, client::blocking};
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  cordon profiles
  cordon profiles --json | jq -r '.[].name'";

/// How to list.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print a JSON array
    #[arg(long)]
    pub(super) json: bool,
}

/// Lists the profiles that the peer may use.
pub(crate) fn execute(args: &Args, socket: &Path) -> Result<u8, Failure> {
    let failed = |e| Failure::of_client("profiles", socket, e);
    let profiles = blocking::profiles(socket, CLIENT).map_err(failed)?;
    if args.json {
        output::print_json(&profiles)?;
    } else {
        let texts: Vec<_> = profiles.iter().map(description).collect();
        output::print(&texts.join("\n"))?;
    }
    Ok(exit_status::SUCCESS)
}

fn description(profile: &ProfileInfo) -> String {
    let paths = |paths: &[String]| if paths.is_empty() { "-".to_owned() } else { paths.join(" ") };
    let facts = [
        ["  shell".to_owned(), profile.shell.clone()],
        ["  network".to_owned(), network(profile)],
        ["  read".to_owned(), paths(&profile.read)],
        ["  write".to_owned(), paths(&profile.write)],
        ["  execute".to_owned(), executable(profile)],
        ["  at once".to_owned(), profile.concurrency.to_string()],
    ];
    let mut limits = vec![["  LIMIT", "DEFAULT", "MOST"].map(str::to_owned)];
    for limit in &profile.limits {
        limits.push([format!("  {}", limit.name), limit.default.clone(), limit.ceiling.clone()]);
    }
    format!("{}\n{}{}", profile.name, output::table(&facts), output::table(&limits))
}

/// What is executable is said in full: what may be written is so too.
fn executable(profile: &ProfileInfo) -> String {
    let own = ["the workspace, /tmp and /dev/shm".to_owned()];
    let all = profile.execute.iter().chain(&profile.write);
    all.cloned().chain(own).collect::<Vec<_>>().join(" ")
}

/// The mode, with the ports of the services.
fn network(profile: &ProfileInfo) -> String {
    profile.services.iter().fold(profile.network.clone(), |text, port| format!("{text} {port}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cordon_protocol::LimitInfo;

    #[test]
    fn a_profile_reads_as_a_block() {
        let profile = ProfileInfo {
            name: "default".into(),
            shell: "/bin/bash".into(),
            network: "services".into(),
            services: vec![5432, 6379],
            read: vec!["/usr".into(), "/etc".into()],
            write: vec!["/srv".into()],
            execute: vec!["/usr".into()],
            limits: vec![LimitInfo { name: "wall".into(), default: "1m".into(), ceiling: "1h".into() }],
            concurrency: 32,
        };
        let text = description(&profile);
        let expected = "default\n  shell    /bin/bash\n  network  services 5432 6379\n  read     /usr /etc\n  write    /srv\n  execute  \
                        /usr /srv the workspace, /tmp and /dev/shm\n  at once  32\n  LIMIT  DEFAULT  MOST\n  wall   1m       1h\n";
        assert_eq!(text, expected);
    }
}
