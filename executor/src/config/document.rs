//! The configuration file with every key, its default and what it means (`--default-config`).
//!
//! Defaults and bounds are those that the parser uses: what is shown is what an empty file gives.

use super::{AUDIT_KEEP_MOST, AUDIT_SIZE_LEAST, ConfigError, RawConfig, Require, default_home, parse};
use crate::{
    monitor::link::LimitField,
    profile::{self, Profile, RawProfile, mode_name},
};
use cordon_protocol::{
    Bytes, Millis,
    configuration::{Document, list, text},
    limits,
};
use std::path::{Path, PathBuf};

/// The file.
///
/// # Errors
/// When the defaults themselves are refused, which a test excludes.
pub fn document() -> Result<String, ConfigError> {
    let raw: RawConfig = parse(Path::new(""), "")?;
    let mut document = Document::new(&[
        "Configuration of cordon-executor: /etc/cordon/executor.toml, or where --config says.",
        "Every key is here, commented out, with its default: uncomment what you change. The file has at most 1M; it and each directory \
         above it must be root's and not writable by others. It is read at start, and profiles, max_commands, \
         free_space_min and cwd again on SIGHUP; what else has changed takes a restart, as do ports in `services` that no \
         profile had at start. An unknown key is an error. `cordon \
         config check FILE` tells whether the file would be taken. Sizes are text in bytes, or in K, M or G (of \
         1024); times are text in ms, s, m or h.",
        "This is what `cordon-executor --default-config` prints.",
    ]);
    top(&mut document, &raw);
    users(&mut document, &raw);
    let default = Profile::from_raw(limits::DEFAULT_PROFILE, RawProfile::default(), 0)?;
    profile(&mut document, &default, &raw);
    profile_limits(&mut document, &default);
    Ok(document.finish())
}

fn top(document: &mut Document, raw: &RawConfig) {
    let path = |path: &Path| text(path.display());
    document.key(
        "The socket that clients connect to, mode 0660, root's and users.group's. An absolute path. Where systemd \
         passes a listening socket, that is used instead.",
        "socket",
        path(&raw.socket),
    );
    document.key(
        "Root's own directory for what must outlive a start. An absolute path.",
        "state_dir",
        path(&raw.state_dir),
    );
    document.key(
        "The audit trail, one line of JSON each, and beside it commands.jsonl with what each command was given, values of \
         its environment included. For root alone, mode 0640. An absolute path.",
        "audit",
        path(&raw.audit),
    );
    document.key(
        &format!(
            "The trail and commands.jsonl beside it are moved aside (to audit.jsonl.1 and so on) when the trail has grown \
             so large, the latter alone when it has. A size, \"0\" (they grow on, and are yours to move) or {} and more.",
            Bytes(AUDIT_SIZE_LEAST)
        ),
        "audit_max_size",
        text(raw.audit_max_size),
    );
    document.key(
        &format!(
            "Older files of each that stay, 1 to {AUDIT_KEEP_MOST}; those before them are removed, which the trail says. \
             All together take at most (audit_keep + 1) * 2 * audit_max_size."
        ),
        "audit_keep",
        raw.audit_keep,
    );
    document.key(
        "\"strict\" refuses to start on a host that lacks a layer and names it; \"available\" warns, runs with the \
         rest, and every report says in `enforced` what held.",
        "require",
        text(match raw.require {
            Require::Strict => "strict",
            Require::Available => "available",
        }),
    );
    document.key(
        "The least Landlock ABI that \"strict\" accepts, a whole number from 0 (1 came with kernel 5.13, 2 with 5.19, \
         6 with 6.12).",
        "landlock_abi_min",
        raw.landlock_abi_min,
    );
    document.key(
        "The home directory inside, where the workspace is and commands start. Directly below /home; the default has \
         the name of users.command.",
        "home",
        path(&default_home(&raw.users.command)),
    );
    document.key(
        "Where programs start that name no directory: the workspace, /tmp, or a path of the profile `default`; in a \
         profile that does not have it commands must name one. An absolute path. The default is `home`.",
        "cwd",
        path(&default_home(&raw.users.command)),
    );
    document.key(
        "What commands in named workspaces must leave free on the disk that holds state_dir: with less no such \
         command starts, and those that run are ended (`disk_limit`). A size.",
        "free_space_min",
        text(raw.free_space_min),
    );
    document.key(
        "Commands of all peers at once, 1 or more; fewer where the executor may not have files open for so many, and \
         one on a host that cannot keep two apart. Further ones wait: a free place goes to the peer that has fewest \
         running, then to whoever came first.",
        "max_commands",
        raw.max_commands,
    );
}

