//! Files that come along with a launch, of which a taken-over server says something else.

use super::*;
use crate::harness::build::programs;
use cordon_protocol::{
    audit::{Text, sha256},
    sealed::FileHead,
};
use std::{fs, process::Command};

#[test]
fn a_server_that_lies_about_the_files_that_came_along_is_found() {
    let hostile = Hostile::start();
    let head = |path: &str, size, mode| FileHead { path: path.to_owned(), size, mode };
    let real = [head("data/one", 3, 0o600), head("two", 2, 0o644)];
    let script = "stat -c '%n %s %a' data/one two; cat data/one two";
    let argv = ["/bin/bash", "-c", script].map(str::to_owned).to_vec();
    let of = |files: &[FileHead]| SealedRequest {
        files: files.to_vec(),
        ..SealedRequest::of(Work::Program(argv.clone()))
    };
    let launch = |told: &[FileHead], sealed: &[FileHead], content: Option<&[u8]>| {
        let SealedRequest { work, env, cwd, files } = of(told);
        let text = Text { work, env, cwd, files, workspace: None, collect: Vec::new(), cut: false };
        let (connection, stream) = hostile.peer();
        let request = memfd::sealed(&of(sealed).encode().unwrap()).unwrap();
        let text = memfd::sealed(text.to_json().unwrap().as_bytes()).unwrap();
        let content = content.map(|content| memfd::sealed(content).unwrap());
        let message = launch_message(connection, |launch| launch.files = content.is_some());
        let descriptors: Vec<_> = [&request, &text].into_iter().chain(&content).map(AsFd::as_fd).collect();
        hostile.send(&message, &descriptors);
        let (job, output) = match hostile.next() {
            (ToServer::Launched { job, .. }, mut descriptors) => {
                (format!("{job:016x}"), descriptors.remove(0))
            }
            other => panic!("not launched: {other:?}"),
        };
        let mut message = hostile.next().0;
        if message == ToServer::Executed(connection) {
            message = hostile.next().0;
        }
        let ToServer::Ended { outcome, .. } = message else { panic!("not ended: {message:?}") };
        hostile.send(&ToMonitor::Drained(connection), &[]);
        drop(stream);
        let mut printed = String::new();
        File::from(output).read_to_string(&mut printed).unwrap();
        (job, outcome, printed)
    };
    // The control: what came is what the command found.
    let (honest, outcome, output) = launch(&real, &real, Some(b"abcde"));
    assert_eq!(outcome.exit_code, Some(0));
    assert_eq!(output, "data/one 3 600\ntwo 2 644\nabcde");
    let [one, two] = real.clone();
    let lies = [
        vec![head("data/other", 3, 0o600), two.clone()],
        vec![head("data/one", 2, 0o600), head("two", 3, 0o644)],
        vec![head("data/one", 3, 0o755), two.clone()],
        vec![two.clone(), one.clone()],
        vec![one.clone()],
    ];
    let jobs: Vec<_> = lies
        .iter()
        .map(|told| {
            let (job, _, output) = launch(told, &real, Some(b"abcde"));
            assert!(output.ends_with("abcde"), "{output}");
            job
        })
        .collect();
    // Content that is not what the request says: nothing runs, whatever the text says.
    for (sealed, content) in [
        (&real[..], Some(&b"abcdef"[..])),
        (&real[..], Some(b"abcd")),
        (&real[..], None),
        (&[], Some(b"abcde")),
        (&[head("empty", 0, 0o644)], None),
        (&[head("large", u64::MAX, 0o644), head("more", 1, 0o644)], Some(b"")),
    ] {
        let (_, outcome, output) = launch(sealed, sealed, content);
        assert_eq!((outcome.ended_by, outcome.step.as_deref()), (EndedBy::LaunchFailed, Some("files")));
        assert_eq!(output, "");
    }
    let mut verify = Command::new(&programs().cordon);
    let directory = hostile.directory.path();
    verify.args(["audit", "verify", "--file"]).arg(directory.join("audit.jsonl"));
    verify.arg("--head").arg(directory.join("state/audit.head"));
    let verified = process::run(verify, &[]);
    assert_eq!(verified.status, 1);
    for job in &jobs {
        let says = format!("command {job}: what ran was not what its text says");
        assert!(verified.stderr.contains(&says), "{verified:?}");
    }
    assert!(!verified.stderr.contains(&honest), "{verified:?}");
    // Of the content the trail has the hash.
    let trail = fs::read_to_string(directory.join("audit.jsonl")).unwrap();
    let launched = trail.lines().find(|line| line.contains(&honest)).unwrap();
    let hash = sha256(b"abcde");
    assert!(launched.contains(&format!("\"files\":\"{hash}\"")), "{launched}");
}
