//! What the command shares with nobody: namespaces, processes, network, host name.

use super::*;
use crate::harness::{client::line, eventually, host, lab, marker, process::sandboxed, shared};
use std::{fs, net::TcpListener, time::Duration};

#[test]
fn namespaces_are_the_command_s_own() {
    let kinds = ["pid", "mnt", "ipc", "uts", "net"];
    let script = "for n in pid mnt ipc uts net user; do readlink /proc/self/ns/$n; done";
    let read = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let marker = marker();
    let held = format!("{script}; sleep {marker}");
    let (mut connection, _stdin) = cordon_protocol::client::blocking::run(&shared().socket, "test", {
        let mut request = line(&held);
        request.stream = true;
        request
    })
    .unwrap();
    let mut text = String::new();
    while text.lines().count() < 6 {
        if let cordon_protocol::Event::Stdout(piece) = connection.next_event().unwrap() {
            text += &String::from_utf8(piece).unwrap();
        }
    }
    eventually("the first one runs", Duration::from_secs(5), || !sandboxed(&marker).is_empty());
    let (first, second) = (read(text), read(shared().inside(script)));
    for (i, kind) in kinds.iter().enumerate() {
        let host = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap().to_string_lossy().into_owned();
        assert_ne!(first[i], host, "{kind} is the host's");
        assert_ne!(second[i], host, "{kind} is the host's");
        assert_ne!(first[i], second[i], "{kind} is shared by two commands at once");
    }
    let user = fs::read_link("/proc/self/ns/user").unwrap().to_string_lossy().into_owned();
    assert_eq!(first[5], user, "no user namespace is made");
}

#[test]
fn only_its_own_processes_are_visible() {
    let listing =
        shared().inside("sleep 5 & ls /proc | grep -c '^[0-9]'; kill $!; test -d /proc/$$ && echo own");
    let count: u32 = listing.lines().next().unwrap().parse().unwrap();
    assert!((3..8).contains(&count) && listing.ends_with("own\n"), "{listing}");
    assert_eq!(shared().inside("ls -d /proc/1 2>/dev/null; true"), "", "init is another user's");
    let status = own_status();
    assert_eq!((status["PPid"].as_str(), status["TracerPid"].as_str()), ("0", "0"));
    assert!(!can(&format!("kill -0 {}", std::process::id())), "this process is not there");
}

#[test]
fn the_network_is_a_loopback_of_its_own() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!(
        "import socket\ns = socket.socket(); s.settimeout(5)\ntry: s.connect(('127.0.0.1', {port})); print('open')\n\
         except OSError as e: print(e.errno)"
    );
    assert_eq!(host::python(&connect), "open\n", "the control");
    const ECONNREFUSED: &str = "111\n";
    assert_eq!(shared().python(&connect), ECONNREFUSED);
    let away = connect.replace("127.0.0.1", "192.0.2.1");
    const ENETUNREACH: &str = "101\n";
    assert_eq!(shared().python(&away), ENETUNREACH);
    let script = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; tail -n +2 /proc/net/route | wc -l";
    assert_eq!(shared().inside(script), "lo\n0\n");
    let server = "import http.server, os, threading, urllib.request\nfound = set()\n\
                  for host in ('127.0.0.1', '[::1]')[:1 + os.path.exists('/proc/net/if_inet6')]:\n  \
                  class S(http.server.HTTPServer): address_family = 10 if ':' in host else 2\n  \
                  s = S((host.strip('[]'), 0), http.server.SimpleHTTPRequestHandler)\n  \
                  threading.Thread(target=s.serve_forever, daemon=True).start()\n  \
                  found.add(urllib.request.urlopen(f'http://{host}:{s.server_port}/').status)\nprint(found)";
    assert_eq!(shared().python(server), "{200}\n");
}

#[test]
fn a_profile_can_give_the_host_s_network() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let code = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('open')");
    let report = lab().report(&["--profile", "hostnet", "--", "python3", "-c", &code]);
    assert_eq!(report.stdout.as_deref(), Some("open\n"), "{report:?}");
    assert_eq!(report.enforced.network, cordon_protocol::NetworkMode::Host);
    assert!(!report.enforced.namespaces.contains(&cordon_protocol::NamespaceName::Net));
}

#[test]
fn the_host_name_is_not_the_host_s_to_change() {
    assert_eq!(shared().inside("uname -n"), "cordon\n");
    assert!(!can("hostname other"));
}
