//! From a sealed request to a running program: decode, working directory, environment, exec.
//!
//! All of it runs locked down, with no more rights than the command: this is where a client's bytes are
//! first looked at on this side.

use super::{
    Plan, environment,
    errand::{self, tree::Size},
    plan::Place,
    steps::{About, Fault},
};
use crate::{
    sealed::{self, FileHead, SealedRequest, Work},
    sys::memfd,
};
use cordon_protocol::limits;
use nix::{
    errno::Errno,
    unistd::{chdir, execve, getcwd},
};
use std::{
    ffi::CString,
    fs::File,
    io::{Read, Seek, SeekFrom},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Path, PathBuf},
};

/// Reads and decodes the sealed request.
///
/// # Errors
/// When it is not sealed, too large, or not a request.
pub fn read_request(fd: OwnedFd) -> Result<SealedRequest, Fault> {
    let bytes = read_sealed(fd, limits::SEALED_REQUEST_MAX)?;
    SealedRequest::decode(&bytes).map_err(|e| Fault::new(Errno::EINVAL, e.to_string()))
}

/// Puts the files that the request names into the workspace, with the sealed content that came with it.
///
/// # Errors
/// It is not sealed, too large, or not as much as they say; or one could not be written.
pub fn put_files(home: &Path, files: &[FileHead], content: Option<OwnedFd>, room: Size) -> Result<(), Fault> {
    let other = || Fault::new(Errno::EINVAL, "the content is not that of the files in the request");
    let Some(content) = content else {
        return if files.is_empty() { Ok(()) } else { Err(other()) };
    };
    let bytes = read_sealed(content, limits::SEALED_FILES_MAX)?;
    errand::put(home, &sealed::divide(files, &bytes).ok_or_else(other)?, room)
}

