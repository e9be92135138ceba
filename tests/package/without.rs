//! A host that was booted without a layer. The script around the tests boots one for each, as the boot parameter in
//! `CORDON_TEST_WITHOUT` says; the guest has nothing of Cordon before.

use crate::guest::{
    ENABLE, Host, LOCAL, MEMBER, cursor, forget_failures, install, journal_since, member, ok, package, post,
    run_as,
};
use serde_json::Value;

/// What the boot parameter takes: the layer's name, what is said of it, and what must be in the remedy.
fn taken() -> (String, &'static str, String, &'static str) {
    let words = std::env::var("CORDON_TEST_WITHOUT")
        .unwrap_or_else(|_| panic!("this runs after a boot without a layer: tests/vm/package without::"));
    let booted = ok("cat /proc/cmdline");
    assert!(booted.split(' ').any(|word| word == words), "{words}: {booted}");
    match words.split_once('=').unwrap() {
        ("lsm", _) => (words, "landlock", "the kernel has no Landlock".to_owned(), "lsm= boot parameter"),
        ("cgroup_disable", controller) => {
            let found = format!("cgroup.controllers lacks {controller}");
            (words, "cgroup", found, "without cgroup_disable=")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_layer_the_packaged_default_does_not_start_and_says_which_one_and_what_to_do() {
    let (words, layer, found, remedy) = taken();
    let host = Host::without_package();
    install(&package());
    // Ten starts that fail within this close the socket: a slow host needs more than the unit's minute for them.
    let patient = "[Unit]\nStartLimitIntervalSec=1h\n";
    host.amend("cordon-executor.service", patient);
    ok(&format!("usermod -aG cordon {MEMBER}"));
    let since = cursor();
    ok(ENABLE);

    // Whoever asks is told in the end, when it has been tried often enough.
    let ran = run_as(MEMBER, "cordon run -- echo ran");
    assert_eq!((ran.status, &*ran.stdout), (125, ""), "{words}: {ran:?}");
    ok("journalctl --sync");
    let said = journal_since(&since, "-u cordon-executor");
    let line = said.lines().find(|line| line.contains(&format!("{layer}: ")));
    let line = line.unwrap_or_else(|| panic!("{layer} is not named: {said}"));
    assert!(line.contains(&found), "not `{found}`: {line}");
    let (_, rest) = line.split_once("; remedy: ").unwrap_or_else(|| panic!("no remedy: {line}"));
    assert!(rest.contains(remedy), "not `{remedy}`: {rest}");
    assert!(said.contains("require = \"strict\""), "{said}");
    assert_eq!(post(MEMBER, LOCAL, r#"{"command": "true"}"#).0, 503);

    // The control: with the rest it would have started, and says in every report what is missing. What has to be counted
    // from /proc has to be seen there, which the packaged unit keeps it from (it says so, and names the setting).
    forget_failures();
    if layer == "cgroup" {
        host.amend("cordon-executor.service", &format!("{patient}[Service]\nProtectProc=default\n"));
    }
    ok(
        "sed -i 's/^#require = .*/require = \"available\"/' /etc/cordon/executor.toml; systemctl restart cordon-executor.socket",
    );
    let report: Value = serde_json::from_str(&member("cordon run --json -- echo ran")).unwrap();
    assert_eq!(report["stdout"], "ran\n", "{report}");
    let enforced = &report["enforced"];
    let expected = if layer == "landlock" { ("v2", true) } else { ("sampled", false) };
    assert_eq!(
        (enforced["cgroup"].as_str(), enforced["landlock_abi"] == 0),
        (Some(expected.0), expected.1),
        "{enforced}"
    );
    let layers: Value = serde_json::from_str(&run_as(MEMBER, "cordon doctor --json").stdout).unwrap();
    let lacking: Vec<_> = layers.as_array().unwrap().iter().filter(|found| found["health"] != "ok").collect();
    assert_eq!(lacking.len(), 1, "{layers}");
    assert_eq!(lacking[0]["layer"], layer, "{layers}");
}
