//! Named workspaces by their names: listed, shown and deleted, apart for each user, and refused where one is none.

use super::*;
use crate::harness::{
    PATIENCE, Up,
    build::programs,
    client::{line, public_copy},
    eventually, host,
    lab::STRANGER,
    marker,
    process::sandboxed,
};
use cordon_protocol::{Action, FileIn, RunRequest, WorkspaceDetail, WorkspaceInfo};
use std::process::Stdio;

/// The workspaces of a peer, as its `cordon workspace list --json` or HTTP tells.
fn names(list: &Value) -> Vec<String> {
    let list: Vec<WorkspaceInfo> = serde_json::from_value(list.clone()).unwrap();
    list.into_iter().map(|workspace| workspace.name).collect()
}

#[test]
fn workspaces_are_listed_shown_and_deleted_at_both_doors() {
    let up = Up::start();
    let cordon = |arguments: &[&str]| process::run(up.cordon(&[&["workspace"], arguments].concat()), &[]);
    let list = || names(&serde_json::from_slice(&cordon(&["list", "--json"]).stdout).unwrap());
    assert_eq!(list(), Vec::<String>::new());
    for name in ["one", "two"] {
        assert_eq!(up.run(&["--workspace", name, "-c", "mkdir d; head -c 1M /dev/zero > d/f"]).status, 0);
    }
    assert_eq!(list(), ["one", "two"]);
    let detail: WorkspaceDetail = serde_json::from_slice(&cordon(&["show", "one", "--json"]).stdout).unwrap();
    assert_eq!((detail.name.as_str(), detail.files), ("one", 2));
    assert!(detail.bytes >= 1 << 20 && detail.modified > 1_700_000_000, "{detail:?}");
    // One that is not there is not made by looking.
    for arguments in [&["show", "three"][..], &["get", "three", "x"], &["delete", "three"]] {
        let ran = cordon(arguments);
        assert_eq!(ran.status, 125);
        assert!(ran.stderr.contains("none of the name `three`"), "{}", ran.stderr);
    }
    // The gateway is another peer.
    let ask = |method: &str, path: &str| send(up.request(method, path));
    let listed = || names(&ask("GET", "/v1/workspaces").json()["workspaces"]);
    assert_eq!(listed(), Vec::<String>::new());
    let (code, message) = ask("GET", "/v1/workspaces/one").error(404);
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("not_found", "workspace: there is none of the name `one`")
    );
    ask("DELETE", "/v1/workspaces/one").error(404);
    up.exec(&json!({ "workspace": "one", "argv": ["sh", "-c", "echo http > file"] }));
    assert_eq!(listed(), ["one"]);
    let detail = ask("GET", "/v1/workspaces/one").json();
    assert_eq!((&detail["name"], &detail["files"]), (&json!("one"), &json!(1)));
    // While a command uses it, it stays.
    let marker = marker();
    let mut command = up.cordon(&["run", "-n", "--workspace", "two", "--", "sleep", &marker]);
    let mut sleeper = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("it sleeps", PATIENCE, || !sandboxed(&marker).is_empty());
    let ran = cordon(&["delete", "two"]);
    assert_eq!(ran.status, 125);
    assert!(ran.stderr.contains("(busy)") && ran.stderr.contains("a command uses `two`"), "{}", ran.stderr);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    eventually("nobody uses it any more", PATIENCE, || cordon(&["delete", "two"]).status == 0);
    let gone = ask("DELETE", "/v1/workspaces/one");
    assert_eq!((gone.status, gone.body.len()), (204, 0));
    assert_eq!((list(), listed()), (vec!["one".to_owned()], Vec::new()), "each its own");
    assert_eq!(up.run(&["--workspace", "one", "--", "ls", "d"]).text(), "f\n");
    assert_eq!(
        up.run(&["--workspace", "two", "--", "ls", "-A"]).text(),
        "",
        "a new one of that name is empty"
    );
}

#[test]
fn two_users_have_workspaces_of_one_name_apart() {
    let up = shared();
    let directory = open_directory();
    let program = public_copy(&programs().cordon, directory.path());
    let local = directory.path().join("file");
    write(&local, 0o644, b"root's\n");
    well(&["workspace", "put", "apart", text(&local)]);
    let stranger = |arguments: &[&str]| {
        let mut command = host::as_user(STRANGER, STRANGER, &[host::gid_of("cordon")], text(&program));
        command.args(arguments).env("CORDON_SOCKET", &up.socket);
        process::run(command, &[])
    };
    assert_eq!(stranger(&["workspace", "list", "--json"]).text(), "[]\n");
    assert_eq!(stranger(&["workspace", "get", "apart", "file", "--into", "/tmp"]).status, 125);
    assert_eq!(
        stranger(&["run", "-n", "--workspace", "apart", "-c", "ls -A; echo theirs > file"]).text(),
        ""
    );
    let body = json!({ "workspace": "apart", "command": "ls -A; echo web > file" });
    assert_eq!(up.exec(&body).stdout.as_deref(), Some(""));
    assert_eq!(stranger(&["workspace", "delete", "apart"]).status, 0);
    let into = directory.path().join("into");
    well(&["workspace", "get", "apart", "file", "--into", text(&into)]);
    assert_eq!(fs::read(into.join("file")).unwrap(), b"root's\n");
    let body = json!({ "workspace": "apart", "command": "cat file" });
    assert_eq!(up.exec(&body).stdout.as_deref(), Some("web\n"));
}

