//! `cordon-gateway --config FILE`: reads everything it needs, gives up its rights, then serves. Other options ask
//! for an answer instead.

use clap::Parser;
use cordon_gateway::{
    app,
    config::{self, Config},
    listeners::Listeners,
    lockdown,
    token::{self, Token},
};
use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

const HELP: &str = "\
It must be started as a user that is not root, and serves until SIGTERM; the unit cordon-gateway.service does so, and \
`cordon up` starts it together with the executor. PORT in the environment overrides the port of the configuration, RUST_LOG chooses what is logged \
(default: info).

Examples:
  cordon-gateway --default-config > gateway.toml
  cordon-gateway --config /etc/cordon/gateway.toml";

/// The HTTP gateway in front of Cordon's executor
#[derive(Debug, Parser)]
#[command(version, after_help = HELP)]
struct Arguments {
    /// Configuration (TOML)
    #[arg(long, value_name = "FILE", default_value = "/etc/cordon/gateway.toml")]
    config: PathBuf,
    /// Say whether a configuration would be taken, and end
    #[arg(long, value_name = "FILE", exclusive = true)]
    check: Option<PathBuf>,
    /// Print a configuration with every key, its default and its meaning, and end
    #[arg(long, exclusive = true)]
    default_config: bool,
    /// Make a file with a new token where there is none, for its owner and its group, and end
    #[arg(long, value_name = "FILE", exclusive = true)]
    make_token: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(answered) = answer(&arguments) {
        return answered.map_or_else(
            |error| {
                let _ = writeln!(io::stderr(), "cordon-gateway: {error}");
                ExitCode::FAILURE
            },
            |()| ExitCode::SUCCESS,
        );
    }
    app::log_to_stderr();
    match start(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Answers what is asked instead of serving, where something is.
fn answer(arguments: &Arguments) -> Option<Result<(), Box<dyn Error>>> {
    let text = if arguments.default_config {
        config::document()
    } else if let Some(file) = &arguments.make_token {
        match token::make(file) {
            Ok(made) => format!("{}: {}\n", file.display(), if made { "made" } else { "there is one" }),
            Err(error) => return Some(Err(error.into())),
        }
    } else {
        let file = arguments.check.as_ref()?;
        match Config::load(file) {
            Ok(_) => format!("{}: good\n", file.display()),
            Err(error) => return Some(Err(error.into())),
        }
    };
    Some(io::stdout().write_all(text.as_bytes()).map_err(Into::into))
}

/// In this order: files are read and sockets bound while that is still possible; rights are given up while
/// there is one thread, so that every later one inherits the lock-down; only then comes the runtime.
fn start(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    lockdown::refuse_root()?;
    let config = Config::load(&arguments.config)?.with_port_variable(std::env::var_os("PORT"))?;
    let token = Token::load(&token::source(&config.token_file))?;
    let listeners = Listeners::from_systemd_or_bind(&config)?;
    let enforced = lockdown::apply()?;
    tracing::info!("locked down: {enforced}");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(app::run(&config, token, listeners))?;
    Ok(())
}
