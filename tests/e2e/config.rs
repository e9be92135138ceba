//! The executor's configuration: whom it believes, and what a mistake in it says.

use crate::harness::{
    Executor, PATIENCE,
    daemon::{open_directory, start_refused, write_configuration},
    eventually, host, lab,
};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
};

/// Makes a path one that must not be believed; the number is the uid of somebody else.
type Change = fn(&Path, u32);

/// What a start with this configuration says before it refuses.
fn refused(configuration: &str) -> String {
    let directory = open_directory();
    let file = write_configuration(directory.path(), "available", configuration);
    let said = start_refused(&file).stderr;
    assert!(!directory.path().join("executor.sock").exists(), "it listened before it refused");
    said
}

fn assert_said(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_file_that_others_could_have_written_is_refused() {
    lab();
    let uid = host::uid_of("execuser");
    let changes: [(&str, Change); 3] = [
        ("does not belong to root", |file, uid| chown(file, Some(uid), None).unwrap()),
        ("can be written by others", |file, _| set_mode(file, 0o664)),
        ("can be written by others", |file, _| set_mode(file, 0o646)),
    ];
    for (words, change) in changes {
        let directory = open_directory();
        let file = write_configuration(directory.path(), "available", "");
        change(&file, uid);
        assert_said(&start_refused(&file).stderr, &[words, "executor.toml", "chown root, chmod go-w"]);
    }
}

#[test]
fn a_file_in_a_directory_that_others_can_write_is_refused() {
    lab();
    let uid = host::uid_of("execuser");
    let inner = |directory: &Path| -> PathBuf {
        let inner = directory.join("inner");
        fs::create_dir(&inner).unwrap();
        inner
    };
    let changes: [(&str, Change); 2] = [
        ("can be written by others", |inner, _| set_mode(inner, 0o777)),
        ("does not belong to root", |inner, uid| chown(inner, Some(uid), None).unwrap()),
    ];
    for (words, change) in changes {
        let directory = open_directory();
        let inner = inner(directory.path());
        let file = write_configuration(&inner, "available", "");
        change(&inner, uid);
        assert_said(&start_refused(&file).stderr, &[words, "is a directory"]);
        // Nor through a symbolic link from a better place.
        let link = directory.path().join("link.toml");
        symlink(&file, &link).unwrap();
        assert_said(&start_refused(&link).stderr, &[words]);
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let said = start_refused("/no/such/executor.toml".as_ref()).stderr;
    assert_said(&said, &["/no/such/executor.toml", "cannot read"]);
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    // Four lines stand before.
    let said = refused("landlok_abi_min = 3");
    assert_said(&said, &["unknown field `landlok_abi_min`", "line 5"]);
    let said = refused("[profiles.default]\nshell = '/bin/sh'\nreed = ['/usr']");
    assert_said(&said, &["unknown field `reed`", "line 7"]);
    let said = refused("[profiles.default.limits]\nmemmory = {default = '1M'}");
    assert_said(&said, &["unknown field `memmory`", "line 6"]);
    let said = refused("[profiles.default.limits]\nmemory = {default = '1M', cieling = '2M'}");
    assert_said(&said, &["unknown field `cieling`", "line 6"]);
    let said = refused("[users]\ncomand = 'execuser'");
    assert_said(&said, &["unknown field `comand`", "line 6"]);
}

#[test]
fn more_profiles_than_a_peer_can_be_told_of_are_refused() {
    let profiles: String = (0..64).map(|i| format!("[profiles.p{i}]\n")).collect();
    assert_said(
        &refused(&profiles),
        &["profiles: 65, with `default`, are over the limit of 64", "take some out"],
    );
}

#[test]
fn values_that_make_no_sense_name_their_key() {
    for (text, words) in [
        ("home = '/root'", &["home", "/root"][..]),
        ("[users]\ncommand = 'root'", &["users.command", "root"]),
        ("[users]\ncommand = ''", &["users.command", "empty"]),
        ("[users]\ncommand = 'no-such-user'", &["users.command", "no-such-user", "does not exist"]),
        ("[users]\nserver = 'nobody'", &["users.server"]),
        ("[users]\ngroup = 'no-such-group'", &["users.group", "no-such-group"]),
        (
            "[users]\ninit = 'execuser'",
            &["line 6: users.init: `execuser` is the same user as users.command, `execuser`; give each"],
        ),
        // The default, which is not in the file, is told second.
        (
            "[users]\n\nserver = 'cordon'",
            &["line 7: users.server: `cordon` is the same user as users.gateway"],
        ),
        (
            "[users]\ninit = 'cordon-exec'\nserver = 'cordon-init'\ncommand = 'cordon-exec'",
            &["line 6: users.init: `cordon-exec` is the same user as users.command"],
        ),
        ("[users]\ngroup = 'execuser'", &["line 6: users.group: it is the primary group of `execuser`"]),
        (
            "[profiles.x.limits]\nwall = {ceiling = '99999999h'}",
            &["profile `x`", "limits.wall", "above the most"],
        ),
        ("[profiles.x]\nread = ['../etc']", &["profile `x`", "read"]),
        ("[profiles.x]\nwrite = ['/proc/sys']", &["profile `x`", "write", "/proc"]),
        ("[profiles.x]\npeers = ['no-such-user']", &["profile `x`", "peers", "no-such-user"]),
        ("[profiles.x.limits]\nmemory = {default = '3G'}", &["profile `x`", "limits.memory", "ceiling"]),
        ("[profiles.x.limits]\npids = {default = 0}", &["profile `x`", "limits.pids", "0"]),
        ("[profiles.x.limits]\nwall = {default = '1 fortnight'}", &["wall", "1 fortnight"]),
        ("[profiles.x]\nnetwork = 'everything'", &["network", "everything"]),
        (
            "cwd = '/srv'",
            &[
                "line 5: cwd: `/srv` is outside profile `default`; name a directory of the workspace",
                "leave cwd out",
            ],
        ),
        ("cwd = 'tmp'", &["line 5: cwd: `tmp` is not an absolute path"]),
        ("cwd = '/tmp/../srv'", &["cwd: `/tmp/../srv` has `..` in it"]),
    ] {
        assert_said(&refused(text), words);
    }
}

#[test]
fn what_has_the_wrong_type_is_told_what_is_wanted_with_an_example() {
    const LIMITS: &str = "[profiles.default.limits]";
    let number = "expected a whole number without quotes, as in 256";
    for (text, words) in [
        ("file_size = { default = '1G' }", "table, expected a size as text, as in \"512M\""),
        ("tmp = 5", "integer `5`, expected a size as text, as in \"512M\""),
        ("memory = { default = {} }", "table, expected a size as text"),
        ("wall = { ceiling = [] }", "list, expected a time as text, as in \"60s\""),
        ("named_workspace_files = { default = 1 }", number),
        ("pids = { default = '5' }", number),
        ("named_workspace_files = -1", "expected a whole number, 0 or more"),
        ("memory = '1G'", "expected a table: { default = …, ceiling = … }"),
    ] {
        assert_said(&refused(&format!("{LIMITS}\n{text}")), &["line 6", text, "invalid ", words]);
    }
    let said = refused("[profiles.default]\nlimits = 5\n");
    assert_said(&said, &["line 6", "integer `5`, expected a table"]);
    assert_said(&refused("max_commands = -3"), &["line 5", "expected a whole number, 1 or more"]);
    assert_said(&refused("profiles = 3"), &["line 5", "as in [profiles.NAME]"]);
}

#[test]
fn a_place_to_start_that_a_profile_lacks_is_worth_a_warning() {
    let profiles = "cwd = '/srv'\n[profiles.default]\nread = ['/usr', '/etc', '/srv']\n[profiles.bare]\n";
    let mut executor = Executor::start(profiles);
    let warning = "warning: cwd is outside profile `bare`: its commands must name a directory";
    eventually("it is told", PATIENCE, || executor.process().log().contains(warning));
    assert!(!executor.process().log().contains("profile `default`"));
    assert_eq!(executor.inside("pwd"), "/srv\n");
}

#[test]
fn paths_that_depend_on_where_it_was_started_are_refused() {
    for (key, name) in [("socket", "executor.sock"), ("state_dir", "state"), ("audit", "audit.jsonl")] {
        let directory = open_directory();
        let file = write_configuration(directory.path(), "available", "");
        let absolute = format!("{key} = \"{}/{name}\"", directory.path().display());
        let text = fs::read_to_string(&file).unwrap();
        let relative = text.replace(&absolute, &format!("{key} = \"{name}\""));
        assert_ne!(text, relative);
        fs::write(&file, relative).unwrap();
        assert_said(&start_refused(&file).stderr, &[key, name, "not an absolute path"]);
    }
}

#[test]
fn a_state_directory_that_others_could_change_is_refused() {
    lab();
    let changes: [Change; 2] =
        [|state, uid| chown(state, Some(uid), None).unwrap(), |state, _| set_mode(state, 0o777)];
    for change in changes {
        let directory = open_directory();
        let file = write_configuration(directory.path(), "available", "");
        change(&directory.path().join("state"), host::uid_of("execuser"));
        assert_said(&start_refused(&file).stderr, &["state_dir", "chown root, chmod go-w"]);
    }
}

#[test]
fn a_login_shell_is_worth_a_warning() {
    // A user of the host's own that can log in and could be one of ours.
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let can_log_in = |line: &&str| {
        let fields: Vec<_> = line.split(':').collect();
        let shell = fields[6];
        let special = [&fields[2..3], &fields[3..4]].iter().any(|id| id[0] == "0") || fields[2] == "65534";
        !special && !shell.ends_with("nologin") && !shell.ends_with("false")
    };
    let Some(name) = passwd.lines().find(can_log_in).and_then(|line| line.split(':').next()) else {
        panic!("no user of this host can log in");
    };
    let warning = format!("warning: user `{name}` has a login shell");
    let mut executor = Executor::start(&format!("[users]\ninit = '{name}'"));
    eventually("it is told", PATIENCE, || executor.process().log().contains(&warning));
    let mut control = Executor::start("");
    control.assert_works();
    assert!(!control.process().log().contains("has a login shell"), "{}", control.process().log());
}

#[test]
fn a_profile_s_own_defaults_and_ceilings_hold() {
    let limits = "[profiles.default.limits]\nmemory = {default = '64M', ceiling = '128M'}\n\
                  wall = {default = '1s', ceiling = '2s'}\ncapture = {default = '10', ceiling = '20'}";
    let executor = Executor::start(limits);
    let report = executor.report(&["--", "sleep", "30"]);
    assert_eq!(report.ended_by, cordon_protocol::EndedBy::WallTimeout);
    let report = executor.report(&["--", "seq", "100"]);
    assert!(report.stdout_truncated);
    let ran = executor.run(&["--memory", "129M", "--", "true"]);
    assert_eq!(ran.status, 125);
    assert_said(&ran.stderr, &["memory", "129M", "128M"]);
    assert_eq!(executor.run(&["--memory", "128M", "--", "true"]).status, 0);
}

#[test]
fn the_shell_of_a_profile_runs_its_lines() {
    let executor = Executor::start("[profiles.default]\nshell = '/bin/sh'");
    assert_eq!(executor.inside("echo $0"), "/bin/sh\n");
    let ran = executor.run(&["-c", "[[ a = a ]] && echo bash"]);
    let is_bash = fs::canonicalize("/bin/sh").unwrap().ends_with("bash");
    assert!(is_bash || ran.status != 0, "{ran:?}");
}
