//! Launches that bring much: their hashes are made in pieces, beside everything else.

use super::*;
use cordon_protocol::audit::sha256;
use nix::sys::signal::Signal;
use serde_json::Value;

/// Content of files, of many bytes, each of them this one.
fn files(byte: u8) -> Vec<u8> {
    vec![byte; 8 << 20]
}

impl Hostile {
    /// Lets the monitor find all at once of what is sent to it meanwhile.
    fn at_once(&mut self, send: impl FnOnce(&Self)) {
        self.process.signal(Signal::SIGSTOP);
        send(self);
        self.process.signal(Signal::SIGCONT);
    }

    /// Asks for a launch of `true` that brings these files.
    fn bring(&self, connection: u64, files: &[u8]) {
        let files = memfd::sealed(files).unwrap();
        let message = launch_message(connection, |launch| launch.files = true);
        self.send(&message, &[shell("true").as_fd(), text().as_fd(), files.as_fd()]);
    }

    /// The connections of the next so many launches, in the order in which they are answered, with their commands.
    fn launches(&self, count: usize) -> Vec<(u64, String)> {
        let mut launched = Vec::new();
        while launched.len() < count {
            if let ToServer::Launched { connection, job, .. } = self.next().0 {
                launched.push((connection, format!("{job:016x}")));
            }
        }
        launched
    }
}

#[test]
fn what_brings_much_keeps_no_other_launch_waiting_and_is_hashed_to_its_last_byte() {
    let mut hostile = Hostile::start();
    let ((first, _first), (second, _second), (small, _small)) =
        (hostile.peer(), hostile.peer(), hostile.peer());
    let (strange, mut stranger) = hostile.stranger();
    let content = [first, second, strange].map(|connection| files(connection.to_le_bytes()[0]));
    hostile.at_once(|hostile| {
        for (connection, content) in [first, second, strange].into_iter().zip(&content) {
            hostile.bring(connection, content);
        }
        hostile.launch(small, "default", AskedLimits::default(), shell("true").as_fd());
    });
    let launched = hostile.launches(4);
    // Another peer's does not wait for all of the one's, each of which came before.
    let order: Vec<_> = launched.iter().map(|(connection, _)| *connection).collect();
    assert_eq!(order, [small, first, strange, second]);
    let trail = std::fs::read_to_string(hostile.directory.path().join("audit.jsonl")).unwrap();
    let lines: Vec<Value> = trail.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let request = sha256(&true_request());
    for (connection, job) in launched {
        let launch = lines.iter().find(|line| line["event"] == "launch" && line["job"] == *job).unwrap();
        assert_eq!(launch["request"], *request);
        let brought = [first, second, strange].into_iter().zip(&content).find(|(of, _)| *of == connection);
        assert_eq!(launch["files"].as_str(), brought.map(|(_, content)| sha256(content)).as_deref());
    }
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

fn true_request() -> Vec<u8> {
    let argv = ["/bin/bash", "-c", "true"].map(str::to_owned).to_vec();
    SealedRequest::of(Work::Program(argv)).encode().unwrap()
}

#[test]
fn while_its_hash_is_made_a_connection_has_no_second_launch_and_one_that_is_closed_has_none() {
    let mut hostile = Hostile::start();
    let ((held, _held), (closed, _closed)) = (hostile.peer(), hostile.peer());
    let content = files(1);
    hostile.at_once(|hostile| {
        hostile.bring(held, &content);
        hostile.bring(held, &content);
        hostile.launch(held, "default", AskedLimits::default(), shell("true").as_fd());
        hostile.bring(closed, &content);
        hostile.send(&ToMonitor::Closed(closed), &[]);
    });
    for _ in 0..2 {
        assert_eq!(hostile.refusal(held), LaunchRefusal::OutOfOrder);
    }
    assert_eq!(hostile.launches(1)[0].0, held);
    // Its command has ended meanwhile, in whatever order that is told.
    let mut told = Vec::new();
    while !told.iter().any(|message| matches!(message, ToServer::LaunchRefused { .. })) {
        told.push(hostile.next().0);
    }
    let refusal = LaunchRefusal::OutOfOrder;
    assert!(told.contains(&ToServer::LaunchRefused { connection: closed, refusal }), "{told:?}");
}

#[test]
fn no_more_are_hashed_than_there_may_be_commands() {
    // Room for ten commands (peers.rs).
    let mut hostile = Hostile::start_after("ulimit -n 320", "");
    let content = files(1);
    let peers: Vec<_> = (0..11).map(|_| hostile.peer()).collect();
    let (last, others) = peers.split_last().unwrap();
    hostile.at_once(|hostile| peers.iter().for_each(|(connection, _)| hostile.bring(*connection, &content)));
    assert_eq!(hostile.refusal(last.0), LaunchRefusal::OutOfOrder);
    let launched: Vec<_> = hostile.launches(10).into_iter().map(|(connection, _)| connection).collect();
    assert_eq!(launched, others.iter().map(|(connection, _)| *connection).collect::<Vec<_>>());
}
