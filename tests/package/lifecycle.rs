//! Upgrade, removal, reinstallation and purge, each while a command runs.

use crate::guest::{
    ENABLE, Host, MEMBER, Running, UNITS, WITH_TOKEN, eventually, install, journal, main_pid, member,
    newer_package, ok, package, page_lines, post, processes, run_as, sandboxed, sh, state,
};
use serde_json::Value;

/// What an administrator has changed.
fn edit() -> String {
    ok(
        "printf '\\n[profiles.mine]\\nlimits.pids = { default = 9, ceiling = 9 }\\n' >>/etc/cordon/executor.toml; \
        sed -i 's/^#shutdown_grace.*/shutdown_grace = \"4s\"/' /etc/cordon/gateway.toml; \
        systemctl restart cordon-executor cordon-gateway",
    );
    edited()
}

fn edited() -> String {
    ok("cat /etc/cordon/executor.toml /etc/cordon/gateway.toml")
}

fn version() -> String {
    ok("dpkg-query -W -f '${Version}' cordon")
}

#[test]
fn an_upgrade_keeps_what_was_edited_and_ends_what_runs_in_good_order() {
    let _host = Host::without_package();
    install(&package());
    ok(&format!("usermod -aG cordon {MEMBER}"));
    ok(ENABLE);
    let (before, first) = (edit(), version());
    member("cordon run --workspace kept -c 'echo kept >kept'");
    let token = ok("cat /var/lib/cordon/token");
    let running = Running::start("cordon run --timeout 1h --json -c 'echo began; sleep 86401'");
    eventually("it runs", || sandboxed("sleep 86401"));
    let pids = [main_pid("cordon-executor"), main_pid("cordon-gateway")];

    install(&newer_package());
    assert!(version() > first, "{} after {first}", version());
    // It had its five seconds; then it was ended, and its client got the report.
    let ran = running.end();
    let report: Value =
        serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}\n{}", journal()));
    assert_eq!((ran.status, &report["ended_by"]), (130, &"cancelled".into()), "{report}");
    assert_eq!(report["stdout"], "began\n");
    assert!(!sandboxed("sleep 86401"));
    assert_eq!(edited(), before);
    assert_eq!(state("cordon-gateway"), "active");
    for (unit, pid) in ["cordon-executor", "cordon-gateway"].into_iter().zip(pids) {
        assert_ne!(main_pid(unit), pid, "{unit} runs the old program still");
    }
    let mine = member("cordon profiles --json");
    assert!(mine.contains("\"mine\""), "{mine}");
    assert_eq!(member("cordon run --workspace kept -- cat kept"), "kept");
    assert_eq!(ok("cat /var/lib/cordon/token"), token);
    assert_eq!(post(MEMBER, WITH_TOKEN, r#"{"command": "true"}"#).0, 200);
    ok("cordon audit verify");
}

#[test]
fn what_was_not_enabled_is_not_started_by_an_upgrade() {
    let _host = Host::without_package();
    install(&package());
    install(&newer_package());
    for unit in UNITS {
        assert_eq!(state(unit), "inactive", "{unit}");
    }
}

#[test]
fn a_removal_leaves_nothing_running_a_reinstallation_goes_on_and_a_purge_leaves_nothing() {
    let host = Host::with_package();
    let before = edit();
    member("cordon run --workspace kept -c 'echo kept >kept'");
    let token = ok("cat /var/lib/cordon/token");
    let running = Running::start("cordon run --timeout 1h -- sleep 86402");
    eventually("it runs", || sandboxed("sleep 86402"));

    ok("apt-get remove -y cordon");
    assert_eq!(running.end().status, 130);
    assert_eq!(processes().lines().skip(1).count(), 0, "{}", processes());
    assert_eq!(ok("find /run/cordon -mindepth 1; find /sys/fs/cgroup -name 'cordon*'"), "");
    // Links of what was enabled stay until a purge, and name units that are not there.
    let units = sh("systemctl list-units --all --plain --no-legend 'cordon-*'").stdout;
    assert!(units.lines().all(|line| line.contains("not-found inactive dead")), "{units}");
    assert_eq!(edited(), before);

    // As it was enabled, and its state is there.
    install(&package());
    assert_eq!(member("cordon run --workspace kept -- cat kept"), "kept");
    assert_eq!(edited(), before);
    assert_eq!(ok("cat /var/lib/cordon/token"), token);
    assert_eq!(post(MEMBER, WITH_TOKEN, r#"{"command": "true"}"#).0, 200);

    ok("apt-get purge -y cordon");
    assert_eq!(processes().lines().skip(1).count(), 0, "{}", processes());
    let left = "find / -xdev -path /proc -prune -o -path /srv -prune -o -path /usr/share/doc -prune -o \
                -path /var/cache -prune -o -path /mnt -prune -o -name '*cordon*' -print; find /run -name '*cordon*'";
    // The users stay, with what names them.
    assert_eq!(ok(left), "");
    assert_eq!(ok("id -un execuser"), "execuser");
    drop(host);

    // From the beginning: not enabled, and another token.
    let _host = Host::without_package();
    install(&package());
    assert_eq!(state("cordon-executor.socket"), "inactive");
    assert_ne!(run_as(MEMBER, "cordon run -- true").status, 0);
    ok(ENABLE);
    assert_eq!(member("cordon run -- echo again"), "again");
    assert_ne!(ok("cat /var/lib/cordon/token"), token);
    assert_eq!(member("cordon workspace list --json"), "[]");
}

#[test]
fn the_users_and_their_groups_go_as_the_page_says_and_come_again_with_the_package() {
    let host = Host::with_package();
    assert!(ok("getent group cordon").ends_with(&format!(":{MEMBER}")), "the control: a group with a member");
    ok("apt-get purge -y cordon");
    // The last line fails where the group has gone with its user.
    sh(&page_lines("userdel"));
    let users = "cordon cordon-exec cordon-init execuser";
    assert_eq!(sh(&format!("getent passwd {users}; getent group {users}")).stdout, "");
    drop(host);
    let _host = Host::with_package();
    assert_eq!(ok(&format!("getent passwd {users}; getent group {users}")).lines().count(), 8);
    assert_eq!(member("cordon run -- id -un"), "execuser");
}
