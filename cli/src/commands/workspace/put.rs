//! `cordon workspace put`: files and directories of ours into a workspace.

mod tree;

use super::{check_name, errand::Errands};
use crate::{exit_status, failure::Failure, output, source};
use cordon_protocol::{Action, FileIn, limits};
use std::{
    fs::{File, Metadata},
    io::{self, Read},
    path::{Path, PathBuf},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  cordon workspace put proj src Cargo.toml          to src/… and Cargo.toml
  cordon workspace put proj big.bin --to data/big   to data/big
  cordon workspace put proj a.csv b.csv --to data/  to data/a.csv and data/b.csv
  cordon workspace put proj .                       what is in the current directory

A directory is put with all that is in it; a file that is there already is replaced, others stay. Files keep their \
permission bits. Links inside a directory, devices and the like are told and left out; so are empty directories. A \
file that could not be read is told too, and makes the exit status 125 when all others have been put.";

/// What to put where.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The workspace's name
    name: String,
    /// Local files and directories
    #[arg(required = true, value_name = "LOCAL", value_hint = clap::ValueHint::AnyPath)]
    locals: Vec<PathBuf>,
    /// Path in the workspace: of a single LOCAL its new path; of several, or with a `/` at its end, the directory that
    /// takes them [default: the workspace itself]
    #[arg(long, value_name = "PATH")]
    to: Option<String>,
    /// Profile whose limits hold [default: default]
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
}

/// Files up to this size travel together, bytes.
const SMALL_MAX: u64 = 1 << 20;

/// Puts all of it.
pub(super) fn execute(args: &Args, socket: &Path) -> Result<u8, Failure> {
    check_name(&args.name)?;
    let targets = targets(args)?;
    let errands = Errands::new("workspace put", socket, &args.name, args.profile.as_deref())?;
    let mut load = Load { errands, batch: Vec::new(), bytes: 0, incomplete: false };
    for (local, path) in args.locals.iter().zip(&targets) {
        if local.is_dir() {
            tree::put(&mut load, local, path)?;
        } else if path.is_empty() {
            return Err(nameless(local));
        } else {
            match source::open(local) {
                Ok((file, meta)) => load.add(path.clone(), file, &meta)?,
                Err(error) => {
                    load.incomplete = true;
                    let next = "name a file or directory that you may read; the others are put";
                    let what = format!("putting {}", local.display());
                    Failure::new(what, error, next).report(exit_status::CORDON_FAILED);
                }
            }
        }
    }
    load.flush()?;
    Ok(if load.incomplete { exit_status::CORDON_FAILED } else { exit_status::SUCCESS })
}

/// Where each goes; empty for what is in a directory that goes to the top.
fn targets(args: &Args) -> Result<Vec<String>, Failure> {
    let to = args.to.as_deref();
    let bad = |text: &str, problem: &str| Failure::Told {
        problem: format!("--to: `{}` is {problem}", output::visible(text)),
        next: "name a path in the workspace, as data/file or data/".to_owned(),
    };
    if let Some(text) = to {
        source::check_path(text.strip_suffix('/').unwrap_or(text)).map_err(|problem| bad(text, &problem))?;
    }
    let single = args.locals.len() == 1;
    args.locals
        .iter()
        .map(|local| match to {
            Some(path) if single && !path.ends_with('/') => Ok(path.to_owned()),
            _ => {
                let directory = to.unwrap_or_default().trim_end_matches('/');
                let name = match local.file_name() {
                    None => "",
                    Some(name) => name.to_str().ok_or_else(|| not_utf8(local))?,
                };
                Ok(join(directory, name))
            }
        })
        .collect()
}

fn join(directory: &str, name: &str) -> String {
    match (directory, name) {
        ("", name) => name.to_owned(),
        (directory, "") => directory.to_owned(),
        (directory, name) => format!("{directory}/{name}"),
    }
}

fn not_utf8(local: &Path) -> Failure {
    let next = "give it another name, with --to for instance";
    Failure::new(format!("putting {}", local.display()), "its name is not UTF-8", next)
}

