//! `cordon run` with files of ours that go in, and collected ones that come out.

use crate::fake::{Fake, exited, report, stderr};
use cordon_protocol::{CollectedFile, EndedBy, Event, FileIn, FullReport, RunRequest};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Output,
};

fn file(path: &str, mode: u32, content: &[u8]) -> CollectedFile {
    let (size, content) = (content.len() as u64, content.to_vec());
    CollectedFile { path: path.into(), mode, size, content, truncated: false, problem: None }
}

fn missing(path: &str, problem: &str) -> CollectedFile {
    CollectedFile { problem: Some(problem.into()), ..file(path, 0, b"") }
}

/// `cordon run` of a command that ends so, and of which these files are collected.
fn collect(files: Vec<CollectedFile>, exit_code: i32, arguments: &[&str]) -> (Output, RunRequest) {
    let fake = Fake::start(move |mut peer| {
        peer.send(&Event::Queued { position: 1 });
        peer.send(&Event::Started { id: "1".into() });
        for file in files {
            peer.send(&Event::File(file));
        }
        peer.send(&exited(report(EndedBy::Exit, Some(exit_code))));
        peer.run()
    });
    fake.output(&[&["run", "-n"], arguments, &["--", "x"]].concat())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn files_go_along_with_content_and_permission_bits() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    fs::write(at("binary"), b"\xff\0=").unwrap();
    fs::set_permissions(at("binary"), fs::Permissions::from_mode(0o4750)).unwrap();
    symlink("binary", at("link")).unwrap();
    let entry = |path: &str, name: &str| format!("{path}={}", at(name).display());
    let (first, second) = (entry("bin/tool", "binary"), entry("other", "link"));
    let arguments = ["--workspace", "proj", "--file", &first, "--file", &second];
    let (output, run) = collect(vec![], 0, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let wanted = |path: &str| FileIn { path: path.into(), content: b"\xff\0=".to_vec(), mode: Some(0o750) };
    assert_eq!(run.files, [wanted("bin/tool"), wanted("other")]);
    assert_eq!((run.workspace.as_deref(), run.collect.len()), (Some("proj"), 0));
}

#[test]
fn collected_files_are_written_below_the_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let into = scratch.path().join("made/here");
    let files = vec![
        file("a.txt", 0o600, b"text\n"),
        file("deep/er/b.bin", 0o4750, b"\xff\0"),
        file("empty", 0o444, b""),
        file("b\x1b[2J", 0o644, b"x"),
    ];
    let arguments =
        ["--collect", "**/*", "--collect", ".env", "--collect", "out/", "--into", into.to_str().unwrap()];
    let (output, run) = collect(files, 0, &arguments);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    assert!(output.stdout.is_empty());
    assert_eq!(run.collect, ["**/*", ".env", "out/"]);
    assert_eq!(fs::read(into.join("a.txt")).unwrap(), b"text\n");
    assert_eq!(fs::read(into.join("deep/er/b.bin")).unwrap(), b"\xff\0");
    let modes = ["a.txt", "deep/er/b.bin", "empty"].map(|name| mode(&into.join(name)));
    assert_eq!(modes, [0o600, 0o750, 0o444]);
    assert!(into.join("b\x1b[2J").is_file());
}

