//! `cordon up`: everything started in the foreground, and one real command sent the whole way.

mod accounts;
mod configuration;
mod conflicts;
mod daemon;
mod directory;
mod environment;
mod events;
mod first_command;
pub(super) mod launcher;
mod listeners;
mod readiness;
mod scope;
mod trust;
mod undo;

use crate::{exit_status, failure::Failure, output, signals::keep_children};
use cordon_protocol::limits;
use daemon::{Daemon, Plan};
pub(super) use directory::configuration_of;
use directory::{Directory, was_used};
use environment::Settings;
use events::{Event, Events};
use listeners::Listeners;
use nix::sys::{
    signal::Signal,
    stat::{Mode, umask},
};
use std::{
    net::TcpListener,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Time for a daemon to say that it is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for both daemons to end after SIGTERM: the grace that running commands get, and some room.
const STOP_TIMEOUT: Duration = Duration::from_secs(limits::SHUTDOWN_GRACE.as_secs() + 7);

const EXAMPLES: &str = "\
Examples:
  sudo cordon up                             serve on 127.0.0.1:3800 until Ctrl-C
  sudo cordon up --once                      try everything once and end
  sudo cordon up --dir /tmp/try --port 0     beside an installed Cordon, on any free port
  sudo cordon up --undo                      remove what it made, users and audit trail included

Makes the users cordon, cordon-exec, cordon-init and execuser where they are missing. DIR gets the sockets, \
the token, audit.jsonl and state/; profiles that you put into DIR/profiles.toml are used, and read again on SIGHUP (ports in `services` that none had at \
start take a restart). audit.jsonl and commands.jsonl beside it are for root alone: they hold what every user has run, with the values of \
its environment. The host need not offer every layer; what is lesser is said.

SIGTERM ends it as Ctrl-C does. A signal that is ignored when it starts stays ignored, as SIGINT and SIGQUIT in the \
background of a script (`cordon up &`) and SIGHUP under nohup; SIGTERM ends it there too, unless that is ignored.

Environment: EXEC_USER runs the commands [default: execuser], EXEC_HOME is their home directory, directly below \
/home [default: /home/EXEC_USER], EXEC_CWD where they start [default: EXEC_HOME], PORT is where the gateway listens unless --port says it.";

/// Where and how long to serve.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// End after the first command's report
    #[arg(long)]
    once: bool,
    /// Directory for sockets, token and state
    #[arg(long, value_name = "DIR", default_value = "/run/cordon", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// Port of the gateway on 127.0.0.1; 0 is any free one [default: 3800]
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Remove what earlier runs made: sockets, token, state and users
    #[arg(long, conflicts_with = "once")]
    undo: bool,
}

/// Starts everything, serves, stops everything; 0 when told to stop, or with `--once` when the first
/// command's report was good.
pub(crate) fn execute(args: &Args) -> Result<u8, Failure> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::new("up", "it starts the executor, which must be root", "use sudo cordon up"));
    }
    umask(Mode::from_bits_truncate(0o022));
    let next = "see what the system lacks: memory, processes, files";
    keep_children().map_err(|e| Failure::new("watching for children", e, next))?;
    if args.undo {
        return undo::execute(&args.dir);
    }
    let settings = Settings::read()?;
    // First, since it starts this program anew.
    scope::enter_delegated();
    // Before any thread and any child, so that a signal never leaves something behind.
    let events = Events::watch()?;
    // Where another one runs, or the port is taken, nothing is made.
    if was_used(&args.dir) {
        Directory::open(&args.dir)?;
    }
    let http = listeners::bind_port(args.port.unwrap_or(settings.port))?;
    let _users = accounts::ensure(&settings)?;
    let directory = Directory::prepare(&args.dir)?;
    let mut daemons = Vec::new();
    let served = serve(args, &settings, &directory, http, &events, &mut daemons);
    let stopped = stop(daemons, &events);
    directory.remove_sockets();
    served.and_then(|status| stopped.map(|forced| forced.unwrap_or(status)))
}

