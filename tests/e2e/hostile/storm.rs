//! Whatever a taken-over server sends, by seed: messages as they are and changed, with descriptors that belong to them
//! or do not, about connections that are there or are not. `CORDON_STORM` says how many.

use super::*;
use crate::{
    harness::eventually,
    teardown::{assert_restored, at_rest},
};
use cordon_executor::monitor::link::Message;
use fastrand::Rng;
use nix::sys::socket::{MsgFlags, recv};
use std::os::fd::AsRawFd;

/// Messages without `CORDON_STORM`.
const MESSAGES: usize = 5000;
/// Connections at a time.
const PEERS: usize = 4;
/// Messages until there are others.
const TURN: usize = 100;

/// A message of some kind about some connection.
fn message(random: &mut Rng, connections: &[u64]) -> Message {
    let mut connection = *random.choice(connections).unwrap();
    if random.u8(..16) == 0 {
        connection = random.u64(..);
    }
    let job = random.u64(..);
    let name = ["", "default", "nope", "..", "a"][random.usize(..5)];
    let launch = |files, collect| ToMonitor::Launch {
        connection,
        profile: "default".to_owned(),
        workspace: name.to_owned(),
        stdin: collect,
        files,
        adds: files,
        collect,
        limits: AskedLimits::default(),
    };
    let made = match random.u8(..13) {
        0 | 1 => launch(false, random.bool()),
        2 => launch(true, random.bool()),
        3 => ToMonitor::Cancel(connection),
        4 => ToMonitor::OutputExceeded(connection),
        5 => ToMonitor::KillJob { connection, job },
        6 => ToMonitor::Drained(connection),
        7 => ToMonitor::Closed(connection),
        8 => ToMonitor::Pong,
        9 => ToMonitor::Collect(connection),
        10 => ToMonitor::ListWorkspaces(connection),
        11 => ToMonitor::CheckTrail(connection),
        _ => ToMonitor::DeleteWorkspace { connection, name: name.to_owned() },
    };
    let mut bytes = made.encode();
    for _ in 0..random.usize(..3) {
        // What is not zero is at the beginning.
        let below = if random.bool() { 32 } else { MESSAGE_LEN };
        let at = random.usize(..below);
        bytes[at] = random.u8(..);
    }
    bytes
}

impl Hostile {
    /// Takes in all that has come, and gives the number of a connection when there was a new one.
    fn drain(&self) -> Option<u64> {
        let mut connection = None;
        let mut byte = [0];
        while recv(self.link.as_raw_fd(), &mut byte, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT).is_ok() {
            if let Some((ToServer::Connection { connection: number, .. }, _)) = self.receive() {
                connection = Some(number);
            }
        }
        connection
    }

    /// Connects, whatever else comes meanwhile.
    fn connect(&self) -> (u64, UnixStream) {
        let stream = UnixStream::connect(self.socket()).unwrap();
        let mut number = None;
        eventually("a connection", PATIENCE, || {
            number = self.drain();
            number.is_some()
        });
        (number.unwrap(), stream)
    }
}

#[test]
fn whatever_comes_over_the_link_the_monitor_works_and_keeps_nothing() {
    let rounds = std::env::var("CORDON_STORM").map_or(MESSAGES, |text| text.parse().unwrap());
    let hostile = Hostile::start();
    hostile.assert_works();
    eventually("the first command is torn down", PATIENCE, || {
        hostile.drain();
        let now = cordon_tests::belongings::Belongings::of(hostile.process.pid());
        now.count("processes") == 0 && now.count("cgroups") <= 1
    });
    let before = at_rest(hostile.process.pid());
    let mut peers: Vec<(u64, UnixStream)> = Vec::new();
    let (request, beside) = (shell("true"), text());
    // What is not even sealed ends the monitor when it comes too often, which is another test's.
    let garbage = memfd::sealed(&[0xff; 5000]).unwrap();
    for seed in 0..rounds {
        let mut random = Rng::with_seed(seed as u64);
        if seed % TURN == 0 {
            for (connection, stream) in peers.drain(..) {
                drop(stream);
                hostile.send(&ToMonitor::Closed(connection), &[]);
            }
            peers = (0..PEERS).map(|_| hostile.connect()).collect();
        }
        let connections: Vec<_> = peers.iter().map(|(connection, _)| *connection).collect();
        let bytes = message(&mut random, &connections);
        let length = if random.u8(..32) == 0 { random.usize(1..=MESSAGE_LEN) } else { MESSAGE_LEN };
        let all = [request.as_fd(), beside.as_fd(), garbage.as_fd()];
        let descriptors = match random.u8(..8) {
            0 => &all[2..],
            1 => &all[..],
            2 => &all[..1],
            3 => &[],
            _ => &all[..2],
        };
        scm::send(hostile.link.as_fd(), &bytes[..length], descriptors).unwrap();
        hostile.drain();
    }
    for (connection, stream) in peers {
        drop(stream);
        hostile.send(&ToMonitor::Closed(connection), &[]);
    }
    eventually("every command has ended", PATIENCE, || {
        hostile.drain();
        process::descendants(hostile.process.pid()).is_empty()
    });
    hostile.drain();
    assert_restored(&before, hostile.process.pid(), "the storm");
    hostile.drain();
    hostile.assert_works();
}