#[test]
fn bad_names_and_paths_are_refused_with_the_field_at_each_door() {
    let up = shared();
    let entry = |path: &str| FileIn { path: path.into(), content: vec![], mode: None };
    for name in ["../x", "A", "", ".hidden", &"a".repeat(65)] {
        for (arguments, field) in [
            (&["run", "--workspace", name, "--", "true"][..], "--workspace"),
            (&["workspace", "show", name], "workspace: "),
            (&["workspace", "delete", name], "workspace: "),
            (&["workspace", "put", name, "/etc/hostname"], "workspace: "),
            (&["workspace", "get", name, "x"], "workspace: "),
        ] {
            let ran = cordon(arguments);
            assert_eq!(ran.status, 125, "{arguments:?}");
            assert!(ran.stderr.contains(field) && ran.stderr.contains("lower-case"), "{}", ran.stderr);
        }
        let (_, message) = up.post(&json!({ "command": "true", "workspace": name })).error(400);
        assert!(message.starts_with("workspace: "), "{message}");
        let request = RunRequest { workspace: Some(name.into()), ..line("true") };
        assert!(up.refusal(request).starts_with("bad_request: workspace: "));
    }
    // With `/` at its end a pattern, and what is got, is a directory.
    for path in ["../x", "/etc/x", "a/../../x", "", "a//"] {
        let option = format!("{path}=/etc/hostname");
        let target = format!("PATH: `{}` ", path.strip_suffix('/').unwrap_or(path));
        for (arguments, field) in [
            (&["run", "--file", &option, "--", "true"][..], "--file"),
            (&["run", "--json", "--collect", path, "--", "true"], "--collect"),
            (&["workspace", "get", "install", path], target.as_str()),
        ] {
            let ran = cordon(arguments);
            assert_eq!(ran.status, 125, "{arguments:?}");
            assert!(ran.stderr.contains(field), "{field}: {}", ran.stderr);
        }
        let files = json!([{ "path": "ok", "content": "" }, { "path": path, "content": "" }]);
        let (_, message) = up.post(&json!({ "command": "true", "files": files })).error(400);
        assert!(message.starts_with("files[1].path: "), "{message}");
        let (_, message) = up.post(&json!({ "command": "true", "collect": ["ok", path] })).error(400);
        assert!(message.starts_with("collect[1]: "), "{message}");
        let files = vec![entry("ok"), entry(path)];
        assert!(up.refusal(RunRequest { files, ..line("true") }).starts_with("bad_request: files[1].path: "));
        let collect = vec!["ok".to_owned(), path.to_owned()];
        assert!(up.refusal(RunRequest { collect, ..line("true") }).starts_with("bad_request: collect[1]: "));
        let read = RunRequest::new(Action::Read { path: path.into() });
        assert!(up.refusal(read).starts_with("bad_request: path: "));
    }
    let (_, message) = up
        .post(&json!({ "command": "true", "files": [{ "path": "a", "content": "", "mode": "4755" }] }))
        .error(400);
    assert_eq!(message, "files[0].mode: \"4755\" has more than permission bits, the limit is \"0777\"");
    // A path that is well formed and leads out by a link: the launch fails, in the words of its step.
    let script = "ln -s /tmp out";
    well(&["run", "-n", "--workspace", "leads-out", "-c", script]);
    let body = json!({ "command": "true", "files": [{ "path": "a", "content": "" }] });
    assert_eq!(up.exec(&body).exit_code, Some(0));
    let ran = cordon(&["workspace", "put", "leads-out", "/etc/hostname", "--to", "out/x"]);
    assert_eq!(ran.status, 125);
    assert!(
        ran.stderr.contains("step files: out/x: ") && ran.stderr.contains("a path that is free"),
        "{}",
        ran.stderr
    );
}

#[test]
fn remedies_are_in_the_words_of_the_door() {
    let up = shared();
    let hint =
        |answer: &Value| answer["error"]["hint"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let file =
        |mode: &str| json!({ "command": "cat a", "files": [{ "path": "a", "content": "x", "mode": mode }] });
    let refused = hint(&up.post(&file("4755")).json());
    assert!(refused.ends_with("\"0644\" for instance"), "{refused}");
    assert_eq!(up.exec(&file("0644")).stdout.as_deref(), Some("x"), "what the hint says is taken");
    let mode = Some(0o4755);
    let files = vec![FileIn { path: "a".into(), content: vec![], mode }];
    assert!(up.refusal(RunRequest { files, ..line("true") }).contains("0o4755 has more"));
    let delete = |name: &str| send(up.request("DELETE", &format!("/v1/workspaces/{name}"))).json();
    assert_eq!(hint(&delete("not-there")), "GET /v1/workspaces lists those there are");
    let told = cordon(&["workspace", "delete", "not-there"]).stderr;
    assert!(told.contains("next: `cordon workspace list`"), "{told}");
    // A local file that is not there: told with what to do, and the others are put.
    let ran = cordon(&["workspace", "put", "words", "/no/such", "/etc/hostname"]);
    assert_eq!(ran.status, 125);
    assert!(
        ran.stderr.contains("putting /no/such failed: ") && ran.stderr.contains("\n  next: name a file"),
        "{ran:?}"
    );
    well(&["run", "-n", "--workspace", "words", "--", "test", "-f", "hostname"]);
}
