//! Where a command of a profile may start.

use super::Profile;
use std::path::{Component, Path, PathBuf};

/// Directories that are the sandbox's own and lead out of any rule about paths.
const NOT_FOR_WORK: [&str; 3] = ["/proc", "/dev", "/sys"];

impl Profile {
    /// Whether a working directory is one that this profile gives, where `home` is the workspace.
    ///
    /// # Errors
    /// What it is instead, as the rest of a sentence.
    pub(crate) fn check_cwd(&self, path: &Path, home: &Path) -> Result<(), String> {
        if !path.is_absolute() {
            return Err("is not an absolute path".to_owned());
        }
        if path.components().any(|c| c == Component::ParentDir) {
            return Err("has `..` in it".to_owned());
        }
        if let Some(own) = NOT_FOR_WORK.iter().find(|own| path.starts_with(own)) {
            return Err(format!("lies in {own}, which is never a place to work"));
        }
        let within = |paths: &[PathBuf]| paths.iter().any(|p| path.starts_with(p));
        let inside = path == Path::new("/")
            || path.starts_with(home)
            || path.starts_with("/tmp")
            || within(&self.read)
            || within(&self.write)
            || within(&self.execute);
        if !inside || within(&self.hide) {
            return Err(format!("is outside profile `{}`", self.name));
        }
        Ok(())
    }
}
