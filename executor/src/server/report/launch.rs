//! Hints for commands that were never run: which step of their launch failed, of what, and what to do about it.

use super::Asked;
use crate::{
    monitor::link::Outcome,
    recording,
    server::{hint::Ran, refusal::shortened},
};
use cordon_protocol::Hint;
use nix::errno::Errno;

/// Longest text of a launch step in a hint, characters.
const DETAIL_MAX: usize = 256;

/// Whether what came along did not fit into the workspace. Of a named one the disk may be full as well, which is another
/// errno; a private one is a file system of its own.
pub(super) fn is_beyond_room(outcome: &Outcome, ran: &Ran) -> bool {
    let errno = Errno::from_raw(outcome.errno);
    let met = errno == Errno::EDQUOT || errno == Errno::ENOSPC && ran.workspace().is_none();
    outcome.step.as_deref() == Some("files") && met
}

/// The step that failed, on what and why, and what to do.
pub(super) fn explain(outcome: &Outcome, asked: Asked<'_>) -> Hint {
    let Asked { profile, door, ran, .. } = asked;
    let step = outcome.step.as_deref().unwrap_or("launch");
    let errno = Errno::from_raw(outcome.errno);
    // The command's own process wrote it.
    let detail = shortened(&outcome.detail, DETAIL_MAX);
    let what = match (detail.is_empty(), outcome.errno) {
        (true, 0) => "it could not be done".to_owned(),
        (true, _) => errno.desc().to_owned(),
        (false, 0) => detail,
        // This step's detail says more than the errno that it stands for.
        (false, _) if step == "exec" => detail,
        // Nor has the kernel said that a file is not as it was written.
        (false, _) if errno == Errno::EBADMSG => detail,
        (false, _) if is_beyond_room(outcome, ran) => {
            format!("{detail}: {}", profile.beyond_room(ran.workspace().is_some()))
        }
        (false, _) => format!("{detail}: {}", errno.desc()),
    };
    let paths = |list: &[std::path::PathBuf]| {
        list.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
    };
    let remedy = match (step, errno) {
        ("exec", Errno::ENOENT) => {
            "check the name, and PATH where it has no `/`; of a script also the interpreter in its first line"
                .to_owned()
        }
        ("exec", Errno::EACCES) => format!(
            "make it executable (chmod +x) and keep it where this profile executes: {}",
            paths(&profile.execute)
        ),
        ("exec", Errno::EISDIR) => "name a program, not a directory".to_owned(),
        ("exec", Errno::ENOEXEC) => {
            "give a script a first line with its interpreter (`#!/bin/sh`); a binary must be for x86_64"
                .to_owned()
        }
        ("exec", Errno::E2BIG) => {
            "send large input as standard input or in a file of the workspace".to_owned()
        }
        ("chdir", _) if ran.starts_by_default() => format!(
            "the command named no directory, so it starts in `cwd` of the executor's configuration (EXEC_CWD of \
             `cordon up`): make that directory, set another there, or name one with {}",
            door.cwd()
        ),
        ("chdir", Errno::ENOENT) => "make the directory first, or leave the working directory out".to_owned(),
        ("chdir", Errno::ENOTDIR) => "name a directory, not a file".to_owned(),
        ("chdir", Errno::EACCES) => {
            "name a directory that the sandbox's user may enter, in the workspace for example".to_owned()
        }
        ("files", _) if is_beyond_room(outcome, ran) => match ran.workspace() {
            Some(name) => format!("bring less; or {}", door.smaller_workspace(&profile.name, name)),
            None => format!(
                "bring less, use a named workspace ({}), or raise profiles.{}.limits.workspace",
                door.workspace(),
                profile.name
            ),
        },
        ("files", Errno::ENOSPC | Errno::EDQUOT) => {
            "bring less, or have root make room where workspaces lie".to_owned()
        }
        ("files", _) => {
            "name a path that is free or a file's, through directories inside the workspace".to_owned()
        }
        ("workspace", Errno::ETIMEDOUT) => {
            "try again when nothing else runs in it; if it stays so, delete it and begin anew".to_owned()
        }
        ("audit", errno) => recording::remedy(errno),
        _ => format!("this host could not set up `{step}`; see `cordon doctor`"),
    };
    Hint { layer: step.to_owned(), what, remedy }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            report,
            tests::{of, streams},
        },
        *,
    };
    use crate::{
        monitor::link::AskedLimits,
        profile::{Profile, RawProfile},
        server::{door::Door, fixture::outcome},
    };
    use cordon_protocol::{EndedBy, LimitName};

    #[test]
    fn a_failed_launch_names_step_thing_and_cause() {
        let failed = |step: &str, errno: Errno, detail: &str| {
            let mut outcome = outcome(EndedBy::LaunchFailed);
            outcome.step = Some(step.into());
            (outcome.errno, outcome.detail) = (errno as i32, detail.into());
            of(outcome, AskedLimits::default()).hint.unwrap()
        };
        let hint = failed("exec", Errno::ENOENT, "nonesuch");
        assert_eq!(hint.what, "nonesuch");
        assert!(hint.remedy.contains("PATH") && hint.layer == "exec");
        assert!(failed("exec", Errno::EACCES, "/tmp/x").remedy.contains("/usr, /opt"));
        assert!(failed("chdir", Errno::ENOTDIR, "/etc/passwd").remedy.contains("not a file"));
        assert!(failed("files", Errno::ENOTDIR, "a/b").remedy.contains("a path that is free"));
        let hint = failed("files", Errno::ENOSPC, "a/b");
        assert_eq!(hint.what, "a/b: the workspace would hold more than 512M (workspace)");
        assert!(hint.remedy.contains("(--workspace)"), "{hint:?}");
        let hint = failed("workspace", Errno::ETIMEDOUT, "how much is in w cannot be told");
        assert!(hint.remedy.contains("delete it and begin anew"), "{hint:?}");
        let hint = failed("mounts", Errno::EPERM, "a\nb");
        assert_eq!(hint.what, "a\\nb: Operation not permitted");
        assert!(hint.remedy.contains("cordon doctor"));
        let hint = failed("audit", Errno::ENOSPC, "/log/audit.jsonl");
        assert_eq!(hint.what, "/log/audit.jsonl: No space left on device");
        assert!(hint.remedy.contains("make room") && !hint.remedy.contains("doctor"), "{hint:?}");
        let hint = failed("audit", Errno::EBADMSG, "/log/audit.jsonl was cut off; move it away");
        assert_eq!(hint.what, "/log/audit.jsonl was cut off; move it away");
        assert!(hint.remedy.contains("audit trail") && !hint.remedy.contains("doctor"), "{hint:?}");
    }

    #[test]
    fn what_the_request_left_out_or_named_is_told_as_such() {
        let profile = Profile::from_raw("p", RawProfile::default(), 1).unwrap();
        let told = |ran: Ran, step: &str, errno: Errno| {
            let mut outcome = outcome(EndedBy::LaunchFailed);
            outcome.step = Some(step.into());
            (outcome.errno, outcome.detail) = (errno as i32, "/x".into());
            let limits = AskedLimits::default();
            let asked = Asked { profile: &profile, limits: &limits, door: Door::Cli, ran: &ran };
            let report = report(7, outcome, streams(), &[], asked);
            (report.hint.unwrap(), report.limits_hit)
        };
        let (hint, hit) = told(Ran::in_workspace("proj"), "files", Errno::EDQUOT);
        assert_eq!(
            hint.what,
            "/x: the workspace would hold more than 4G (named_workspace) or 200000 files (named_workspace_files)"
        );
        assert!(hint.remedy.contains("`cordon workspace delete proj`"), "{hint:?}");
        assert_eq!(hit, [LimitName::Disk]);
        let (hint, hit) = told(Ran::in_workspace("proj"), "files", Errno::ENOSPC);
        assert!(hint.what.contains("No space left") && hit.is_empty(), "{hint:?}");
        let (hint, hit) = told(Ran::by_default(), "chdir", Errno::ENOENT);
        assert!(hint.remedy.contains("EXEC_CWD") && hint.remedy.contains("with --cwd"), "{hint:?}");
        assert!(hit.is_empty());
        let (hint, _) = told(Ran::default(), "chdir", Errno::ENOENT);
        assert!(hint.remedy.contains("leave the working directory out"), "{hint:?}");
    }
}
