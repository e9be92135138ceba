//! Services of the host for one command: what connects to a listening socket of its sandbox is relayed to the same
//! port of the host's loopback interface.
//!
//! Each direction of a connection goes on by itself: one that has come to its end ends so at the other side, and one
//! that cannot be written to is not read from. What holds a slow reader's data are the kernel's buffers, whose size is
//! bounded; here it is one piece a direction, and none while there is nothing to write. With the command everything
//! ends: what it has sent by then is passed on, until nothing comes any more for [`DRAIN_GRACE`]. A side that did not get all that there
//! was for it is reset, so that nobody takes a part for the whole.

use super::pump::{DRAIN_MAX, Stage};
use crate::{
    monitor::link::ServiceCounts,
    sandbox::services::{BACKLOG, KERNEL_BUFFER},
};
use cordon_protocol::limits::{DRAIN_GRACE, SERVICE_CONNECT_TIMEOUT, SERVICE_CONNECTIONS_MAX};
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::socket::{Shutdown, shutdown},
};
use std::{
    cell::{Cell, RefCell},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener},
    os::fd::{AsRawFd, OwnedFd},
    rc::Rc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::{JoinSet, yield_now},
    time::{Instant, sleep, timeout},
};

/// Bytes that are read at a time.
const PIECE: usize = 16 << 10;
/// A command that goes on connecting above its cap is refused no faster, so that refusing it takes little from others.
const REFUSAL_PACE: Duration = Duration::from_millis(1);
/// Parts of the grace.
const GRACE_PARTS: u32 = 4;
/// Wait after a failure to accept that is not the connection's own: without it the same would come at once.
const ACCEPT_PACE: Duration = Duration::from_millis(50);

/// How many connections of all commands may be relayed at once.
#[derive(Debug)]
pub(super) struct Room {
    left: Cell<usize>,
}

/// One of them, until this is dropped.
#[derive(Debug)]
struct Share(Rc<Room>);

impl Room {
    pub(super) fn new(connections: usize) -> Rc<Self> {
        Rc::new(Self { left: Cell::new(connections) })
    }

    fn take(self: &Rc<Self>) -> Option<Share> {
        self.left.set(self.left.get().checked_sub(1)?);
        Some(Share(Rc::clone(self)))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.left.set(self.0.left.get() + 1);
    }
}

/// What the tasks of one command's services share.
#[derive(Debug)]
struct Shared {
    ports: Vec<u16>,
    counts: RefCell<Vec<ServiceCounts>>,
    /// Of this command.
    open: Rc<Room>,
    /// Of all commands.
    all: Rc<Room>,
    /// Sockets that may still be accepted from, and connections from which the command's side may still be read.
    coming: watch::Sender<usize>,
    /// Counts what has been done for what the command's side sends.
    progress: Cell<u64>,
    links: RefCell<JoinSet<()>>,
}

/// Counts as coming until it is dropped.
#[derive(Debug)]
struct Coming(Rc<Shared>);

impl Coming {
    fn new(shared: &Rc<Shared>) -> Self {
        shared.coming.send_modify(|coming| *coming += 1);
        Self(Rc::clone(shared))
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.coming.send_modify(|coming| *coming -= 1);
    }
}

/// The services of one command. Dropping it closes everything.
#[derive(Debug)]
pub(super) struct Services {
    shared: Rc<Shared>,
    listening: RefCell<JoinSet<()>>,
}

impl Services {
    /// For a command under a profile with these ports; `all` is the room of all commands together.
    pub(super) fn new(ports: &[u16], all: &Rc<Room>) -> Self {
        let shared = Shared {
            ports: ports.to_vec(),
            counts: RefCell::new(vec![ServiceCounts::default(); ports.len()]),
            open: Room::new(SERVICE_CONNECTIONS_MAX),
            all: Rc::clone(all),
            coming: watch::Sender::new(0),
            progress: Cell::new(0),
            links: RefCell::default(),
        };
        Self { shared: Rc::new(shared), listening: RefCell::default() }
    }

