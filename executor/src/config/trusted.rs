//! A configuration file, and whether nobody but root can have written it.

use super::ConfigError;
use cordon_protocol::configuration::{Doubt, FILE_MAX, Way, read_text};
use nix::fcntl::OFlag;
use std::{
    fs::{File, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// An open file.
pub(super) struct Source {
    named: PathBuf,
    way: Way,
    file: File,
    meta: Metadata,
}

impl Source {
    /// Opens the file that the path leads to.
    pub(super) fn open(path: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read { path: path.to_owned(), source };
        let way = Way::follow(path).map_err(read)?;
        // A pipe is not waited for.
        let file = way.open((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits()).map_err(read)?;
        let meta = file.metadata().map_err(read)?;
        Ok(Self { named: path.to_owned(), way, file, meta })
    }

    /// Refuses a file of which nothing may be shown, as somebody else than root could have led here from another.
    pub(super) fn check_way(&self) -> Result<(), ConfigError> {
        self.way.doubt().map_or(Ok(()), |doubt| Err(untrusted(doubt)))
    }

    /// Refuses a file that somebody else than root could have written, or could put another in the place of.
    pub(super) fn check_trust(&self) -> Result<(), ConfigError> {
        self.check_way()?;
        let problem = if self.meta.uid() != 0 {
            Some("does not belong to root")
        } else {
            (self.meta.mode() & 0o022 != 0).then_some("can be written by others")
        };
        let file = problem.map(|problem| (self.way.end.clone(), problem));
        file.or_else(|| self.way.directory.clone()).map_or(Ok(()), |doubt| Err(untrusted(doubt)))
    }

    /// Its text.
    pub(super) fn text(&self) -> Result<String, ConfigError> {
        read_text(&self.file, FILE_MAX)
            .map_err(|source| ConfigError::Read { path: self.named.clone(), source })
    }
}

fn untrusted((path, problem): Doubt) -> ConfigError {
    ConfigError::Untrusted { path, problem }
}
