//! Accepts connections and speaks HTTP/1.1 on them, until told to stop.

use crate::{
    config::Config,
    framing::{Framing, Heads},
    http::Door,
    listeners::Listeners,
    memory, screen,
    stall::{Leisure, Patience},
    watched::Watched,
};
use axum::{
    Router,
    body::Body,
    http::{HeaderValue, header},
};
use cordon_protocol::counted;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    future::{Future, pending},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream as StdUnixStream,
    },
    pin::pin,
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, Ready},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tower::ServiceExt;

/// Longest head of a request, and hyper's buffer for it, bytes.
const HEAD_MAX: usize = 64 << 10;
/// Pause after a failed accept, which is nearly always a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long bytes are still taken from a client that was answered before it had sent everything. Closing at
/// once would reset the connection, and the client might never see the answer (RFC 9112, 9.6).
const LINGER: Duration = Duration::from_secs(2);
/// How long a connection that the client has closed may still take to end by itself.
const FAREWELL: Duration = Duration::from_secs(1);

/// How connections are treated.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Time for a request's head; also for a client that sends nothing, or takes nothing of its answer.
    pub header_timeout: Duration,
    /// Time that running requests are given at the end.
    pub shutdown_grace: Duration,
    /// Open connections of one listener.
    pub connections_max: usize,
}

impl From<&Config> for Settings {
    fn from(config: &Config) -> Self {
        Self {
            header_timeout: config.header_timeout,
            shutdown_grace: config.shutdown_grace,
            connections_max: config.connections_max,
        }
    }
}

/// Listeners that are ready and the service behind them.
#[derive(Debug)]
pub struct Server {
    tcp: Vec<TcpListener>,
    unix: Vec<UnixListener>,
    router: Router,
    settings: Settings,
}

impl Server {
    /// Sets the listeners up; needs a runtime.
    ///
    /// # Errors
    /// When one is of no use to the runtime.
    pub fn new(router: Router, listeners: Listeners, settings: Settings) -> io::Result<Self> {
        let tcp = listeners.tcp.into_iter().map(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        let unix = listeners.unix.into_iter().map(|listener| {
            listener.set_nonblocking(true)?;
            UnixListener::from_std(listener)
        });
        Ok(Self {
            tcp: tcp.collect::<Result<_, _>>()?,
            unix: unix.collect::<Result<_, _>>()?,
            router,
            settings,
        })
    }

    /// Serves until `stop` is ready; then accepts nothing more, lets running requests end within the grace,
    /// and cuts the rest, which ends their commands.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(false);
        let mut loops = JoinSet::new();
        for listener in self.tcp {
            let port = listener.local_addr().map_or(0, |address| address.port());
            let connections = Connections::new(&self.router, Door::Tcp { port }, self.settings, &stopped);
            loops.spawn(connections.accept_from(listener));
        }
        for listener in self.unix {
            let connections = Connections::new(&self.router, Door::Unix, self.settings, &stopped);
            loops.spawn(connections.accept_from(listener));
        }
        stop.await;
        let _ = stopping.send(true);
        loops.join_all().await;
    }
}

/// A listener of either kind.
trait Accept: Send {
    type Stream: Client;
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;
    async fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = Self::accept(self).await?;
        // Events are small and each matters at once.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Accept for UnixListener {
    type Stream = UnixStream;
    async fn accept(&self) -> io::Result<UnixStream> {
        Ok(Self::accept(self).await?.0)
    }
}

/// A connection of either kind.
trait Client: AsyncRead + AsyncWrite + AsFd + Unpin + Send + Sync + Sized + 'static {
    fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self>;
    /// Who it is, as far as that can be told.
    fn client(&self) -> memory::Client;
    /// Waits until there is something to read, or the client has closed.
    fn readable(&self) -> impl Future<Output = io::Result<Ready>> + Send;
    /// Forgets that there is something to read, until more comes.
    fn forget_readable(&self);
}

impl Client for TcpStream {
    fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        Self::from_std(descriptor.into())
    }

    fn client(&self) -> memory::Client {
        self.peer_addr().map_or(memory::Client::Anybody, |address| memory::Client::at(address.ip()))
    }

    async fn readable(&self) -> io::Result<Ready> {
        self.ready(Interest::READABLE).await
    }

    fn forget_readable(&self) {
        let _ = self.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }
}

impl Client for UnixStream {
    fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        Self::from_std(StdUnixStream::from(descriptor))
    }

    fn client(&self) -> memory::Client {
        self.peer_cred()
            .map_or(memory::Client::Anybody, |credentials| memory::Client::User(credentials.uid()))
    }

    async fn readable(&self) -> io::Result<Ready> {
        self.ready(Interest::READABLE).await
    }

    fn forget_readable(&self) {
        let _ = self.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }
}

/// The connections of one listener.
struct Connections {
    router: Router,
    door: Door,
    settings: Settings,
    stopped: watch::Receiver<bool>,
    room: Arc<Semaphore>,
}

