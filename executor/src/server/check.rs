//! A request to run something, checked: everything that a command could not be executed with is refused
//! here, by the half without privilege, with the field's name. What the profile allows is decided again
//! by the monitor.

mod files;

pub(super) use files::check_workspace;

use super::{
    door::Door,
    refusal::{from_launch, limit_outside, quoted, refuse, shortened, unknown_profile},
};
use crate::{
    config::Config,
    monitor::link::{AskedLimits, LimitField},
    profile::Profile,
    sandbox::errand::DEFAULT_MODE,
    sealed::{FileHead, SealedRequest, Work},
};
use cordon_protocol::audit::Text;
use cordon_protocol::{Action, Bytes, FileIn, LimitRequest, Refusal, RefusalCode, RunRequest, limits};
use std::collections::HashSet;

/// Longest form of a command in a list, characters.
const DISPLAY_MAX: usize = 120;
/// What execve(2) takes beside the bytes of each argument: a terminator and a pointer.
const ENTRY_OVERHEAD: usize = 1 + 8;

/// A request that can be launched.
#[derive(Debug)]
pub(super) struct CheckedRun<'a> {
    /// The profile asked for.
    pub(super) profile: &'a Profile,
    /// What the command's process will read.
    pub(super) sealed: SealedRequest,
    /// Files to be put into the workspace first, for their content.
    pub(super) files: Vec<FileIn>,
    /// Patterns of what is collected in the end.
    pub(super) collect: Vec<String>,
    /// Name of the workspace; none is a private one.
    pub(super) workspace: Option<String>,
    /// It named no directory, and the configuration does.
    pub(super) starts_by_default: bool,
    /// Standard input is a pipe.
    pub(super) stdin: bool,
    /// It puts something into the workspace for as long as it runs.
    pub(super) adds: bool,
    /// Output goes out as it comes.
    pub(super) stream: bool,
    /// Limits asked for, inside the profile's bounds.
    pub(super) limits: AskedLimits,
    /// For lists: what was asked, shortened.
    pub(super) display: String,
}

impl CheckedRun<'_> {
    /// What stands beside the audit trail.
    pub(super) fn text(&self) -> Text {
        let SealedRequest { work, env, cwd, files } = self.sealed.clone();
        let (workspace, collect) = (self.workspace.clone(), self.collect.clone());
        Text { work, env, cwd, workspace, files, collect, cut: false }
    }
}

fn bad(field: &str, problem: impl std::fmt::Display, hint: impl Into<String>) -> Refusal {
    refuse(RefusalCode::BadRequest, format!("{field}: {problem}"), hint)
}

/// Profiles of the configuration that the peer may use, by its bit set (see `ToServer::Connection`).
pub(super) fn profiles_of(config: &Config, bits: u64) -> impl Iterator<Item = &Profile> {
    let profiles = config.profiles.values().take(limits::PROFILES_MAX).enumerate();
    profiles.filter(move |(i, _)| bits >> i & 1 == 1).map(|(_, p)| p)
}

/// Checks a request of a peer that may use the profiles in `bits`.
///
/// # Errors
/// The refusal for the client.
pub(super) fn check<'a>(
    request: RunRequest,
    config: &'a Config,
    bits: u64,
    door: Door,
) -> Result<CheckedRun<'a>, Refusal> {
    let name = request.profile.as_deref().unwrap_or(limits::DEFAULT_PROFILE);
    let available = || profiles_of(config, bits).map(|p| p.name.as_str()).collect::<Vec<_>>();
    let profile = config.profiles.get(name).ok_or_else(|| unknown_profile(name, &available(), door))?;
    let limits = check_limits(request.limits, profile, door)?;
    if let Some(name) = &request.workspace {
        files::check_workspace(name)?;
    }
    files::check_files(&request.files, door)?;
    files::check_patterns(&request.collect)?;
    let display = display(&request.action);
    let work = work_of(request.action, profile, request.stdin, door)?;
    check_env(&request.env, door)?;
    let argv: &[String] = if let Work::Program(argv) = &work { argv } else { &[] };
    check_total(argv, &request.env, profile, door)?;
    // An errand is done in the workspace.
    let default = config.cwd.clone().filter(|_| matches!(work, Work::Program(_)));
    let starts_by_default = request.cwd.is_none() && default.is_some();
    let cwd = request.cwd.or(default);
    if let Some(cwd) = &cwd {
        check_cwd(cwd, config, profile, door)?;
    }
    let head = |file: &FileIn| FileHead {
        path: file.path.clone(),
        size: file.content.len() as u64,
        mode: file.mode.unwrap_or(DEFAULT_MODE),
    };
    let files = request.files.iter().map(head).collect();
    Ok(CheckedRun {
        profile,
        adds: matches!(work, Work::Write { .. }),
        sealed: SealedRequest { work, env: request.env, cwd, files },
        files: request.files,
        collect: request.collect,
        workspace: request.workspace,
        starts_by_default,
        stdin: request.stdin,
        stream: request.stream,
        limits,
        display,
    })
}

