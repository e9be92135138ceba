//! `/v1/workspaces`: what the executor is asked, and what its answers become.

use crate::{
    client::{Answer, Gateway, TOKEN, gateway, gateway_with, get},
    executor::{Conversation, report},
};
use cordon_protocol::{Action, EndedBy, Event, ExitReport, Hint, RefusalCode, Request, WorkspaceInfo};
use serde_json::json;

fn known() -> Vec<WorkspaceInfo> {
    [("cache", 17), ("my-project", 1_764_489_600)]
        .map(|(name, modified)| WorkspaceInfo { name: name.into(), modified })
        .into()
}

/// A gateway whose executor knows the two, and measures any with this report.
fn measuring(measured: ExitReport) -> Gateway {
    gateway_with(move |mut c: Conversation| {
        let measured = measured.clone();
        async move {
            match c.next().await.unwrap() {
                Request::Workspaces => drop(c.send(Event::Workspaces(known())).await),
                Request::Run(run) => {
                    assert_eq!((run.action, run.workspace.as_deref()), (Action::Measure, Some("my-project")));
                    assert!(run.profile.as_deref().is_none_or(|name| name == "small"));
                    c.started().await;
                    c.exit(measured).await;
                }
                Request::DeleteWorkspace { name } if name == "my-project" => {
                    c.send(Event::WorkspaceDeleted { name }).await;
                }
                Request::DeleteWorkspace { name } => {
                    let code = if name == "cache" { RefusalCode::Busy } else { RefusalCode::NotFound };
                    c.refuse(code, &name).await;
                }
                other => panic!("{other:?}"),
            }
        }
    })
}

async fn ask(gateway: &Gateway, method: &str, path: &str) -> Answer {
    let request = get(path, &format!("Host: localhost\r\nx-api-key: {TOKEN}\r\n"));
    let request = String::from_utf8(request).unwrap().replacen("GET", method, 1);
    gateway.send(request.as_bytes()).await
}

#[tokio::test]
async fn they_are_listed_shown_and_deleted() {
    let gateway = measuring(report(0, "8192 3 1\n"));
    let answer = ask(&gateway, "GET", "/v1/workspaces").await;
    let list = json!({ "workspaces": [
        { "name": "cache", "modified": 17 }, { "name": "my-project", "modified": 1_764_489_600 },
    ] });
    assert_eq!((answer.status, answer.json()), (200, list));
    for query in ["", "?profile=small"] {
        let answer = ask(&gateway, "GET", &format!("/v1/workspaces/my-project{query}")).await;
        let detail = json!({ "name": "my-project", "modified": 1_764_489_600, "bytes": 8192, "files": 3, "closed": 1 });
        assert_eq!((answer.status, answer.json()), (200, detail));
    }
    let answer = ask(&gateway, "DELETE", "/v1/workspaces/my-project").await;
    assert_eq!((answer.status, answer.body.len()), (204, 0));
}

#[tokio::test]
async fn none_of_that_name_is_404_and_one_in_use_429() {
    let gateway = measuring(report(0, "8192 3 1\n"));
    let answer = ask(&gateway, "GET", "/v1/workspaces/other").await;
    assert_eq!(answer.failed(404, "not_found"), "workspace: there is none of the name `other`");
    assert!(answer.hint().contains("GET /v1/workspaces"));
    assert_eq!(ask(&gateway, "DELETE", "/v1/workspaces/other").await.failed(404, "not_found"), "other");
    assert_eq!(ask(&gateway, "DELETE", "/v1/workspaces/cache").await.failed(429, "busy"), "cache");
}

#[tokio::test]
async fn what_is_no_name_is_400_and_nothing_is_asked() {
    let gateway = gateway_with(|_| async { panic!("the executor was asked") });
    for name in ["..%2fetc", "A", "%20", ".a", "%ff", "a%00", &"a".repeat(65)] {
        for method in ["GET", "DELETE"] {
            let answer = ask(&gateway, method, &format!("/v1/workspaces/{name}")).await;
            let message = answer.failed(400, "bad_request");
            assert!(
                message.starts_with("workspace: ") && answer.hint().contains("lower-case"),
                "{name}: {message}"
            );
        }
    }
    let message = ask(&gateway, "GET", "/v1/workspaces/a?profil=x").await.failed(400, "bad_request");
    assert!(message.starts_with("query: ") && message.contains("profil"), "{message}");
}

#[tokio::test]
async fn a_measure_that_did_not_end_well_is_no_answer() {
    let hint = Hint { layer: "limits".into(), what: "it was long".into(), remedy: "raise wall".into() };
    for bad in [
        report(1, "8192 3 1\n"),
        report(0, "nonsense"),
        ExitReport {
            ended_by: EndedBy::WallTimeout,
            exit_code: None,
            hint: Some(hint),
            ..report(0, "8192 3 1\n")
        },
    ] {
        let answer = ask(&measuring(bad.clone()), "GET", "/v1/workspaces/my-project").await;
        let message = answer.failed(500, "internal");
        assert!(message.contains("could not be measured"), "{message}");
        assert_eq!(answer.hint() == "it was long; raise wall", bad.hint.is_some());
    }
}

#[tokio::test]
async fn they_want_a_token_and_an_executor() {
    let gateway = gateway("");
    for (method, path) in
        [("GET", "/v1/workspaces"), ("GET", "/v1/workspaces/a"), ("DELETE", "/v1/workspaces/a")]
    {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        gateway.send(request.as_bytes()).await.failed(401, "unauthorized");
        ask(&gateway, method, path).await.failed(503, "executor_unavailable");
    }
    ask(&gateway, "POST", "/v1/workspaces").await.failed(405, "method_not_allowed");
}
