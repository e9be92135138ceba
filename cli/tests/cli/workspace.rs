//! `cordon workspace`: what the executor is asked, and what becomes of its answers.

use crate::fake::{Fake, Peer, cordon, exited, report, stderr};
use cordon_protocol::{
    Action, CollectedFile, EndedBy, Event, ExitReport, FileIn, Hint, LimitInfo, ProfileInfo, Refusal,
    RefusalCode, Request, RunRequest, WorkspaceDetail, WorkspaceInfo,
};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

fn known() -> Vec<WorkspaceInfo> {
    [("cache", 0), ("proj", 1_764_489_600)]
        .map(|(name, modified)| WorkspaceInfo { name: name.into(), modified })
        .into()
}

fn profile(name: &str, wall: &str, output: &str) -> ProfileInfo {
    let limit = |name: &str, ceiling: &str| LimitInfo {
        name: name.into(),
        default: "1".into(),
        ceiling: ceiling.into(),
    };
    ProfileInfo {
        name: name.into(),
        shell: "/bin/sh".into(),
        network: "none".into(),
        read: vec![],
        write: vec![],
        execute: vec![],
        limits: vec![limit("wall", wall), limit("memory", "1G"), limit("output", output)],
        services: Vec::new(),
        concurrency: 1,
    }
}

/// Of each connection, what was to be run on it and its standard input.
type Seen = Vec<Option<(RunRequest, Vec<u8>)>>;

/// Answers every question as an executor with two workspaces would; what is to be run is answered by `run`, and kept.
fn executor(mut run: impl FnMut(&mut Peer, &RunRequest) + Send + 'static) -> Fake<Seen> {
    Fake::start_row(move |mut peer| {
        match peer.request.clone() {
            Request::Workspaces => peer.send(&Event::Workspaces(known())),
            Request::Profiles => {
                let profiles = vec![profile("default", "1h", "16G"), profile("slow", "2h", "none")];
                peer.send(&Event::Profiles(profiles));
            }
            Request::Run(request) => {
                peer.send(&Event::Queued { position: 1 });
                peer.send(&Event::Started { id: "1".into() });
                let input = if request.stdin { peer.stdin().0 } else { Vec::new() };
                run(&mut peer, &request);
                return Some((*request, input));
            }
            other => panic!("{other:?}"),
        }
        None
    })
}

fn good() -> ExitReport {
    ExitReport { stdout: Some(String::new()), stderr: Some(String::new()), ..report(EndedBy::Exit, Some(0)) }
}

fn failed(complaint: &str) -> ExitReport {
    ExitReport { exit_code: Some(1), stderr: Some(complaint.into()), ..good() }
}

fn file(path: &str, mode: u32, content: &[u8]) -> CollectedFile {
    let (size, content) = (content.len() as u64, content.to_vec());
    CollectedFile { path: path.into(), mode, size, content, truncated: false, problem: None }
}

