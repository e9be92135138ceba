//! After a boot. The script around the tests installs, enables, leaves something behind and boots the guest again.

use crate::guest::{ENABLE, MEMBER, OUTSIDER, WITH_TOKEN, main_pid, member, ok, post, run_as, state};
use std::fs;

/// Where the script keeps what there was before.
fn before(name: &str) -> String {
    let directory = std::env::var("CORDON_TEST_BEFORE_BOOT");
    let directory = directory.unwrap_or_else(|_| panic!("these run after a boot: tests/vm/package boot::"));
    fs::read_to_string(format!("{directory}/{name}")).unwrap().trim().to_owned()
}

#[test]
fn what_was_enabled_is_there_after_a_boot_and_goes_on_where_it_was() {
    assert_ne!(ok("cat /proc/sys/kernel/random/boot_id"), before("boot_id"), "it has not been booted");
    assert_eq!(before("enabled_by"), ENABLE);
    // systemd listens, and nobody has asked for the executor yet.
    assert_eq!(
        (state("cordon-executor.socket"), state("cordon-executor")),
        ("active".into(), "inactive".into())
    );
    assert_eq!((state("cordon-gateway.socket"), state("cordon-gateway")), ("active".into(), "active".into()));
    let (status, report) = post(MEMBER, WITH_TOKEN, r#"{"command": "id -un"}"#);
    assert_eq!((status, &report["stdout"]), (200, &"execuser\n".into()), "{report}");
    assert_ne!(main_pid("cordon-executor"), 0);
    assert_eq!(member("cordon run --workspace kept -- cat kept"), "kept");
    assert_eq!(run_as(OUTSIDER, "cordon run -- true").status, 125);
    assert_eq!(ok("cat /var/lib/cordon/token"), before("token"));
    ok("cordon audit verify");
}
