//! Row 5: Unix sockets of the host, of which some obey whoever reaches them.

use super::{
    Probe,
    acts::{outside, outside_as_user},
    probe,
};
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
    path::PathBuf,
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
        test: "escape::r05_sockets::a_socket_that_every_user_may_use_is_not_there_in_the_default_profile",
        tried: "connecting to a socket of mode 0777 of the host's, below a directory that the default profile does not name",
        control: "the same outside, as the same user; a socket of the command's own",
        closed_by: "namespaces (mount): no path leads there",
    },
    Probe {
        row: 5,
        test: "escape::r05_sockets::a_socket_that_a_profile_shows_is_closed_where_landlock_can_close_it",
        tried: "connecting to a socket of mode 0777 in a directory that the profile lets the command read",
        control: "the same outside, as the same user; a socket of the command's own",
        closed_by: "Landlock (ABI 9); before it nothing but the socket's mode and what the profile names, see above",
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

/// Sockets of root's in a directory that the profile `probe` may read: `all` has mode 0777, `root` 0700.
struct Shown {
    place: PathBuf,
    _listeners: [UnixListener; 2],
}

impl Shown {
    fn new() -> Self {
        let place = probes().join(format!("shown-{}", marker()));
        fs::create_dir(&place).unwrap();
        let listening = |name: &str, mode: u32| {
            let listener = UnixListener::bind(place.join(name)).unwrap();
            fs::set_permissions(place.join(name), fs::Permissions::from_mode(mode)).unwrap();
            listener
        };
        let _listeners = [listening("all", 0o777), listening("root", 0o700)];
        Self { place, _listeners }
    }

    /// Connects to one of one's own and to both, from a directory that can be written; 0 or errno of each.
    fn code(&self) -> String {
        let at = self.place.display();
        format!(
            "own = socket.socket(1); own.bind('own-{}'); own.listen()\n\
             for a in (own.getsockname(), '{at}/all', '{at}/root'): print(t(socket.socket(1).connect, a))",
            marker()
        )
    }

    /// What it finds under this profile.
    fn found_under(&self, profile: &str) -> String {
        super::acts::inside_of(lab(), profile, &self.code())
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.place);
    }
}

#[test]
fn a_socket_that_every_user_may_use_is_not_there_in_the_default_profile() {
    let _verdict = probe!();
    let sockets = Shown::new();
    assert_eq!(
        outside_as_user(&format!("os.chdir('/tmp')\n{}", sockets.code())),
        "0\n0\n13\n",
        "the control"
    );
    // Not there: that of the socket with mode 0700 is the same answer.
    assert_eq!(sockets.found_under("default"), "0\n2\n2\n");
}

#[test]
fn a_socket_that_a_profile_shows_is_closed_where_landlock_can_close_it() {
    let mut verdict = probe!();
    let sockets = Shown::new();
    assert_eq!(
        outside_as_user(&format!("os.chdir('/tmp')\n{}", sockets.code())),
        "0\n0\n13\n",
        "the control"
    );
    // LANDLOCK_ACCESS_FS_RESOLVE_UNIX came with ABI 9; before it only modes decide, as README says of `read`.
    let expected = if host::landlock_abi() < 9 {
        verdict.open_but("modes, where a profile names a socket's directory");
        "0\n0\n13\n"
    } else {
        "0\n13\n13\n"
    };
    assert_eq!(sockets.found_under("probe"), expected);
}