fn users(document: &mut Document, raw: &RawConfig) {
    document.table(
        "The users that keep the parts apart. They must exist, but gateway; none is root, no two share a uid or a \
         group, and none is in a further group. `cordon up` makes them.",
        "users",
    );
    for (about, name, value) in [
        ("Runs the commands.", "command", &raw.users.command),
        ("Runs the executor's unprivileged half.", "server", &raw.users.server),
        ("Runs process 1 of each sandbox.", "init", &raw.users.init),
        ("Runs the gateway; a host without one needs no such user.", "gateway", &raw.users.gateway),
        ("The group whose members may connect to the socket.", "group", &raw.users.group),
    ] {
        document.key(about, name, text(value));
    }
}

fn profile(document: &mut Document, default: &Profile, raw: &RawConfig) {
    let paths = |paths: &[PathBuf]| list(paths.iter().map(|path| path.display()));
    document.table(
        &format!(
            "A profile: what a command may reach and use. `{}` is what a request gets that names none, and is there \
             even where this file has no profile. More of them, {} in all: [profiles.NAME], NAME of up to {} letters, \
             digits, `-` and `_`; a key that is left out has the default shown here.",
            limits::DEFAULT_PROFILE,
            limits::PROFILES_MAX,
            limits::NAME_MAX_BYTES
        ),
        &format!("profiles.{}", limits::DEFAULT_PROFILE),
    );
    document.key(
        "Runs the line of `cordon run -c LINE`, as SHELL -c LINE. A path as below.",
        "shell",
        text(default.shell.display()),
    );
    document.key(
        &format!(
            "Paths of the host that appear inside, read-only. As all paths of a profile: absolute, without `..`, not \
             / itself, not in {}, which are the sandbox's own.",
            profile::OWN_PATHS.join(", ")
        ),
        "read",
        paths(&default.read),
    );
    document.key(
        "Paths of the host that appear inside, writable, beside the workspace and /tmp.",
        "write",
        paths(&default.write),
    );
    document.key(
        "Paths whose programs may be executed, beside what a command may write: the workspace, /tmp, /dev/shm and the paths \
         of `write`.",
        "execute",
        paths(&default.execute),
    );
    document.key(
        "Paths that do not appear inside though they lie in one that does.",
        "hide",
        paths(&default.hide),
    );
    document.key(
        "\"none\" gives each command a loopback interface of its own and no other; \"services\" also the ports named \
         below; \"host\" the host's network.",
        "network",
        text(mode_name(default.network)),
    );
    document.key(
        &format!(
            "With \"services\": the ports of the host's loopback interface that appear inside, on 127.0.0.1 and ::1. \
             TCP, 1 to {} ports, each once. Ports that no profile had at start, and more in one than any had, take a \
             restart.",
            limits::SERVICES_MAX
        ),
        "services",
        format!("{:?}", default.services),
    );
    document.key(
        "Environment variables beside the standard ones; a request may add to them and replace them.",
        "env",
        "{}",
    );
    document.key(
        "Who may use it: a user's name, @GROUP, uid:N or gid:N. The default is root and users.group.",
        "peers",
        list(["uid:0".to_owned(), format!("@{}", raw.users.group)]),
    );
    document.key(
        "Commands of one peer at once, 1 or more; further ones wait.",
        "concurrency",
        default.concurrency,
    );
    document.key(
        "Commands of one peer that may wait, 0 or more; further ones are refused as busy.",
        "queue",
        default.queue,
    );
    document.key(
        "How long a command waits before it is refused as busy. A time.",
        "queue_timeout",
        text(Millis(default.queue_timeout)),
    );
}

