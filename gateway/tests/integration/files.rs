//! Files that come with a request to `/v1/exec` and files that come back with its answer.

use crate::{
    client::{gateway_with, post},
    executor::{Conversation, report, streamed},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use cordon_protocol::{CollectedFile, Event, FileIn, RunRequest, limits};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver};

fn text() -> CollectedFile {
    CollectedFile {
        path: "out/a.txt".into(),
        mode: 0o644,
        size: 3,
        content: "ü\n".into(),
        truncated: false,
        problem: None,
    }
}

fn bytes() -> CollectedFile {
    CollectedFile {
        path: "b.bin".into(),
        mode: 0o750,
        size: 9 << 20,
        content: vec![0xff, 0],
        truncated: true,
        problem: None,
    }
}

fn none() -> CollectedFile {
    CollectedFile {
        path: "*.log".into(),
        mode: 0,
        size: 0,
        content: vec![],
        truncated: false,
        problem: Some("no file matches".into()),
    }
}

/// What of these a client sees.
fn shown() -> [Value; 3] {
    [
        json!({ "path": "out/a.txt", "mode": "0644", "size": 3, "content": "ü\n", "encoding": "utf-8",
                "truncated": false, "problem": null }),
        json!({ "path": "b.bin", "mode": "0750", "size": 9 << 20, "content": "/wA=", "encoding": "base64",
                "truncated": true, "problem": null }),
        json!({ "path": "*.log", "mode": "0000", "size": 0, "content": null, "encoding": "utf-8",
                "truncated": false, "problem": "no file matches" }),
    ]
}

/// A gateway whose executor sends the three files, and the requests that it sees.
fn collecting() -> (crate::client::Gateway, UnboundedReceiver<RunRequest>) {
    let (seen, requests) = mpsc::unbounded_channel();
    let gateway = gateway_with(move |mut c: Conversation| {
        let seen = seen.clone();
        async move {
            let run = c.run().await;
            let stream = run.stream;
            seen.send(run).unwrap();
            c.send(Event::Queued { position: 2 }).await;
            c.send(Event::Queued { position: 1 }).await;
            c.started().await;
            if stream {
                c.send(Event::Stdout(vec![b'x', 0xe2, 0x82])).await;
            }
            for file in [text(), bytes(), none()] {
                c.send(Event::File(file)).await;
            }
            c.exit(if stream { streamed(0) } else { report(0, "x") }).await;
        }
    });
    (gateway, requests)
}

#[tokio::test]
async fn what_is_collected_comes_with_the_report() {
    let (gateway, mut requests) = collecting();
    let answer = gateway.exec(json!({ "command": "x", "collect": ["**/*", "*.log"] })).await;
    assert_eq!(answer.status, 200);
    let mut wanted = serde_json::to_value(report(0, "x")).unwrap();
    wanted["collected"] = shown().to_vec().into();
    assert_eq!(answer.json(), wanted);
    assert_eq!(requests.recv().await.unwrap().collect, ["**/*", "*.log"]);
}

#[tokio::test]
async fn who_does_not_ask_for_files_has_no_field_for_them() {
    let (gateway, _requests) = collecting();
    let answer = gateway.exec(json!({ "command": "x" })).await;
    assert_eq!((answer.status, answer.json().get("collected")), (200, None));
}

#[tokio::test]
async fn in_a_stream_files_are_events_between_output_and_report() {
    let (gateway, _requests) = collecting();
    let events = gateway.exec_stream(json!({ "command": "x", "collect": ["**/*"] })).await.events();
    let chunk = |data: &str, encoding: &str| json!({ "data": data, "encoding": encoding });
    let [first, second, third] = shown();
    let wanted = [
        ("queued", json!({ "position": 2 })),
        ("queued", json!({ "position": 1 })),
        ("started", json!({ "id": "run-1" })),
        ("stdout", chunk("x", "utf-8")),
        // Held for the rest of a character, which can no longer come.
        ("stdout", chunk("4oI=", "base64")),
        ("file", first),
        ("file", second),
        ("file", third),
        ("exit", serde_json::to_value(streamed(0)).unwrap()),
    ];
    assert_eq!(events, wanted.map(|(name, data)| (name.to_owned(), data)));
}

