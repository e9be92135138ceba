//! `cordon config check`: what it says of a file is what the daemon does with it.

use crate::harness::{
    Client, Up,
    build::programs,
    client::public_copy,
    daemon::{free_port, open_directory, start_refused, write_configuration},
    host,
    process::{self, Process, Ran},
    shared,
};
use nix::sys::signal::Signal;
use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{PermissionsExt, chown, lchown, symlink},
    path::Path,
    process::Command,
    time::Duration,
};

/// What `cordon config check` says of the file.
fn checked(file: &Path) -> Ran {
    let mut command = Command::new(&programs().cordon);
    command.args(["config", "check"]).arg(file);
    process::run(command, &[])
}

fn assert_refused(ran: &Ran, words: &[&str]) {
    assert_ne!(ran.status, 0, "{ran:?}");
    for word in words {
        assert!(ran.stderr.contains(word), "`{word}` is not in: {}", ran.stderr);
    }
}

fn up_with(profiles: &Path) -> Command {
    let mut command = Up::command(profiles.parent().unwrap(), free_port());
    command.arg("--once");
    command
}

#[test]
fn profiles_are_taken_as_cordon_up_takes_them() {
    shared();
    let stranger = |file: &Path| chown(file, Some(crate::harness::lab::STRANGER), None).unwrap();
    type Change<'a> = &'a dyn Fn(&Path);
    let long = format!("[profiles.p]\n{}", "# more\n".repeat(90_000));
    let cases: [(&str, Change<'_>, &[&str]); 5] = [
        ("require = 'strict'\n[profiles.p]", &|_| {}, &["`require` is not for this file"]),
        ("[users]\ncommand = 'execuser'", &|_| {}, &["`users` is not for this file"]),
        ("[profiles.p]\n\nreed = []", &|_| {}, &["line 3", "`reed`"]),
        ("[profiles.p]", &stranger, &["does not belong to root"]),
        (&long, &|_| {}, &["larger than 512K", "next: write each profile with the keys that differ"]),
    ];
    for (text, change, says) in cases {
        let directory = open_directory();
        let file = directory.path().join("profiles.toml");
        fs::write(&file, text).unwrap();
        change(&file);
        let (checked, started) = (checked(&file), process::run(up_with(&file), &[]));
        assert_eq!(checked.status, 125);
        assert_refused(&checked, says);
        assert_refused(&started, says);
    }
}

#[test]
fn profiles_may_be_written_in_any_way_that_toml_has() {
    for text in ["profiles.mine.env.MINE = 'yes'", "\u{feff}profiles = { mine = { env = { MINE = 'yes' } } }"]
    {
        let directory = open_directory();
        let file = directory.path().join("profiles.toml");
        fs::write(&file, text).unwrap();
        shared();
        assert_eq!(checked(&file).status, 0, "{text}");
        let mut up = Process::start(Up::command(directory.path(), free_port()));
        up.wait_for("Serving");
        let client = Client { socket: directory.path().join("executor.sock") };
        let ran = client.run(&["--profile", "mine", "-c", "echo $MINE"]);
        assert_eq!(ran.text(), "yes\n", "{text}: {ran:?}");
        up.signal(Signal::SIGTERM);
        assert!(up.wait(Duration::from_secs(30)).success());
    }
}

#[test]
fn a_gateway_s_token_is_checked_as_the_gateway_reads_it() {
    shared();
    let token = "t".repeat(64);
    let (user, group) = (host::uid_of("cordon"), host::gid_of("cordon"));
    // Text, owner, group, mode.
    type Written<'a> = Option<(&'a str, u32, u32, u32)>;
    let cases: [(Written<'_>, &[&str]); 6] = [
        (None, &["token_file", "cannot read", "--make-token"]),
        (Some(("", 0, group, 0o640)), &["token_file", "0 characters are too few"]),
        (Some(("short", 0, group, 0o640)), &["token_file", "5 characters are too few"]),
        (Some((&token, 0, group, 0o644)), &["token_file", "every user of this host"]),
        (Some((&token, 0, 0, 0o600)), &["token_file", "user cordon may not read it", "chmod 0640"]),
        (Some((&token, 0, group, 0o640)), &[]),
    ];
    for (written, says) in cases {
        let directory = open_directory();
        let gateway = public_copy(&programs().gateway, directory.path());
        let (token, file) = (directory.path().join("token"), directory.path().join("gateway.toml"));
        if let Some((text, uid, gid, mode)) = written {
            fs::write(&token, text).unwrap();
            fs::set_permissions(&token, Permissions::from_mode(mode)).unwrap();
            chown(&token, Some(uid), Some(gid)).unwrap();
        }
        fs::write(&file, format!("listen = '127.0.0.1:{}'\ntoken_file = {token:?}", free_port())).unwrap();
        let checked = checked(&file);
        let mut command = host::as_user(user, group, &[], &gateway.to_string_lossy());
        command.arg("--config").arg(&file);
        if says.is_empty() {
            assert_eq!(checked.status, 0, "{checked:?}");
            let started = Process::start(command);
            started.wait_for("listening on");
            continue;
        }
        assert_eq!(checked.status, 125);
        assert_refused(&checked, says);
        assert_refused(&process::run(command, &[]), says);
    }
}

#[test]
fn a_gateway_s_file_that_its_user_cannot_read_is_refused_once_what_is_in_it_is_right() {
    shared();
    let directory = open_directory();
    let file = directory.path().join("gateway.toml");
    for (text, says) in [("body_max = 5", "body_max"), ("", "user cordon may not read it")] {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert_refused(&checked(&file), &[says]);
    }
}

#[test]
fn a_state_directory_that_the_executor_would_refuse_is_told() {
    shared();
    let directory = open_directory();
    let file = write_configuration(directory.path(), "available", "");
    assert_eq!(checked(&file).status, 0);
    fs::set_permissions(directory.path().join("state"), Permissions::from_mode(0o777)).unwrap();
    let says = ["state_dir", "chmod go-w"];
    assert_refused(&checked(&file), &says);
    assert_refused(&start_refused(&file), &says);
}

#[test]
fn a_file_larger_than_memory_is_refused_by_its_size() {
    shared();
    for (name, most) in [("executor.toml", "1M"), ("gateway.toml", "1M"), ("profiles.toml", "1M")] {
        let directory = open_directory();
        let file = directory.path().join(name);
        File::create(&file).unwrap().set_len(1 << 42).unwrap();
        let says = [name, "larger than", most];
        let checked = checked(&file);
        assert_eq!(checked.status, 125, "{checked:?}");
        assert_refused(&checked, &says);
        match name {
            "executor.toml" => assert_refused(&start_refused(&file), &says),
            "profiles.toml" => assert_refused(&process::run(up_with(&file), &[]), &says),
            _ => {}
        }
    }
}

#[test]
fn nothing_is_shown_of_a_file_to_which_somebody_else_leads() {
    shared();
    let stranger = |path: &Path| lchown(path, Some(crate::harness::lab::STRANGER), None).unwrap();
    for name in ["executor.toml", "gateway.toml", "profiles.toml"] {
        let directory = open_directory();
        let secret = directory.path().join("secret");
        fs::write(&secret, "root:$6$hidden:1:0\n").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let theirs = directory.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        stranger(&theirs);
        // By a link in their directory, one above that, a second name, and a link of theirs in a better place.
        let (link, name_two) = (theirs.join(name), theirs.join(format!("two-{name}")));
        symlink(&secret, &link).unwrap();
        fs::hard_link(&secret, &name_two).unwrap();
        symlink(directory.path(), theirs.join("up")).unwrap();
        let above = theirs.join("up").join(format!("draft-{name}"));
        fs::write(directory.path().join(format!("draft-{name}")), "root:$6$hidden:1:0\n").unwrap();
        let own = directory.path().join(format!("own-{name}"));
        symlink(&secret, &own).unwrap();
        stranger(&own);
        for (file, says) in [
            (&link, "is a link that others could have made"),
            (&above, "is a link that others could have made"),
            (&own, "is a link that others could have made"),
            (&name_two, "has a second name"),
        ] {
            let ran = checked(file);
            assert_refused(&ran, &[says]);
            assert!(!ran.text().contains("hidden") && !ran.stderr.contains("hidden"), "{ran:?}");
            if name == "executor.toml" {
                let said = start_refused(file);
                assert!(said.stderr.contains("configuration") && !said.stderr.contains("hidden"), "{said:?}");
            }
        }
        // The control: a draft, and a link of root's own, are shown where they are wrong.
        let (draft, good) =
            (theirs.join(format!("mine-{name}")), directory.path().join(format!("good-{name}")));
        fs::write(&draft, "root:$6$hidden:1:0\n").unwrap();
        symlink(&secret, &good).unwrap();
        for file in [draft, good] {
            assert_refused(&checked(&file), &["line 1", "hidden"]);
        }
    }
}
