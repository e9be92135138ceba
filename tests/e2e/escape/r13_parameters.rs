//! Row 13: parameters of a request, which say what is run and must not say what it may do.

use super::{
    Probe,
    acts::{outside_in_a_copy, program, report_of},
    probe,
};
use crate::harness::{
    client::{argv, line},
    lab::lab,
    shared,
};
use cordon_protocol::{EndedBy, FileIn, RunRequest};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 13,
        test: "escape::r13_parameters::a_working_directory_gives_no_right_to_write_in_it",
        tried: "writing in the working directory that the request names: /usr/share, /etc, /, /dev, /proc/self",
        control: "the same by the same user, where the directories are open to it: in a root in memory; /tmp, where writing is allowed",
        closed_by: "namespaces (read-only mounts) and Landlock, made from the profile alone",
    },
    Probe {
        row: 13,
        test: "escape::r13_parameters::names_and_paths_of_a_request_stay_in_their_places",
        tried: "workspaces, profiles, files put in and patterns collected that are absolute or lead up",
        control: "a program that opens such paths as they are, in such a root; plain names",
        closed_by: "checks of the request, by both halves",
    },
    Probe {
        row: 13,
        test: "escape::r13_parameters::an_environment_changes_no_rule",
        tried: "HOME, PATH, TMPDIR, CORDON_* and LD_PRELOAD in the request, and then writing where they lead",
        control: "the entries reach the command",
        closed_by: "nothing outside the command's own process reads them",
    },
];

/// Tries to write; with what held.
const WRITE: &str = "print(t(open, 'made', 'w') != 0, t(os.mkdir, 'made') != 0, t(os.open, '/root', 0) != 0, t(open, '/usr/made', 'w') != 0)";

fn write_with(request: RunRequest) -> (String, cordon_protocol::Enforced) {
    let events = shared().events(request);
    assert_eq!(events.report.exit_code, Some(0), "{:?}", events.report);
    (events.report.stdout.unwrap(), events.report.enforced)
}

#[test]
fn a_working_directory_gives_no_right_to_write_in_it() {
    let _verdict = probe!();
    let request = |cwd: &str| RunRequest {
        cwd: Some(cwd.to_owned()),
        ..argv(&["/usr/bin/python3", "-c", &program(WRITE)])
    };
    let (control, enforced) = write_with(request("/tmp"));
    assert_eq!(control, "False True True True\n", "the control: what was made is in the way of the second");
    for cwd in ["/usr/share", "/etc", "/usr/bin", "/opt"] {
        let (seen, same) = write_with(request(cwd));
        assert_eq!(seen, "True True True True\n", "{cwd}");
        assert_eq!(same, enforced);
    }
    let open = ["/usr/share", "/etc", "/usr/bin", "/opt", "/", "/dev", "/run", "/home"];
    for cwd in open {
        let seen = outside_in_a_copy(
            &[&open[..], &["/usr", "/root"]].concat(),
            &format!("os.chdir('{cwd}')\n{WRITE}"),
        );
        assert_eq!(seen, "False True False False\n", "the control: {cwd}");
    }
    for cwd in ["/", "/dev", "/proc", "/proc/self", "/sys", "/run", "/home"] {
        if let Ok(report) = report_of(shared(), request(cwd)) {
            let (ended, wrote) = (report.ended_by, report.stdout.as_deref());
            assert!(
                ended == EndedBy::LaunchFailed || wrote == Some("True True True True\n"),
                "{cwd}: {report:?}"
            );
        }
    }
}

#[test]
fn names_and_paths_of_a_request_stay_in_their_places() {
    let _verdict = probe!();
    let put = |path: &str| RunRequest {
        files: vec![FileIn { path: path.to_owned(), content: b"x".to_vec(), mode: None }],
        ..line("true")
    };
    let named = |name: &str| RunRequest { workspace: Some(name.to_owned()), ..line("true") };
    let under = |profile: &str| RunRequest { profile: Some(profile.to_owned()), ..line("true") };
    let pattern = |text: &str| RunRequest { collect: vec![text.to_owned()], ..line("true") };
    for request in [put("plain"), named("plain"), under("default"), pattern("*")] {
        assert_eq!(report_of(lab(), request).unwrap().exit_code, Some(0), "the control");
    }
    let opened = "os.chdir('/work')\nimport glob\nfor p in ('../x', '/etc/x', 'a/../../x', './../x'): \
                  print(t(open, p, 'w'), len(glob.glob(p)), os.listdir('.'))";
    let seen = outside_in_a_copy(&["/work", "/work/a", "/etc"], opened);
    assert_eq!(seen, "0 1 ['a']\n".repeat(4), "the control");
    for up in ["../x", "/etc/x", "a/../../x", "..", "/", "./../x", "a\0b"] {
        for request in [put(up), named(up), under(up), pattern(up)] {
            if let Ok(report) = report_of(lab(), request.clone()) {
                assert_eq!(
                    (report.ended_by, report.exit_code),
                    (EndedBy::LaunchFailed, None),
                    "{up:?}: {request:?}"
                );
            }
        }
    }
    lab().assert_works();
}

#[test]
fn an_environment_changes_no_rule() {
    let _verdict = probe!();
    let mut request =
        argv(&["/usr/bin/python3", "-c", &program(&format!("print(os.environ['TMPDIR'])\n{WRITE}"))]);
    request.cwd = Some("/usr/share".to_owned());
    let (_, enforced) = write_with(request.clone());
    request.env = [
        ("HOME", "/"),
        ("TMPDIR", "/usr"),
        ("CORDON_OMIT", "landlock,seccomp,init_pivot"),
        ("CORDON_FAULT", "landlock"),
        ("CORDON_SOCKET", "/x"),
        ("LD_PRELOAD", "/home/execuser/x.so"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    let (seen, same) = write_with(request);
    assert_eq!(seen, "/usr\nTrue True True True\n");
    assert_eq!(same, enforced);
}
