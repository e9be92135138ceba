//! `cordon doctor` on the audit trail: it says what a launch would fail by, and writes nothing.

use crate::{
    audit::{assert_refused, limit_file_size, log_of, with_own_log},
    harness::{
        Executor, PATIENCE, Up,
        build::programs,
        daemon::{ensure_users, open_directory, start_refused, write_configuration},
        process,
    },
};
use cordon_protocol::{Health, LayerReport};
use nix::sys::signal::Signal;
use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

/// What it says, and its exit status.
fn doctor(executor: &Executor) -> (LayerReport, i32) {
    doctor_at(&executor.socket)
}

fn doctor_at(socket: &Path) -> (LayerReport, i32) {
    let mut command = Command::new(&programs().cordon);
    command.args(["doctor", "--json", "--socket"]).arg(socket);
    let ran = process::run(command, &[]);
    let layers: Vec<LayerReport> = serde_json::from_slice(&ran.stdout).unwrap();
    (layers.into_iter().find(|layer| layer.layer == "audit").unwrap(), ran.status)
}

/// Whether it says that all is well.
fn assert_good(executor: &Executor) {
    let (layer, status) = doctor(executor);
    assert_eq!((layer.health, &layer.remedy, status), (Health::Ok, &None, 0), "{layer:?}");
    let trail = executor.directory().join("log/audit.jsonl");
    assert!(layer.detail.starts_with(&*trail.to_string_lossy()), "{layer:?}");
    executor.assert_works();
}

/// What is in the way, which a command does not get past either.
fn assert_bad(executor: &Executor, detail: &str, remedy: &str) {
    assert_told(executor, detail, remedy);
    assert_refused(executor);
}

fn assert_told(executor: &Executor, detail: &str, remedy: &str) {
    let (layer, status) = doctor(executor);
    assert_eq!((layer.health, status), (Health::Missing, 1), "{layer:?}");
    assert!(layer.detail.contains(detail), "{layer:?}");
    assert!(layer.remedy.as_ref().unwrap().contains(remedy), "{layer:?}");
}

#[test]
fn what_keeps_launches_from_being_recorded_is_told_with_its_remedy() {
    let script = "mount -t tmpfs -o size=64k,mode=755 none log && exec \"$@\"";
    let executor =
        with_own_log(&["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", script, "sh"]);
    assert_good(&executor);
    let log = log_of(&executor);
    let (trail, away) = (log.join("audit.jsonl"), log.join("away"));

    fs::rename(&trail, &away).unwrap();
    fs::write(&trail, "somebody's\n").unwrap();
    assert_bad(&executor, "audit.jsonl is another file than it was; move it away", "have root see to");
    fs::rename(&away, &trail).unwrap();
    assert_good(&executor);

    let at = executor.directory().join("log");
    let inside = |arguments: &[&str]| {
        let mut command = Command::new("nsenter");
        command.arg("--target").arg(executor.pid().to_string()).args(["--mount", "--"]).args(arguments);
        assert_eq!(process::run(command, &[]).status, 0);
    };
    inside(&["mount", "-t", "tmpfs", "-o", "ro,mode=755", "none", &at.to_string_lossy()]);
    assert_bad(&executor, "audit.jsonl: Read-only file system", "writable");
    inside(&["umount", &at.to_string_lossy()]);
    assert_good(&executor);

    let fill = log.join("fill");
    assert!(fs::write(&fill, vec![0; 1 << 20]).is_err());
    // A few still fit into what is begun, or was taken by asking.
    while executor.report(&["-c", "echo ran"]).step.is_none() {}
    assert_told(&executor, "No space left on device", "make room where the audit trail is");
    fs::remove_file(&fill).unwrap();
    assert_good(&executor);
}

