//! Room and memory that ran out without ending the command.
//!
//! The monitor has seen that a limit was met, from a counter or the file system's own figures; the command's words
//! say that this is what it failed of.

use super::{Failure, hint};
use crate::{
    monitor::{link::LimitField, reservable},
    server::report::limit_hint,
};
use cordon_protocol::{Bytes, CgroupMode, Hint, LimitName};
use nix::sys::signal::Signal;

const NO_ROOM: [&str; 4] = ["no space left on device", "enospc", "disk quota exceeded", "edquot"];
const NOT_ALLOWED: [&str; 2] = ["permission denied", "eacces"];
const NO_MEMORY: [&str; 6] =
    ["memoryerror", "cannot allocate memory", "enomem", "bad_alloc", "out of memory", "memory exhausted"];
const TOO_LARGE: [&str; 4] = [": file too large", "[errno 27]", "efbig", "file size limit exceeded"];

/// What programs and runtimes say that get no further thread or process, in lower case.
const NO_THREAD: [&str; 12] = [
    "can't start new thread",
    "unable to create native thread",
    "pthread_create failed",
    "failed to create new os thread",
    "failed to spawn thread",
    "can't spawn worker thread",
    "can't create thread",
    "thread creation failed",
    "resources for omp thread",
    "uv_thread_create",
    "cannot fork",
    "can't fork",
];
/// Threads that are many whatever the limit: it counts few exactly enough.
const MANY: u64 = 16;
/// What they are about where they say only this.
const TRY_AGAIN: &str = "resource temporarily unavailable";
const ABOUT_THREADS: [&str; 5] = ["fork", "thread", "spawn", "clone", "what()"];

/// The hint for a command that met a limit and went on to fail.
pub(super) fn explain(failure: &Failure<'_>, complaints: &[String]) -> Option<Hint> {
    let said = |words: &[&str]| {
        complaints.iter().any(|line| {
            let lower = line.to_lowercase();
            words.iter().any(|words| lower.contains(words))
        })
    };
    if has_grown_too_large(failure, said(&TOO_LARGE)) {
        let profile = failure.asked.profile;
        let what = format!("a file went beyond {} (file_size)", Bytes(profile.file_size));
        let remedy = format!("raise profiles.{}.limits.file_size, or write smaller files", profile.name);
        return Some(hint("limits", what, remedy));
    }
    let hit = |limit| failure.outcome.limits_hit.contains(&limit);
    if hit(LimitName::Disk) && said(&NO_ROOM) {
        return Some(no_room(failure, complaints));
    }
    if hit(LimitName::Disk)
        && let Some(workspace) = failure.ran.workspace()
        && said(&NOT_ALLOWED)
    {
        let profile = failure.asked.profile;
        let what = format!(
            "its workspace holds more than {} (named_workspace) or {} files (named_workspace_files); while it does, \
             commands read and remove what is there, and nothing is added",
            Bytes(profile.named_workspace),
            profile.named_workspace_files
        );
        return Some(hint("limits", what, failure.asked.door.smaller_workspace(&profile.name, workspace)));
    }
    if wanted_threads(failure, complaints) {
        return Some(no_thread(failure));
    }
    let near = failure.used_memory().is_some_and(|(used, limit)| used >= limit - limit / 8);
    if near && said(&NO_MEMORY) {
        return Some(limit_hint(failure.asked, LimitField::Memory, "it needed more memory than"));
    }
    None
}

/// A program is told the same of a limit of the host's. So it must have been seen with many already, where ours are not
/// counted exactly: what is, tells by itself (`limits_hit`).
fn wanted_threads(failure: &Failure<'_>, complaints: &[String]) -> bool {
    let seen = failure.outcome.threads_seen;
    let many =
        failure.outcome.enforced.cgroup != CgroupMode::V2 && seen >= (failure.pids_limit() / 4).max(MANY);
    many && complaints.iter().any(|line| {
        let lower = line.to_lowercase();
        NO_THREAD.iter().any(|words| lower.contains(words))
            || lower.contains(TRY_AGAIN) && ABOUT_THREADS.iter().any(|about| lower.contains(about))
    })
}

