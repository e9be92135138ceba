//! What the units give away, by systemd's own count, and what holds in the processes that they start.

use crate::guest::{Host, MEMBER, OUTSIDER, eventually, main_pid, ok, page, run_as, server_pid, tell};

/// The findings that are not good and the whole, as systemd-analyze(1) has them.
fn exposure(unit: &str) -> (Vec<String>, f64) {
    let text = ok(&format!("SYSTEMD_UTF8=1 systemd-analyze security --no-pager {unit}"));
    let open = text.lines().filter_map(|line| line.strip_prefix('✗')).map(|line| {
        let rest = line.trim_start();
        rest.split("  ").next().unwrap().trim().to_owned()
    });
    let whole = text.lines().find_map(|line| line.split_once(&format!("exposure level for {unit}: ")));
    let whole =
        whole.unwrap_or_else(|| panic!("{text}")).1.split_whitespace().next().unwrap().parse().unwrap();
    (open.collect(), whole)
}

#[test]
fn the_units_are_as_closed_as_was_promised_and_the_page_says_why_not_more() {
    let _host = Host::with_package();
    // In a table's cell a bar is escaped.
    let page = page().replace("\\|", "|");
    for (unit, most) in
        [("cordon-gateway.service", 1.3), ("cordon-executor.service", 4.5), ("cordon-token.service", 1.3)]
    {
        let (open, whole) = exposure(unit);
        tell(&format!("{unit}: {whole}"));
        assert!(whole <= most, "{unit}: {whole} is over {most}: {open:?}");
        assert!(!open.is_empty(), "{unit}: nothing was read");
        for finding in open {
            assert!(
                page.contains(&format!("`{finding}`")),
                "docs/install.md does not justify `{finding}` of {unit}"
            );
        }
    }
}

/// Lines of /proc/PID/status.
fn status(pid: i32, names: &str) -> String {
    ok(&format!("grep -E '^({names}):' /proc/{pid}/status | tr -s '\\t' ' '"))
}

#[test]
fn only_the_monitor_has_capabilities_and_only_those_of_its_unit() {
    let _host = Host::with_package();
    let monitor = main_pid("cordon-executor");
    // capabilities(7), by number: what the unit lists.
    let listed =
        [21_u32, 18, 12, 7, 6, 8, 5, 0, 1, 2, 3, 23, 24].iter().fold(0_u64, |set, bit| set | 1 << bit);
    assert_eq!(status(monitor, "CapBnd"), format!("CapBnd: {listed:016x}"));
    assert_eq!(status(monitor, "CapEff"), format!("CapEff: {listed:016x}"));
    assert_eq!(status(monitor, "NoNewPrivs"), "NoNewPrivs: 1");
    let none = "CapInh: 0000000000000000\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\n\
                CapBnd: 0000000000000000\nCapAmb: 0000000000000000";
    for (pid, user) in [(server_pid(), "cordon-exec"), (main_pid("cordon-gateway"), "cordon")] {
        assert_eq!(status(pid, "Cap[A-Z][a-z]+"), none, "{user}");
        assert_eq!(ok(&format!("ps -o user:32= -p {pid}")), user);
    }
}

#[test]
fn a_key_reaches_the_gateway_as_a_credential_and_nobody_else() {
    let _host = Host::with_package();
    ok("umask 077; echo sk-0123456789 >/etc/cordon/keys/example; systemctl restart cordon-gateway");
    let file = "/run/credentials/cordon-gateway.service/key_example";
    assert_eq!(ok(&format!("cat {file}")), "sk-0123456789");
    let gateway = main_pid("cordon-gateway");
    let environment = ok(&format!("tr '\\0' '\\n' </proc/{gateway}/environ"));
    assert!(
        environment.lines().any(|l| l == "CREDENTIALS_DIRECTORY=/run/credentials/cordon-gateway.service"),
        "{environment}"
    );
    assert!(!environment.contains("sk-0123456789"), "{environment}");
    assert_eq!(
        run_as("cordon", &format!("cat {file}")).stdout,
        "sk-0123456789\n",
        "the gateway's user is to read it"
    );
    for user in [MEMBER, OUTSIDER, "execuser", "cordon-exec"] {
        for path in [file, "/etc/cordon/keys/example", "/run/credentials/cordon-gateway.service/token"] {
            assert_ne!(run_as(user, &format!("cat {path}")).status, 0, "{user} reads {path}");
        }
    }
    // The gateway itself opens no file any more; what is in a sandbox sees no credential either.
    assert_eq!(crate::guest::member("cordon run -c 'ls -A /run; ls -A /etc/cordon 2>/dev/null; true'"), "");
    ok("rm /etc/cordon/keys/example; systemctl restart cordon-gateway");
    eventually("it is gone", || !std::path::Path::new(file).exists());
}