/// What a list shows of a request.
fn display(action: &Action) -> String {
    let text = match action {
        Action::Line(line) => return shortened(line, DISPLAY_MAX),
        Action::Argv(argv) => argv.join(" "),
        Action::Write { path, .. } => format!("(write {path})"),
        Action::Read { path } => format!("(read {path})"),
        Action::Measure => "(measure)".to_owned(),
        Action::Nothing => "(files)".to_owned(),
    };
    shortened(&text, DISPLAY_MAX)
}

/// Refused here so that nobody waits in the queue for a refusal.
fn check_limits(asked: LimitRequest, profile: &Profile, door: Door) -> Result<AskedLimits, Refusal> {
    let asked = AskedLimits {
        wall_ms: asked.wall_ms,
        cpu_time_ms: asked.cpu_time_ms,
        memory_bytes: asked.memory_bytes,
        pids: asked.pids,
        cpu_percent: asked.cpu_percent,
        output_bytes: asked.output_bytes,
        capture_bytes: asked.capture_bytes,
    };
    let outside = |field| asked.get(field).and_then(|value| limit_outside(profile, field, value));
    match LimitField::ALL.into_iter().find_map(outside) {
        Some(refusal) => Err(from_launch(refusal, profile, door, None)),
        None => Ok(asked),
    }
}

/// What the command's process is to do.
fn work_of(action: Action, profile: &Profile, stdin: bool, door: Door) -> Result<Work, Refusal> {
    Ok(match action {
        Action::Argv(argv) => {
            check_argv(&argv, door)?;
            Work::Program(argv)
        }
        Action::Line(line) => {
            if line.is_empty() {
                return Err(bad(door.line(), "is empty", "name a command to run"));
            }
            check_entry(door.line(), &line, line.len() + 1)?;
            Work::Program(vec![profile.shell.display().to_string(), "-c".to_owned(), line])
        }
        Action::Write { .. } if !stdin => {
            return Err(bad("stdin", "is missing", "send the file's content as standard input"));
        }
        Action::Write { path, mode } => {
            files::check_path("path", &path)?;
            let mode = mode.map_or(Ok(DEFAULT_MODE), |mode| files::check_mode("mode", mode, door))?;
            Work::Write { path, mode }
        }
        Action::Read { path } => {
            files::check_path("path", &path)?;
            Work::Read { path }
        }
        Action::Measure => Work::Measure,
        Action::Nothing => Work::Nothing,
    })
}

fn check_argv(argv: &[String], door: Door) -> Result<(), Refusal> {
    match argv.first() {
        None => return Err(bad(door.arguments(), "is empty", "name a program to run")),
        Some(program) if program.is_empty() => {
            return Err(bad(&door.argument(0), "is empty", "name a program to run"));
        }
        Some(_) => {}
    }
    for (index, argument) in argv.iter().enumerate() {
        check_entry(&door.argument(index), argument, argument.len() + 1)?;
    }
    Ok(())
}

/// One argument or environment entry of `length` bytes, terminator included.
fn check_entry(field: &str, text: &str, length: usize) -> Result<(), Refusal> {
    if text.contains('\0') {
        return Err(bad(field, "has a NUL byte", "send binary data as standard input"));
    }
    if length > limits::ARGUMENT_MAX_BYTES {
        let most = limits::ARGUMENT_MAX_BYTES;
        let problem = format!("has {length} bytes with its terminator, the limit is {most}");
        return Err(bad(field, problem, "send it as standard input or in a file of the workspace"));
    }
    Ok(())
}

