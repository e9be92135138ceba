//! `ps`, `kill`, `profiles` and `doctor` against a running executor.

use crate::fake::{Fake, stderr};
use cordon_protocol::{Event, Health, JobInfo, LayerReport, Refusal, RefusalCode, Request};

fn job() -> JobInfo {
    JobInfo {
        id: "17".into(),
        profile: "default".into(),
        command: "sleep 9".into(),
        state: "running".into(),
        position: None,
        age_ms: 1500,
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn ps_lists_for_people_and_for_programs() {
    let answer = |mut peer: crate::fake::Peer| {
        peer.send(&Event::Jobs(vec![job()]));
        peer.request
    };
    let (output, asked) = Fake::start(answer).output(&["ps"]);
    assert_eq!((output.status.code(), asked), (Some(0), Request::Ps));
    let expected = "ID  PROFILE  STATE    SECONDS  COMMAND\n17  default  running  1.5      sleep 9\n";
    assert_eq!(text(output.stdout), expected);
    let (output, _) = Fake::start(answer).output(&["ps", "--json"]);
    assert_eq!(serde_json::from_slice::<Vec<JobInfo>>(&output.stdout).unwrap(), [job()]);
}

#[test]
fn kill_names_the_command_and_tells_when_there_is_none() {
    let (output, asked) = Fake::start(|mut peer| {
        peer.send(&Event::Killed { id: "17".into() });
        peer.request
    })
    .output(&["kill", "17"]);
    assert_eq!((output.status.code(), asked), (Some(0), Request::Kill { id: "17".into() }));
    let (output, ()) = Fake::start(|mut peer| {
        let message = "no command `18` of yours is running".into();
        peer.send(&Event::Refused(Refusal { code: RefusalCode::NotFound, message, hint: None }));
    })
    .output(&["kill", "18"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "cordon: kill refused (not_found): no command `18` of yours is running\n  next: `cordon ps` \
                    lists your running commands\n";
    assert_eq!(stderr(&output), expected);
}

#[test]
fn doctor_fails_only_when_a_layer_is_missing() {
    for (health, status) in [(Health::Ok, 0), (Health::Lesser, 0), (Health::Missing, 1)] {
        let layer = LayerReport {
            layer: "landlock".into(),
            health,
            detail: "abi 6".into(),
            remedy: Some("boot with lsm=landlock".into()),
        };
        let sent = layer.clone();
        let fake = Fake::start(move |mut peer| peer.send(&Event::Doctor(vec![sent])));
        let (output, ()) = fake.output(&["doctor"]);
        assert_eq!(output.status.code(), Some(status));
        let shown = text(output.stdout);
        assert!(shown.contains("landlock") && shown.contains("abi 6"), "{shown}");
        assert_eq!(shown.contains("lsm=landlock"), health != Health::Ok, "{shown}");
        let fake = Fake::start(move |mut peer| peer.send(&Event::Doctor(vec![layer])));
        let (output, ()) = fake.output(&["doctor", "--json"]);
        assert_eq!(output.status.code(), Some(status));
        assert_eq!(serde_json::from_slice::<Vec<LayerReport>>(&output.stdout).unwrap()[0].health, health);
    }
}

#[test]
fn profiles_of_a_peer_without_any_is_an_empty_list() {
    let (output, asked) = Fake::start(|mut peer| {
        peer.send(&Event::Profiles(vec![]));
        peer.request
    })
    .output(&["profiles", "--json"]);
    assert_eq!((output.status.code(), asked), (Some(0), Request::Profiles));
    assert_eq!(text(output.stdout), "[]\n");
}