/// What holds in the place of a controller: `docs/decisions/0009-sampled-limits.md`.
fn no_thread(failure: &Failure<'_>) -> Hint {
    let asked = failure.asked;
    let memory = failure.memory_limit();
    let what = format!(
        "it got no further thread or process, with {} there when last counted: this host has no controller that \
         counts them, and in its place each process may reserve {} with its limit of {} (memory), of which a thread's \
         stack takes 8M as a rule, and its user have little more than {} (pids)",
        failure.outcome.threads_seen,
        Bytes(reservable(memory)),
        Bytes(memory),
        failure.pids_limit()
    );
    let option = |field: LimitField| {
        let keys = format!("profiles.{}.limits.{}", asked.profile.name, field.name());
        asked.door.limit(field).map_or(keys, str::to_owned)
    };
    let remedy = format!(
        "raise {} or give threads smaller stacks (`ulimit -s 1024`), and raise {}; or use a host with the controllers \
         (`cordon doctor`)",
        option(LimitField::Memory),
        option(LimitField::Pids)
    );
    hint("limits", what, remedy)
}

/// The hint for a command that was ended for what is in its named workspace, or for the disk that it lies on.
pub(super) fn explain_disk(failure: &Failure<'_>) -> Hint {
    let profile = failure.asked.profile;
    let what = format!(
        "its workspace went beyond {} (named_workspace) or {} files (named_workspace_files), or its disk has less room than free_space_min",
        Bytes(profile.named_workspace),
        profile.named_workspace_files
    );
    let limits = format!("profiles.{}.limits", profile.name);
    let remedy = format!(
        "remove what it need not keep, or raise {limits}.named_workspace or {limits}.named_workspace_files"
    );
    hint("limits", what, remedy)
}

/// SIGXFSZ says so by itself; of a process below the command the shell tells by the exit status (128 and the
/// signal); and who ignores the signal gets an errno, which counts where so much was written.
fn has_grown_too_large(failure: &Failure<'_>, said: bool) -> bool {
    let by_signal = failure.outcome.limits_hit.contains(&LimitName::FileSize);
    let by_status = failure.outcome.exit_code == Some(128 + Signal::SIGXFSZ as i32);
    let wrote_it = || {
        let least = failure.asked.profile.file_size.min(failure.memory_limit() / 2);
        failure.outcome.peak_memory_bytes.is_some_and(|peak| peak >= least)
    };
    by_signal || said && (by_status || wrote_it())
}

fn no_room(failure: &Failure<'_>, complaints: &[String]) -> Hint {
    let profile = failure.asked.profile;
    let temporary =
        |text: &str| ["/tmp", "/dev/shm", "mktemp", "/var/tmp"].iter().any(|at| text.contains(at));
    let limits = format!("profiles.{}.limits", profile.name);
    // A workspace of its own name lies on the disk, and is not what was found full.
    if failure.ran.workspace().is_some()
        || complaints.iter().any(|line| temporary(line))
        || temporary(&failure.ran.line)
    {
        let what = format!("/tmp or /dev/shm is full at {} (tmp)", Bytes(profile.tmp));
        return hint("limits", what, format!("write to the workspace, or raise {limits}.tmp"));
    }
    let what = format!("the workspace is full at {} (workspace)", Bytes(profile.workspace));
    let workspace = failure.asked.door.workspace();
    hint("limits", what, format!("use a named workspace ({workspace}), or raise {limits}.workspace"))
}

impl Failure<'_> {
    fn memory_limit(&self) -> u64 {
        self.limit(LimitField::Memory)
    }

    fn pids_limit(&self) -> u64 {
        self.limit(LimitField::Pids)
    }

    fn limit(&self, field: LimitField) -> u64 {
        let asked = self.asked;
        let range = asked.profile.limit(field);
        asked.limits.get(field).or(range.default).unwrap_or(range.ceiling)
    }

    /// Bytes used at most, and the limit.
    fn used_memory(&self) -> Option<(u64, u64)> {
        self.outcome.peak_memory_bytes.map(|peak| (peak, self.memory_limit()))
    }
}
