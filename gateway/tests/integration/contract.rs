//! `/healthz` and `/openapi.json`.

use crate::{
    client::{TOKEN, gateway, get},
    executor,
};
use cordon_protocol::{Collected, CollectedFile, Event, ExitReport, Request, ServiceUse};
use serde_json::{Value, json};
use std::{fs, path::Path, time::Duration};

#[tokio::test]
async fn healthz_lives_without_a_token_and_tells_of_the_executor() {
    let gateway = gateway("");
    let healthz = get("/healthz", "Host: localhost\r\n");
    let version = env!("CARGO_PKG_VERSION");
    let away = json!({ "status": "ok", "version": version, "executor": "unavailable" });
    for answer in [gateway.send(&healthz).await, gateway.send_unix(&healthz).await] {
        assert_eq!((answer.status, answer.json()), (200, away.clone()));
    }
    executor::start(&gateway.executor(), |mut c| async move {
        assert_eq!(c.next().await, Some(Request::Profiles));
        c.send(Event::Profiles(Vec::new())).await;
    });
    // Longer than an answer is remembered.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(gateway.send(&healthz).await.json()["executor"], "ok");
}

#[tokio::test]
async fn healthz_does_not_wait_for_an_executor_that_hangs() {
    let gateway = gateway("");
    executor::start(&gateway.executor(), |mut c| async move { while c.next().await.is_some() {} });
    let answer = gateway.send(&get("/healthz", "Host: localhost\r\n")).await;
    assert_eq!((answer.status, &answer.json()["executor"]), (200, &json!("unavailable")));
}

/// Every change of the interface shows as a change of this file. After a wanted one, run the test with
/// `BLESS=1` and look at the difference.
#[tokio::test]
async fn the_description_is_the_golden_one() {
    let gateway = gateway("");
    let answer =
        gateway.send(&get("/openapi.json", &format!("Host: localhost\r\nx-api-key: {TOKEN}\r\n"))).await;
    let mut served = answer.json();
    // The version changes with every release, the interface does not.
    served["info"]["version"] = json!("VERSION");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/openapi.json");
    let text = format!("{served:#}\n");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    assert!(golden == text, "the interface has changed; run with BLESS=1 and look at the difference");
}

#[test]
fn the_description_names_what_the_contract_names() {
    let document: Value = serde_json::to_value(cordon_gateway::http::document()).unwrap();
    assert!(
        document["paths"]["/v1/exec"]["post"].is_object() && document["paths"]["/healthz"]["get"].is_object()
    );
    for path in ["/v1/workspaces", "/v1/workspaces/{name}"] {
        assert!(document["paths"][path]["get"].is_object(), "{path}");
    }
    assert!(document["paths"]["/v1/workspaces/{name}"]["delete"].is_object());
    let schemas = &document["components"]["schemas"];
    let fields = |name: &str| {
        let properties = schemas[name]["properties"].as_object().unwrap_or_else(|| panic!("{name}"));
        properties.keys().cloned().collect::<Vec<_>>()
    };
    let file = CollectedFile {
        path: String::new(),
        mode: 0,
        size: 0,
        content: vec![],
        truncated: false,
        problem: None,
    };
    for (name, value) in [
        ("ExitReport", serde_json::to_value(with_services(executor::report(0, ""))).unwrap()),
        ("Collected", serde_json::to_value(Collected::from(file)).unwrap()),
    ] {
        let mut wanted: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        let mut found = fields(name);
        wanted.sort();
        found.sort();
        assert_eq!(found, wanted);
    }
    assert!(schemas["EndedBy"].to_string().contains("out_of_memory"));
    assert!(schemas["Encoding"].to_string().contains("utf-8"));
    for field in [
        "command",
        "argv",
        "profile",
        "workspace",
        "cwd",
        "env",
        "stdin",
        "files",
        "collect",
        "timeout_ms",
        "capture_bytes",
    ] {
        assert!(fields("ExecRequest").contains(&field.to_owned()), "{field}");
    }
    // Whoever reads the description learns what each field means.
    for (name, schema) in schemas.as_object().unwrap() {
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            // Of an alternative, beside it.
            let told = property.to_string().contains("\"description\"");
            assert!(told, "{name}.{field} is not described");
        }
    }
}

/// A report in which every field is there.
fn with_services(mut report: ExitReport) -> ExitReport {
    report.services = vec![ServiceUse { port: 80, connections: 1, refused: 0 }];
    report
}
