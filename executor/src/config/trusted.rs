//! A configuration file, and whether nobody but root can have written it.

use super::ConfigError;
use cordon_protocol::configuration::{FILE_MAX, read_text};
use nix::fcntl::OFlag;
use std::{
    fs::{self, File, Metadata, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// An open file.
pub(super) struct Source {
    named: PathBuf,
    real: PathBuf,
    file: File,
    meta: Metadata,
}

impl Source {
    /// Opens the file that the path leads to.
    pub(super) fn open(path: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read { path: path.to_owned(), source };
        let real = fs::canonicalize(path).map_err(read)?;
        // A pipe is not waited for.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(&real).map_err(read)?;
        let meta = file.metadata().map_err(read)?;
        Ok(Self { named: path.to_owned(), real, file, meta })
    }

    /// Refuses a file that somebody else than root could have written, or could put another in the place of.
    pub(super) fn check_trust(&self) -> Result<(), ConfigError> {
        let untrusted = |path: &Path, problem| Err(ConfigError::Untrusted { path: path.to_owned(), problem });
        if self.meta.uid() != 0 {
            return untrusted(&self.real, "does not belong to root");
        }
        if self.meta.mode() & 0o022 != 0 {
            return untrusted(&self.real, "can be written by others");
        }
        for directory in self.real.ancestors().skip(1) {
            let read = |source| ConfigError::Read { path: directory.to_owned(), source };
            let meta = fs::metadata(directory).map_err(read)?;
            if meta.uid() != 0 {
                return untrusted(directory, "is a directory that does not belong to root");
            }
            // In a sticky directory (/tmp) others cannot replace root's entries.
            if meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0 {
                return untrusted(directory, "is a directory that can be written by others");
            }
        }
        Ok(())
    }

    /// Its text.
    pub(super) fn text(&self) -> Result<String, ConfigError> {
        read_text(&self.file, FILE_MAX)
            .map_err(|source| ConfigError::Read { path: self.named.clone(), source })
    }
}
