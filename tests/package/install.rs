//! What the package brings, and for whom it works.

use crate::guest::{
    ENABLE, Host, LOCAL, MEMBER, OUTSIDER, UNITS, WITH_TOKEN, install, journal, member, ok, package, post,
    run_as, sh, state,
};

/// Owner, group and mode.
fn owner(path: &str) -> String {
    ok(&format!("stat -c '%U:%G %a' {path}"))
}

#[test]
fn installed_and_enabled_it_works_for_members_of_the_group_and_for_nobody_else() {
    let _host = Host::without_package();
    install(&package());
    // Nothing is taken before somebody says so, and no secret comes with the package.
    for unit in UNITS {
        assert_eq!(state(unit), "inactive", "{unit}");
    }
    assert!(
        sh("systemctl is-enabled cordon-executor.socket cordon-gateway.socket cordon-gateway")
            .stdout
            .lines()
            .all(|l| l == "disabled")
    );
    assert_eq!(ok("ls -A /run/cordon /var/lib/cordon /etc/cordon/keys | grep -v -e : -e '^$' || true"), "");
    ok(&format!("usermod -aG cordon {MEMBER}"));
    ok(ENABLE);
    for socket in ["executor", "gateway"] {
        assert_eq!(owner(&format!("/run/cordon/{socket}.sock")), "root:cordon 660");
    }
    // By whoever connects first.
    assert_eq!(state("cordon-executor.service"), "inactive");
    assert_eq!(member("cordon run -- id -un"), "execuser");
    assert_eq!(state("cordon-executor.service"), "active");
    let refused = run_as(OUTSIDER, "cordon run -- id -un");
    assert_eq!((refused.status, &*refused.stdout), (125, ""), "{refused:?}");
    assert!(
        refused.stderr.contains("Permission denied") && refused.stderr.contains("usermod -aG cordon"),
        "{refused:?}"
    );
    // Somebody who was never meant to be one: the users of the parts are in no further group.
    for user in ["execuser", "cordon-exec", "cordon-init", "nobody"] {
        assert_eq!(run_as(user, "cordon run -- id -un").status, 125, "{user}");
    }

    let body = r#"{"argv": ["id", "-un"]}"#;
    let works = |answer: (u16, serde_json::Value)| {
        assert_eq!((answer.0, &answer.1["stdout"]), (200, &"execuser\n".into()), "{answer:?}\n{}", journal());
    };
    works(post(MEMBER, WITH_TOKEN, body));
    works(post(MEMBER, LOCAL, body));
    assert_eq!(post(MEMBER, "http://127.0.0.1:3800", body).0, 401);
    assert_eq!(
        post(
            MEMBER,
            "-H 'Authorization: Bearer 0123456789abcdef0123456789abcdef' http://127.0.0.1:3800",
            body
        )
        .0,
        401
    );
    // One outside can read no token, and gets to no socket.
    assert_eq!(owner("/var/lib/cordon/token"), "root:cordon 640");
    assert_ne!(run_as(OUTSIDER, "cat /var/lib/cordon/token").status, 0);
    assert_eq!(post(OUTSIDER, WITH_TOKEN, body).0, 401);
    assert_eq!(post(OUTSIDER, LOCAL, body).0, 0);
}

#[test]
fn the_packaged_default_is_strict_and_the_host_has_every_layer() {
    let _host = Host::with_package();
    let layers: serde_json::Value = serde_json::from_str(&member("cordon doctor --json")).unwrap();
    let layers = layers.as_array().unwrap();
    assert!(layers.len() >= 5 && layers.iter().all(|layer| layer["health"] == "ok"), "{layers:?}");
    let report: serde_json::Value = serde_json::from_str(&member("cordon run --json -- true")).unwrap();
    let enforced = &report["enforced"];
    assert_eq!((&enforced["cgroup"], &enforced["seccomp"]), (&"v2".into(), &true.into()), "{enforced}");
    assert_eq!(enforced["namespaces"].as_array().unwrap().len(), 5, "{enforced}");
    if let Ok(known) = std::env::var("CORDON_TEST_LANDLOCK_ABI") {
        assert_eq!(enforced["landlock_abi"].to_string(), known, "{enforced}");
    }
    // What it was not given, it does not start without.
    ok("sed -i 's/^#landlock_abi_min.*/landlock_abi_min = 99/' /etc/cordon/executor.toml");
    let started = sh("systemctl restart cordon-executor");
    assert_ne!(started.status, 0);
    let said = journal();
    assert!(said.contains("landlock: ABI") && said.contains("remedy: "), "{said}");
    ok("systemctl stop cordon-executor.socket cordon-executor; systemctl reset-failed 'cordon-executor*'");
}

#[test]
fn documents_and_completions_are_there() {
    let _host = Host::with_package();
    let listed = ok("dpkg-query -L cordon");
    for page in
        ["man1/cordon.1.gz", "man1/cordon-run.1.gz", "man8/cordon-executor.8.gz", "man8/cordon-gateway.8.gz"]
    {
        assert!(listed.contains(&format!("/usr/share/man/{page}")), "{page}: {listed}");
    }
    for page in ["README.md", "CHANGELOG.md", "install.md", "security.md", "escape.md"] {
        assert!(
            listed.lines().any(|line| line == format!("/usr/share/doc/cordon/{page}")),
            "{page}: {listed}"
        );
    }
    let shells = [
        "bash-completion/completions/cordon",
        "zsh/vendor-completions/_cordon",
        "fish/vendor_completions.d/cordon.fish",
    ];
    for file in shells {
        assert!(listed.contains(&format!("/usr/share/{file}")), "{file}: {listed}");
    }
    let asked =
        ok("source /usr/share/bash-completion/completions/cordon; COMP_WORDS=(cordon work); COMP_CWORD=1; \
         _cordon cordon work cordon; echo ${COMPREPLY[*]}");
    assert_eq!(asked, "workspace");
}

#[test]
fn the_configurations_are_root_s_and_are_taken() {
    let _host = Host::with_package();
    for name in ["executor", "gateway"] {
        let file = format!("/etc/cordon/{name}.toml");
        assert_eq!(owner(&file), "root:root 644");
        ok(&format!("cordon config check {file}"));
        assert!(ok("dpkg-query -W -f '${Conffiles}' cordon").contains(&file));
    }
    // Keys are root's alone; the state is nobody's to list.
    for (path, expected) in [
        ("/etc/cordon", "root:root 755"),
        ("/etc/cordon/keys", "root:root 700"),
        ("/var/lib/cordon", "root:root 711"),
        ("/var/lib/cordon/executor", "root:root 711"),
        ("/var/log/cordon", "root:root 755"),
        ("/var/log/cordon/audit.jsonl", "root:root 640"),
        ("/run/cordon", "root:root 755"),
    ] {
        assert_eq!(owner(path), expected, "{path}");
    }
}