fn none(path: &str) -> CollectedFile {
    CollectedFile { problem: Some("no file matches".into()), ..file(path, 0, b"") }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn list_is_for_people_and_for_programs() {
    let (output, _) = executor(|_, _| ()).outputs(&["workspace", "list"]);
    let expected = "NAME   LAST CHANGE\ncache  1970-01-01T00:00:00Z\nproj   2025-11-30T08:00:00Z\n";
    assert_eq!((output.status.code(), output.stdout), (Some(0), expected.into()));
    let (output, _) = executor(|_, _| ()).outputs(&["workspace", "list", "--json"]);
    assert_eq!(serde_json::from_slice::<Vec<WorkspaceInfo>>(&output.stdout).unwrap(), known());
}

#[test]
fn show_measures_what_is_there_and_makes_nothing() {
    let measured = |peer: &mut Peer, _: &RunRequest| {
        peer.send(&exited(ExitReport { stdout: Some("3145728 7 0\n".into()), ..good() }));
    };
    let (output, seen) = executor(measured).outputs(&["workspace", "show", "proj", "--profile", "slow"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let expected =
        "name         proj\nbytes        3145728 (3M)\nfiles        7\nlast change  2025-11-30T08:00:00Z\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    let runs: Vec<_> = seen.into_iter().flatten().collect();
    let [(run, _)] = &runs[..] else { panic!("{runs:?}") };
    assert_eq!((&run.action, run.workspace.as_deref()), (&Action::Measure, Some("proj")));
    assert_eq!((run.profile.as_deref(), run.limits.wall_ms), (Some("slow"), Some(7_200_000)));
    let (output, _) = executor(measured).outputs(&["workspace", "show", "proj", "--json"]);
    let detail =
        WorkspaceDetail { name: "proj".into(), modified: 1_764_489_600, bytes: 3 << 20, files: 7, closed: 0 };
    assert_eq!(serde_json::from_slice::<WorkspaceDetail>(&output.stdout).unwrap(), detail);

    for command in ["show", "get"] {
        let fake = executor(|_, run| panic!("{run:?}"));
        let (output, _) =
            fake.outputs(&["workspace", command, "other", "x"][..if command == "get" { 4 } else { 3 }]);
        assert_eq!(output.status.code(), Some(125));
        let text = stderr(&output);
        assert!(text.starts_with("cordon: workspace: there is none of the name `other`\n  next: "), "{text}");
    }
}

#[test]
fn delete_names_it_and_a_refusal_is_125() {
    let (output, asked) = Fake::start(|mut peer| {
        peer.send(&Event::WorkspaceDeleted { name: "proj".into() });
        peer.request
    })
    .output(&["workspace", "delete", "proj"]);
    assert_eq!((output.status.code(), asked), (Some(0), Request::DeleteWorkspace { name: "proj".into() }));
    let (output, ()) = Fake::start(|mut peer| {
        let message = "workspace: a command uses `proj`".into();
        let hint = Some("wait for its end".into());
        peer.send(&Event::Refused(Refusal { code: RefusalCode::Busy, message, hint }));
    })
    .output(&["workspace", "delete", "proj"]);
    assert_eq!(output.status.code(), Some(125));
    let expected = "cordon: workspace delete refused (busy): workspace: a command uses `proj`\n  next: wait for its end\n";
    assert_eq!(stderr(&output), expected);
}

#[test]
fn a_name_or_path_that_is_none_is_125_and_nothing_is_asked() {
    for (arguments, says) in [
        (&["show", "../x"][..], "workspace: `../x` is not a name"),
        (&["delete", "A"], "workspace: `A` is not a name"),
        (&["put", "", "/etc/hostname"], "workspace: `` is not a name"),
        (&["get", ".x", "a"], "workspace: `.x` is not a name"),
        (&["get", "proj", "../a"], "PATH: `../a` is not a path"),
        (&["get", "proj", "/etc/passwd"], "PATH: `/etc/passwd` is not a path"),
        (&["put", "proj", "/etc/hostname", "--to", "../a"], "--to: `../a` is not a path"),
        (&["put", "proj", "/etc/hostname", "--to", "/"], "--to: `/` is not a path"),
    ] {
        let fake = Fake::start(|_| ());
        let output = fake.cordon(&[&["workspace"], arguments].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        let text = stderr(&output);
        assert!(text.starts_with(&format!("cordon: {says}")) && text.contains("\n  next: "), "{text}");
        assert!(fake.is_unasked(), "{arguments:?}");
    }
    for arguments in [&["workspace"][..], &["workspace", "put", "proj"], &["workspace", "show"]] {
        assert_eq!(cordon(arguments).output().unwrap().status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_tree_is_put_in_few_errands_without_its_links() {
    let scratch = tempfile::tempdir().unwrap();
    let tree = scratch.path().join("tree");
    for path in ["a", "sub/deep/run.sh", ".hidden/x"] {
        fs::create_dir_all(tree.join(path).parent().unwrap()).unwrap();
        fs::write(tree.join(path), path).unwrap();
    }
    fs::set_permissions(tree.join("sub/deep/run.sh"), fs::Permissions::from_mode(0o4750)).unwrap();
    fs::set_permissions(tree.join("a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    symlink("/etc", tree.join("etc")).unwrap();
    symlink("a", tree.join("link")).unwrap();
    nix::unistd::mkfifo(&tree.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::set_permissions(tree.join(".hidden/x"), fs::Permissions::from_mode(0o644)).unwrap();
    for (to, prefix) in
        [(&[][..], "tree"), (&["--to", "else/where"], "else/where"), (&["--to", "in/"], "in/tree")]
    {
        let fake = executor(|peer, _| peer.send(&exited(good())));
        let arguments = [&["workspace", "put", "new", tree.to_str().unwrap()], to].concat();
        let (output, seen) = fake.outputs(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stderr(&output);
        for (name, what) in [
            ("empty", "an empty directory"),
            ("etc", "a link"),
            ("link", "a link"),
            ("pipe", "not a regular file"),
        ] {
            assert!(text.contains(&format!("{} is {what}, left out\n", tree.join(name).display())), "{text}");
        }
        assert_eq!(text.lines().count(), 4);
        let runs: Vec<_> = seen.into_iter().flatten().collect();
        let [(run, _)] = &runs[..] else { panic!("{runs:?}") };
        let file = |path: &str, mode| FileIn {
            path: format!("{prefix}/{path}"),
            content: path.into(),
            mode: Some(mode),
        };
        assert_eq!(run.files, [file(".hidden/x", 0o644), file("a", 0o600), file("sub/deep/run.sh", 0o750)]);
        assert_eq!((&run.action, run.workspace.as_deref()), (&Action::Nothing, Some("new")));
    }
}

#[test]
fn a_large_file_streams_within_what_the_profile_allows() {
    let scratch = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(scratch.path().join("large"), &data).unwrap();
    fs::set_permissions(scratch.path().join("large"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(scratch.path().join("small"), "s").unwrap();
    let fake = executor(|peer, _| peer.send(&exited(good())));
    let locals = ["large", "small"].map(|name| scratch.path().join(name).to_str().unwrap().to_owned());
    let (output, seen) = fake.outputs(&["workspace", "put", "proj", &locals[0], &locals[1], "--to", "d"]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let runs: Vec<_> = seen.into_iter().flatten().collect();
    let [(large, input), (small, _)] = &runs[..] else { panic!("{runs:?}") };
    assert!(
        matches!(&large.action, Action::Write { path, mode: Some(0o644) } if path == "d/large"),
        "{large:?}"
    );
    assert!(*input == data, "{} bytes", input.len());
    assert_eq!(small.files[0].path, "d/small");
    for run in [large, small] {
        assert_eq!((run.limits.wall_ms, run.limits.output_bytes), (Some(3_600_000), Some(16 << 30)));
    }
}

#[test]
fn what_is_not_put_is_told_and_125() {
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("there"), "x").unwrap();
    let locals = ["none", "there"].map(|name| scratch.path().join(name).to_str().unwrap().to_owned());
    let fake = executor(|peer, _| peer.send(&exited(good())));
    let (output, seen) = fake.outputs(&["workspace", "put", "proj", &locals[0], &locals[1]]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        stderr(&output).contains(&format!("putting {} failed: No such file", locals[0])),
        "{}",
        stderr(&output)
    );
    assert_eq!(seen.into_iter().flatten().next().unwrap().0.files[0].path, "there", "the other one is put");
    // The executor's side fails.
    let hint =
        Hint { layer: "files".into(), what: "there: Is a directory".into(), remedy: "name another".into() };
    let launch = ExitReport {
        ended_by: EndedBy::LaunchFailed,
        exit_code: None,
        step: Some("files".into()),
        hint: Some(hint),
        ..good()
    };
    let disk = ExitReport { ended_by: EndedBy::DiskLimit, exit_code: None, ..good() };
    for (bad, says) in [
        (launch, "workspace put failed: launch failed at step files: there: Is a directory; name another"),
        (disk, "workspace put failed: ended by disk_limit"),
        (failed("there: File too large\n"), "workspace put failed: there: File too large"),
    ] {
        let fake = executor(move |peer, _| peer.send(&exited(bad.clone())));
        let (output, _) = fake.outputs(&["workspace", "put", "proj", &locals[1]]);
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).starts_with(&format!("cordon: {says}")), "{}", stderr(&output));
    }
}

#[test]
fn files_are_got_with_their_bits_and_large_ones_whole() {
    let scratch = tempfile::tempdir().unwrap();
    let into = scratch.path().join("into");
    let data: Vec<u8> = (0..2_000_000u32).flat_map(u32::to_le_bytes).collect();
    let sent = data.clone();
    let fake = executor(move |peer, run| {
        match &run.action {
            Action::Nothing => {
                for file in [
                    file("logs/a", 0o640, b"\xff\0"),
                    CollectedFile {
                        truncated: true,
                        size: 8_000_000,
                        ..file("logs/big", 0o4755, b"beginning")
                    },
                ] {
                    peer.send(&Event::File(file));
                }
            }
            Action::Read { path } => {
                assert_eq!((path.as_str(), run.stream), ("logs/big", true));
                for piece in sent.chunks(60_000) {
                    peer.send(&Event::Stdout(piece.to_vec()));
                }
            }
            other => panic!("{other:?}"),
        }
        peer.send(&exited(good()));
    });
    let (output, seen) =
        fake.outputs(&["workspace", "get", "proj", "logs/*", "--into", into.to_str().unwrap()]);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    assert_eq!(fs::read(into.join("logs/a")).unwrap(), b"\xff\0");
    assert!(fs::read(into.join("logs/big")).unwrap() == data);
    assert_eq!((mode(&into.join("logs/a")), mode(&into.join("logs/big"))), (0o640, 0o755));
    let runs: Vec<_> = seen.into_iter().flatten().collect();
    assert_eq!(runs[0].0.collect, ["logs/*", "logs/*/"]);
    assert_eq!(runs[1].0.limits.output_bytes, Some(16 << 30));
}

#[test]
fn a_path_is_a_file_or_a_directory_and_one_that_is_neither_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let fake = executor(|peer, run| {
        for pattern in &run.collect {
            let problem = |text: &str| CollectedFile { problem: Some(text.into()), ..none(pattern) };
            let found = match pattern.as_str() {
                "src/" => vec![file("src/.env", 0o600, b"e"), file("src/deep/a", 0o644, b"a")],
                "plain" => vec![file("plain", 0o644, b"p")],
                "src" | "empty" => vec![problem(CollectedFile::ONLY_DIRECTORIES)],
                "empty/" => vec![problem(CollectedFile::EMPTY)],
                pattern => vec![none(pattern)],
            };
            found.into_iter().for_each(|file| peer.send(&Event::File(file)));
        }
        peer.send(&exited(good()));
    });
    let mut command = fake.cordon(&["workspace", "get", "proj", "src/", "none", "plain", "*.o", "empty"]);
    let output = command.current_dir(scratch.path()).output().unwrap();
    fake.finish_row();
    assert_eq!(output.status.code(), Some(125));
    let expected = "cordon: getting none failed: no file matches\ncordon: getting *.o failed: no file matches\n\
         cordon: getting empty failed: no file is in the directories that match\n";
    assert_eq!(stderr(&output), expected);
    for (path, content) in [("src/deep/a", "a"), ("src/.env", "e"), ("plain", "p")] {
        assert_eq!(fs::read_to_string(scratch.path().join(path)).unwrap(), content);
    }
}

#[test]
fn what_is_got_leads_nowhere_else_and_replaces_nothing_by_half() {
    let scratch = tempfile::tempdir().unwrap();
    let (into, outside) = (scratch.path().join("into"), scratch.path().join("outside"));
    fs::create_dir_all(&into).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, into.join("out")).unwrap();
    fs::write(into.join("big"), "before").unwrap();
    let fake = executor(|peer, run| match &run.action {
        Action::Nothing => {
            for path in ["../outside/x", "out/x", "big"] {
                let truncated = path == "big" || path == "out/x";
                peer.send(&Event::File(CollectedFile { truncated, ..file(path, 0o644, b"x") }));
            }
            peer.send(&exited(good()));
        }
        Action::Read { path } => {
            assert_eq!(path, "big", "a file that has no place is not fetched");
            peer.send(&Event::Stdout(b"half".to_vec()));
            peer.send(&Event::Stderr(b"big: Input/output error\n".to_vec()));
            peer.send(&exited(ExitReport { stdout: None, stderr: None, ..failed("") }));
        }
        other => panic!("{other:?}"),
    });
    let (output, _) = fake.outputs(&["workspace", "get", "proj", "*", "--into", into.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(125));
    let text = stderr(&output);
    for says in [
        "getting ../outside/x failed",
        "getting out/x failed",
        "workspace get failed: big: Input/output error",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(fs::read(into.join("big")).unwrap(), b"before");
    assert_eq!(fs::read_dir(&into).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn of_more_files_than_are_collected_those_that_came_are_written_and_the_rest_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let fake = executor(|peer, _| {
        for n in 0..256 {
            peer.send(&Event::File(file(&format!("many/{n}"), 0o644, b"x")));
        }
        let problem = Some("more than 256 files match".into());
        peer.send(&Event::File(CollectedFile { problem, ..none("many/") }));
        peer.send(&exited(good()));
    });
    let into = scratch.path().to_str().unwrap();
    let (output, _) = fake.outputs(&["workspace", "get", "proj", "many", "--into", into]);
    assert_eq!(output.status.code(), Some(125));
    let text = stderr(&output);
    assert!(
        text.starts_with("cordon: getting many failed: more than 256 files match; use fewer, or `cordon run"),
        "{text}"
    );
    assert_eq!(fs::read_dir(scratch.path().join("many")).unwrap().count(), 256);
}
