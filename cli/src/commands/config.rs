//! `cordon config`: asks a daemon's own program whether it would take a configuration file, and of a file with
//! profiles what `cordon up` asks.

use crate::{exit_status, failure::Failure, output, sibling, signals::keep_children};
use cordon_protocol::configuration::{PROFILES_MAX, read_text};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Command,
};

/// The executor's program.
pub(super) const EXECUTOR: &str = "cordon-executor";
const GATEWAY: &str = "cordon-gateway";

const EXAMPLES: &str = "\
Examples:
  cordon-executor --default-config > executor.toml     every key, its default and its meaning
  cordon config check executor.toml
  sudo cordon config check /run/cordon/profiles.toml   what `cordon up` reads
  sudo cordon config check --daemon gateway draft.toml

As root it tells of a gateway's file whether user cordon could read it and the token.

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
        /// Whose configuration it is: a daemon's, or the `profiles` of `cordon up` [default: as the file's name says]
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
    /// The executor's as well, but with profiles alone: `DIR/profiles.toml`.
    Profiles,
}

impl Daemon {
    fn of_name(file: &Path) -> Option<Self> {
        let name = file.file_name()?.to_string_lossy();
        let named = [(Self::Executor, "executor"), (Self::Gateway, "gateway"), (Self::Profiles, "profiles")];
        let mut named = named.into_iter().filter(|(_, word)| name.contains(word));
        let (daemon, _) = named.next()?;
        named.next().is_none().then_some(daemon)
    }
}

/// Prints `FILE: good`, or what is wrong.
pub(crate) fn execute(args: &Args) -> Result<u8, Failure> {
    let Action::Check { daemon, file } = &args.action;
    // Before its name is asked for whose it is.
    if let Err(error) = file.metadata().map_err(|e| e.kind())
        && matches!(error, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    {
        let next = "name a file that is there; `cordon-executor --default-config` and `cordon-gateway --default-config` print one";
        return Err(Failure::new(checking(file), "there is no such file", next));
    }
    let daemon = daemon.or_else(|| Daemon::of_name(file)).ok_or_else(|| {
        let cause = "its name does not say whether it is of `executor`, `gateway` or `profiles`";
        let next = "say whose it is with --daemon executor, --daemon gateway or --daemon profiles";
        Failure::new(checking(file), cause, next)
    })?;
    match daemon {
        Daemon::Executor => check(EXECUTOR, &sibling::anywhere(EXECUTOR)?, file)?,
        Daemon::Gateway => check(GATEWAY, &sibling::anywhere(GATEWAY)?, file)?,
        Daemon::Profiles => drop(profiles(&sibling::anywhere(EXECUTOR)?, file)?),
    }
    output::print(&format!("{}: good\n", output::visible(&file.to_string_lossy())))?;
    Ok(exit_status::SUCCESS)
}

fn checking(file: &Path) -> String {
    format!("checking {}", file.display())
}

/// Asks the program, which says what is wrong in its own words.
pub(super) fn check(name: &str, program: &Path, file: &Path) -> Result<(), Failure> {
    let next = format!("`{name} --default-config` prints every key with its meaning");
    let failed =
        |e| Failure::new(checking(file), format!("{}: {e}", program.display()), "install the whole package");
    keep_children().map_err(failed)?;
    let asked = Command::new(program).arg("--check").arg(file).output().map_err(failed)?;
    if asked.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&asked.stderr);
    let said = said.trim().strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&said);
    Err(Failure::Told { problem: said.trim().to_owned(), next })
}

/// The text of a person's file for `cordon up`, once the executor has said that it would take it.
pub(super) fn profiles(executor: &Path, file: &Path) -> Result<String, Failure> {
    // Whose it is, and every key and value with its line.
    check(EXECUTOR, executor, file).map_err(of_profiles)?;
    let reading = |cause: String, next| Failure::new(format!("reading {}", file.display()), cause, next);
    let text = File::open(file).and_then(|file| read_text(&file, PROFILES_MAX));
    let text = text.map_err(|e| {
        let next = match e.kind() {
            io::ErrorKind::FileTooLarge => {
                "write each profile with the keys that differ from the defaults alone"
            }
            _ => "see whether root can read it",
        };
        reading(e.to_string(), next)
    })?;
    // It need not stay the beginning of a file.
    let text = text.trim_start_matches('\u{feff}').to_owned();
    let keys: toml::Table = text.parse().map_err(|e| reading(format!("{e}"), "write it as TOML"))?;
    match keys.keys().find(|key| *key != "profiles") {
        Some(key) => Err(reading(
            format!("`{key}` is not for this file, which has [profiles.NAME] tables alone"),
            "take the key out, or start cordon-executor yourself with a whole configuration",
        )),
        None => Ok(text),
    }
}

/// Without the keys of a whole configuration, which the executor offers in the place of an unknown one.
fn of_profiles(failure: Failure) -> Failure {
    match failure {
        Failure::Told { problem, next } => {
            let problem = match problem.split_once(", expected one of `socket`") {
                Some((problem, _)) => format!("{problem}; this file has [profiles.NAME] tables alone"),
                None => problem,
            };
            Failure::Told { problem, next }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_whose_it_is() {
        for (name, daemon) in [
            ("/etc/cordon/executor.toml", Some(Daemon::Executor)),
            ("my-gateway.toml.new", Some(Daemon::Gateway)),
            ("/run/cordon/profiles.toml", Some(Daemon::Profiles)),
            ("executor-profiles.toml", None),
            ("/etc/gateway/x.toml", None),
            ("executor-gateway.toml", None),
            ("/", None),
        ] {
            assert_eq!(Daemon::of_name(Path::new(name)), daemon, "{name}");
        }
    }
}