fn nameless(local: &Path) -> Failure {
    Failure::new(format!("putting {}", local.display()), "it is no directory", "name a file or a directory")
}

/// What is on its way: small files wait for others, so that a tree takes few errands.
#[derive(Debug)]
struct Load<'a> {
    errands: Errands<'a>,
    batch: Vec<FileIn>,
    bytes: usize,
    incomplete: bool,
}

impl Load<'_> {
    /// Puts a file that has been opened at this path of the workspace, now or with the next ones.
    fn add(&mut self, path: String, mut file: File, meta: &Metadata) -> Result<(), Failure> {
        let mode = Some(source::mode(meta));
        let mut content = Vec::new();
        if meta.len() <= SMALL_MAX {
            // It may have grown since.
            let read = Read::by_ref(&mut file).take(SMALL_MAX + 1).read_to_end(&mut content);
            match read {
                Err(error) => {
                    self.complain(Path::new(&path), &error);
                    return Ok(());
                }
                Ok(length) if length as u64 <= SMALL_MAX => {
                    return self.batch(FileIn { path, content, mode });
                }
                Ok(_) => {}
            }
        }
        let request = self.errands.request(Action::Write { path: path.clone(), mode });
        if let Err(error) = self.errands.feed(request, io::Cursor::new(content).chain(file))? {
            let error = format!("{error}; {path} of the workspace is as it was");
            self.complain(Path::new(&path), &error);
        }
        Ok(())
    }

    fn batch(&mut self, file: FileIn) -> Result<(), Failure> {
        let full = self.batch.len() == limits::FILES_MAX;
        // Of a path that comes twice the later file is to be there, as with the large ones.
        let again = self.batch.iter().any(|earlier| earlier.path == file.path);
        if full || again || self.bytes + file.content.len() > limits::FILES_BYTES_MAX {
            self.flush()?;
        }
        self.bytes += file.content.len();
        self.batch.push(file);
        Ok(())
    }

    /// Puts what waits.
    fn flush(&mut self) -> Result<(), Failure> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let files = std::mem::take(&mut self.batch);
        self.bytes = 0;
        let request = cordon_protocol::RunRequest { files, ..self.errands.request(Action::Nothing) };
        self.errands.run(request).map(drop)
    }

    /// Tells of a file that was not put, and goes on.
    fn complain(&mut self, local: &Path, problem: &dyn std::fmt::Display) {
        self.incomplete = true;
        let line = format!("cordon: putting {} failed: {problem}", local.display());
        output::complain(&output::visible(&line));
    }

    /// Tells of something that is never put.
    fn leave_out(&self, local: &Path, what: &str) {
        let line = format!("cordon: {} is {what}, left out", local.display());
        output::complain(&output::visible(&line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets_of(locals: &[&str], to: Option<&str>) -> Result<Vec<String>, String> {
        let args = Args {
            name: "w".into(),
            locals: locals.iter().map(PathBuf::from).collect(),
            to: to.map(str::to_owned),
            profile: None,
        };
        targets(&args).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn each_goes_to_its_name_or_to_where_it_is_sent() {
        for (locals, to, expected) in [
            (&["/x/a"][..], None, &["a"][..]),
            (&["a/", "b/c"], None, &["a", "c"]),
            (&["a"], Some("d/e"), &["d/e"]),
            (&["a"], Some("d/"), &["d/a"]),
            (&["a", "b"], Some("d"), &["d/a", "d/b"]),
            (&["."], None, &[""]),
            (&["."], Some("d"), &["d"]),
            (&[".", "/"], Some("d/"), &["d", "d"]),
            (&["x/.."], None, &[""]),
        ] {
            assert_eq!(targets_of(locals, to).unwrap(), expected, "{locals:?} {to:?}");
        }
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused_by_the_option() {
        for to in ["/etc", "../x", "a/../../x", "", "/", "a//"] {
            let problem = targets_of(&["a"], Some(to)).unwrap_err();
            assert!(problem.contains("--to: `"), "{to}: {problem}");
        }
    }
}
