//! Puts the parts together: the only place that names concrete ones.

use crate::{
    config::Config,
    executor::Executor,
    http::{self, Gateway, answer::Reports, auth::Guard, body::BodyRules, health::Probe, origin::AllowList},
    listeners::Listeners,
    server::{self, Settings},
    token::Token,
};
use axum::Router;
use cordon_protocol::supervision::Supervision;
use sd_notify::NotifyState;
use std::{io, sync::Arc};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Log lines go to standard error; `RUST_LOG` chooses which, `info` where it does not.
pub fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Fails only where a subscriber is set already, and then lines have a place to go.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(false)
        .try_init();
}

/// Every route behind its checks.
pub fn router(config: &Config, token: Token, reports: Reports) -> Router {
    let executor = Executor::new(&config.executor);
    let gateway = Gateway {
        probe: Arc::new(Probe::new(executor.clone())),
        executor,
        body: BodyRules::new(config.body_max, config.read_timeout),
        reports,
    };
    let allowed = AllowList::new(config.allowed_hosts.clone(), config.allowed_origins.clone());
    http::router(gateway, Guard::new(token, &config.token_file), allowed)
}

/// Serves until SIGTERM or SIGINT, and then until running requests have ended or the grace has passed. A SIGHUP is
/// answered in the log: nothing can be read anew, as no file can be opened after the lock-down.
///
/// # Errors
/// When a signal handler or a listener cannot be set up.
pub async fn run(config: &Config, token: Token, listeners: Listeners) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::warn!("nothing is read anew: configuration and token are read at start; {}", again());
        }
    });
    let addresses = listeners.to_string();
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tell_systemd(NotifyState::Stopping);
        tracing::info!("stopping");
    };
    let server =
        server::Server::new(router(config, token, Reports::default()), listeners, Settings::from(config))?;
    tracing::info!(
        "cordon-gateway {} listening on {addresses}, executor at {}",
        env!("CARGO_PKG_VERSION"),
        config.executor.display()
    );
    tell_systemd(NotifyState::Ready);
    server.serve(stop).await;
    tracing::info!("stopped");
    Ok(())
}

/// How it is started again.
fn again() -> &'static str {
    match Supervision::of_this_process() {
        Supervision::Systemd => "`sudo systemctl restart cordon-gateway` takes over what has changed",
        Supervision::CordonUp => "start `cordon up` again to have a changed token taken over",
        Supervision::Hand => "start it again to have what has changed taken over",
    }
}

/// Does nothing where systemd does not ask to be told (sd_notify(3)).
fn tell_systemd(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!("cannot tell systemd: {error}");
    }
}
