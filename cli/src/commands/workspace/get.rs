//! `cordon workspace get`: files and directories of a workspace into a directory of ours.

use super::{check_name, errand::Errands};
use crate::{
    destination::{Destination, Place},
    exit_status,
    failure::Failure,
    output, source,
};
use cordon_protocol::{Action, CollectedFile, RunRequest, limits};
use std::path::{Path, PathBuf};

pub(super) const EXAMPLES: &str = "\
Examples:
  cordon workspace get proj out/report.html
  cordon workspace get proj big.bin notes.txt --into results
  cordon workspace get proj 'logs/*.log' 'src/**/*.py'
  cordon workspace get proj src                     a directory with what is in it

Each file keeps its path below DIR and its permission bits, less those that umask takes. Nothing is written outside \
DIR, through a link, or over what is not a regular file; a file that is there is replaced once the new one is whole. \
In a PATH, `*`, `?` and `[` make a pattern as a shell's, with `**` for any directories; [*] stands for a `*`. What \
matches is got as an argument of `cp -r` would be: a directory with all that is in it, hidden or not, though not through \
links to other directories in it, which are told, and without directories that have no file in them. At most \
256 files match each PATH, of any size: of more, or with names that are not UTF-8, make an archive with `cordon run \
--workspace NAME -n -- tar c PATH > FILE`. What could not be got is told and makes the exit status 125.";

/// What to get.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The workspace's name
    name: String,
    /// Files, directories and patterns, relative to the workspace
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    /// Local directory to write into, made where there is none
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    into: PathBuf,
    /// Profile whose limits hold [default: default]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

/// Gets all of it.
pub(super) fn execute(args: &Args, socket: &Path) -> Result<u8, Failure> {
    check_name(&args.name)?;
    // As in a shell, `/` at the end is no other path.
    let paths: Vec<_> = args.paths.iter().map(|path| path.strip_suffix('/').unwrap_or(path)).collect();
    for path in &paths {
        source::check_path(path).map_err(|problem| Failure::Told {
            problem: format!("PATH: `{}` is {problem}", output::visible(path)),
            next: "name a file of the workspace, as out/report.html".to_owned(),
        })?;
    }
    let errands = Errands::new("workspace get", socket, &args.name, args.profile.as_deref())?;
    errands.existing()?;
    let mut catch = Catch { errands, into: Destination::open(&args.into)?, incomplete: false };
    for path in paths {
        catch.get(path)?;
    }
    Ok(if catch.incomplete { exit_status::CORDON_FAILED } else { exit_status::SUCCESS })
}

/// What to collect for a path: the files of that name and, as with an argument that a shell makes of it, the directories
/// with all that is in them.
fn patterns(path: &str) -> [String; 2] {
    [path.to_owned(), format!("{path}/")]
}

/// What says of a pattern that there is no file for it.
const NOTHING: [&str; 3] = [CollectedFile::NO_MATCH, CollectedFile::ONLY_DIRECTORIES, CollectedFile::EMPTY];

/// What is fetched, and where to.
#[derive(Debug)]
struct Catch<'a> {
    errands: Errands<'a>,
    into: Destination,
    incomplete: bool,
}

impl Catch<'_> {
    /// Gets what a path stands for. Small files come with their permission bits in one errand; of each large one it
    /// brings the bits, and another errand the content.
    fn get(&mut self, path: &str) -> Result<(), Failure> {
        let patterns = patterns(path);
        let collect = patterns.to_vec();
        let request = RunRequest { collect, ..self.errands.request(Action::Nothing) };
        let (_, files) = self.errands.run(request)?;
        let (none, files): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| {
            file.problem.is_some() && (file.path.is_empty() || patterns.contains(&file.path))
        });
        for file in &files {
            self.land(file)?;
        }
        // Where a path may stand for a file or a directory, one of the two matches nothing.
        let problems: Vec<_> = none.iter().filter_map(|file| file.problem.as_deref()).collect();
        if let Some(problem) = problems.iter().find(|problem| !NOTHING.contains(problem)) {
            let archive = if files.len() == limits::FILES_MAX {
                format!(
                    "; use fewer, or `cordon run --workspace {} -n -- tar c … > FILE`",
                    self.errands.name()
                )
            } else {
                String::new()
            };
            self.complain(path, &format!("{problem}{archive}"));
        } else if files.is_empty() {
            // Of directories: that nothing is in them.
            self.complain(path, problems.last().unwrap_or(&CollectedFile::NO_MATCH));
        }
        Ok(())
    }

    /// Writes one file.
    fn land(&mut self, file: &CollectedFile) -> Result<(), Failure> {
        let whole = match &file.problem {
            Some(problem) => Err(problem.clone()),
            None if file.truncated => match self.into.place(&file.path) {
                Ok(place) => return self.fetch(file, &place),
                Err(problem) => Err(problem),
            },
            None => self.into.write(&file.path, file.mode, &file.content),
        };
        if let Err(problem) = whole {
            self.complain(&file.path, &problem);
        }
        Ok(())
    }

    /// Fetches the content of a file that is too large to come with its name.
    fn fetch(&mut self, file: &CollectedFile, place: &Place) -> Result<(), Failure> {
        let mut begun = match place.begin(file.mode) {
            Ok(begun) => begun,
            Err(error) => {
                self.complain(&file.path, &error.to_string());
                return Ok(());
            }
        };
        let request = self.errands.request(Action::Read { path: file.path.clone() });
        let written = self.errands.drain(request, &mut begun)?.and_then(|()| place.finish(begun));
        if let Err(error) = written {
            self.complain(&file.path, &error.to_string());
        }
        Ok(())
    }

    fn complain(&mut self, path: &str, problem: &str) {
        self.incomplete = true;
        output::complain(&output::visible(&format!("cordon: getting {path} failed: {problem}")));
    }
}
