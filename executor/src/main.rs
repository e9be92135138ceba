//! The executor: reads its configuration as root, becomes monitor and server, serves.
//!
//! `--config FILE` names the configuration; every other option asks for an answer instead of serving.
use cordon_executor::{
    config::{Config, document},
    halves::{fork_server, raise_open_files},
    host::Host,
    listen::listen,
    log,
    monitor::{Audit, ConnectionCaps, Monitor, Parts, Plans, Reload, Workspaces, cgroup::Cgroups},
    recording, steps,
    sys::process::{self, is_single_threaded, set_nice},
};
use cordon_protocol::audit::{Configuration, Entry};
use cordon_protocol::supervision::{PARENT_VARIABLE, Supervision};
use nix::{
    fcntl::{Flock, FlockArg},
    sys::{
        prctl,
        signal::{SigSet, Signal},
        stat::{Mode, umask},
    },
    unistd::{Uid, getppid},
};
use std::{
    error::Error,
    fs::{self, DirBuilder, File},
    io::Write as _,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

/// Where the configuration is unless another place is named.
const CONFIGURATION: &str = "/etc/cordon/executor.toml";

const USAGE: &str = "\
Runs commands as an unprivileged user behind cgroups, namespaces, Landlock and seccomp

Usage: cordon-executor [--config FILE] [--probe]
       cordon-executor --check FILE | --default-config | --steps

It must be started as root, and serves until SIGTERM. `cordon up` starts it together with the gateway.

Options:
      --config FILE      Configuration (TOML) [default: /etc/cordon/executor.toml]
      --check FILE       Say whether a configuration would be taken, and end
      --default-config   Print a configuration with every key, its default and its meaning, and end
      --probe            Try every layer on this host, print what was found as JSON, and end
      --steps            Print the steps of a launch, each with its reason, and end
  -h, --help             Print help
  -V, --version          Print version

Examples:
  cordon-executor --default-config > executor.toml
  cordon-executor --config /etc/cordon/executor.toml";

/// Nice value of monitor and server.
const SUPERVISOR_NICE: i32 = -10;

enum Task {
    Serve,
    Check(PathBuf),
    DefaultConfig,
    Probe,
    Steps,
}

fn main() -> ExitCode {
    match settle().and_then(|()| run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Undoes what whoever started us may have handed down: an ignored SIGCHLD would leave nothing to wait for, a
/// blocked signal would not arrive, a narrow umask would close the sandboxes' directories to their user.
fn settle() -> Result<(), Box<dyn Error>> {
    process::reset_signals()?;
    // Of a socket or a log that nobody reads any more the call itself tells.
    process::ignore(Signal::SIGPIPE)?;
    umask(Mode::from_bits_truncate(0o022));
    Ok(())
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut named: Option<PathBuf> = None;
    let mut task = Task::Serve;
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--config") => named = Some(arguments.next().ok_or("--config wants a file")?.into()),
            Some("--check") => task = Task::Check(arguments.next().ok_or("--check wants a file")?.into()),
            Some("--default-config") => task = Task::DefaultConfig,
            Some("--probe") => task = Task::Probe,
            Some("--steps") => task = Task::Steps,
            Some("-h" | "--help") => {
                return answer(USAGE);
            }
            Some("-V" | "--version") => {
                return answer(concat!("cordon-executor ", env!("CARGO_PKG_VERSION")));
            }
            _ => {
                let problem = format!("unknown argument {}; --help lists what there is", argument.display());
                return Err(problem.into());
            }
        }
    }
    match task {
        Task::Serve => serve(&named.unwrap_or_else(|| CONFIGURATION.into())),
        Task::Check(file) => {
            let config = Config::check(&file)?;
            if config.state_dir.exists() {
                check_state(&config.state_dir)?;
            }
            answer(&format!("{}: good", file.display()))
        }
        Task::DefaultConfig => answer(document()?.trim_end()),
        Task::Probe => probe(named),
        Task::Steps => {
            let lines: Vec<_> = steps::all().iter().map(|(name, why)| format!("{name:20} {why}")).collect();
            answer(&lines.join("\n"))
        }
    }
}

/// What this host enforces. It is asked before anything has been set up, too, so the configuration may be
/// missing where none was named.
fn probe(named: Option<PathBuf>) -> Result<(), Box<dyn Error>> {
    require_root()?;
    let config = match named {
        None if !Path::new(CONFIGURATION).exists() => Config::defaults()?,
        named => Config::load(&named.unwrap_or_else(|| CONFIGURATION.into()))?,
    };
    let cgroups = Cgroups::establish(&config.state_dir.join("probe"));
    let Host { mut layers, .. } = Host::probe(&config, &cgroups);
    cgroups.close();
    let problem = Audit::could_be_at(&config.audit, &head_of_trail(&config)).err();
    let problem = problem.map(|fault| (fault.errno, fault.to_string()));
    layers.push(recording::layer(
        &config.audit,
        problem.as_ref().map(|(errno, detail)| (*errno, detail.as_str())),
    ));
    answer(&serde_json::to_string(&layers)?)
}

/// Prints a line; a reader that has gone away is told as an error.
fn answer(text: &str) -> Result<(), Box<dyn Error>> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

fn require_root() -> Result<(), Box<dyn Error>> {
    if Uid::effective().is_root() {
        return require_capabilities();
    }
    Err("must be started as root: it gives every right up again, but needs them to build sandboxes".into())
}

/// What no kind of host can do without: to change to other users, to give them pipes, and to end what they run.
fn require_capabilities() -> Result<(), Box<dyn Error>> {
    use caps::{CapSet, Capability as C};
    let needed = [C::CAP_SETUID, C::CAP_SETGID, C::CAP_SETPCAP, C::CAP_CHOWN, C::CAP_KILL];
    let missing = |c: &C| !caps::has_cap(None, CapSet::Effective, *c).unwrap_or(false);
    match needed.into_iter().find(missing) {
        None => Ok(()),
        Some(missing) => Err(format!("{missing} is missing: start it with this capability").into()),
    }
}

fn serve(config: &Path) -> Result<(), Box<dyn Error>> {
    require_root()?;
    follow_parent()?;
    let file = config;
    let config = Config::load(file)?;
    for name in config.users.with_login_shell() {
        log!("warning: user `{name}` has a login shell; give it /usr/sbin/nologin");
    }
    for name in config.without_cwd() {
        log!("warning: cwd is outside profile `{name}`: its commands must name a directory");
    }
    let caps = connection_caps(config.relays.most)?;
    let _lock = lock_state(&config.state_dir)?;
    // From here on there is something to remove, so a signal to end waits until the monitor follows it.
    hold_signals()?;
    let cgroups = Cgroups::establish(&config.state_dir);
    let served = serve_in(file, config, &cgroups, caps);
    cgroups.close();
    served
}

/// Serves within these cgroups, which stay the caller's to remove.
fn serve_in(
    file: &Path,
    mut config: Config,
    cgroups: &Cgroups,
    caps: ConnectionCaps,
) -> Result<(), Box<dyn Error>> {
    let host = Arc::new(Host::probe(&config, cgroups));
    host.check(config.require)?;
    host.check_counting()?;
    for layer in host.layers.iter().filter(|layer| layer.remedy.is_some()) {
        log!("warning: {}: {}; {}", layer.layer, layer.detail, layer.remedy.as_deref().unwrap_or_default());
    }
    // A limit on the size of files is an error of the write that meets it, not the end of the monitor.
    process::ignore(Signal::SIGXFSZ)?;
    // Both halves must get their turn while commands keep every processor busy.
    if set_nice(SUPERVISOR_NICE).is_err() {
        log!("warning: priority: CAP_SYS_NICE is missing: busy commands can delay their own end");
    }
    if !is_single_threaded() {
        return Err("the monitor has more than one thread".into());
    }
    config.bound_commands(if host.one_at_a_time { 1 } else { caps.commands() });
    let (server, link) = server_half(&config, &host, caps)?;
    let plans = Plans::prepare(&config, &host)?;
    let (listener, _bound) = listen(&config.socket, config.users.group)?;
    let speaks_to_test = server.is_none();
    let configuration = Configuration { file: file.display().to_string(), sha256: config.sha256.clone() };
    let started = Entry::Started { version: env!("CARGO_PKG_VERSION").to_owned(), configuration };
    let audit = Audit::open(&config.audit, &head_of_trail(&config), config.rotation, started);
    let audit = audit.map_err(|fault| format!("audit: {fault}"))?;
    let workspaces = Workspaces::new(&config.state_dir, &config.users.command, config.free_space_min);
    let reload = Reload::new(file.to_owned(), config.clone());
    let cgroups = cgroups.clone();
    let parts = Parts { plans, audit, reload, cgroups, workspaces, listener, link, server, caps };
    let mut monitor = Monitor::new(parts, &config.state_dir)?;
    if !speaks_to_test {
        monitor.await_server()?;
    }
    log!(
        "listening on {} (cgroup: {}, Landlock ABI: {})",
        config.socket.display(),
        host.cgroup,
        host.landlock_abi
    );
    sd_notify::notify(&[sd_notify::NotifyState::Ready])?;
    let served = monitor.run();
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    Ok(served?)
}

/// Where the head of the trail is kept.
fn head_of_trail(config: &Config) -> PathBuf {
    config.state_dir.join("audit.head")
}

/// How many connections there is room for in the open files that this process may have.
fn connection_caps(services: usize) -> Result<ConnectionCaps, Box<dyn Error>> {
    let files = raise_open_files()?;
    let wanted = ConnectionCaps::files_wanted(services);
    let raise = match Supervision::of_this_process() {
        Supervision::Systemd => format!("set LimitNOFILE={wanted} in its unit"),
        _ => format!("start it with a hard limit of {wanted} open files (`ulimit -Hn {wanted}`)"),
    };
    let caps = ConnectionCaps::for_open_files(files, services);
    let caps = caps.ok_or_else(|| format!("{files} open files are too few to serve anybody; {raise}"))?;
    if files < wanted {
        log!("warning: {files} open files leave room for fewer connections than usual; {raise}");
    }
    Ok(caps)
}

type Half = (Option<std::os::fd::OwnedFd>, std::os::fd::OwnedFd);

fn server_half(config: &Config, host: &Host, caps: ConnectionCaps) -> Result<Half, Box<dyn Error>> {
    #[cfg(feature = "fault-injection")]
    if let Ok(number) = std::env::var("CORDON_TEST_LINK") {
        return Ok((None, process::inherited(number.parse()?)?));
    }
    let half = fork_server(config, &host.layers, caps)?;
    Ok((Some(half.pidfd), half.link))
}

/// The signals that the monitor reads once it runs (signalfd(2)).
fn hold_signals() -> Result<(), Box<dyn Error>> {
    let told: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    Ok(told.thread_block()?)
}

/// `cordon up` names itself in CORDON_PARENT: end when it does.
fn follow_parent() -> Result<(), Box<dyn Error>> {
    let Ok(parent) = std::env::var(PARENT_VARIABLE) else { return Ok(()) };
    prctl::set_pdeathsig(Signal::SIGTERM)?;
    if getppid().to_string() == parent {
        Ok(())
    } else {
        Err("the process that started this has ended".into())
    }
}

/// Makes the state directory, checks that it is root's alone, and takes its lock.
fn lock_state(path: &Path) -> Result<Flock<File>, Box<dyn Error>> {
    let failed = |e: std::io::Error| format!("state_dir {}: {e}", path.display());
    DirBuilder::new().recursive(true).mode(0o711).create(path).map_err(failed)?;
    check_state(path)?;
    let file = File::create(path.join("lock")).map_err(failed)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|_| format!("state_dir {}: another executor uses it", path.display()).into())
}

/// Refuses a state directory that is not root's alone.
fn check_state(path: &Path) -> Result<(), Box<dyn Error>> {
    let meta = fs::symlink_metadata(path).map_err(|e| format!("state_dir {}: {e}", path.display()))?;
    if meta.is_dir() && meta.uid() == 0 && meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(format!("state_dir {}: not a directory of root's alone; chown root, chmod go-w", path.display())
        .into())
}
