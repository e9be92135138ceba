//! Network mode `services`: named ports of the host's loopback interface inside, relayed by the server half, and
//! nothing else of the host's network.

mod bounds;
mod reach;

use crate::harness::{Executor, PATIENCE, build::programs, eventually, process, stretched};
use cordon_protocol::{ExitReport, NetworkMode};
use serde_json::Value;
use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, channel},
    thread,
};

/// A service of the host: what `serve` does with each connection, in a thread of its own.
fn service_on(address: IpAddr, serve: impl Fn(TcpStream) + Send + Clone + 'static) -> u16 {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let serve = serve.clone();
            let stream = stream.unwrap();
            stream.set_read_timeout(Some(stretched(PATIENCE))).unwrap();
            thread::spawn(move || serve(stream));
        }
    });
    port
}

fn service(serve: impl Fn(TcpStream) + Send + Clone + 'static) -> u16 {
    service_on(Ipv4Addr::LOCALHOST.into(), serve)
}

/// One that hands each connection to the test.
fn handed_over() -> (u16, Receiver<TcpStream>) {
    let (sender, connections) = channel();
    (service(move |stream| sender.send(stream).unwrap()), connections)
}

/// A port on which nothing listens.
fn nothing() -> u16 {
    crate::harness::daemon::free_port()
}

fn with_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// The profile `default` with these services.
fn profile(ports: &[u16]) -> String {
    format!("[profiles.default]\nnetwork = \"services\"\nservices = {ports:?}\n")
}

fn start(ports: &[u16]) -> Executor {
    Executor::start(&profile(ports))
}

/// A Python program under the profile, after this preamble; its report.
fn python(executor: &Executor, code: &str) -> ExitReport {
    let code = format!(
        "import errno, os, socket, sys, time\n\
         def connect(port, host='127.0.0.1'): return socket.create_connection((host, port), 30)\n\
         def tried(act):\n    try: return act()\n    except OSError as e: return errno.errorcode[e.errno]\n{code}"
    );
    executor.report(&["--", "/usr/bin/python3", "-c", &code])
}

/// Its output; it must succeed.
fn output(report: &ExitReport) -> &str {
    assert_eq!(report.exit_code, Some(0), "{report:?}");
    assert_eq!(report.enforced.network, NetworkMode::Services);
    report.stdout.as_deref().unwrap().trim()
}

/// Of each service port, connections and refusals.
fn used(report: &ExitReport) -> Vec<(u16, u64, u64)> {
    report.services.iter().map(|s| (u16::try_from(s.port).unwrap(), s.connections, s.refused)).collect()
}

/// Lines of the trail about this command and event, once there is one of its end.
fn trail(executor: &Executor, report: &ExitReport, event: &str) -> Vec<Value> {
    let text = fs::read_to_string(executor.directory().join("audit.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["job"] == report.id.as_str() && line["event"] == event).collect()
}

/// The only line of this kind that the trail has for a command. The server tells its numbers after the report.
fn only_line(executor: &Executor, report: &ExitReport, event: &str) -> Value {
    let lines = || trail(executor, report, event);
    eventually("the trail has the line", PATIENCE, || !lines().is_empty());
    let [line] = &lines()[..] else { panic!("{:?}", lines()) };
    line.clone()
}

/// The trail's chain holds.
fn assert_verified(executor: &Executor) {
    let mut command = std::process::Command::new(&programs().cordon);
    command.args(["audit", "verify", "--file"]).arg(executor.directory().join("audit.jsonl"));
    command.arg("--head").arg(executor.directory().join("state/audit.head"));
    let ran = process::run(command, &[]);
    assert_eq!(ran.status, 0, "{ran:?}");
}