    /// Takes the sandbox's listening sockets, each for a port, and relays what comes by them until the command ends.
    ///
    /// # Errors
    /// A socket that cannot be watched.
    pub(super) fn open(&self, sockets: Vec<(u16, OwnedFd)>, stage: &watch::Sender<Stage>) -> io::Result<()> {
        for (port, socket) in sockets {
            // A port that is none of the profile's has nowhere to go, and is not counted.
            let Some(service) = self.shared.ports.iter().position(|known| *known == port) else { continue };
            let listener = TcpListener::from_std(StdListener::from(socket))?;
            let accepting = accept_all(Coming::new(&self.shared), service, listener, stage.subscribe());
            self.listening.borrow_mut().spawn_local(accepting);
        }
        Ok(())
    }

    /// Waits for the command's end and for what it has sent before it, then closes everything; how each service was
    /// used, in the order of the profile.
    pub(super) async fn finish(&self, mut stage: watch::Receiver<Stage>) -> Vec<ServiceCounts> {
        // The sender outlives this.
        let _ = stage.wait_for(|stage| matches!(stage, Stage::Ended { .. })).await;
        self.drain().await;
        let mut tasks = self.listening.take();
        tasks.shutdown().await;
        let mut links = self.shared.links.take();
        links.shutdown().await;
        self.shared.counts.take()
    }
}

impl Services {
    /// Waits until everything that the command has sent is passed on, or nothing more of it has been for the grace.
    ///
    /// The grace passes in parts, so that a process that gets no turn for a while does not miss all of it at once.
    async fn drain(&self) {
        let mut coming = self.shared.coming.subscribe();
        let (ended, mut idle, mut seen) = (Instant::now(), 0, self.shared.progress.get());
        while idle < GRACE_PARTS && ended.elapsed() < DRAIN_MAX {
            if timeout(DRAIN_GRACE / GRACE_PARTS, coming.wait_for(|coming| *coming == 0)).await.is_ok() {
                return;
            }
            let now = self.shared.progress.get();
            idle = if now == seen { idle + 1 } else { 0 };
            seen = now;
        }
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        // The tasks hold what holds them.
        drop((self.listening.take(), self.shared.links.take()));
    }
}

/// Accepts what connects to one socket until the command ends, and then what has connected before that.
async fn accept_all(
    coming: Coming,
    service: usize,
    listener: TcpListener,
    mut stage: watch::Receiver<Stage>,
) {
    let shared = &coming.0;
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stage.wait_for(|stage| matches!(stage, Stage::Ended { .. })) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((inside, _)) => {
                if !admit(shared, service, inside) {
                    sleep(REFUSAL_PACE).await;
                }
                yield_now().await;
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => yield_now().await,
            Err(_) => sleep(ACCEPT_PACE).await,
        }
    }
    // The runtime may not have heard of the newest yet, so the socket itself is asked. What still runs beside the
    // command may go on connecting: no more than can have waited is taken.
    let Ok(listener) = listener.into_std() else { return };
    for _ in 0..=BACKLOG {
        let Ok((inside, _)) = listener.accept() else { break };
        let inside = unblocked(inside).and_then(TcpStream::from_std);
        if let Ok(inside) = inside {
            admit(shared, service, inside);
        }
    }
}

