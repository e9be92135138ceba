//! `cordon-gateway --config FILE`: reads everything it needs, gives up its rights, then serves.

use clap::Parser;
use cordon_gateway::{app, config::Config, listeners::Listeners, lockdown, token::Token};
use std::{error::Error, path::PathBuf, process::ExitCode};

/// The HTTP gateway in front of Cordon's executor.
#[derive(Debug, Parser)]
#[command(version, after_help = "Example:\n  cordon-gateway --config /etc/cordon/gateway.toml")]
struct Arguments {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE", default_value = "/etc/cordon/gateway.toml")]
    config: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    app::log_to_stderr();
    match start(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// In this order: files are read and sockets bound while that is still possible; rights are given up while
/// there is one thread, so that every later one inherits the lock-down; only then comes the runtime.
fn start(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    lockdown::refuse_root()?;
    let config = Config::load(&arguments.config)?.with_port_variable(std::env::var_os("PORT"))?;
    let token = Token::load(&config.token_file)?;
    let listeners = Listeners::from_systemd_or_bind(&config)?;
    let enforced = lockdown::apply()?;
    tracing::info!("locked down: {enforced}");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(app::run(&config, token, listeners))?;
    Ok(())
}
