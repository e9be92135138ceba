//! `cordon config`: asks a daemon's own program whether it would take a configuration file.

use crate::{exit_status, failure::Failure, output, sibling, signals::keep_children};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

const EXAMPLES: &str = "\
Examples:
  cordon-executor --default-config > executor.toml     every key, its default and its meaning
  cordon config check executor.toml
  cordon config check --daemon gateway draft.toml

Exit status: 0 when the daemon would take the file, 125 when not.";

/// What to do with which file.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Say whether a daemon would take a file, or what is wrong in which line
    #[command(after_help = EXAMPLES, override_usage = "cordon config check [OPTIONS] <FILE>")]
    Check {
        /// Whose configuration it is [default: the one that the file's name names]
        #[arg(long, value_name = "NAME")]
        daemon: Option<Daemon>,
        /// The file
        #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
    },
}

/// Whose configuration a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Daemon {
    Executor,
    Gateway,
}

impl Daemon {
    fn of_name(file: &Path) -> Option<Self> {
        let name = file.file_name()?.to_string_lossy();
        match (name.contains("executor") || name == "profiles.toml", name.contains("gateway")) {
            (true, false) => Some(Self::Executor),
            (false, true) => Some(Self::Gateway),
            _ => None,
        }
    }

    fn program(self) -> &'static str {
        match self {
            Self::Executor => "cordon-executor",
            Self::Gateway => "cordon-gateway",
        }
    }
}

/// Prints `FILE: good`, or what is wrong.
pub(crate) fn execute(args: &Args) -> Result<u8, Failure> {
    let Action::Check { daemon, file } = &args.action;
    let what = || format!("checking {}", file.display());
    let daemon = daemon.or_else(|| Daemon::of_name(file)).ok_or_else(|| {
        let cause = "its name says neither `executor` nor `gateway`";
        Failure::new(what(), cause, "say whose it is with --daemon executor or --daemon gateway")
    })?;
    check(daemon.program(), &sibling::anywhere(daemon.program())?, file)?;
    output::print(&format!("{}: good\n", output::visible(&file.to_string_lossy())))?;
    Ok(exit_status::SUCCESS)
}

/// Asks the program, which says what is wrong in its own words.
pub(super) fn check(name: &str, program: &Path, file: &Path) -> Result<(), Failure> {
    let what = format!("checking {}", file.display());
    let next = format!("`{name} --default-config` prints every key with its meaning");
    let failed = |e| Failure::new(&what, format!("{}: {e}", program.display()), "install the whole package");
    keep_children().map_err(failed)?;
    let asked = Command::new(program).arg("--check").arg(file).output().map_err(failed)?;
    if asked.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&asked.stderr);
    let said = said.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&said);
    Err(Failure::Told { problem: said.trim().to_owned(), next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_whose_it_is() {
        for (name, daemon) in [
            ("/etc/cordon/executor.toml", Some(Daemon::Executor)),
            ("my-gateway.toml.new", Some(Daemon::Gateway)),
            ("/run/cordon/profiles.toml", Some(Daemon::Executor)),
            ("/etc/gateway/x.toml", None),
            ("executor-gateway.toml", None),
            ("/", None),
        ] {
            assert_eq!(Daemon::of_name(Path::new(name)), daemon, "{name}");
        }
    }
}
