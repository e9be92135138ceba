//! Launches that are refused, by either half, and one after the other.

use super::*;

/// Few of so many refusals have a line of their own, and none is missing from the sum.
pub(crate) fn assert_all_told(trail: &str, refused: u64) {
    let lines: Vec<Value> = trail.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let own = lines.iter().filter(|line| line["event"] == "refused").count() as u64;
    let others: u64 = lines
        .iter()
        .filter(|line| line["event"] == "also_refused")
        .map(|line| line["count"].as_u64().unwrap())
        .sum();
    assert_eq!(own + others, refused, "{trail}");
    assert!((32..60).contains(&own) && others > 0, "{own} lines, {others} others");
}

#[test]
fn a_launch_that_is_refused_is_recorded_whichever_half_refuses_it() {
    let executor = Executor::start(
        "[profiles.default]\nconcurrency = 1\nqueue = 0\n[profiles.foreign]\npeers = [\"uid:54321\"]\n",
    );
    let profile = |name: &str| RunRequest { profile: Some(name.into()), ..line("true") };
    let limits = LimitRequest { memory_bytes: Some(1 << 40), ..LimitRequest::default() };
    let running = RunRequest { stdin: true, ..line("cat") };
    let asked = [
        (RunRequest { limits, ..line("true") }, "limits: one lies outside what the profile grants", "server"),
        (
            RunRequest { cwd: Some("/proc".into()), ..line("true") },
            "request: a field cannot be what it is",
            "server",
        ),
        (profile("no\nsuch"), "profile: there is none of this name", "server"),
        (
            profile("foreign"),
            "profile: there is none of this name for this user; name another, or add the user to its peers",
            "monitor",
        ),
        (line("true"), "queue: no place came free, or no more may wait for one", "server"),
    ];
    let (mut connection, _stdin) = blocking::run(&executor.socket, "test", running).unwrap();
    assert!(matches!(connection.next_event().unwrap(), Event::Started { .. }));
    let names = ["default", "default", "no\nsuch", "foreign", "default"];
    let mut expected = Vec::new();
    for ((request, reason, by), name) in asked.into_iter().zip(names) {
        executor.refusal(request);
        expected.push(json!([0, std::process::id(), name, reason, by]));
    }
    let seen = || {
        let lines = lines(&executor).into_iter().filter(|line| line["event"] == "refused");
        lines.map(|l| json!([l["uid"], l["pid"], l["profile"], l["reason"], l["by"]])).collect::<Vec<_>>()
    };
    eventually("all are recorded", PATIENCE, || seen().len() >= expected.len());
    assert_eq!(seen(), expected);
    let shown = show(&executor, &[]);
    let says = format!(
        "refused uid 0 pid {} profile no\\nsuch: profile: there is none of this name",
        std::process::id()
    );
    assert!(shown.contains(&says), "{shown}");
    assert_eq!(verify(&executor).status, 0);
}

#[test]
fn a_peer_that_is_refused_in_a_loop_has_few_lines_and_a_count() {
    let executor = Executor::start("");
    let request = || RunRequest { profile: Some("nope".into()), ..line("true") };
    for _ in 0..50 {
        executor.refusal(request());
    }
    let of = |event: &str| lines(&executor).into_iter().filter(|line| line["event"] == event).count();
    // Told when there is room again, though nothing else happens.
    eventually("the rest is told", PATIENCE, || of("also_refused") > 0);
    assert_all_told(&fs::read_to_string(trail(&executor)).unwrap(), 50);
    assert!(show(&executor, &[]).contains("refused uid 0: "));
    assert_eq!(verify(&executor).status, 0);
}
