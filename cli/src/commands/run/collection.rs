//! What was collected after a command's end, on its way into a directory or into the report.

use super::Args;
use crate::{destination::Destination, exit_status, failure::Failure, output};
use cordon_protocol::{Bytes, Collected, CollectedFile, limits};

/// Takes collected files as they come.
#[derive(Debug)]
pub(super) struct Collection {
    into: Option<Destination>,
    /// What the report tells; none without one, or where nothing was to be collected.
    listed: Option<Vec<Collected>>,
    /// Some were not written.
    incomplete: bool,
}

impl Collection {
    /// Prepares for what these arguments ask for, before anything runs.
    pub(super) fn new(args: &Args) -> Result<Self, Failure> {
        let wanted = !args.collect.is_empty();
        let bad = |problem: &str, next: &str| Err(Failure::bad_request(problem, next));
        if wanted && !args.json && args.into.is_none() {
            let next = "name a directory with --into, or have them in the report with --json";
            return bad("--collect: nothing says where collected files go", next);
        }
        if !wanted && args.into.is_some() {
            return bad("--into: nothing is to be collected", "say with --collect which files are");
        }
        let into = args.into.as_deref().map(Destination::open).transpose()?;
        Ok(Self { into, listed: (wanted && args.json).then(Vec::new), incomplete: false })
    }

    /// Takes one.
    pub(super) fn take(&mut self, file: CollectedFile) {
        let Some(into) = &self.into else {
            self.list(Collected::from(file));
            return;
        };
        let problem = written(into, &file).err();
        if let Some(problem) = &problem {
            self.incomplete = true;
            let of = if file.path.is_empty() { String::new() } else { format!(" {}", file.path) };
            let line = format!("cordon: collecting{of} failed: {problem}");
            output::complain(&output::visible(&line));
        }
        self.list(Collected { content: None, problem, ..Collected::from(file) });
    }

    fn list(&mut self, file: Collected) {
        if let Some(listed) = &mut self.listed {
            listed.push(file);
        }
    }

    /// What the report tells of collected files.
    pub(super) fn listed(self) -> Option<Vec<Collected>> {
        self.listed
    }

    /// The exit status, which is not to say that all is well where something is missing.
    pub(super) fn status(&self, of_command: u8) -> u8 {
        if self.incomplete && of_command == exit_status::SUCCESS {
            exit_status::CORDON_FAILED
        } else {
            of_command
        }
    }
}

/// Writes a file, all of it or nothing: a beginning alone would pass for the whole.
fn written(into: &Destination, file: &CollectedFile) -> Result<(), String> {
    if let Some(problem) = &file.problem {
        return Err(problem.clone());
    }
    if file.truncated {
        let (one, all) = (limits::COLLECTED_FILE_MAX as u64, limits::COLLECTED_BYTES_MAX as u64);
        return Err(format!(
            "it has {} bytes, and only {} of one file and {} of all are collected; use --workspace and `cordon \
             workspace get`",
            file.size,
            Bytes(one),
            Bytes(all)
        ));
    }
    into.write(&file.path, file.mode, &file.content)
}
