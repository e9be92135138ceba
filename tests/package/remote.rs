//! The page's recipe for commands on another host, step by step, with this host as the other one too.

use crate::guest::{Host, MEMBER, eventually, member, ok, page, run_as, sh};
use cordon_tests::markdown::blocks;
use std::fs;

/// What the tests before may have left of it.
const CLEAR: &str = "systemctl disable --now cordon-remote.socket cordon-remote 2>/dev/null; \
    rm -rf /srv/cordon-remote /etc/systemd/system/cordon-remote.*; userdel -r cordon-remote 2>/dev/null; \
    sed -i /box.example.org/d /etc/hosts; systemctl daemon-reload";

#[test]
fn a_command_gets_to_one_account_of_one_other_host_and_to_nothing_else() {
    let _host = Host::with_package();
    sh(CLEAR);
    ok("echo 127.0.0.1 box.example.org >>/etc/hosts; systemctl start ssh");
    let page = page();
    let recipe = page.split("## Commands on another host").nth(1).unwrap().split("\n## ").next().unwrap();
    let (steps, units, profile) = (blocks(recipe, "sh"), blocks(recipe, "ini"), blocks(recipe, "toml"));
    assert_eq!((steps.len(), units.len(), profile.len()), (2, 2, 1));
    for step in steps {
        ok(&step.replace("sudo ", ""));
    }
    let authorized = "install -d -m 700 -o cordon-remote ~cordon-remote/.ssh; \
         echo restrict $(cat /srv/cordon-remote/key.pub) >~cordon-remote/.ssh/authorized_keys";
    ok(authorized);
    for (unit, text) in ["socket", "service"].into_iter().zip(units) {
        fs::write(format!("/etc/systemd/system/cordon-remote.{unit}"), text).unwrap();
    }
    ok("systemctl daemon-reload; systemctl enable --now cordon-remote.socket");
    ok(&format!(
        "cat >>/etc/cordon/executor.toml <<'END'\n{}\nEND\nsystemctl restart cordon-executor",
        profile[0]
    ));

    let line =
        page.lines().find_map(|l| l.trim().strip_prefix("5. `")).unwrap().trim_end_matches('`').to_owned();
    assert!(line.ends_with(" uptime"), "{line}");
    let line = line.replace(" uptime", " 'id -un; echo over there >note; cat note'");
    assert_eq!(member(&line), "cordon-remote\nover there");
    assert_eq!(ok("cat ~cordon-remote/note"), "over there");
    // What was not given: forwarding, a terminal, the key in another profile, another port.
    let forward = line.replace("ssh -F", "ssh -o ExitOnForwardFailure=yes -R 3999:127.0.0.1:3800 -F");
    assert_ne!(run_as(MEMBER, &forward).status, 0);
    assert_ne!(run_as(MEMBER, &line.replace("--profile remote", "")).status, 0);
    assert_ne!(run_as(MEMBER, "cat /srv/cordon-remote/key").status, 0);
    let direct = line.replace("ssh -F", "ssh -o ConnectTimeout=5 -p 22 -F");
    assert_ne!(run_as(MEMBER, &direct).status, 0);
    // Taken back over there.
    ok("rm ~cordon-remote/.ssh/authorized_keys");
    eventually("the key is of no use any more", || run_as(MEMBER, &line).status == 255);
    sh(CLEAR);
}