#[test]
fn a_limit_or_a_directory_that_is_gone_is_told_and_nothing_is_written_by_asking() {
    let executor = with_own_log(&[]);
    executor.assert_works();
    let log = log_of(&executor);
    let read = || ["audit.jsonl", "commands.jsonl"].map(|name| fs::read(log.join(name)).unwrap());
    let before = read();
    for _ in 0..3 {
        doctor(&executor);
    }
    assert_eq!(read(), before);
    let length = fs::metadata(log.join("audit.jsonl")).unwrap().len();
    limit_file_size(&executor, &length.to_string());
    assert_bad(&executor, "audit.jsonl: File too large", "have root see to the audit trail");
    limit_file_size(&executor, "unlimited");
    assert_good(&executor);
    fs::remove_dir_all(&log).unwrap();
    assert_bad(&executor, "audit.jsonl: No such file or directory", "make the directory");
    fs::create_dir(&log).unwrap();
    // Commands run, and what was there is missed until the trail is begun anew.
    assert_told(&executor, "is empty, though lines up to number ", "it was removed");
    executor.assert_works();
    assert_good(&executor);
}

#[test]
fn a_trail_that_was_emptied_or_removed_is_told_until_it_is_begun_anew() {
    let executor = with_own_log(&[]);
    assert_good(&executor);
    let at = executor.directory().to_owned();
    let (trail, older) = (at.join("log/audit.jsonl"), at.join("log/audit.jsonl.1"));
    // As a rotation does; then that is gone too.
    fs::rename(&trail, &older).unwrap();
    let (layer, status) = doctor(&executor);
    assert_eq!((layer.health, status), (Health::Ok, 0), "{layer:?}");
    let kept = at.join("kept");
    fs::rename(&older, &kept).unwrap();
    assert_told(
        &executor,
        "audit.jsonl is empty, though lines up to number ",
        "`cordon audit verify --anchors`",
    );
    assert_good_once_written(&executor);
    let configuration = at.join("executor.toml");
    let look = || {
        assert_eq!(probed(&configuration).health, Health::Ok);
        for (empty, problem) in
            [(true, "is empty, though lines up to"), (false, "is not there, though lines up to")]
        {
            if empty {
                fs::write(&trail, "").unwrap()
            } else {
                fs::remove_file(&trail).unwrap()
            }
            let layer = probed(&configuration);
            assert_eq!(layer.health, Health::Missing, "{layer:?}");
            assert!(layer.detail.contains(problem), "{layer:?}");
        }
        // Without the mark of its end, the texts beside it tell.
        for name in ["audit.head", "audit.synced"] {
            fs::rename(at.join("state").join(name), at.join(name)).unwrap();
        }
        let layer = probed(&configuration);
        assert!(
            layer.detail.contains("is not there, though commands.jsonl beside it has texts"),
            "{layer:?}"
        );
        for name in ["audit.head", "audit.synced"] {
            fs::rename(at.join(name), at.join("state").join(name)).unwrap();
        }
    };
    assert_good(&executor.again_after(look).0);
}

/// Whether all is well once a line more is written.
fn assert_good_once_written(executor: &Executor) {
    executor.assert_works();
    assert_good(executor);
}

/// What a probe says of the trail.
fn probed(configuration: &Path) -> LayerReport {
    let mut probe = process::tied(&programs().executor);
    probe.arg("--probe").arg("--config").arg(configuration);
    let ran = process::run(probe, &[]);
    let layers: Vec<LayerReport> = serde_json::from_slice(&ran.stdout).unwrap();
    layers.into_iter().find(|layer| layer.layer == "audit").unwrap()
}

/// The trail with another second digit of the last line's time.
fn altered(trail: &str) -> String {
    let at = trail.rfind("\"time_ms\":").unwrap() + 12;
    let other = if trail.as_bytes()[at] == b'1' { "2" } else { "1" };
    format!("{}{other}{}", &trail[..at], &trail[at + 1..])
}

