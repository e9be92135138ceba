//! A launch is a list of steps, each with its name and the reason for its place.
//!
//! A step that fails ends the walk: nothing after it runs, and its name is what the report says.

use nix::errno::Errno;
use std::{fmt, io};

/// One step of a launch.
pub struct Step<C> {
    /// Unique over all lists; `step` in the report.
    pub name: &'static str,
    /// Why it stands here.
    pub why: &'static str,
    /// Does it, and reads back what it did.
    pub run: fn(&mut C) -> Result<(), Fault>,
}

/// Stands for a file or a message that is not as it was written: the detail says all, and the kernel's words for this
/// errno ("Not a data message") would only puzzle.
pub const OWN_WORDS: Errno = Errno::EBADMSG;

/// Stands for a trail that could be written, and of which lines are gone; the detail says all of it too.
pub const GONE: Errno = Errno::ENODATA;

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Cause as the kernel names it.
    pub errno: Errno,
    /// What it was about: a path, a limit, a set.
    pub detail: String,
}

impl Fault {
    /// A cause with what it was about.
    pub fn new(errno: Errno, detail: impl Into<String>) -> Self {
        Self { errno, detail: detail.into() }
    }

    /// Something read back is not what was set.
    pub fn mismatch(what: &str, found: impl fmt::Display, wanted: impl fmt::Display) -> Self {
        Self::new(Errno::EPROTO, format!("{what} reads back as {found}, not {wanted}"))
    }

    /// What must be refused was not, or not by what was to refuse it.
    pub fn not_refused(what: &str, found: Result<(), Errno>, wanted: Errno) -> Self {
        let found = found.map_or_else(Errno::desc, |()| "allowed");
        Self::new(Errno::EPROTO, format!("{what} is answered with: {found}, not with: {}", wanted.desc()))
    }
}

impl fmt::Display for Fault {
    /// What it was about, and the kernel's words where the cause is the kernel's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.detail.is_empty(), self.errno) {
            (true, errno) => f.write_str(errno.desc()),
            (false, OWN_WORDS | GONE) => f.write_str(&self.detail),
            (false, errno) => write!(f, "{}: {}", self.detail, errno.desc()),
        }
    }
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self { errno, detail: String::new() }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        Self { errno, detail: error.to_string() }
    }
}

/// Adds what it was about to a failure.
pub trait About<T> {
    /// Names the object of the failed act.
    ///
    /// # Errors
    /// The failure, with the detail.
    fn about(self, detail: impl fmt::Display) -> Result<T, Fault>;
}

impl<T, E: Into<Fault>> About<T> for Result<T, E> {
    fn about(self, detail: impl fmt::Display) -> Result<T, Fault> {
        self.map_err(|error| {
            let mut fault = error.into();
            fault.detail = detail.to_string();
            fault
        })
    }
}

/// A failed walk: which step, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedStep {
    /// Name of the step.
    pub name: &'static str,
    /// Cause.
    pub fault: Fault,
}

/// Runs the steps in order, up to the first that fails.
///
/// # Errors
/// The step that failed.
pub fn walk<C>(steps: &[Step<C>], context: &mut C) -> Result<(), FailedStep> {
    for step in steps.iter().filter(|step| !omitted(step.name)) {
        let done = if injected(step.name) { Err(Errno::EIO.into()) } else { (step.run)(context) };
        done.map_err(|fault| FailedStep { name: step.name, fault })?;
    }
    Ok(())
}

/// Whether a test wants this step to fail.
#[cfg(feature = "fault-injection")]
pub fn injected(name: &str) -> bool {
    std::env::var_os("CORDON_FAULT").is_some_and(|fault| fault == name)
}

/// Faults exist in test builds only.
#[cfg(not(feature = "fault-injection"))]
pub const fn injected(_name: &str) -> bool {
    false
}

/// Whether a test leaves this out, to see what only it stops: a step, a control of the cgroup, a namespace, or the
/// sampling.
#[cfg(feature = "fault-injection")]
pub fn omitted(name: &str) -> bool {
    let omit = std::env::var("CORDON_OMIT").unwrap_or_default();
    omit.split(',').any(|omitted| omitted == name)
}

/// Nothing can be left out but in test builds.
#[cfg(not(feature = "fault-injection"))]
pub const fn omitted(_name: &str) -> bool {
    false
}
