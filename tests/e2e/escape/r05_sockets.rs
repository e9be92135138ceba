//! Row 5: Unix sockets of the host, of which some obey whoever reaches them.

use super::{Probe, acts::outside, probe};
use crate::harness::{
    host,
    lab::{lab, probes},
    marker, shared,
};
use std::{
    fs,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixListener},
        },
    },
};

pub(super) const PROBES: &[Probe] = &[
    Probe {
        row: 5,
        test: "escape::r05_sockets::host_sockets_cannot_be_reached",
        tried: "connecting to an abstract socket, Cordon's own two, D-Bus, systemd's and Docker's, also through /proc/1/root and /proc/self/root",
        control: "the same outside, where at least three answer",
        closed_by: "namespaces: no path leads there, and abstract names are the network namespace's",
    },
    Probe {
        row: 5,
        test: "escape::r05_sockets::a_socket_that_a_profile_shows_is_closed_where_landlock_can_close_it",
        tried: "connecting to a socket of mode 0777 in a directory that the profile lets the command read",
        control: "a socket of the command's own; outside",
        closed_by: "Landlock (ABI 9)",
    },
];

#[test]
fn host_sockets_cannot_be_reached() {
    let _verdict = probe!();
    let name = format!("cordon-test-{}", marker());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    let directory = shared().directory().display().to_string();
    let code = format!(
        "import socket\nfor a in ('\\0{name}', '{directory}/executor.sock', '{directory}/gateway.sock', \
         '/run/dbus/system_bus_socket', '/run/systemd/private', '/var/run/docker.sock', \
         '/proc/1/root{directory}/executor.sock', '/proc/self/root{directory}/executor.sock'):\n  s = socket.socket(1)\n  \
         try: s.connect(a); print('open')\n  except OSError as e: print(e.errno)"
    );
    let seen = shared().python(&code);
    assert!(seen.lines().all(|l| l == "111" || l == "2"), "{seen}");
    let open = outside(&code).lines().filter(|l| *l == "open").count();
    assert!(open >= 4, "the control: {open}");
}

#[test]
fn a_socket_that_a_profile_shows_is_closed_where_landlock_can_close_it() {
    let mut verdict = probe!();
    let place = probes().join(format!("shown-{}", marker()));
    fs::create_dir(&place).unwrap();
    let listening = |name: &str, mode: u32| {
        let listener = UnixListener::bind(place.join(name)).unwrap();
        fs::set_permissions(place.join(name), fs::Permissions::from_mode(mode)).unwrap();
        listener
    };
    let _listeners = [listening("all", 0o777), listening("root", 0o700)];
    let at = place.display();
    let code = format!(
        "import socket\nown = socket.socket(1); own.bind('own'); own.listen()\nfor a in ('own', '{at}/all', '{at}/root'):\n  \
         s = socket.socket(1)\n  try: s.connect(a); print('open')\n  except OSError as e: print(e.errno)"
    );
    let report = lab().report(&["--profile", "probe", "--", "/usr/bin/python3", "-c", &code]);
    fs::remove_dir_all(&place).unwrap();
    // LANDLOCK_ACCESS_FS_RESOLVE_UNIX came with ABI 9; before it only modes decide, as README says of `read`.
    let expected = if host::landlock_abi() < 9 {
        verdict.closed_by("modes of sockets alone; nothing but what the profile names is there");
        "open\nopen\n13\n"
    } else {
        "open\n13\n13\n"
    };
    assert_eq!(report.stdout.as_deref(), Some(expected), "{report:?}");
}
