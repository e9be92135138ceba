//! `cordon doctor` on the audit trail: it says what a launch would fail by, and writes nothing.

use crate::{
    audit::{assert_refused, limit_file_size, log_of, with_own_log},
    harness::{
        Executor,
        build::programs,
        daemon::{ensure_users, open_directory, write_configuration},
        process,
    },
};
use cordon_protocol::{Health, LayerReport};
use std::{fs, os::unix::fs::PermissionsExt, process::Command};

/// What it says, and its exit status.
fn doctor(executor: &Executor) -> (LayerReport, i32) {
    let mut command = Command::new(&programs().cordon);
    command.args(["doctor", "--json", "--socket"]).arg(&executor.socket);
    let ran = process::run(command, &[]);
    let layers: Vec<LayerReport> = serde_json::from_slice(&ran.stdout).unwrap();
    (layers.into_iter().find(|layer| layer.layer == "audit").unwrap(), ran.status)
}

/// Whether it says that all is well.
fn assert_good(executor: &Executor) {
    let (layer, status) = doctor(executor);
    assert_eq!((layer.health, layer.remedy, status), (Health::Ok, None, 0), "{}", layer.detail);
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
    assert_good(&executor);
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
        let mut probe = process::tied(&programs().executor);
        probe.arg("--probe").arg("--config").arg(&file);
        let ran = process::run(probe, &[]);
        let layers: Vec<LayerReport> = serde_json::from_slice(&ran.stdout).unwrap();
        let layer = layers.iter().find(|layer| layer.layer == "audit").unwrap();
        let health = if problem.is_some() { Health::Missing } else { Health::Ok };
        assert_eq!(layer.health, health, "{trail}: {layer:?}");
        assert!(layer.detail.contains(problem.unwrap_or("can be written")), "{trail}: {layer:?}");
    }
    assert!(
        !at.join("audit.jsonl").exists() && !at.join("not").exists() && !at.join("commands.jsonl").exists()
    );
}