fn profile_limits(document: &mut Document, default: &Profile) {
    document.table(
        "Limits of the profile. `default` holds where a request names none, `ceiling` is the most that a request may \
         name; either may be left out. Swap is always 0.",
        &format!("profiles.{}.limits", limits::DEFAULT_PROFILE),
    );
    for field in LimitField::ALL {
        let range = default.limit(field);
        let value = |value| value_of(field, value);
        let ceiling = format!("ceiling = {}", value(range.ceiling));
        let shown =
            range.default.map_or_else(|| ceiling.clone(), |d| format!("default = {}, {ceiling}", value(d)));
        let none = if range.default.is_none() { " No default: no limit but the others." } else { "" };
        let bounds = format!(
            "{} From {} to {}.{none}",
            about(field),
            value(Profile::floor(field)),
            value(Profile::most(field))
        );
        document.key(&bounds, field.name(), format!("{{ {shown} }}"));
    }
    for (about, name, value) in [
        (
            "Size of the largest file that a command may write, of one with holes their size included. The default is for \
             named workspaces: in the private one and in /tmp only a file with holes can become as large. A size.",
            "file_size",
            default.file_size,
        ),
        (
            "Size of the private workspace, which goes with the command. It is in memory, which counts it as well: more \
             than `memory` is never reached. A size.",
            "workspace",
            default.workspace,
        ),
        (
            "Size of a named workspace, which stays; a command that makes it larger is ended. A size.",
            "named_workspace",
            default.named_workspace,
        ),
        ("Size of /tmp, and of /dev/shm, both in memory likewise. A size.", "tmp", default.tmp),
    ] {
        document.key(about, name, text(Bytes(value)));
    }
    document.key(
        "Files and directories in a named workspace. A whole number.",
        "named_workspace_files",
        default.named_workspace_files,
    );
}

fn value_of(field: LimitField, value: u64) -> String {
    match field {
        LimitField::Wall | LimitField::CpuTime => text(Millis(value)),
        LimitField::Memory | LimitField::Capture | LimitField::Output => text(Bytes(value)),
        LimitField::Pids | LimitField::Cpu => value.to_string(),
    }
}

fn about(field: LimitField) -> &'static str {
    match field {
        LimitField::Wall => "Time by the clock. A time.",
        LimitField::CpuTime => "Processor time of all processes of a command together. A time.",
        LimitField::Memory => "Memory of all processes together, files in memory included. A size.",
        LimitField::Pids => "Processes and threads. A whole number.",
        LimitField::Cpu => "Share of the processors, in percent of one. A whole number.",
        LimitField::Capture => "Output of each stream that the report keeps, head and tail. A size.",
        LimitField::Output => "Output of both streams together; more ends the command. A size.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cordon_protocol::configuration::uncommented;
    use std::collections::BTreeSet;

    /// The keys that the parser expects where this line stands, as its error for an unknown one lists them.
    fn expected(file: &str) -> BTreeSet<String> {
        let error = toml::from_str::<RawConfig>(file).unwrap_err().to_string();
        let list = error.split("expected ").nth(1).unwrap_or_else(|| panic!("{error}"));
        list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    fn keys(value: &toml::Table) -> BTreeSet<String> {
        value.keys().cloned().collect()
    }

    #[test]
    fn every_key_that_the_parser_knows_is_in_the_file_and_no_other() {
        let all: toml::Table = uncommented(&document().unwrap()).parse().unwrap();
        assert_eq!(keys(&all), expected("x = 1"));
        let table = |value: &toml::Value| value.as_table().unwrap().clone();
        assert_eq!(keys(&table(&all["users"])), expected("[users]\nx = 1"));
        let profile = table(&all["profiles"]["default"]);
        assert_eq!(keys(&profile), expected("[profiles.default]\nx = 1"));
        let limits = table(&profile["limits"]);
        assert_eq!(keys(&limits), expected("[profiles.default.limits]\nx = 1"));
        assert_eq!(keys(&table(&limits["wall"])), expected("[profiles.default.limits]\nwall = { x = 1 }"));
    }

    #[test]
    fn each_profile_key_in_force_is_still_the_default() {
        let all: toml::Table = uncommented(&document().unwrap()).parse().unwrap();
        let mut profile = all["profiles"]["default"].as_table().unwrap().clone();
        // The group need not exist here.
        profile.remove("peers");
        let raw: RawProfile = toml::from_str(&profile.to_string()).unwrap();
        let given = Profile::from_raw("default", raw, 7).unwrap();
        let default = Profile::from_raw("default", RawProfile::default(), 7).unwrap();
        assert_eq!(format!("{given:?}"), format!("{default:?}"));
    }
}
