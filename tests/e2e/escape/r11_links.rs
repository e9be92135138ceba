//! Row 11: links in a workspace, which root must not follow.

use super::{Probe, probe};
use crate::harness::{
    Executor, PATIENCE,
    client::{argv, collect, line},
    eventually, host,
};
use cordon_protocol::{Action, EndedBy, Event, FileIn, RunRequest, client::blocking};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
};

pub(super) const PROBES: &[Probe] = &[Probe {
    row: 11,
    test: "escape::r11_links::links_in_a_workspace_lead_nobody_out",
    tried: "a link as the last and as a middle component, to a file and a directory of the host that the command's user could write: files put in (write, truncate, chmod), collected (read), used as the working directory, measured and deleted",
    control: "root that follows the same path on the host gets there, and so does the sandbox's user",
    closed_by: "whoever walks in a workspace is as confined as the command: namespaces, Landlock and its user",
}];

#[test]
fn links_in_a_workspace_lead_nobody_out() {
    let _verdict = probe!();
    let executor = Executor::start("");
    let outside = executor.directory().join("outside");
    fs::create_dir(&outside).unwrap();
    let target = outside.join("target");
    fs::write(&target, "kept").unwrap();
    // The sandbox's user's own: nothing but the sandbox is between.
    for path in [&outside, &target] {
        chown(path, Some(host::uid_of("execuser")), None).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let before = fs::metadata(&target).unwrap();
    let at = outside.display();
    let within = |request: RunRequest| RunRequest { workspace: Some("linked".to_owned()), ..request };
    let made =
        executor.events(within(line(&format!("ln -s {at} middle; ln -s {at}/target last; ln -s / root"))));
    assert_eq!(made.report.exit_code, Some(0));
    let through = executor.directory().join("state/workspaces/0/linked");
    assert_eq!(fs::read(through.join("middle/target")).unwrap(), b"kept", "the control");
    assert_eq!(fs::read(through.join("last")).unwrap(), b"kept", "the control");

    for path in ["middle/target", "last", "middle/new", "root/tmp/../target"] {
        let put = RunRequest {
            files: vec![FileIn {
                path: path.to_owned(),
                content: b"overwritten".to_vec(),
                mode: Some(0o600),
            }],
            ..RunRequest::new(Action::Nothing)
        };
        // A link that is replaced leads nowhere; one on the way is an error.
        if let Ok(events) = executor.ask(within(put)) {
            assert!([EndedBy::Exit, EndedBy::LaunchFailed].contains(&events.report.ended_by));
        }
    }
    let relink = format!("rm -rf last middle; ln -s {at} middle; ln -s {at}/target last");
    executor.events(within(line(&relink)));
    for patterns in ["middle/target", "last", "middle/*", "**", "root/etc/shadow"] {
        let request = RunRequest { collect: vec![patterns.to_owned()], ..RunRequest::new(Action::Nothing) };
        let Ok((mut connection, _stdin)) = blocking::run(&executor.socket, "test", within(request)) else {
            continue;
        };
        loop {
            match connection.next_event() {
                Ok(Event::File(file)) => {
                    assert!(!file.content.windows(4).any(|w| w == b"kept" || w == b"root"), "{file:?}");
                }
                Ok(Event::Exited(_)) | Err(_) => break,
                Ok(_) => {}
            }
        }
    }
    for cwd in ["middle", "root/root", "root/proc/1/root"] {
        let mut request = within(argv(&["cat", "target"]));
        request.cwd = Some(format!("/home/execuser/{cwd}"));
        if let Ok((connection, _stdin)) = blocking::run(&executor.socket, "test", request) {
            let report = collect(connection).unwrap().report;
            assert_eq!((report.ended_by, report.stdout_bytes), (EndedBy::LaunchFailed, 0), "{report:?}");
        }
    }
    blocking::delete_workspace(&executor.socket, "test", "linked").unwrap();
    eventually("the workspace is gone", PATIENCE, || !through.exists());
    let left = || fs::read_dir(through.parent().unwrap()).map_or(0, Iterator::count);
    eventually("what it was is deleted", PATIENCE, || left() == 0);
    let after = fs::metadata(&target).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"kept");
    assert_eq!((after.ino(), after.mode(), after.uid()), (before.ino(), before.mode(), before.uid()));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}
