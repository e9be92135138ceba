//! What Landlock alone refuses: where mounts, owners and namespaces would let it pass.

use super::*;
use crate::harness::{
    host,
    lab::{lab, script},
    marker, process,
};
use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixListener},
};

#[test]
fn what_is_the_command_s_own_in_proc_cannot_be_written() {
    for act in ["echo 600 > /proc/self/oom_score_adj", "echo other > /proc/self/comm"] {
        assert!(!can(act), "{act}");
        let mut control = host::as_user(host::uid_of("execuser"), host::gid_of("execuser"), &[], "/bin/bash");
        control.args(["-c", act]);
        assert_eq!(process::run(control, &[]).status, 0, "the control: {act}");
    }
    assert!(can("cat /proc/self/comm"));
}

#[test]
fn what_may_only_be_read_cannot_be_executed() {
    let program = script("only-read", "#!/bin/sh\necho ran\n", 0o755);
    let program = program.to_string_lossy();
    assert!(lab().inside_profile("reading", &format!("cat {program}")).contains("echo ran"));
    let report = lab().report(&["--profile", "reading", "--", &program]);
    assert_eq!((report.step.as_deref(), report.exit_code), (Some("exec"), Some(126)), "{report:?}");
    assert_eq!(lab().inside_profile("probe", &program), "ran\n", "the control");
}

#[test]
fn on_the_host_s_network_no_port_is_taken_and_no_abstract_socket_reached() {
    let _verdict = crate::escape::probe!();
    let name = format!("cordon-test-{}", marker());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let code = format!(
        "import socket\ndef t(f, *a):\n  try: f(*a); return 'done'\n  except OSError as e: return e.errno\n\
         print(t(socket.socket(1).connect, '\\0{name}'), t(socket.socket(2).bind, ('127.0.0.1', 0)))"
    );
    assert_eq!(host::python(&code), "done done\n", "the control");
    // TCP from ABI 4 on, abstract sockets from ABI 6 on.
    let expected = match host::landlock_abi() {
        0..4 => "done done\n",
        4..6 => "done 13\n",
        _ => "1 13\n",
    };
    let report = lab().report(&["--profile", "hostnet", "--", "python3", "-c", &code]);
    assert_eq!(report.stdout.as_deref(), Some(expected), "{report:?}");
}