fn serve(
    args: &Args,
    settings: &Settings,
    directory: &Directory,
    http: TcpListener,
    events: &Events,
    daemons: &mut Vec<Daemon>,
) -> Result<u8, Failure> {
    let (listeners, port) = Listeners::complete(http, directory)?;
    configuration::write(directory, settings, port)?;
    let token = directory.token()?;
    // Told to read the profiles again while nothing could: done once it serves.
    let mut reload_wanted = false;
    for plan in [Plan::executor(directory)?, Plan::gateway(directory, listeners)?] {
        let name = plan.name();
        daemons.push(Daemon::start(plan, directory, events)?);
        if let Some(signal) = await_ready(name, events, daemons, &mut reload_wanted)? {
            return Ok(exit_status::of_signal(signal));
        }
    }
    first_command::send(port, &token, events)?;
    let report = loop {
        match events.next(None) {
            Some(Event::Answer(answer)) => break answer?,
            Some(Event::Signal(signal)) => return Ok(exit_status::of_signal(signal)),
            Some(Event::ChildEnded) => daemon::all_alive(daemons)?,
            Some(Event::Reload) => reload_wanted = true,
            _ => {}
        }
    };
    output::print_json_pretty(&*report)?;
    let good = first_command::is_good(&report);
    if !good {
        output::complain("cordon: the first command did not end well; its report says how");
    }
    if args.once {
        return Ok(if good { exit_status::SUCCESS } else { exit_status::FAILURE });
    }
    output::print(&first_command::invitation(directory, port))?;
    output::print(&format!("Serving until {}.\n", events.how_to_stop()))?;
    if reload_wanted {
        reload(directory, settings, port, &token, daemons);
    }
    loop {
        match events.next(None) {
            Some(Event::Signal(signal)) => {
                let grace = limits::SHUTDOWN_GRACE.as_secs();
                output::complain(&format!(
                    "cordon: stopping ({signal}); commands have {grace} s to end, a second signal ends them at once"
                ));
                return Ok(exit_status::SUCCESS);
            }
            None => return Ok(exit_status::SUCCESS),
            Some(Event::ChildEnded) => daemon::all_alive(daemons)?,
            Some(Event::Reload) => reload(directory, settings, port, &token, daemons),
            _ => {}
        }
    }
}

/// Has the executor take over what has changed in DIR/profiles.toml; a bad file changes nothing. The gateway asks the
/// executor each time, and has nothing of its own that could have changed but its token, which it can read no more.
fn reload(directory: &Directory, settings: &Settings, port: u16, token: &str, daemons: &mut [Daemon]) {
    if !directory.holds(token) {
        let file = directory.token_file();
        output::complain(&format!(
            "cordon: {} is not the token that the gateway has: it goes on with the one that it started with; start \
             `cordon up` again to change it",
            file.display()
        ));
    }
    if let Err(failure) = configuration::write(directory, settings, port) {
        failure.report(exit_status::FAILURE);
        return output::complain("cordon: the configuration stays as it was");
    }
    // It stands first.
    daemons.iter_mut().take(1).for_each(|executor| executor.signal(Signal::SIGHUP));
}

/// Waits until the daemon says that it is ready; the signal, when one tells us to stop before.
fn await_ready(
    name: &'static str,
    events: &Events,
    daemons: &mut [Daemon],
    reload_wanted: &mut bool,
) -> Result<Option<Signal>, Failure> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        match events.next(Some(deadline)) {
            Some(Event::Ready(ready)) if ready == name => return Ok(None),
            Some(Event::Signal(signal)) => return Ok(Some(signal)),
            Some(Event::ChildEnded) => daemon::all_alive(daemons)?,
            Some(Event::Reload) => *reload_wanted = true,
            Some(_) => {}
            None => {
                let cause = format!("not ready after {} s", READY_TIMEOUT.as_secs());
                let next = "its log is above; try again with RUST_LOG=debug";
                return Err(Failure::new(format!("starting {name}"), cause, next));
            }
        }
    }
}

/// Ends the daemons in the reverse order of their start, so that the gateway takes nothing more that the
/// executor would have to refuse. The exit status where a second signal told us not to wait for them.
fn stop(mut daemons: Vec<Daemon>, events: &Events) -> Result<Option<u8>, Failure> {
    let deadline = Instant::now() + STOP_TIMEOUT;
    let (mut killed, mut impatient) = (Vec::new(), None);
    while let Some(mut daemon) = daemons.pop() {
        if impatient.is_some() && daemon.ended().is_none() {
            killed.push(daemon.name());
            daemon.kill();
        }
        daemon.signal(Signal::SIGTERM);
        while daemon.ended().is_none() {
            match events.next(Some(deadline)) {
                Some(Event::ChildEnded | Event::Ready(_) | Event::Answer(_) | Event::Reload) => {}
                told => {
                    if let Some(Event::Signal(signal)) = told {
                        impatient = Some(signal);
                    }
                    killed.push(daemon.name());
                    daemon.kill();
                }
            }
        }
        daemon.finish_log();
    }
    let names = killed.join(" and ");
    if let Some(signal) = impatient {
        output::complain(&format!(
            "cordon: told a second time ({signal}): killed {names}, and with it every command that still ran"
        ));
        return Ok(Some(exit_status::of_signal(signal)));
    }
    if killed.is_empty() {
        return Ok(None);
    }
    Err(Failure::new(format!("stopping {names}"), "not ended in time, so killed", "look at the log above"))
}