fn unblocked(stream: std::net::TcpStream) -> io::Result<std::net::TcpStream> {
    let flags = OFlag::from_bits_retain(fcntl(&stream, FcntlArg::F_GETFL)?);
    fcntl(&stream, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(stream)
}

/// Relays an accepted connection in a task of its own; false where it was refused as one too many.
fn admit(shared: &Rc<Shared>, service: usize, inside: TcpStream) -> bool {
    let share = shared.open.take().and_then(|own| Some((own, shared.all.take()?)));
    let Some(share) = share else {
        reset(&inside);
        shared.count(service, |counts| &mut counts.over_cap);
        return false;
    };
    let coming = Coming::new(shared);
    shared.advance();
    let mut links = shared.links.borrow_mut();
    // Those that have ended.
    while links.try_join_next().is_some() {}
    links.spawn_local(relay(coming, service, inside, share));
    true
}

impl Shared {
    fn advance(&self) {
        self.progress.set(self.progress.get() + 1);
    }

    fn count(&self, service: usize, which: impl FnOnce(&mut ServiceCounts) -> &mut u64) {
        if let Some(counts) = self.counts.borrow_mut().get_mut(service) {
            *which(counts) += 1;
        }
    }
}

/// A connection of the command and the one to the host that it goes to.
#[derive(Debug)]
struct Link {
    inside: TcpStream,
    host: TcpStream,
    /// The host has got all that the command sent, and its end.
    up: Cell<bool>,
    /// The command has got all that the host sent, and its end.
    down: Cell<bool>,
}

impl Drop for Link {
    fn drop(&mut self) {
        if !self.up.get() {
            reset(&self.host);
        }
        if !self.down.get() {
            reset(&self.inside);
        }
    }
}

/// Makes the close that follows a reset.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

/// One connection from its dial to its end.
async fn relay(coming: Coming, service: usize, inside: TcpStream, _share: (Share, Share)) {
    let shared = Rc::clone(&coming.0);
    let Some(port) = shared.ports.get(service) else { return };
    let Ok(Ok(host)) = timeout(SERVICE_CONNECT_TIMEOUT, dial(*port)).await else {
        reset(&inside);
        return shared.count(service, |counts| &mut counts.unreachable);
    };
    shared.count(service, |counts| &mut counts.connections);
    shared.advance();
    let link = Link { inside, host, up: Cell::new(false), down: Cell::new(false) };
    let up = async {
        let ended = pass(&link.inside, &link.host, &link.up, || shared.advance()).await;
        drop(coming);
        ended
    };
    // A side that cannot be read is gone: there is nobody for what comes from the other.
    let _ = tokio::try_join!(up, pass(&link.host, &link.inside, &link.down, || ()));
}

/// The host's service, by IPv4 or else by IPv6.
async fn dial(port: u16) -> io::Result<TcpStream> {
    let connect = |address: IpAddr| async move {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        let buffer = u32::try_from(KERNEL_BUFFER).unwrap_or(u32::MAX);
        socket.set_send_buffer_size(buffer)?;
        socket.set_recv_buffer_size(buffer)?;
        socket.set_nodelay(true)?;
        socket.connect(SocketAddr::new(address, port)).await
    };
    match connect(Ipv4Addr::LOCALHOST.into()).await {
        Ok(stream) => Ok(stream),
        Err(_) => connect(Ipv6Addr::LOCALHOST.into()).await,
    }
}

/// One side cannot be read any more.
struct Unreadable;

/// Passes on what comes from one side up to its end, then the end too, and notes that in `done`. Where the other side
/// takes no more it stops: that side's own direction may still bring something. Each piece is told with `passed`.
async fn pass(
    from: &TcpStream,
    to: &TcpStream,
    done: &Cell<bool>,
    passed: impl Fn(),
) -> Result<(), Unreadable> {
    loop {
        from.readable().await.map_err(|_| Unreadable)?;
        let mut piece = vec![0; PIECE];
        match from.try_read(&mut piece) {
            Ok(0) => break,
            Ok(read) => {
                if write_all(to, &piece[..read]).await.is_err() {
                    return Ok(());
                }
                passed();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Unreadable),
        }
        // One that is always ready must not keep the others waiting.
        yield_now().await;
    }
    match shutdown(to.as_raw_fd(), Shutdown::Write) {
        Ok(()) | Err(Errno::ENOTCONN) => done.set(true),
        Err(_) => {}
    }
    Ok(())
}

async fn write_all(to: &TcpStream, mut rest: &[u8]) -> io::Result<()> {
    while !rest.is_empty() {
        to.writable().await?;
        match to.try_write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