fn check_env(env: &[(String, String)], door: Door) -> Result<(), Refusal> {
    let mut seen = HashSet::new();
    for (name, value) in env {
        if name.is_empty() {
            return Err(bad(door.env(), "an entry has an empty name", door.env_form()));
        }
        if name.contains(['=', '\0']) {
            let problem = format!("{} is not a name: it has `=` or NUL in it", quoted(name));
            return Err(bad(door.env(), problem, door.env_form()));
        }
        check_entry(&format!("{} {}", door.env(), quoted(name)), value, name.len() + value.len() + 2)?;
        if !seen.insert(name) {
            let problem = format!("{} is given twice", quoted(name));
            return Err(bad(door.env(), problem, "give each name once"));
        }
    }
    Ok(())
}

/// Arguments and environment as execve(2) counts them.
fn check_total(
    argv: &[String],
    env: &[(String, String)],
    profile: &Profile,
    door: Door,
) -> Result<(), Refusal> {
    let arguments: usize = argv.iter().map(|a| a.len() + ENTRY_OVERHEAD).sum();
    let pair = |name: &String, value: &String| name.len() + 1 + value.len() + ENTRY_OVERHEAD;
    let given: usize = env.iter().map(|(n, v)| pair(n, v)).sum();
    let of_profile: usize = profile.env.iter().map(|(n, v)| pair(n, v)).sum();
    let total = arguments + given + of_profile;
    let most = limits::ARGUMENTS_MAX_BYTES;
    if total <= most {
        return Ok(());
    }
    let problem = format!("{total} bytes together with terminators and pointers, the limit is {most}");
    let hint = "send large input as standard input or in a file of the workspace";
    Err(bad(&format!("{} and {}", door.arguments(), door.env()), problem, hint))
}

fn check_cwd(cwd: &str, config: &Config, profile: &Profile, door: Door) -> Result<(), Refusal> {
    let hint = "name a directory of the workspace, of /tmp or of the profile's paths, or leave it out";
    let error = |problem: String| Err(bad(door.cwd(), problem, hint));
    if cwd.contains('\0') {
        return error("has a NUL byte".to_owned());
    }
    if cwd.len() > limits::CWD_MAX_BYTES {
        return error(format!(
            "has {} bytes, the limit is {}",
            cwd.len(),
            Bytes(limits::CWD_MAX_BYTES as u64)
        ));
    }
    let given = profile.check_cwd(cwd.as_ref(), &config.home);
    given.or_else(|problem| error(format!("{} {problem}", quoted(cwd))))
}

#[cfg(test)]
mod tests {
    use super::{super::fixture::config, *};

    fn run(argv: &[&str]) -> RunRequest {
        RunRequest::new(Action::Argv(argv.iter().map(|&a| a.to_owned()).collect()))
    }

    fn refusal(request: RunRequest) -> Refusal {
        check(request, &config(), u64::MAX, Door::Socket).unwrap_err()
    }

    #[test]
    fn a_line_goes_to_the_profiles_shell() {
        let request = RunRequest { action: Action::Line("a | b".into()), ..run(&[]) };
        let config = config();
        let checked = check(request, &config, 0, Door::Socket).unwrap();
        let argv = ["/bin/bash", "-c", "a | b"].map(str::to_owned);
        assert_eq!(checked.sealed.work, Work::Program(argv.into()));
        assert_eq!(checked.display, "a | b");
    }

