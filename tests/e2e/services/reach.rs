//! What can be reached, by which address, and what cannot; on which hosts.

use super::*;
use crate::harness::{
    build::fault_executor,
    daemon,
    lesser_host::{LesserHost, WHOLE},
};
use cordon_protocol::{EndedBy, Health, client::blocking};
use std::{
    io::{ErrorKind, Read, Write},
    net::UdpSocket,
};

/// Answers one HTTP request with this text.
fn http(text: &'static str) -> impl Fn(TcpStream) + Send + Clone + 'static {
    move |mut stream| {
        let (mut got, mut buffer) = (Vec::new(), [0; 4096]);
        while !got.windows(4).any(|end: &[u8]| end == b"\r\n\r\n") {
            match stream.read(&mut buffer) {
                Ok(read) if read > 0 => got.extend(&buffer[..read]),
                _ => return,
            }
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
        stream.write_all((head + text).as_bytes()).unwrap();
    }
}

#[test]
fn curl_and_python_reach_a_service_by_both_loopback_addresses() {
    let (first, second) = (service(http("first")), service(http("second")));
    let executor = start(&[first, second]);
    let hosts: &[_] = if with_ipv6() { &["127.0.0.1", "[::1]", "localhost"] } else { &["127.0.0.1"] };
    for host in hosts {
        let script = format!("curl -sS --max-time 60 http://{host}:{first}/ http://{host}:{second}/");
        let report = executor.report(&["-c", &script]);
        assert_eq!(output(&report), "firstsecond", "{host}");
        assert_eq!(used(&report), [(first, 1, 0), (second, 1, 0)], "{host}");
        let fetch = format!(
            "import urllib.request\nprint(urllib.request.urlopen('http://{host}:{second}/', timeout=60).read().decode())"
        );
        let report = python(&executor, &fetch);
        assert_eq!(
            (output(&report), used(&report)),
            ("second", vec![(first, 0, 0), (second, 1, 0)]),
            "{host}"
        );
    }
    assert_verified(&executor);
}

#[test]
fn a_service_that_listens_on_ipv6_alone_is_found() {
    if !with_ipv6() {
        return;
    }
    let port = service_on(Ipv6Addr::LOCALHOST.into(), http("six"));
    let executor = start(&[port]);
    assert_eq!(executor.inside(&format!("curl -sS --max-time 60 http://127.0.0.1:{port}/")), "six");
}

/// An address of this host that is not a loopback's; none on a host that has no other.
fn other_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    // No packet is sent: it only asks the routing table.
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().unwrap().ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn no_other_port_and_no_other_address_of_the_host_is_reached() {
    let _verdict = crate::escape::probe!();
    let served = service(|_| {});
    let other = service_on(Ipv4Addr::UNSPECIFIED.into(), |_| {});
    let executor = start(&[served]);
    let mut targets =
        vec![(IpAddr::from(Ipv4Addr::LOCALHOST), other), (Ipv4Addr::new(127, 0, 0, 2).into(), other)];
    targets.extend(other_address().map(|address| (address, other)));
    for (address, port) in &targets {
        TcpStream::connect((*address, *port))
            .unwrap_or_else(|e| panic!("{address}: unreachable from outside: {e}"));
    }
    // The service itself, but not by another address.
    targets.push((Ipv4Addr::new(127, 0, 0, 2).into(), served));
    targets.extend(other_address().map(|address| (address, served)));
    for (address, port) in targets {
        let report = python(&executor, &format!("print(tried(lambda: connect({port}, '{address}')))"));
        let expected = if address.is_loopback() { "ECONNREFUSED" } else { "ENETUNREACH" };
        assert_eq!((output(&report), used(&report)), (expected, vec![(served, 0, 0)]), "{address}:{port}");
    }
}

#[test]
fn inside_only_the_service_listens_and_its_port_is_taken() {
    let port = service(|_| {});
    let executor = start(&[port]);
    let report = python(
        &executor,
        &format!(
            "rows = [l.split() for f in ('tcp', 'tcp6') if os.path.exists('/proc/net/' + f) for l in open('/proc/net/' + f).readlines()[1:]]\n\
             print(sorted({{int(r[1].split(':')[1], 16) for r in rows if r[3] == '0A'}}))\n\
             def bind(port, host):\n    s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET)\n    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind((host, port)); s.listen(); return 'bound'\n\
             print(*[tried(lambda: bind({port}, host)) for host in ('127.0.0.1', '0.0.0.0')], tried(lambda: bind({}, '127.0.0.1')))",
            nothing()
        ),
    );
    assert_eq!(output(&report), format!("[{port}]\nEADDRINUSE EADDRINUSE bound"));
}

#[test]
fn a_port_below_1024_is_served_too() {
    let listener =
        (300..1024).rev().find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().for_each(|stream| stream.unwrap().write_all(b"low").unwrap()));
    let report = python(&start(&[port]), &format!("print(connect({port}).recv(9).decode())"));
    assert_eq!(output(&report), "low");
}

#[test]
fn profiles_and_doctor_show_the_ports() {
    let (first, second) = (nothing(), nothing());
    let executor = start(&[second, first]);
    let profiles = blocking::profiles(&executor.socket, "test").unwrap();
    let shown = (profiles[0].network.as_str(), &profiles[0].services[..]);
    assert_eq!(shown, ("services", &[u32::from(second), u32::from(first)][..]));
    let listed = process::run(executor.cordon(&["profiles"]), &[]);
    assert!(listed.text().contains(&format!("services {second} {first}")), "{listed:?}");
    let layers = blocking::doctor(&executor.socket, "test").unwrap();
    let layer = layers.iter().find(|layer| layer.layer == "services").unwrap();
    assert!(layer.health == Health::Ok && layer.detail.contains(&first.to_string()), "{layer:?}");
    let plain = blocking::doctor(&crate::harness::shared().socket, "test").unwrap();
    assert!(plain.iter().all(|layer| layer.layer != "services"), "{plain:?}");
}

#[test]
fn a_launch_that_fails_after_the_sockets_were_made_says_where() {
    let port = service(|_| {});
    for step in ["init_services", "init_proc", "init_seccomp", "seccomp", "go"] {
        let executor = Executor::start_with_fault(step, &profile(&[port]));
        let report = executor.report(&["--", "true"]);
        assert_eq!(
            (report.ended_by, report.step.as_deref()),
            (EndedBy::LaunchFailed, Some(step)),
            "{report:?}"
        );
        // Nothing of it stays open in the monitor or the server.
        let sockets = |pid| process::descriptors(pid).iter().filter(|d| d.contains("socket:")).count();
        let count = || (sockets(executor.pid()), sockets(daemon::server_of(executor.pid())));
        let before = count();
        for _ in 0..5 {
            executor.report(&["--", "true"]);
        }
        crate::harness::eventually("its sockets are closed", PATIENCE, || count() <= before);
    }
    assert!(fault_executor().exists());
}

/// Hosts without namespaces: nothing is relayed, Landlock keeps commands to the services' ports.
#[test]
fn without_namespaces_the_ports_are_where_they_are_and_no_other_is_reached() {
    let port = service(http("there"));
    let other = service(|_| {});
    let host = LesserHost { admin: false, ..WHOLE };
    let executor = host.start(&profile(&[port]));
    let code = format!(
        "s = connect({port}); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); print(s.recv(999).decode().split()[-1])\n\
         print(tried(lambda: connect({other})), tried(lambda: socket.socket().bind(('127.0.0.1', 0))))"
    );
    let report = python(&executor, &code);
    let refused = if report.enforced.landlock_abi >= 4 { "EACCES EACCES" } else { "" };
    assert_eq!(report.stdout.as_deref().unwrap().trim(), format!("there\n{refused}").trim(), "{report:?}");
    assert_eq!((report.enforced.network, used(&report)), (NetworkMode::Host, vec![]));
    assert!(host.refused().contains("namespaces"));
}

/// The server half, which reaches the ports of all profiles, and those alone.
#[test]
fn a_command_reaches_the_services_of_its_own_profile_alone() {
    let (mine, theirs) = (service(http("mine")), service(http("theirs")));
    let profiles =
        format!("{}[profiles.other]\nnetwork = \"services\"\nservices = [{theirs}]\n", profile(&[mine]));
    let executor = Executor::start(&profiles);
    let fetch = |port| format!("curl -sS --max-time 60 http://127.0.0.1:{port}/");
    assert_eq!(executor.inside(&fetch(mine)), "mine");
    assert_eq!(executor.inside_profile("other", &fetch(theirs)), "theirs");
    let report = executor.report(&["--profile", "other", "-c", &fetch(mine)]);
    // curl(1): 7 is a failure to connect.
    assert_eq!((report.exit_code, used(&report)), (Some(7), vec![(theirs, 0, 0)]), "{report:?}");
    let refused = TcpStream::connect(("127.0.0.1", nothing())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}