fn read_sealed(fd: OwnedFd, most: u64) -> Result<Vec<u8>, Fault> {
    let length = memfd::sealed_length(fd.as_fd()).ok_or_else(|| Fault::new(Errno::EINVAL, "not sealed"))?;
    if length > most {
        return Err(Fault::new(Errno::E2BIG, "sealed request"));
    }
    let mut file = File::from(fd);
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Changes to the request's working directory, which must lie in what the profile gives, also after
/// links are followed.
///
/// # Errors
/// errno of chdir(2); `EACCES` when it lies elsewhere.
pub fn enter_directory(plan: &Plan, place: &Place, asked: Option<&str>) -> Result<(), Fault> {
    let path = &asked.map_or_else(|| place.home.clone(), |path| located(plan, place, Path::new(path)));
    chdir(path).about(format_args!("cwd {}", path.display()))?;
    let here = getcwd().about(format_args!("cwd {}", path.display()))?;
    if allowed_directory(plan, place, &here) {
        Ok(())
    } else {
        Err(Fault::new(Errno::EACCES, format!("cwd {} is outside the profile", here.display())))
    }
}

/// A path below the home directory or /tmp where this command has them: on a host without namespaces that is
/// elsewhere.
fn located(plan: &Plan, place: &Place, path: &Path) -> PathBuf {
    let below = |base: &Path, at: &Path| path.strip_prefix(base).ok().map(|rest| at.join(rest));
    let found = below(&plan.home, &place.home).or_else(|| below(Path::new("/tmp"), &place.tmp));
    found.unwrap_or_else(|| path.to_owned())
}

fn allowed_directory(plan: &Plan, place: &Place, path: &Path) -> bool {
    let profile = &plan.profile;
    let own = [place.home.as_path(), place.tmp.as_path()];
    let given = profile.read.iter().chain(&profile.write).chain(&profile.execute);
    path == Path::new("/") || given.map(PathBuf::as_path).chain(own).any(|base| path.starts_with(base))
}

/// A program ready to be executed.
#[derive(Debug)]
pub struct Program {
    candidates: Vec<CString>,
    argv: Vec<CString>,
    environment: Vec<CString>,
}

impl Program {
    /// Where the request's program may be, and what it is given.
    ///
    /// # Errors
    /// An empty list, or a NUL that nothing should have let through.
    pub fn new(plan: &Plan, place: &Place, request: &SealedRequest) -> Result<Self, Fault> {
        let profile = &plan.profile;
        let user = plan.users.command.name();
        let entries = environment::build(place, user, &profile.shell, &profile.env, &request.env);
        let string =
            |text: &str| CString::new(text).map_err(|_| Fault::new(Errno::EINVAL, "NUL in an argument"));
        let Work::Program(argv) = &request.work else {
            return Err(Fault::new(Errno::EINVAL, "an errand is no program"));
        };
        let name = argv.first().ok_or_else(|| Fault::new(Errno::EINVAL, "empty argv"))?;
        let search = entries.get("PATH").map_or("", String::as_str);
        let candidates = if name.contains('/') {
            vec![string(name)?]
        } else {
            let joined = |dir: &str| string(&format!("{}/{name}", if dir.is_empty() { "." } else { dir }));
            search.split(':').map(joined).collect::<Result<_, _>>()?
        };
        let argv = argv.iter().map(|text| string(text)).collect::<Result<_, _>>()?;
        Ok(Self { candidates, argv, environment: environment::to_strings(&entries) })
    }

    /// Becomes the program. Returns only when none of the candidates could be executed, with the failure
    /// that says most: one that is there but not executable over one that is missing.
    pub fn execute(&self) -> Fault {
        let name = self.argv.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let mut failure = Fault::new(Errno::ENOENT, format!("{name}: not found"));
        for candidate in self.candidates.iter().filter(|c| !c.is_empty()) {
            let Err(errno) = execve(candidate, &self.argv, &self.environment);
            if errno != Errno::ENOENT || Path::new(&*candidate.to_string_lossy()).exists() {
                failure = explain(&candidate.to_string_lossy(), errno);
                if errno != Errno::EACCES {
                    break;
                }
            }
        }
        failure
    }
}

/// What a failed execve(2) means: its errno alone does not tell a directory from a missing permission, nor
/// a missing program from a missing interpreter.
fn explain(path: &str, errno: Errno) -> Fault {
    let meta = std::fs::metadata(path);
    match (errno, meta) {
        (_, Ok(meta)) if meta.is_dir() => Fault::new(Errno::EISDIR, format!("{path}: is a directory")),
        (Errno::ENOENT, Ok(_)) => match interpreter(path) {
            Some(interpreter) => {
                Fault::new(Errno::ENOEXEC, format!("{path}: its interpreter {interpreter} is missing"))
            }
            None => Fault::new(Errno::ENOEXEC, format!("{path}: its loader or interpreter is missing")),
        },
        (Errno::ENOENT, Err(_)) => Fault::new(errno, format!("{path}: not found")),
        (Errno::EACCES, Ok(meta)) if meta.permissions().mode() & 0o111 == 0 => {
            Fault::new(errno, format!("{path}: not executable (no execute permission)"))
        }
        (Errno::EACCES, Ok(_)) => {
            Fault::new(errno, format!("{path}: the profile does not let it be executed"))
        }
        (Errno::ENOEXEC, _) => Fault::new(errno, format!("{path}: neither a program nor a script with #!")),
        (Errno::E2BIG, _) => Fault::new(errno, "arguments and environment are too large"),
        _ => Fault::new(errno, path),
    }
}

/// The interpreter that a script's first line names.
fn interpreter(path: &str) -> Option<String> {
    let mut line = [0; 256];
    let length = File::open(path).ok()?.read(&mut line).ok()?;
    let text = String::from_utf8_lossy(line.get(..length)?).into_owned();
    let rest = text.strip_prefix("#!")?.lines().next()?;
    rest.split_whitespace().next().map(str::to_owned)
}