    #[test]
    fn every_refusal_names_the_field_and_a_remedy() {
        let env = |name: &str, value: &str| RunRequest {
            env: vec![(name.into(), value.into()), ("OK".into(), "1".into())],
            ..run(&["x"])
        };
        let cwd = |cwd: &str| RunRequest { cwd: Some(cwd.into()), ..run(&["x"]) };
        let long = "a".repeat(limits::ARGUMENT_MAX_BYTES);
        for (request, expected) in [
            (run(&[]), "argv: is empty"),
            (run(&[""]), "argv[0]: is empty"),
            (RunRequest { action: Action::Line(String::new()), ..run(&[]) }, "command: is empty"),
            (RunRequest { action: Action::Line("a\0".into()), ..run(&[]) }, "command: has a NUL byte"),
            (
                RunRequest { action: Action::Line(long.clone()), ..run(&[]) },
                "command: has 131073 bytes with its terminator, the limit is 131072",
            ),
            (run(&["x", "a\0b"]), "argv[1]: has a NUL byte"),
            (run(&["x", &long]), "argv[1]: has 131073 bytes with its terminator, the limit is 131072"),
            (env("", "1"), "env: an entry has an empty name"),
            (env("A=B", "1"), "env: `A=B` is not a name"),
            (env("A\0", "1"), "env: `A\\u{0}` is not a name"),
            (env("A", "\0"), "env `A`: has a NUL byte"),
            (env("A", &long), "env `A`: has 131075 bytes"),
            (env("OK", "2"), "env: `OK` is given twice"),
            (cwd(""), "cwd: `` is not an absolute path"),
            (cwd("work"), "cwd: `work` is not an absolute path"),
            (cwd("/usr/../root"), "cwd: `/usr/../root` has `..`"),
            (cwd("/proc/self/fd/3"), "cwd: `/proc/self/fd/3` lies in /proc"),
            (cwd("//proc/self"), "cwd: `//proc/self` lies in /proc"),
            (cwd("/dev/shm"), "lies in /dev"),
            (cwd("/sys"), "lies in /sys"),
            (cwd("/root"), "cwd: `/root` is outside profile `default`"),
            (cwd("/usrlocal"), "outside profile"),
            (cwd("/etc/cordon"), "outside profile"),
            (cwd("/tmp\0"), "cwd: has a NUL byte"),
            (cwd(&format!("/tmp/{}", "a".repeat(4091))), "cwd: has 4096 bytes"),
        ] {
            let refusal = refusal(request);
            assert_eq!(refusal.code, RefusalCode::BadRequest, "{expected}");
            assert!(refusal.message.contains(expected), "{} / {expected}", refusal.message);
            assert!(refusal.hint.is_some());
        }
    }

    #[test]
    fn places_to_work_are_those_of_the_profile() {
        for cwd in ["/", "/tmp", "/tmp/a/b", "/home/execuser", "/home/execuser/x", "/usr/./lib", "/etc"] {
            let request = RunRequest { cwd: Some(cwd.into()), ..run(&["x"]) };
            assert!(check(request, &config(), 0, Door::Socket).is_ok(), "{cwd}");
        }
    }

    #[test]
    fn a_program_starts_where_the_configuration_says_unless_it_says_itself() {
        let mut config = config();
        config.cwd = Some("/tmp".into());
        let started = |request| check(request, &config, 0, Door::Socket).unwrap().sealed.cwd;
        assert_eq!(started(run(&["x"])).as_deref(), Some("/tmp"));
        assert_eq!(started(RunRequest { cwd: Some("/usr".into()), ..run(&["x"]) }).as_deref(), Some("/usr"));
        assert_eq!(started(RunRequest::new(Action::Measure)), None);
    }

    #[test]
    fn the_sum_of_arguments_is_counted_as_the_kernel_does() {
        // Each is 9 bytes more than its text.
        let argument = "a".repeat(1015);
        let fits = limits::ARGUMENTS_MAX_BYTES / 1024;
        let request = |count| run(&vec![argument.as_str(); count]);
        assert!(check(request(fits), &config(), 0, Door::Socket).is_ok());
        let refusal = refusal(request(fits + 1));
        assert!(refusal.message.starts_with("argv and env: "), "{}", refusal.message);
    }

    #[test]
    fn limits_and_profiles_are_refused_by_name() {
        for pids in [0, u64::MAX] {
            let limits = LimitRequest { pids: Some(pids), ..LimitRequest::default() };
            let refused = refusal(RunRequest { limits, ..run(&["x"]) });
            assert_eq!(refused.code, RefusalCode::LimitRefused, "{pids}");
        }
        let refused = refusal(RunRequest { profile: Some("none".into()), ..run(&["x"]) });
        assert_eq!(refused.code, RefusalCode::UnknownProfile);
        assert_eq!(refused.hint.as_deref(), Some("use one of: default, small"));
    }
}