#[tokio::test]
async fn files_and_the_workspace_reach_the_executor() {
    let (gateway, mut requests) = collecting();
    let body = json!({
        "argv": ["x"], "workspace": "my-project",
        "files": [
            { "path": "src/a.py", "content": "print('ü')" },
            { "path": "run", "base64": "/wA=", "mode": "0755" },
        ],
    });
    assert_eq!(gateway.exec(body).await.status, 200);
    let run = requests.recv().await.unwrap();
    assert_eq!(run.workspace.as_deref(), Some("my-project"));
    let file = |path: &str, content: &[u8], mode| FileIn { path: path.into(), content: content.into(), mode };
    assert_eq!(
        run.files,
        [file("src/a.py", "print('ü')".as_bytes(), None), file("run", &[0xff, 0], Some(0o755))]
    );
    assert!(run.collect.is_empty());
}

#[tokio::test]
async fn as_many_bytes_as_may_be_pass_in_base64_beside_standard_input() {
    let (gateway, mut requests) = collecting();
    let content: Vec<u8> = (0..limits::FILES_BYTES_MAX).map(|i| i.to_le_bytes()[0]).collect();
    let body = json!({
        "command": "x", "stdin": "y".repeat(4 << 20),
        "files": [{ "path": "a", "base64": STANDARD.encode(&content) }],
    });
    assert_eq!(gateway.exec(body).await.status, 200);
    assert!(requests.recv().await.unwrap().files[0].content == content);
}

#[tokio::test]
async fn files_that_cannot_travel_are_refused_with_the_field() {
    let gateway = gateway_with(|_| async { panic!("the executor was asked") });
    let long = "a".repeat(4 << 20);
    let many: Vec<_> = (0..257).map(|i| json!({ "path": i.to_string(), "content": "" })).collect();
    let large = json!([{ "path": "a", "content": "x".repeat(limits::FILES_BYTES_MAX + 1) }]);
    for (field, value, says) in [
        ("files", json!([{ "path": "a", "content": "", "mode": 420 }]), "files[0].mode: invalid type"),
        ("files", json!([{ "path": "a", "content": "", "mode": "rwx" }]), "files[0].mode: invalid value"),
        ("files", json!([{ "path": "a", "content": "" }, { "path": 1 }]), "files[1].path: invalid type"),
        ("files", json!([{ "path": "a", "base64": "?" }]), "files[0].base64: not base64"),
        ("files", json!([{ "path": "a" }]), "files[0]: content and base64: one of them is needed"),
        ("files", json!({ "a": "content" }), "files: invalid type"),
        ("files", json!([["a", "content"]]), "files[0]: invalid type"),
        ("files", many.into(), "files: has more entries than the limit of 256"),
        ("files", large, "files: has 12582913 bytes of content together, the limit is 12M"),
        ("files", json!([{ "path": long, "content": "" }]), "paths of files, and collect: "),
        ("collect", json!([long]), "paths of files, and collect: "),
        ("collect", json!("*"), "collect: invalid type"),
        ("collect", json!(["a", 1]), "collect[1]: invalid type"),
        ("workspace", json!(1), "workspace: invalid type"),
        ("workspace", json!(long), "command, env, cwd, profile and workspace: "),
    ] {
        let body = json!({ "command": "x", field: value });
        let answer = gateway.send(&post(&body.to_string(), "")).await;
        let message = answer.failed(400, "bad_request");
        assert!(message.starts_with(says), "{says}: {}", &message[..message.len().min(200)]);
        assert!(!answer.hint().is_empty(), "{says}");
    }
}
