//! Services: listening sockets of a pretended sandbox in, connections to services of this host out.

use super::*;
use crate::{
    monitor::link::ServiceCounts,
    profile::{Profile, RawProfile},
};
use cordon_protocol::NetworkMode;
use std::{
    io::{ErrorKind, Result as IoResult},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

const LOCALHOST: &str = "127.0.0.1";

/// The fixture's configuration with these services in the profile `default`.
pub(super) fn config(ports: &[u16]) -> Config {
    let raw: RawProfile = toml::from_str(&format!("network = 'services'\nservices = {ports:?}")).unwrap();
    let mut config = fixture::config();
    config.profiles.insert("default".into(), Profile::from_raw("default", raw, 1).unwrap());
    config
}

/// A service that sends back what it gets up to its end, and then a word of its own.
pub(super) fn echo() -> SocketAddr {
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut got = Vec::new();
                // One that was reset is over.
                if stream.read_to_end(&mut got).is_ok() {
                    got.extend(b" and the end");
                    stream.write_all(&got).unwrap();
                }
            });
        }
    });
    address
}

fn accept(service: &TcpListener) -> TcpStream {
    let (stream, _) = service.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A port on which nothing listens.
fn nothing() -> u16 {
    TcpListener::bind((LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// A command with a listening socket in its sandbox for each of these ports: where to connect to for each.
struct Served {
    client: Client,
    command: Command,
    inside: Vec<SocketAddr>,
}

fn serve(monitor: &Monitor, ports: &[u16]) -> Served {
    let (mut client, command) = monitor.running(line("x"), 7);
    client.started("0000000000000007");
    let listeners: Vec<_> = ports.iter().map(|_| TcpListener::bind((LOCALHOST, 0)).unwrap()).collect();
    listeners.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
    let inside = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    let connection = command.connection;
    let sockets: Vec<_> = listeners.iter().map(AsFd::as_fd).collect();
    monitor.say(&ToServer::Services { connection, ports: ports.to_vec() }, &sockets);
    Served { client, command, inside }
}

impl Served {
    fn connect(&self, index: usize) -> TcpStream {
        let stream = TcpStream::connect(self.inside[index]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Ends the command; what was counted, as monitor and client are told.
    fn end(mut self, monitor: &Monitor) -> Vec<(u64, u64, u64)> {
        let connection = self.command.connection;
        drop(self.command);
        let mut outcome = exited();
        outcome.enforced.network = NetworkMode::Services;
        monitor.ended(connection, outcome);
        let mut told = Vec::new();
        let mut message = monitor.hear();
        if let ToMonitor::Services { connection: whose, counts } = message {
            assert_eq!(whose, connection);
            told = counts;
            message = monitor.hear();
        }
        assert_eq!(message, ToMonitor::Drained(connection));
        let report = self.client.report();
        self.client.close(monitor);
        let sums = report.services.iter().map(|used| (used.connections, used.refused)).collect::<Vec<_>>();
        let none = vec![ServiceCounts::default(); sums.len()];
        let counts = if told.is_empty() { &none } else { &told };
        let expected: Vec<_> = counts.iter().map(|c| (c.connections, c.over_cap + c.unreachable)).collect();
        assert_eq!(sums, expected);
        told.iter().map(|c| (c.connections, c.over_cap, c.unreachable)).collect()
    }
}

/// What a connection brings up to its end.
fn rest(stream: &mut TcpStream) -> IoResult<Vec<u8>> {
    let mut got = Vec::new();
    stream.read_to_end(&mut got).map(|_| got)
}

fn assert_reset(stream: &mut TcpStream) {
    assert_eq!(rest(stream).map_err(|e| e.kind()), Err(ErrorKind::ConnectionReset));
}

fn ask(served: &Served, index: usize, text: &[u8]) -> Vec<u8> {
    let mut stream = served.connect(index);
    stream.write_all(text).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    rest(&mut stream).unwrap()
}

/// One command that is served, and refused where it is to be.
pub(super) fn relays_and_refuses(monitor: &Monitor, port: u16) {
    let served = serve(monitor, &[port, port]);
    assert_eq!(ask(&served, 0, b"one"), b"one and the end");
    // Both sockets are of the one service.
    assert_eq!(ask(&served, 1, b"two"), b"two and the end");
    let open: Vec<_> = (0..64).map(|_| served.connect(0)).collect();
    let mut one_more = served.connect(0);
    assert_reset(&mut one_more);
    drop(open);
    assert_eq!(served.end(monitor), [(66, 1, 0)]);
}

#[test]
fn each_direction_ends_by_itself_and_the_cap_holds() {
    let port = echo().port();
    let monitor = Monitor::start_relaying(config(&[port]), 1000, || {});
    relays_and_refuses(&monitor, port);
    // What one command had does not count against the next.
    relays_and_refuses(&monitor, port);
    monitor.stop();
}

#[test]
fn what_nothing_takes_is_reset_and_counted_by_service() {
    let (there, gone) = (echo().port(), nothing());
    let monitor = Monitor::start_with(config(&[gone, there]), || {});
    let served = serve(&monitor, &[gone, there]);
    for _ in 0..3 {
        assert_reset(&mut served.connect(0));
    }
    assert_eq!(ask(&served, 1, b"x"), b"x and the end");
    assert_eq!(served.end(&monitor), [(0, 0, 3), (1, 0, 0)]);
    // One that used nothing is not told of.
    let served = serve(&monitor, &[gone, there]);
    assert_eq!(served.end(&monitor), []);
    monitor.stop();
}

#[test]
fn a_port_that_is_not_the_profile_s_goes_nowhere() {
    let (port, other) = (echo().port(), echo().port());
    let monitor = Monitor::start_with(config(&[port]), || {});
    let served = serve(&monitor, &[port, other]);
    assert_eq!(ask(&served, 0, b"x"), b"x and the end");
    // Its socket is closed.
    assert_eq!(
        TcpStream::connect(served.inside[1]).map_err(|e| e.kind()).unwrap_err(),
        ErrorKind::ConnectionRefused
    );
    assert_eq!(served.end(&monitor), [(1, 0, 0)]);
    monitor.stop();
}

#[test]
fn all_commands_share_the_room_that_there_is() {
    let service = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let port = service.local_addr().unwrap().port();
    let monitor = Monitor::start_relaying(config(&[port]), 3, || {});
    let (first, second) = (serve(&monitor, &[port]), serve(&monitor, &[port]));
    // Each has its room before the next comes: nothing says in which order the sockets of two commands are accepted.
    let hold = |served: &Served| (served.connect(0), accept(&service));
    let (mut over, mut over_host) = hold(&first);
    let _held = (hold(&first), hold(&second));
    assert_reset(&mut second.connect(0));
    assert_reset(&mut first.connect(0));
    // One that ends makes room, whosever it was; it has ended when its other side has.
    over.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut over_host).unwrap(), b"");
    over_host.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(&mut over).unwrap(), b"");
    let (_inside, _host) = hold(&second);
    assert_eq!((first.end(&monitor), second.end(&monitor)), (vec![(2, 1, 0)], vec![(2, 1, 0)]));
    monitor.stop();
}

#[test]
fn what_was_sent_before_the_end_arrives_and_then_everything_is_closed() {
    let service = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let port = service.local_addr().unwrap().port();
    let monitor = Monitor::start_with(config(&[port]), || {});
    let served = serve(&monitor, &[port]);
    let mut idle = served.connect(0);
    let mut idle_host = accept(&service);
    // As a command that writes and exits: all of it may still be on its way, its connection not accepted.
    let text = vec![b'x'; 100_000];
    let mut last = served.connect(0);
    last.write_all(&text).unwrap();
    drop(last);
    assert_eq!(served.end(&monitor), [(2, 0, 0)]);
    let mut last_host = accept(&service);
    assert_eq!(rest(&mut last_host).unwrap(), text);
    // The other had not come to its end: neither side takes it for one.
    assert_reset(&mut idle_host);
    assert_reset(&mut idle);
    monitor.stop();
}

#[test]
fn a_reset_is_passed_on_as_one() {
    let service = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let port = service.local_addr().unwrap().port();
    let monitor = Monitor::start_with(config(&[port]), || {});
    let served = serve(&monitor, &[port]);
    let reset = |stream: TcpStream| {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger).unwrap();
    };
    // Each when both sides have been heard.
    let pair = || {
        let mut inside = served.connect(0);
        let mut host = accept(&service);
        inside.write_all(b"x").unwrap();
        host.read_exact(&mut [0]).unwrap();
        (inside, host)
    };
    let (inside, mut host) = pair();
    reset(inside);
    assert_reset(&mut host);
    let (mut inside, host) = pair();
    reset(host);
    assert_reset(&mut inside);
    assert_eq!(served.end(&monitor), [(2, 0, 0)]);
    monitor.stop();
}

/// Writes until nothing is taken any more; how much was.
fn fill(stream: &mut TcpStream) -> usize {
    stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let piece = vec![b'f'; 64 << 10];
    let mut taken = 0;
    loop {
        match stream.write(&piece) {
            Ok(written) => taken += written,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                return taken;
            }
        }
    }
}

#[test]
fn a_side_that_does_not_read_holds_up_its_own_connection_alone() {
    let service = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let (slow, quick) = (service.local_addr().unwrap().port(), echo().port());
    let monitor = Monitor::start_with(config(&[slow, quick]), || {});
    let served = serve(&monitor, &[slow, quick]);
    let mut inside = served.connect(0);
    let mut host = accept(&service);
    // Both directions full; then the other service, and in the end all of it, to the byte.
    let (up, down) = (fill(&mut inside), fill(&mut host));
    assert!(up > 0 && down > 0 && up < 16 << 20 && down < 16 << 20, "{up} {down}");
    assert_eq!(ask(&served, 1, b"x"), b"x and the end");
    inside.shutdown(Shutdown::Write).unwrap();
    host.shutdown(Shutdown::Write).unwrap();
    assert_eq!((rest(&mut host).unwrap().len(), rest(&mut inside).unwrap().len()), (up, down));
    assert_eq!(served.end(&monitor), [(1, 0, 0), (1, 0, 0)]);
    monitor.stop();
}
