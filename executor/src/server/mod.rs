//! The unprivileged half: everything that reads what clients write.
//!
//! It has its own uid, no capability, no file system and no network but the ports of services that profiles name
//! ([`lockdown`]); what it holds are the link to the monitor, the clients' sockets that the monitor accepted, and the near ends of the running
//! commands' pipes. One thread, one task a connection:
//!
//! | file | subject |
//! |---|---|
//! | `link` | messages to and from the monitor, in order |
//! | `connection` | one client: hello, one request, its answer, the close |
//! | `socket`, `frames` | a client's bytes, and frames put together from them |
//! | `budget` | the memory that large requests of all clients may take together, and large reports |
//! | `check` | a request to run something, checked field by field |
//! | `denied` | refusals of launches on their way to the audit trail |
//! | `queue`, `jobs` | who may launch now; what `ps` shows |
//! | `job`, `pump` | one command: launch, streams, limits, end |
//! | `services` | a command's connections to services of the host |
//! | `collect` | what a command left, sent after its end |
//! | `workspaces` | what of them is there, and deleting one |
//! | `output` | head and tail of a captured stream |
//! | `report`, `refusal` | the last word to a client |
//! | `hint` | why a command failed, where a layer was behind it |

mod budget;
mod check;
mod collect;
mod connection;
mod denied;
mod door;
mod frames;
mod hint;
mod job;
mod jobs;
mod link;
pub mod lockdown;
mod news;
mod not_text;
mod output;
mod pump;
mod queue;
mod refusal;
mod report;
mod services;
mod socket;
mod workspaces;

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;

use crate::{
    config::{Config, POLICY_MAX, Policy},
    monitor::link::{ConnectionId, Deletion, JobId, LaunchRefusal, Malformed, Outcome, ToMonitor, ToServer},
    sys::watched::watched,
};
use budget::Budget;
use connection::Peer;
use cordon_protocol::LayerReport;
use door::Door;
pub use hint::landmarks::Landmarks;
use jobs::Jobs;
use link::Outgoing;
use queue::Queue;
use services::Room;
use std::{
    cell::RefCell,
    collections::HashMap,
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    rc::Rc,
};
use tokio::{
    sync::{mpsc, watch},
    task::{LocalSet, spawn_local},
};

/// Why the server ends before the monitor does.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No runtime.
    #[error("server: starting the runtime failed: {0}")]
    Runtime(io::Error),
    /// The link is broken.
    #[error("server: link to the monitor failed: {0}")]
    Link(io::Error),
    /// The monitor sent no message of the link.
    #[error("server: link to the monitor failed: {0}")]
    Malformed(#[from] Malformed),
    /// The monitor sent what it never sends.
    #[error("server: link to the monitor failed: {0}")]
    Unexpected(&'static str),
}

/// What the monitor says to one connection.
#[derive(Debug)]
enum Notice {
    Launched(Launched),
    Executed,
    Ended(Outcome),
    LaunchRefused(LaunchRefusal),
    KillAnswer(bool),
    Collecting(Option<OwnedFd>),
    Workspaces(Option<OwnedFd>),
    WorkspaceDeleted(Deletion),
    /// errno of what keeps launches from being recorded, and what it is.
    Trail(Option<i32>, String),
    /// A listening socket of the sandbox for each port.
    Services(Vec<(u16, OwnedFd)>),
}

/// A launch that the monitor accepted.
#[derive(Debug)]
struct Launched {
    job: JobId,
    output_bytes: u64,
    capture_bytes: u64,
    stdout: OwnedFd,
    stderr: OwnedFd,
    stdin: Option<OwnedFd>,
}

/// What all connections share.
#[derive(Debug)]
struct Server {
    config: RefCell<Rc<Config>>,
    layers: Vec<LayerReport>,
    /// What a missing file is compared with.
    landmarks: Rc<Landmarks>,
    outgoing: mpsc::Sender<Outgoing>,
    mailboxes: RefCell<HashMap<ConnectionId, mpsc::UnboundedSender<Notice>>>,
    jobs: Jobs,
    queue: Queue,
    /// For connections to services, of all commands.
    relayed: Rc<Room>,
    /// Memory of large requests.
    budget: Budget,
    /// Memory of large last events.
    answers: Budget,
    /// True once the executor is ending.
    draining: watch::Sender<bool>,
}

/// Serves until the monitor is gone, which is when the process is to exit at once.
///
/// The caller has locked the process down before ([`lockdown`]); `layers` is the answer to `Doctor`, `relayed` how many
/// connections to services there is room for, `landmarks`
/// what the host has.
///
/// # Errors
/// As [`ServerError`] says.
pub fn run(
    link: OwnedFd,
    config: Config,
    layers: Vec<LayerReport>,
    relayed: usize,
    landmarks: Landmarks,
) -> Result<(), ServerError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(ServerError::Runtime)?;
    runtime.block_on(serve(link, config, layers, relayed, landmarks))
}