#[test]
fn names_that_lead_elsewhere_are_told_and_nothing_is_written_there() {
    let scratch = tempfile::tempdir().unwrap();
    let (into, outside) = (scratch.path().join("into"), scratch.path().join("outside"));
    fs::create_dir(&into).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    symlink(&outside, into.join("out")).unwrap();
    symlink(outside.join("kept"), into.join("link")).unwrap();
    symlink(outside.join("new"), into.join("dangling")).unwrap();
    fs::create_dir(into.join("dir")).unwrap();
    let absolute = outside.join("new");
    let hostile = [
        "../outside/new",
        absolute.to_str().unwrap(),
        "a/../../outside/new",
        "out/new",
        "out/kept",
        "link",
        "dangling",
        "dir",
        "..",
        "",
        "a\0b",
        "x\n\x1b[2J/../../y",
    ];
    let files =
        || hostile.iter().map(|path| file(path, 0o777, b"written")).chain([file("good", 0o644, b"x")]);
    let arguments = ["--collect", "*", "--into", into.to_str().unwrap()];
    let (output, _) = collect(files().collect(), 0, &arguments);
    assert_eq!(output.status.code(), Some(125));
    let text = stderr(&output);
    assert_eq!(text.lines().count(), hostile.len(), "{text}");
    assert!(text.lines().all(|line| line.starts_with("cordon: collecting ")), "{text}");
    assert!(!text.contains('\x1b'), "{text:?}");
    assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(fs::symlink_metadata(into.join("link")).unwrap().is_symlink());
    assert_eq!(fs::read(into.join("good")).unwrap(), b"x", "the others are written");
    // What the command itself said goes before.
    let (output, _) = collect(files().collect(), 3, &arguments);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn what_came_to_nothing_or_not_whole_is_told_and_not_written() {
    let scratch = tempfile::tempdir().unwrap();
    let large = CollectedFile { size: 5 << 20, truncated: true, ..file("large", 0o644, b"beginning") };
    let files = vec![missing("*.log", "no file matches"), large];
    let arguments = ["--collect", "*", "--into", scratch.path().to_str().unwrap()];
    let (output, _) = collect(files, 0, &arguments);
    assert_eq!(output.status.code(), Some(125));
    let text = stderr(&output);
    assert!(text.contains("cordon: collecting *.log failed: no file matches\n"), "{text}");
    assert!(text.contains("collecting large failed: it has 5242880 bytes, and only 4M"), "{text}");
    assert!(text.contains("cordon workspace get"), "{text}");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_report_has_them_with_their_content_or_without_where_it_was_written() {
    let scratch = tempfile::tempdir().unwrap();
    let files = || vec![file("a", 0o640, b"\xff"), missing("b*", "no file matches")];
    let told = |output: &Output| -> FullReport { serde_json::from_slice(&output.stdout).unwrap() };
    let (output, _) = collect(files(), 0, &["--json", "--collect", "*"]);
    // The report says what is missing.
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let full = told(&output);
    assert_eq!(full.report, report(EndedBy::Exit, Some(0)));
    let listed = full.collected.unwrap();
    assert_eq!((listed[0].content.as_deref(), listed[0].mode.as_str()), (Some("/w=="), "0640"));
    assert_eq!((&listed[1].content, listed[1].problem.as_deref()), (&None, Some("no file matches")));

    let arguments = ["--json", "--collect", "*", "--into", scratch.path().to_str().unwrap()];
    let (output, _) = collect(files(), 0, &arguments);
    assert_eq!(output.status.code(), Some(125));
    let listed = told(&output).collected.unwrap();
    assert_eq!((&listed[0].content, &listed[0].problem, listed[0].size), (&None, &None, 1));
    assert_eq!(listed[1].problem.as_deref(), Some("no file matches"));
    assert_eq!(fs::read(scratch.path().join("a")).unwrap(), b"\xff");

    let (output, _) = collect(vec![], 0, &["--json"]);
    assert_eq!(told(&output).collected, None);
    assert!(!String::from_utf8(output.stdout).unwrap().contains("collected"));
}

#[test]
fn what_cannot_go_well_is_125_before_anything_is_asked() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("plain"), "").unwrap();
    let below_a_file = scratch.path().join("plain/into");
    let none = format!("a={}", scratch.path().join("none").display());
    for (arguments, says) in [
        (&["--collect", "*"][..], "--collect: nothing says where"),
        (&["--collect", "*", "--into", below_a_file.to_str().unwrap()], "opening the directory"),
        (&["--file", &none], "--file: reading"),
        (&["--file", "../a=b"], "--file <PATH=LOCAL>"),
        (&["--file", "a=-"], "--file <PATH=LOCAL>"),
        (&["--workspace", "../a"], "--workspace <NAME>"),
        (&["--collect", "../*", "--json"], "--collect <GLOB>"),
        (&["--into", "d"], "--into: nothing is to be collected"),
    ] {
        let fake = Fake::start(|_| ());
        let output = fake.cordon(&[&["run", "-n"], arguments, &["--", "x"]].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        let text = stderr(&output);
        assert!(text.contains(says) && text.lines().count() >= 2, "{says}: {text}");
        assert!(fake.is_unasked(), "{arguments:?}");
    }
}