#[test]
fn a_trail_that_was_changed_is_told_while_it_is_written_and_when_a_start_would_refuse_it() {
    let changed = |layer: LayerReport, problem: &str| {
        assert_eq!(layer.health, Health::Missing, "{layer:?}");
        assert!(layer.detail.contains("/log/audit.jsonl is not as it was written: "), "{layer:?}");
        assert!(layer.detail.contains(problem), "{layer:?}");
        assert!(layer.remedy.as_ref().unwrap().contains("`cordon audit verify`"), "{layer:?}");
    };
    let executor = with_own_log(&[]);
    assert_good(&executor);
    let at = executor.directory().to_owned();
    let (trail, head) = (at.join("log/audit.jsonl"), at.join("state/audit.head"));
    let read = || [&trail, &head].map(|path| fs::read_to_string(path).unwrap());
    // Not another file, which would be told anyway.
    let write = |path: &Path, text: &str| fs::write(path, text).unwrap();
    let [lines, ended] = read();
    write(&trail, &altered(&lines));
    let (layer, status) = doctor(&executor);
    assert_eq!(status, 1);
    changed(
        layer,
        "audit.jsonl: the last line (number 3): changed: its hash does not fit its text; look into it",
    );
    write(&trail, &lines);
    assert_good(&executor);
    let [_, ended_now] = read();
    assert_ne!(ended, ended_now);
    write(&head, "rubbish");
    changed(doctor(&executor).0, "audit.head: not the head of a trail");
    write(&head, &ended_now);
    assert_good(&executor);

    // The same without an executor, where a start says it too.
    let configuration = at.join("executor.toml");
    let look = || {
        let [lines, ended] = read();
        assert_eq!(probed(&configuration).health, Health::Ok);
        let without_last = lines.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n";
        for (path, text, problem) in [
            (&trail, altered(&lines), "changed: its hash does not fit its text"),
            (&trail, lines[..lines.len() - 9].to_owned(), "the last line is cut off"),
            (&trail, without_last, "lines were cut off"),
            (&trail, "somebody's\n".to_owned(), "audit.jsonl: "),
            (&head, "rubbish".to_owned(), "not the head of a trail"),
        ] {
            write(path, &text);
            changed(probed(&configuration), problem);
            assert_eq!(fs::read_to_string(path).unwrap(), text, "looked at alone");
            let said = start_refused(&configuration).stderr;
            assert!(said.contains(problem), "{said}");
            write(&trail, &lines);
            write(&head, &ended);
        }
        assert_eq!(probed(&configuration).health, Health::Ok);
    };
    assert_good(&executor.again_after(look).0);
}

#[test]
fn where_no_executor_runs_the_place_of_the_trail_is_looked_at_and_nothing_is_made() {
    ensure_users();
    let directory = open_directory();
    let at = directory.path();
    fs::write(at.join("file"), "").unwrap();
    fs::write(at.join("open"), "").unwrap();
    fs::set_permissions(at.join("open"), fs::Permissions::from_mode(0o666)).unwrap();
    let file = write_configuration(at, "available", "");
    let text = fs::read_to_string(&file).unwrap();
    for (trail, problem) in [
        ("audit.jsonl", None),
        ("not/yet/audit.jsonl", None),
        ("file/audit.jsonl", Some("file: Not a directory")),
        ("open", Some("open is not a file of root's alone")),
    ] {
        fs::write(&file, text.replace("/audit.jsonl", &format!("/{trail}"))).unwrap();
        let layer = probed(&file);
        let health = if problem.is_some() { Health::Missing } else { Health::Ok };
        assert_eq!(layer.health, health, "{trail}: {layer:?}");
        assert!(layer.detail.contains(problem.unwrap_or("can be written")), "{trail}: {layer:?}");
    }
    assert!(
        !at.join("audit.jsonl").exists() && !at.join("not").exists() && !at.join("commands.jsonl").exists()
    );
}

#[test]
fn without_an_executor_the_trail_of_cordon_up_is_looked_at_beside_its_socket() {
    let mut up = Up::start();
    let at = up.directory().to_owned();
    up.process().signal(Signal::SIGTERM);
    assert!(up.process().wait(PATIENCE).success());
    let (socket, trail) = (at.join("executor.sock"), at.join("audit.jsonl"));
    let of_trail = |layer: &LayerReport| layer.detail.starts_with(&*trail.to_string_lossy());
    let (layer, status) = doctor_at(&socket);
    assert!(of_trail(&layer) && layer.health == Health::Ok && status == 0, "{layer:?}");
    let lines = fs::read_to_string(&trail).unwrap();
    fs::write(&trail, altered(&lines)).unwrap();
    let (layer, status) = doctor_at(&socket);
    assert!(of_trail(&layer) && layer.health == Health::Missing && status == 1, "{layer:?}");
    // What others could have written is not believed.
    let open = fs::Permissions::from_mode(0o666);
    fs::set_permissions(at.join("state/executor.toml"), open).unwrap();
    let (layer, _) = doctor_at(&socket);
    assert!(!of_trail(&layer), "{layer:?}");
}