impl Connections {
    fn new(router: &Router, door: Door, settings: Settings, stopped: &watch::Receiver<bool>) -> Self {
        let room = Arc::new(Semaphore::new(settings.connections_max));
        Self { router: router.clone(), door, settings, stopped: stopped.clone(), room }
    }

    async fn accept_from(self, listener: impl Accept) {
        let mut running = JoinSet::new();
        let mut stopped = self.stopped.clone();
        loop {
            tokio::select! {
                () = told_to_stop(&mut stopped) => break,
                Some(_) = running.join_next() => {}
                accepted = self.next(&listener) => match accepted {
                    Ok((stream, permit)) => { running.spawn(self.serve(stream, permit)); }
                    Err(error) => {
                        tracing::warn!("cannot accept: {error}");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
        // Closes it, so that nobody waits in its queue for an answer that does not come.
        drop(listener);
        let rest = async { while running.join_next().await.is_some() {} };
        if timeout(self.settings.shutdown_grace, rest).await.is_err() {
            tracing::warn!("cutting {} that did not end in time", counted(running.len(), "connection"));
            running.shutdown().await;
        }
    }

    /// The next connection, once there is room for it.
    async fn next<L: Accept>(&self, listener: &L) -> io::Result<(L::Stream, OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.room).acquire_owned().await.map_err(io::Error::other)?;
        Ok((listener.accept().await?, permit))
    }

    /// The whole life of one connection.
    fn serve<S: Client>(
        &self,
        stream: S,
        permit: OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + Send + use<S> {
        let (router, door) = (self.router.clone(), self.door);
        let mut stopped = self.stopped.clone();
        let header_timeout = self.settings.header_timeout;
        async move {
            let _permit = permit;
            let other = stream.as_fd().try_clone_to_owned();
            let other = other.and_then(S::from_descriptor);
            let state = screen::State::default();
            let (client, leisure) = (stream.client(), Leisure::default());
            let patient = Watched::new(stream, Patience::new(header_timeout, leisure.clone()));
            let screen = Watched::new(patient, state.clone());
            let framing = Framing::default();
            let framed = Watched::new(screen, Heads::new(framing.clone()));
            let asked = state.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let answering = asked.answer();
                let unclear = framing.next();
                // Of what comes after chunks `framing` looks at nothing, so nothing may follow.
                let last = unclear.is_some() || request.headers().contains_key(header::TRANSFER_ENCODING);
                let mut request = request.map(Body::new);
                let extensions = request.extensions_mut();
                if let Some(unclear) = unclear {
                    extensions.insert(unclear);
                }
                extensions.insert(door);
                extensions.insert(client);
                extensions.insert(leisure.clone());
                let answer = router.clone().oneshot(request);
                let leisure = leisure.clone();
                async move {
                    let mut response = answer.await?;
                    if last {
                        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                    }
                    leisure.answer(&response);
                    Ok::<_, Infallible>(answering.until_sent(response))
                }
            });
            let mut connection = pin!(
                http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(header_timeout)
                    .max_buf_size(HEAD_MAX)
                    .serve_connection(TokioIo::new(framed), service)
            );
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = abandoned(&other) => return,
                () = told_to_stop(&mut stopped) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            let Ok(mut rest) = other else { return };
            if let Err(error) = ended {
                tracing::debug!("connection ended: {error}");
                let Some(status) = state.held() else { return };
                tracing::info!("no request {} ({error})", status.as_u16());
                // A client that does not take a few hundred bytes does not want them.
                let answer = screen::response(status, &error, HEAD_MAX);
                if !matches!(timeout(LINGER, rest.write_all(&answer)).await, Ok(Ok(()))) {
                    return;
                }
                let _ = rest.shutdown().await;
            }
            tokio::select! {
                () = linger(rest) => {}
                () = told_to_stop(&mut stopped) => {}
            }
        }
    }
}

/// Ready once the server stops, or is gone.
async fn told_to_stop(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Ready a moment after the client has closed. hyper sees that too, and earlier, but not while something
/// that the client sent is unread: a further request, or no more than a stray line. Its command would run on.
async fn abandoned<S: Client>(connection: &io::Result<S>) {
    let Ok(connection) = connection else { return pending().await };
    loop {
        match connection.readable().await {
            Ok(ready) if ready.is_read_closed() => return sleep(FAREWELL).await,
            // Read by hyper, not here.
            Ok(_) => connection.forget_readable(),
            Err(_) => return pending().await,
        }
    }
}

/// Takes what the client still sends after its answer, so that the answer is not lost; see [`LINGER`].
async fn linger(mut stream: impl Client) {
    let mut scrap = vec![0; 16 << 10];
    let discard = async { while stream.read(&mut scrap).await.is_ok_and(|length| length > 0) {} };
    let _ = timeout(LINGER, discard).await;
}
