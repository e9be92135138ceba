//! Workspaces and files through the doors that people use: the command line and HTTP, against the real daemons.

mod named;
mod patterns;

use crate::harness::{
    daemon::open_directory,
    http::{self, send},
    process::{self, Ran},
    shared,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use cordon_protocol::FullReport;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

fn cordon(arguments: &[&str]) -> Ran {
    process::run(shared().cordon(arguments), &[])
}

/// What a command of ours says, which must go well and complain about nothing.
fn well(arguments: &[&str]) -> String {
    let ran = cordon(arguments);
    assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{arguments:?}: {}", ran.text());
    ran.text()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn write(path: &Path, mode: u32, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Bytes of which no two places look the same.
fn bytes(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        // Knuth's MMIX generator.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Every file below a directory by its path: permission bits and content.
fn files_of(top: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let (mut found, mut pending) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                pending.push(entry.path());
            } else {
                let name = entry.path().strip_prefix(top).unwrap().to_str().unwrap().to_owned();
                found.insert(name, (mode(&entry.path()), fs::read(entry.path()).unwrap()));
            }
        }
    }
    found
}

#[test]
fn what_is_installed_in_a_named_workspace_is_there_for_the_next_command() {
    let run = |script: &str| well(&["run", "-n", "--workspace", "install", "-c", script]);
    run(
        "python3 -m venv --without-pip env && mkdir bin && printf '#!/bin/sh\\necho tool $1\\n' > bin/tool && chmod +x bin/tool",
    );
    assert_eq!(run("env/bin/python -c 'import sys; print(sys.prefix)'"), "/home/execuser/env\n");
    assert_eq!(run("cd /tmp && ~/bin/tool works"), "tool works\n");
    assert_eq!(well(&["run", "-n", "--workspace", "install", "--", "bin/tool", "runs"]), "tool runs\n");
    // Another one, and a private one, have nothing of it.
    assert_eq!(well(&["run", "-n", "--workspace", "install-2", "-c", "ls -A"]), "");
    assert_eq!(well(&["run", "-n", "-c", "ls -A"]), "");
    // Over HTTP as well, where they are the gateway's.
    let exec = |command: &str| shared().exec(&json!({ "workspace": "install", "command": command }));
    assert_eq!(exec("ls -A; echo kept > file").stdout.as_deref(), Some(""));
    assert_eq!(exec("cat file").stdout.as_deref(), Some("kept\n"));
}

#[test]
fn files_go_in_and_what_a_command_makes_of_them_comes_out() {
    let scratch = open_directory();
    let (tool, data, into) =
        (scratch.path().join("tool"), scratch.path().join("data"), scratch.path().join("into"));
    write(
        &tool,
        0o750,
        b"#!/bin/sh\nmkdir -p out/deep && wc -c < in/data.bin > out/deep/result && chmod 640 out/deep/result\n",
    );
    let content = bytes(100_000);
    write(&data, 0o600, &content);
    let (tool, data) = (format!("bin/tool={}", text(&tool)), format!("in/data.bin={}", text(&data)));
    let script =
        "bin/tool; cp in/data.bin copy; cp bin/tool .hidden; stat -c '%a %n' bin/tool in/data.bin; exit 0";
    let run = [
        "run",
        "-n",
        "--file",
        &tool,
        "--file",
        &data,
        "--collect",
        "out/**/*",
        "--collect",
        "copy",
        "--collect",
        ".h*",
    ];
    let said = well(&[&run[..], &["--into", text(&into), "-c", script]].concat());
    assert_eq!(said, "750 bin/tool\n600 in/data.bin\n");
    let found = files_of(&into);
    assert_eq!(found.keys().collect::<Vec<_>>(), [".hidden", "copy", "out/deep/result"]);
    assert!(found["copy"].1 == content && found["out/deep/result"].1 == b"100000\n");
    assert_eq!([".hidden", "copy", "out/deep/result"].map(|name| found[name].0), [0o750, 0o600, 0o640]);
    // The same in a report.
    let said = well(&[&run[..], &["--json", "-c", script]].concat());
    let full: FullReport = serde_json::from_str(&said).unwrap();
    let collected = full.collected.unwrap();
    let copy = collected.iter().find(|file| file.path == "copy").unwrap();
    assert!(STANDARD.decode(copy.content.as_ref().unwrap()).unwrap() == content);
    assert_eq!((copy.mode.as_str(), copy.size, copy.truncated), ("0600", 100_000, false));
}

#[test]
fn over_http_files_go_in_and_come_out_in_both_forms() {
    let content = bytes(50_000);
    let body = json!({
        "command": "in/run < in/data > out; chmod 711 out; exit 3",
        "files": [
            { "path": "in/run", "content": "#!/bin/sh\ncat; printf ü\n", "mode": "0755" },
            { "path": "in/data", "base64": STANDARD.encode(&content) },
        ],
        "collect": ["out", "in/run", "*.none"],
    });
    let answer = shared().post(&body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let report = answer.json();
    assert_eq!((&report["ended_by"], &report["exit_code"]), (&json!("exit"), &json!(3)), "{report}");
    let [out, run, none] = &report["collected"].as_array().unwrap()[..] else { panic!("{report}") };
    assert!(
        STANDARD.decode(out["content"].as_str().unwrap()).unwrap() == [&content, "ü".as_bytes()].concat()
    );
    assert_eq!(
        (&out["path"], &out["mode"], &out["encoding"]),
        (&json!("out"), &json!("0711"), &json!("base64"))
    );
    let wanted = json!({ "path": "in/run", "mode": "0755", "size": 25, "content": "#!/bin/sh\ncat; printf ü\n",
                         "encoding": "utf-8", "truncated": false, "problem": null });
    assert_eq!(*run, wanted);
    assert_eq!((&none["path"], &none["problem"]), (&json!("*.none"), &json!("no file matches")));
    // As events, between the output and the report.
    let request = shared().request("POST", "/v1/exec").header("Accept", "text/event-stream").json(&body);
    let events = http::events(&send(request).text());
    let names: Vec<_> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["started", "file", "file", "file", "exit"]);
    assert_eq!(events[2].1, wanted);
    assert_eq!(events[4].1.get("collected"), None);
}

#[test]
fn a_command_s_names_and_links_lead_nowhere_outside_the_directory() {
    let _verdict = crate::escape::probe!();
    let scratch = open_directory();
    let (into, outside) = (scratch.path().join("into"), scratch.path().join("outside"));
    fs::create_dir(&into).unwrap();
    write(&outside.join("kept"), 0o644, b"kept");
    symlink(&outside, into.join("out")).unwrap();
    symlink(outside.join("kept"), into.join("link")).unwrap();
    symlink(outside.join("new"), into.join("dangling")).unwrap();
    fs::create_dir(into.join("dir")).unwrap();
    // Some of these names are links in the directory, others are links, pipes and oddities in the workspace.
    let script = "mkdir out d; echo x > out/kept; echo x > out/new; echo x > link; echo x > dangling; echo x > dir; \
                  ln -s /etc/passwd passwd; ln -s / d/root; ln -s ../../../../etc up; mkfifo pipe; \
                  python3 -c 'open(b\"\\xff\\xfe\", \"w\"); open(\"esc\\x1b[2J\\n\", \"w\")'; \
                  echo x > ./-rf; echo x > good; chmod 6777 good";
    let collect = |pattern: &'static str| ["--collect", pattern];
    let patterns = ["*", "*/*", "d/root/etc/passwd", "up/passwd"].map(collect).concat();
    let ran = cordon(&[&["run", "-n"], &patterns[..], &["--into", text(&into), "-c", script]].concat());
    assert_eq!(ran.status, 125, "{}", ran.stderr);
    for name in ["out/kept", "out/new", "link", "dangling", "dir", "passwd", "pipe", "d/root", "up"] {
        assert!(
            ran.stderr.contains(&format!("cordon: collecting {name} failed: ")),
            "{name}: {}",
            ran.stderr
        );
    }
    assert!(!ran.stderr.contains('\x1b'), "{:?}", ran.stderr);
    assert_eq!(fs::read(outside.join("kept")).unwrap(), b"kept");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    let mut names: Vec<_> = fs::read_dir(&into).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    // The directory below which a link was named is there, and empty: the link itself led out of the workspace.
    assert_eq!(names, ["-rf", "dangling", "dir", "esc\x1b[2J\n", "good", "link", "out"]);
    assert!(["link", "dangling", "out"].iter().all(|name| into.join(name).is_symlink()));
    assert_eq!(fs::read(into.join("good")).unwrap(), b"x\n");
    assert_eq!(mode(&into.join("good")) & !0o755, 0, "no set-id bit, and what umask takes is not there");
}

#[test]
fn a_large_file_is_put_and_got_back_to_the_byte() {
    let scratch = open_directory();
    let content = bytes(50 << 20);
    write(&scratch.path().join("big"), 0o640, &content);
    well(&["workspace", "put", "large", text(&scratch.path().join("big")), "--to", "data/big.bin"]);
    assert_eq!(
        well(&["run", "-n", "--workspace", "large", "-c", "stat -c '%a %s' data/big.bin"]),
        "640 52428800\n"
    );
    well(&["workspace", "get", "large", "data/big.bin", "--into", text(scratch.path())]);
    let got = scratch.path().join("data/big.bin");
    assert!(fs::read(&got).unwrap() == content, "{} bytes", fs::metadata(&got).unwrap().len());
    assert_eq!(mode(&got), 0o640);
    // Collected it would not be whole.
    let arguments =
        ["run", "-n", "--workspace", "large", "--collect", "data/*", "--into", text(scratch.path())];
    let ran = cordon(&[&arguments[..], &["--", "true"]].concat());
    assert_eq!(ran.status, 125);
    assert!(ran.stderr.contains("cordon workspace get"), "{}", ran.stderr);
}

#[test]
fn a_directory_is_put_and_got_back_as_it_was() {
    let scratch = open_directory();
    let tree = scratch.path().join("tree");
    for n in 0..150 {
        write(&tree.join(format!("many/{n}")), 0o644, format!("{n}\n").as_bytes());
    }
    for n in 0..6 {
        write(&tree.join(format!("medium/{n}")), 0o600, &bytes((3 << 20) + n));
    }
    for (path, mode) in [
        ("a b/ü", 0o644),
        ("run.sh", 0o755),
        ("empty", 0o444),
        (".git/config", 0o640),
        (".git/refs/.keep", 0o600),
        ("deep/.hidden/.more/file", 0o644),
        ("[x]*", 0o644),
    ] {
        write(&tree.join(path), mode, if path == "empty" { b"" } else { path.as_bytes() });
    }
    let wanted = files_of(&tree);
    symlink("/etc/passwd", tree.join("link")).unwrap();
    let ran = cordon(&["workspace", "put", "tree", text(&tree)]);
    assert_eq!((ran.status, ran.text().as_str()), (0, ""), "{}", ran.stderr);
    assert_eq!(ran.stderr, format!("cordon: {} is a link, left out\n", text(&tree.join("link"))));
    let into = scratch.path().join("into");
    well(&["workspace", "get", "tree", "tree", "--into", text(&into)]);
    let found = files_of(&into.join("tree"));
    assert_eq!(found.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    assert!(found == wanted, "content or permission bits differ");
    // A second time over what is there, with a file that has changed and one that is new.
    write(&tree.join("many/7"), 0o600, b"changed");
    write(&tree.join("new"), 0o644, b"new");
    fs::remove_file(tree.join("link")).unwrap();
    well(&["workspace", "put", "tree", text(&tree)]);
    let parts = ["tree/many/7", "tree/n*", "tree/[[]x]*"];
    well(&[&["workspace", "get", "tree"], &parts[..], &["--into", text(&into)]].concat());
    let found = files_of(&into.join("tree"));
    assert_eq!(
        (found["many/7"].clone(), found["new"].1.as_slice()),
        ((0o600, b"changed".into()), &b"new"[..])
    );
}