async fn serve(
    link: OwnedFd,
    config: Config,
    layers: Vec<LayerReport>,
    relayed: usize,
    landmarks: Landmarks,
) -> Result<(), ServerError> {
    let link = watched(link).map_err(ServerError::Link)?;
    let (outgoing, waiting) = mpsc::channel(link::WAITING_MAX);
    let server = Rc::new(Server {
        queue: Queue::new(config.max_commands),
        budget: Budget::of_requests(),
        answers: Budget::of_answers(),
        config: RefCell::new(Rc::new(config)),
        layers,
        landmarks: Rc::new(landmarks),
        outgoing,
        mailboxes: RefCell::default(),
        jobs: Jobs::default(),
        relayed: Room::new(relayed),
        draining: watch::Sender::new(false),
    });
    let sending = async {
        link::send_all(&link, waiting).await?;
        std::future::pending().await
    };
    let receiving = async {
        while let Some((message, descriptors)) = link::receive(&link).await? {
            server.obey(message, descriptors)?;
        }
        Ok(())
    };
    let both = async {
        tokio::select! {
            ended = sending => ended,
            ended = receiving => ended,
        }
    };
    // The set, and every connection with it, is dropped when the link ends.
    LocalSet::new().run_until(both).await
}

impl Server {
    /// Does what the monitor says; never waits.
    fn obey(self: &Rc<Self>, message: ToServer, descriptors: Vec<OwnedFd>) -> Result<(), ServerError> {
        let mut descriptors = descriptors.into_iter();
        match message {
            ToServer::Connection { connection, uid, profiles } => {
                let socket =
                    descriptors.next().ok_or(ServerError::Unexpected("a connection without its socket"))?;
                let (sender, mailbox) = mpsc::unbounded_channel();
                self.mailboxes.borrow_mut().insert(connection, sender);
                let peer = Peer { connection, uid, profiles, config: self.config(), door: Door::Socket };
                spawn_local(connection::serve(Rc::clone(self), peer, socket, mailbox));
            }
            ToServer::Launched { connection, job, output_bytes, capture_bytes } => {
                let missing = ServerError::Unexpected("a launch without its pipes");
                let (Some(stdout), Some(stderr)) = (descriptors.next(), descriptors.next()) else {
                    return Err(missing);
                };
                let stdin = descriptors.next();
                let launched = Launched { job, output_bytes, capture_bytes, stdout, stderr, stdin };
                self.notify(connection, Notice::Launched(launched));
            }
            ToServer::Executed(connection) => self.notify(connection, Notice::Executed),
            ToServer::Ended { connection, outcome } => self.notify(connection, Notice::Ended(outcome)),
            ToServer::LaunchRefused { connection, refusal } => {
                self.notify(connection, Notice::LaunchRefused(refusal));
            }
            ToServer::KillAnswer { connection, found } => {
                self.notify(connection, Notice::KillAnswer(found));
            }
            ToServer::Collecting(connection) => {
                self.notify(connection, Notice::Collecting(descriptors.next()));
            }
            ToServer::Workspaces(connection) => {
                self.notify(connection, Notice::Workspaces(descriptors.next()));
            }
            ToServer::WorkspaceDeleted { connection, deletion } => {
                self.notify(connection, Notice::WorkspaceDeleted(deletion));
            }
            ToServer::Trail { connection, errno, detail } => {
                self.notify(connection, Notice::Trail(errno, detail));
            }
            ToServer::Services { connection, ports } => {
                self.notify(connection, Notice::Services(ports.into_iter().zip(descriptors).collect()));
            }
            ToServer::Policy => self.adopt(descriptors.next())?,
            ToServer::Drain => {
                self.draining.send_replace(true);
            }
            ToServer::TurnedAway(refusal) => {
                let socket =
                    descriptors.next().ok_or(ServerError::Unexpected("a connection without its socket"))?;
                connection::turn_away(&socket, refusal);
            }
            ToServer::Ping => {
                // A full channel must not keep the server from hearing the monitor.
                let server = Rc::clone(self);
                spawn_local(async move { server.send(ToMonitor::Pong).await });
            }
        }
        Ok(())
    }

    /// The configuration in force.
    fn config(&self) -> Rc<Config> {
        Rc::clone(&self.config.borrow())
    }

    /// Takes over a changed policy, for every request that is not checked yet.
    fn adopt(&self, policy: Option<OwnedFd>) -> Result<(), ServerError> {
        let file = policy.ok_or(ServerError::Unexpected("a policy without its file"))?;
        let mut bytes = Vec::new();
        let most = u64::try_from(POLICY_MAX).unwrap_or(u64::MAX);
        File::from(file).take(most).read_to_end(&mut bytes).map_err(ServerError::Link)?;
        let policy = Policy::decode(&bytes).map_err(|_| ServerError::Unexpected("a policy that is none"))?;
        let config = Rc::new(self.config().with_policy(policy));
        self.queue.adopt(&config);
        self.config.replace(config);
        Ok(())
    }

    fn notify(&self, connection: ConnectionId, notice: Notice) {
        if let Some(mailbox) = self.mailboxes.borrow().get(&connection) {
            // A connection that is closing no longer listens, and need not.
            let _ = mailbox.send(notice);
        }
    }

    /// Sends to the monitor; waits while too much is on its way.
    async fn send(&self, message: ToMonitor) {
        self.send_with(message, Vec::new()).await;
    }

    async fn send_with(&self, message: ToMonitor, descriptors: Vec<OwnedFd>) {
        // The channel only ends with the process.
        let _ = self.outgoing.send(Outgoing { message, descriptors }).await;
    }

    /// Waits until the executor is ending.
    async fn drained(&self) {
        // The sender is in `self`, so waiting cannot fail.
        let _ = self.draining.subscribe().wait_for(|draining| *draining).await;
    }

    fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }
}
