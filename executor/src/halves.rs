//! One root process becomes two: the monitor stays, the server gives everything up and is locked down.

use crate::{
    config::Config,
    monitor::ConnectionCaps,
    sandbox::{caps, fds, ids, init, rlimits, seccomp, steps::Fault},
    server::{self, Landmarks},
    sys::{
        clone::{CloneOptions, Cloned, clone_process},
        process::exit_now,
    },
};
use cordon_protocol::LayerReport;
use nix::{
    errno::Errno,
    sys::{
        prctl,
        resource::{Resource, getrlimit, setrlimit},
        signal::Signal,
        socket::{AddressFamily, SockFlag, SockType, socketpair},
    },
};
use std::{
    collections::BTreeSet,
    os::fd::{AsRawFd, OwnedFd},
};

/// The server half, as the monitor knows it.
#[derive(Debug)]
pub struct ServerHalf {
    /// Names the process.
    pub pidfd: OwnedFd,
    /// The monitor's end of the link.
    pub link: OwnedFd,
}

/// Descriptors that the server half closes at its start would otherwise be those of the listening socket.
///
/// # Errors
/// errno of socketpair(2) or clone(2).
pub fn fork_server(
    config: &Config,
    layers: &[LayerReport],
    caps: ConnectionCaps,
) -> Result<ServerHalf, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (link, servers_link) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    match clone_process(CloneOptions { namespaces: 0, cgroup: None })? {
        Cloned::Parent { pidfd, .. } => Ok(ServerHalf { pidfd, link }),
        Cloned::Child => {
            drop(link);
            exit_now(run_server(servers_link, config.clone(), layers.to_vec(), caps))
        }
    }
}

/// The life of the server half; its exit status.
fn run_server(link: OwnedFd, config: Config, layers: Vec<LayerReport>, caps: ConnectionCaps) -> i32 {
    let landmarks = match lock_down(&link, &config) {
        Ok(landmarks) => landmarks,
        Err(fault) => {
            crate::log!("server: cannot lock down: {}: {}", fault.detail, fault.errno.desc());
            return 1;
        }
    };
    match server::run(link, config, layers, caps.relayed(), landmarks) {
        Ok(()) => 0,
        Err(error) => {
            crate::log!("server: {error}");
            1
        }
    }
}

/// In the order of a sandbox's lock-down, for the same reasons. Gives what it sees of the host as a user like any
/// other, before it can see nothing.
fn lock_down(link: &OwnedFd, config: &Config) -> Result<Landmarks, Fault> {
    let ports = &config.relays.ports;
    let filter = server::lockdown::filter(!ports.is_empty()).map_err(filter_failed)?;
    fds::close_all_but_standard(&[link.as_raw_fd()])?;
    crate::sys::process::reset_signals()?;
    // A client that goes away is an error to handle, not a signal to die of.
    crate::sys::process::ignore(Signal::SIGPIPE)?;
    crate::sys::process::return_large_buffers();
    raise_open_files()?;
    rlimits::apply(&[(Resource::RLIMIT_CORE, 1, 1)])?;
    caps::drop_bounding_set()?;
    caps::lock_securebits()?;
    ids::drop_groups()?;
    ids::become_account(&config.users.server)?;
    caps::clear_all_sets()?;
    init::not_dumpable()?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let landmarks = Landmarks::look(config);
    // The link tells whether the monitor died before that: the first read would show its end.
    confine(&filter, ports)?;
    Ok(landmarks)
}

/// What holds even for a process that could have its privileges back.
fn confine(filter: &seccomp::BpfProgram, ports: &BTreeSet<u16>) -> Result<(), Fault> {
    init::no_new_privs()?;
    server::lockdown::restrict(ports).map_err(|e| Fault::new(Errno::EINVAL, e.to_string()))?;
    seccomp::apply(filter).map_err(filter_failed)
}

fn filter_failed(error: seccomp::FilterError) -> Fault {
    Fault::new(Errno::EINVAL, error.to_string())
}

/// Raises the soft limit of open files, often 1,024, to the hard one, which is returned.
///
/// # Errors
/// errno of getrlimit(2) or setrlimit(2).
pub fn raise_open_files() -> Result<u64, Errno> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        env,
        os::{
            linux::net::SocketAddrExt,
            unix::net::{SocketAddr, UnixDatagram},
        },
        process::Command,
    };

    /// In the second process: the abstract name to send to.
    const NAME: &str = "CORDON_HALVES_TEST";

    /// The filter hides most of what Landlock refuses; it lets the server send, and Landlock not to this.
    #[test]
    fn a_confined_server_reaches_nobody_else_s_abstract_socket() {
        let address = |name: &str| SocketAddr::from_abstract_name(name).unwrap();
        if let Ok(name) = env::var(NAME) {
            let socket = UnixDatagram::unbound().unwrap();
            socket.send_to_addr(b"before", &address(&name)).unwrap();
            confine(&server::lockdown::filter(false).unwrap(), &BTreeSet::new()).unwrap();
            let sent = socket.send_to_addr(b"after", &address(&name));
            exit_now(sent.err().and_then(|e| e.raw_os_error()).unwrap_or(0));
        }
        let name = format!("cordon-halves-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&address(&name)).unwrap();
        let test = module_path!().split_once("::").unwrap().1;
        let test = format!("{test}::a_confined_server_reaches_nobody_else_s_abstract_socket");
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([&test, "--exact", "--nocapture", "--test-threads=1"]).env(NAME, &name);
        let output = command.output().unwrap();
        let mut bytes = [0; 16];
        let length = socket.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"before", "the control");
        // Before ABI 6 there is no such scope.
        let expected = if crate::sandbox::landlock::effective_abi() < 6 { 0 } else { libc::EPERM };
        assert_eq!(output.status.code(), Some(expected), "{output:?}");
    }
}
