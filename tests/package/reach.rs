//! What commands can be given, with no more rights than the units leave the executor.

use crate::guest::{Host, MEMBER, member, ok, run_as};
use serde_json::Value;

const PROFILES: &str = "
[profiles.host]
network = \"host\"
[profiles.services]
network = \"services\"
services = [3900]
[profiles.write]
write = [\"/srv/given\"]
[profiles.home]
read = [\"/usr\", \"/etc\", \"/home/shared\"]
";

fn with_profiles() {
    ok(&format!("cat >>/etc/cordon/executor.toml <<'END'\n{PROFILES}\nEND"));
    ok("systemctl restart cordon-executor");
}

#[test]
fn networks_services_and_writable_paths_are_given() {
    let _host = Host::with_package();
    ok("install -d -o execuser -m 700 /srv/given; rm -f /srv/given/*");
    with_profiles();
    ok(
        "systemctl stop package-test-service 2>/dev/null; systemctl reset-failed package-test-service 2>/dev/null; \
        systemd-run -q --unit=package-test-service python3 -m http.server 3900 --bind 127.0.0.1 --directory /usr/share",
    );
    ok(
        "for n in {1..100}; do curl -s -o /dev/null http://127.0.0.1:3900/ && exit 0; sleep 0.5; done; exit 1",
    );
    let fetch = |profile: &str, port: u16| {
        let text = format!(
            "cordon run --profile {profile} -- curl -sS -o /dev/null -w '%{{http_code}}' http://127.0.0.1:{port}/healthz"
        );
        run_as(MEMBER, &text).stdout
    };
    // Of the service there is no such page, and that is an answer.
    assert_eq!((fetch("services", 3900), fetch("services", 3800)), ("404".into(), "000".into()));
    assert_eq!((fetch("host", 3800), fetch("default", 3800)), ("200".into(), "000".into()));
    ok("systemctl stop package-test-service");
    member("cordon run --profile write -c 'echo given >/srv/given/file'");
    assert_eq!(ok("stat -c %U /srv/given/file; cat /srv/given/file"), "execuser\ngiven");
    assert_ne!(run_as(MEMBER, "cordon run -- ls /srv/given").status, 0);
}

#[test]
fn files_go_in_and_out_and_workspaces_come_and_go() {
    let _host = Host::with_package();
    let report = member(
        "echo text >/tmp/in; cordon run --json --workspace w --file a=/tmp/in --collect b -c 'cp a b; chmod 600 b; sleep 86420 & '",
    );
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["collected"][0]["content"], "text\n", "{report}");
    let there_and_back = "rm -rf /tmp/in.d /tmp/out.d; mkdir /tmp/in.d; echo deep >/tmp/in.d/x; \
         cordon workspace put w /tmp/in.d --to in >&2 && \
         cordon workspace get w 'in/*' --into /tmp/out.d >&2 && cat /tmp/out.d/in/x";
    assert_eq!(member(there_and_back), "deep");
    assert!(member("cordon workspace list --json").contains("\"w\""));
    member("cordon workspace delete w");
    crate::guest::eventually("it is deleted", || {
        ok("find /var/lib/cordon/executor/workspaces -mindepth 2 -maxdepth 2 -name w -o -name '.deleted*'")
            .is_empty()
    });
}

#[test]
fn a_path_below_home_is_given_with_the_drop_in_of_the_page() {
    let host = Host::with_package();
    ok("install -d -m 755 /home/shared; echo shared >/home/shared/file");
    with_profiles();
    let read = || run_as(MEMBER, "cordon run --profile home -- cat /home/shared/file");
    assert_ne!(read().status, 0);
    host.amend("cordon-executor.service", "[Service]\nProtectHome=no\n");
    ok("systemctl restart cordon-executor");
    assert_eq!(read().stdout, "shared\n", "{:?}", read());
    ok("rm -r /home/shared");
}
