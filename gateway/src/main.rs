//! `cordon-gateway --config FILE`: reads everything it needs, gives up its rights, then serves. Other options ask
//! for an answer instead.

use clap::Parser;
use cordon_gateway::{
    app,
    config::{self, Config},
    listeners::Listeners,
    lockdown,
    token::{self, Token},
    user,
};
use std::{
    error::Error,
    io::{self, Write},
    path::{Path, PathBuf},
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
    /// Say whether a configuration and its token would be taken, and end; for root, whether user cordon could read them
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
        match check(file) {
            Ok(()) => format!("{}: good\n", file.display()),
            Err(error) => return Some(Err(error)),
        }
    };
    Some(io::stdout().write_all(text.as_bytes()).map_err(Into::into))
}

/// What is in the file comes first, so that a draft can be checked before the gateway's user may read it; then
/// everything that the start reads, as that user.
fn check(file: &Path) -> Result<(), Box<dyn Error>> {
    Config::check(file)?;
    user::become_gateway()?;
    read(file).map(drop)
}

/// All that is read before rights are given up.
fn read(file: &Path) -> Result<(Config, Token), Box<dyn Error>> {
    let config = Config::load(file)?;
    let token = Token::load(&token::source(&config.token_file))?;
    Ok((config, token))
}

/// In this order: files are read and sockets bound while that is still possible; rights are given up while
/// there is one thread, so that every later one inherits the lock-down; only then comes the runtime.
fn start(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    lockdown::refuse_root()?;
    let (config, token) = read(&arguments.config)?;
    let config = config.with_port_variable(std::env::var_os("PORT"))?;
    let listeners = Listeners::from_systemd_or_bind(&config)?;
    let enforced = lockdown::apply()?;
    tracing::info!("locked down: {enforced}");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(app::run(&config, token, listeners))?;
    Ok(())
}
