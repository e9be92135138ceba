//! Row 12: files that would protect or rule the host if they were there, made by the command.

use super::{
    Probe,
    acts::{inside, outside_as_user, outside_in_a_copy},
    probe,
};
use crate::harness::{Executor, build::scratch, host, marker};
use std::{fs, os::unix::fs::chown, path::Path};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 12,
        test: "escape::r12_absent::files_that_rule_the_host_cannot_be_made",
        tried: "making files in /etc, /usr, /opt, /run and /boot that programs of the host would obey",
        control: "the same by the same user, where the directories are open to it: in a root in memory; a file of the command's own",
        closed_by: "namespaces (read-only mounts), Landlock, owners",
    },
    Probe {
        row: 12,
        test: "escape::r12_absent::what_is_hidden_and_not_there_cannot_be_made_where_the_command_may_write",
        tried: "making a file or directory that the profile hides, by name, by a link and by renaming, in a directory of the command's user's that the profile lets it write",
        control: "the same names outside; a file beside them inside",
        closed_by: "namespaces: the directory of what is hidden is a read-only one of the sandbox's own",
    },
];

#[test]
fn files_that_rule_the_host_cannot_be_made() {
    let _verdict = probe!();
    let targets = "/etc/cordon/ /etc/cordon/x /etc/ld.so.preload /etc/profile.d/x.sh /usr/local/bin/x /etc/cron.d/x /opt/x \
                   /run/x /boot/x /etc/sudoers.d/x /usr/lib/systemd/system/x.service /.dockerenv /etc/nologin";
    let code = format!(
        "for f in '{targets}'.split():\n  \
         if not f.endswith('/') and t(open, f, 'w') == 0: print('made', f)\n  \
         if t(os.mkdir, f.rstrip('/') + ('' if f.endswith('/') else '.d')) == 0: print('made', f)\n\
         print(t(open, '/tmp/x', 'w'))"
    );
    assert_eq!(inside(&code), "0\n");
    assert!(!Path::new("/usr/local/bin/x").exists() && !Path::new("/etc/ld.so.preload").exists());
    let places = [
        "/etc",
        "/etc/profile.d",
        "/etc/cron.d",
        "/etc/sudoers.d",
        "/usr/local/bin",
        "/opt",
        "/run",
        "/boot",
        "/usr/lib/systemd/system",
        "/tmp",
    ];
    let made = outside_in_a_copy(&places, &code);
    let expected = 2 * targets.split_whitespace().count() - 1;
    assert_eq!(
        made.lines().filter(|line| line.starts_with("made /")).count(),
        expected,
        "the control: {made}"
    );
}

#[test]
fn what_is_hidden_and_not_there_cannot_be_made_where_the_command_may_write() {
    let _verdict = probe!();
    let place = scratch().join(format!("absent-{}", marker()));
    fs::create_dir_all(place.join("sub")).unwrap();
    for path in [place.clone(), place.join("sub")] {
        chown(path, Some(host::uid_of("execuser")), Some(host::gid_of("execuser"))).unwrap();
    }
    let at = place.display();
    let executor = Executor::start(&format!(
        "[profiles.default]\nwrite = ['{at}']\nhide = ['{at}/settings', '{at}/deep/settings']\n"
    ));
    let tries = format!(
        "def make(f): open(f, 'w').close()\nos.chdir('{at}')\nmake('sub/beside')\n\
         print(t(make, 'settings') != 0, t(os.mkdir, 'settings') != 0, t(os.symlink, 'sub', 'settings') != 0, \
         t(os.rename, 'sub/beside', 'settings') != 0, t(os.link, 'sub/beside', 'settings') != 0, \
         t(os.mkdir, 'deep') != 0, t(os.rename, 'sub', 'deep') != 0, t(make, 'sub/../settings') != 0)"
    );
    let seen = super::acts::inside_of(&executor, "default", &tries);
    assert_eq!(seen, "True True True True True True True True\n");
    assert!(place.join("sub/beside").exists(), "the control: beside it something was made");
    let there: Vec<_> = fs::read_dir(&place).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(there, ["sub"]);
    let control = format!("print(t(os.mkdir, '{at}/deep'), t(os.symlink, 'x', '{at}/settings'))");
    assert_eq!(outside_as_user(&control), "0 0\n", "the control");
    fs::remove_dir_all(place).unwrap();
}
