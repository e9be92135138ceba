//! Paths that the sandbox does not show, does not let write or does not let execute.
//!
//! A line of error output gives a path and a kind of failure. The second fact is that the profile refuses exactly this
//! kind of access to exactly this path, and for a file that seems to be missing, that the host has it.

use super::{
    Failure, hint,
    landmarks::Known,
    message::{self, Kind},
};
use cordon_protocol::{Hint, NamespaceName};
use std::path::{Path, PathBuf};

/// Always there and the command's own, or the kernel's; beside the home directory.
const OWN: [&str; 5] = ["/tmp", "/dev/shm", "/dev/pts", "/dev/fd", "/proc/self"];
/// Links into /usr, or directories of the same content (`sandbox/root/template.rs`).
const MERGED: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// The sandbox's own: no profile gives anything there.
const FIXED: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];
/// What of them is shown all the same, beside what is [`OWN`].
const FIXED_SHOWN: [&str; 8] = [
    "/proc",
    "/sys/devices/system/cpu",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// The hint for a line about a path.
pub(super) fn explain(failure: &Failure<'_>, line: &str, kind: Kind) -> Option<Hint> {
    let paths = message::paths(message::without_speaker(line));
    let isolated = failure.outcome.enforced.namespaces.contains(&NamespaceName::Mount);
    let found = paths.iter().filter(|path| !failure.is_own(path)).find_map(|path| match kind {
        Kind::Missing if isolated => failure.missing(line, path),
        Kind::ReadOnly if isolated => failure.read_only(path, path.parent().unwrap_or(path)),
        Kind::Denied if isolated => failure.denied(line, path),
        Kind::Denied if failure.outcome.enforced.landlock_abi > 0 => failure.outside(line, path),
        _ => None,
    });
    // Only a read-only mount says so, whatever the path; a relative one lies where the command has gone.
    let relative = kind == Kind::ReadOnly && isolated && paths.is_empty();
    found.or_else(
        || if relative { failure.went_to().and_then(|at| failure.read_only(&at, &at)) } else { None },
    )
}

fn within(list: &[PathBuf], path: &Path) -> bool {
    list.iter().any(|listed| path.starts_with(listed))
}

fn among(list: &[&str], path: &Path) -> bool {
    list.iter().any(|listed| path.starts_with(listed))
}

impl Failure<'_> {
    /// What fails there fails for reasons of the command's own.
    fn is_own(&self, path: &Path) -> bool {
        path.starts_with(&self.ran.home) || among(&OWN, path)
    }

    fn writes_to(&self, path: &Path) -> bool {
        within(&self.asked.profile.write, path)
    }

    /// Whether the path is on the allow-list of the root.
    fn shows(&self, path: &Path) -> bool {
        let profile = self.asked.profile;
        within(&profile.read, path)
            || within(&profile.execute, path)
            || self.writes_to(path)
            || among(&MERGED, path)
            || among(&FIXED_SHOWN, path)
    }

    fn executes(&self, path: &Path) -> bool {
        within(&self.asked.profile.execute, path) || self.writes_to(path)
    }

    /// The list of the profile that the access wants.
    fn list_for(&self, line: &str, path: &Path) -> &'static str {
        if message::is_about_writing(line) || message::is_redirected(&self.ran.line, path) {
            "write"
        } else if self.outcome.exit_code == Some(126) || self.outcome.exit_code == Some(127) {
            "execute"
        } else {
            "read"
        }
    }

    /// It is said not to exist: refused if the host has it and the root does not.
    fn missing(&self, line: &str, path: &Path) -> Option<Hint> {
        let profile = self.asked.profile;
        let list = self.list_for(line, path);
        // What is about to be made is not there yet: its directory is what was missing.
        let known = match self.ran.landmarks.of(path) {
            Known::Missing if list == "write" && !among(&FIXED, path) => {
                self.ran.landmarks.of(path.parent()?)
            }
            known => known,
        };
        let Known::There(there) = known else { return None };
        let name = &profile.name;
        if let Some(hide) = profile.hide.iter().find(|hide| path.starts_with(hide)) {
            let what = format!("`{}` is hidden by profile `{name}`", path.display());
            let remedy = format!("take `{}` out of profiles.{name}.hide", hide.display());
            return self.ran.landmarks.has_hidden(hide).then(|| hint("namespaces", what, remedy));
        }
        if self.shows(path) {
            // What is there and shown would be found, but for the copy that /etc is.
            let left_out = path.starts_with("/etc") && there == path;
            let what = format!(
                "`{}` is not shown: the sandbox's /etc holds what everybody may read",
                path.display()
            );
            let remedy = format!(
                "profiles.{name}.read cannot give it; bring what the command needs of it {}",
                self.asked.door.files()
            );
            return left_out.then(|| hint("namespaces", what, remedy));
        }
        if among(&FIXED, path) {
            let what = format!("`{}` is not shown: `{}` is the sandbox's own", path.display(), first(path));
            let remedy = "no setting shows it; run what needs it outside the sandbox";
            return Some(hint("namespaces", what, remedy));
        }
        let what = format!("`{}` is outside what profile `{name}` shows", path.display());
        let remedy = format!(
            "add `{}` to profiles.{name}.{list}, where the sandbox's user may {list} it; or bring it {}",
            there.display(),
            self.asked.door.files()
        );
        Some(hint("namespaces", what, remedy))
    }

    /// It is said to be on a read-only file system: refused unless the profile has it writable. `place` is what would
    /// have to be.
    fn read_only(&self, path: &Path, place: &Path) -> Option<Hint> {
        let profile = self.asked.profile;
        if self.is_own(path) || self.writes_to(path) {
            return None;
        }
        let name = &profile.name;
        let what = format!("`{}` is read-only in profile `{name}`", path.display());
        let remedy = if among(&FIXED, path) {
            "no setting makes it writable; only the workspace and /tmp are".to_owned()
        } else if path.starts_with("/etc") {
            format!("write to the workspace or /tmp; profiles.{name}.write gives no /etc, which is a copy")
        } else {
            let place = if self.shows(place) { place } else { path };
            format!(
                "write to the workspace or /tmp, or add `{}` to profiles.{name}.write, where the sandbox's user may write",
                place.display()
            )
        };
        Some(hint("namespaces", what, remedy))
    }

    /// It is said not to be allowed, in a root of its own: owners and modes say so too, so only what no owner
    /// could change counts.
    fn denied(&self, line: &str, path: &Path) -> Option<Hint> {
        if !self.shows(path) || self.writes_to(path) {
            return None;
        }
        if message::is_about_writing(line) || message::is_redirected(&self.ran.line, path) {
            return self.read_only(path, path);
        }
        // bash looks whether the file could be executed before it blames the interpreter, so it is the mode of
        // neither.
        let blamed = line.to_lowercase().contains("bad interpreter: permission denied");
        let judged = blamed || self.outcome.exit_code == Some(126) && !path.starts_with("/etc");
        (judged && !self.executes(path) && !among(&MERGED, path) && !among(&FIXED, path)).then(|| {
            let name = &self.asked.profile.name;
            let what = format!("nothing may be executed in `{}`", path.parent().unwrap_or(path).display());
            let remedy = format!(
                "add it to profiles.{name}.execute, or put the program into the workspace: {}",
                path.display()
            );
            hint("landlock", format!("{what} under profile `{name}`"), remedy)
        })
    }

    /// It is said not to be allowed, on a host without a root of its own: Landlock keeps to the same lists.
    fn outside(&self, line: &str, path: &Path) -> Option<Hint> {
        let name = &self.asked.profile.name;
        if among(&FIXED, path) || self.ran.state_dir.as_ref().is_some_and(|state| path.starts_with(state)) {
            return None;
        }
        let list = self.list_for(line, path);
        let listed = if list == "write" { self.writes_to(path) } else { self.shows(path) };
        (!listed).then(|| {
            let what = format!("`{}` is outside what profile `{name}` lets a command {list}", path.display());
            let remedy = format!(
                "add it to profiles.{name}.{list}, where the sandbox's user may {list} it; or bring it {}",
                self.asked.door.files()
            );
            hint("landlock", what, remedy)
        })
    }

    /// Where the command has gone, if that can be told: one `cd` or `-C` at most.
    fn went_to(&self) -> Option<PathBuf> {
        let mut words = self.ran.line.split(|c: char| c.is_whitespace() || ";&|()".contains(c));
        let mut gone = None;
        while let Some(word) = words.next() {
            if word == "cd" || word == "-C" {
                if gone.is_some() {
                    return None;
                }
                gone = Some(words.next()?.trim_matches(['"', '\'']));
            }
        }
        let to = gone.or(self.ran.cwd.as_deref())?;
        Path::new(to).is_absolute().then(|| message::normal(Path::new(to)))?
    }
}

/// The first component, as a path.
fn first(path: &Path) -> String {
    path.iter().take(2).collect::<PathBuf>().display().to_string()
}
