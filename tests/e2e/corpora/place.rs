//! What hostile lines are aimed at: files, listeners and processes of the host, each of which tells afterwards
//! whether it was touched.

use crate::harness::{
    PATIENCE,
    daemon::open_directory,
    eventually, host,
    lab::STRANGER,
    marker,
    process::{self, install, status},
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::stat::{Mode, SFlag, makedev, mknod},
};
use std::{
    collections::BTreeMap,
    fs::{self, Permissions},
    io::PipeWriter,
    net::TcpListener,
    os::{
        fd::{AsFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::{
            fs::{MetadataExt, PermissionsExt, chown},
            net::{SocketAddr, UnixListener},
        },
    },
    path::{Path, PathBuf},
    process::Child,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};
use tempfile::TempDir;

/// One set of canaries, gone when dropped.
pub(super) struct Place {
    directory: TempDir,
    hidden: TempDir,
    /// Text that stands in files and environments which no command may read.
    pub(super) secret: String,
    port: u16,
    abstract_name: String,
    neighbour: Canary,
    twin: Canary,
    marker: String,
    files: BTreeMap<PathBuf, String>,
    visitors: Arc<Visitors>,
}

/// A sleeping process, and what it was like.
struct Canary {
    child: Child,
    was: String,
}

impl Place {
    /// Makes everything below this directory, which every user can pass through.
    pub(super) fn make(below: &Path) -> Self {
        let directory = tempfile::Builder::new().prefix("place.").tempdir_in(below).unwrap();
        let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        open(directory.path(), 0o755);
        let canary = directory.path().join("canary");
        for made in [&canary, &canary.join("sub"), &directory.path().join("home")] {
            fs::create_dir(made).unwrap();
        }
        open(&canary.join("sub"), 0o777);
        let marker = marker();
        let secret = format!("secret-{}", marker.replace('.', "-"));
        let user = host::uid_of("execuser");
        for (name, text, owner, mode) in [
            ("root.txt", "root\n", 0, 0o644),
            ("open.txt", "open\n", 0, 0o666),
            ("own.txt", "own\n", user, 0o644),
            ("secret.txt", secret.as_str(), 0, 0o600),
            ("other.txt", secret.as_str(), STRANGER, 0o600),
            ("sub/file", "file\n", user, 0o666),
        ] {
            let path = canary.join(name);
            fs::write(&path, text).unwrap();
            chown(&path, Some(owner), None).unwrap();
            open(&path, mode);
        }
        install(Path::new("/usr/bin/id"), &canary.join("suid"), 0o4755);
        // Another /dev/null, and a loop device that does not exist.
        for (name, kind, device) in [("device", SFlag::S_IFCHR, (1, 3)), ("disk", SFlag::S_IFBLK, (7, 250))] {
            mknod(&canary.join(name), kind, Mode::empty(), makedev(device.0, device.1)).unwrap();
            open(&canary.join(name), 0o666);
        }
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        // Not where a profile shows it: see `a_socket_that_a_profile_shows…` in `escape`.
        let hidden = open_directory();
        let unix = UnixListener::bind(hidden.path().join("listener")).unwrap();
        open(&hidden.path().join("listener"), 0o777);
        // Without the secret: newer Pythons show the line that failed, and with it the name.
        let abstract_name = format!("cordon-test-{marker}");
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let nameless = UnixListener::bind_addr(&address).unwrap();
        let visitors = Visitors::watch(tcp, [unix, nameless]);
        let sleeper = |uid| Canary::start(uid, &marker, &secret);
        let (neighbour, twin) = (sleeper(STRANGER), sleeper(user));
        let files = describe(&canary);
        Self { directory, hidden, secret, port, abstract_name, neighbour, twin, marker, files, visitors }
    }

    /// The directory with the canary files.
    pub(super) fn canary(&self) -> PathBuf {
        self.directory.path().join("canary")
    }

    /// A home directory for what runs without Cordon.
    pub(super) fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    /// The line with every `@NAME@` of this place filled in.
    pub(super) fn fill(&self, line: &str) -> String {
        [
            ("@canary@", self.canary().display().to_string()),
            ("@listener@", self.hidden.path().join("listener").display().to_string()),
            ("@port@", self.port.to_string()),
            ("@abstract@", self.abstract_name.clone()),
            ("@neighbour@", self.neighbour.child.id().to_string()),
            ("@twin@", self.twin.child.id().to_string()),
            ("@marker@", self.marker.clone()),
        ]
        .iter()
        .fold(line.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    /// What has been touched.
    pub(super) fn harm(&self) -> Vec<String> {
        let now = describe(&self.canary());
        let names = self.files.keys().chain(now.keys().filter(|path| !self.files.contains_key(*path)));
        let changed = names.filter(|path| self.files.get(*path) != now.get(*path));
        let mut harm: Vec<_> = changed.map(|path| format!("  changed: {}", path.display())).collect();
        if self.visitors.count() > 0 {
            harm.push("  a listener of the host was reached".to_owned());
        }
        for (name, canary) in [("neighbour", &self.neighbour), ("twin", &self.twin)] {
            let now = appearance(canary.child.id());
            if now != canary.was {
                harm.push(format!("  {name} is not what it was: {} is now {now}", canary.was));
            }
        }
        harm
    }
}

/// Every file of a directory, with all that a command could change of it.
fn describe(directory: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(path) = waiting.pop() {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let content = if meta.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
        let text = format!(
            "{:o} {} {} {} {} {}.{} {content:?}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.nlink(),
            meta.ino(),
            meta.mtime(),
            meta.mtime_nsec()
        );
        if meta.is_dir() {
            waiting.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
        found.insert(path, text);
    }
    found
}

impl Canary {
    fn start(uid: u32, marker: &str, secret: &str) -> Self {
        let mut command = host::as_user(uid, uid, &[], "sleep");
        let child = command.arg(marker).env("CORDON_TEST_SECRET", secret).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        eventually("a canary sleeps", PATIENCE, || {
            let sleeps = status(pid).get("State").is_some_and(|state| state.starts_with('S'));
            sleeps && process::exe(pid).is_some_and(|exe| exe.ends_with("sleep"))
        });
        Self { was: appearance(child.id()), child }
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// State, priority, processors and limits of a process, all of which others may be able to change.
fn appearance(pid: u32) -> String {
    let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let (stat, limits) = (read("stat"), read("limits"));
    let field = |number: usize| stat.split_whitespace().nth(number - 1).unwrap_or("-").to_owned();
    let open = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or("-");
    let open = open.split_whitespace().collect::<Vec<_>>().join(" ");
    let allowed = status(i32::try_from(pid).unwrap()).remove("Cpus_allowed").unwrap_or_default();
    // Numbers of proc_pid_stat(5).
    format!("state {} nice {} processors {allowed} {open}", field(3), field(19))
}

/// Counts connections, and closes each, so that nobody waits for an answer.
struct Visitors {
    tcp: TcpListener,
    unix: [UnixListener; 2],
    count: AtomicUsize,
    accepting: Mutex<()>,
    stop: Mutex<Option<(PipeWriter, JoinHandle<()>)>>,
}

impl Visitors {
    fn watch(tcp: TcpListener, unix: [UnixListener; 2]) -> Arc<Self> {
        tcp.set_nonblocking(true).unwrap();
        unix.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        let (stopped, stop) = std::io::pipe().unwrap();
        let visitors = Arc::new(Self {
            tcp,
            unix,
            count: AtomicUsize::new(0),
            accepting: Mutex::new(()),
            stop: Mutex::new(None),
        });
        let watched = Arc::clone(&visitors);
        let stopped = OwnedFd::from(stopped);
        let thread = thread::spawn(move || {
            loop {
                let [first, second] = &watched.unix;
                let mut events = [watched.tcp.as_fd(), first.as_fd(), second.as_fd(), stopped.as_fd()]
                    .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
                let polled = poll(&mut events, PollTimeout::NONE);
                if polled.is_err() || events[3].any() != Some(false) {
                    return;
                }
                watched.accept();
            }
        });
        *visitors.stop.lock().unwrap() = Some((stop, thread));
        visitors
    }

    fn accept(&self) {
        let _one = self.accepting.lock().unwrap();
        while self.tcp.accept().is_ok() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        for listener in &self.unix {
            while listener.accept().is_ok() {
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Connections since it was asked last.
    fn count(&self) -> usize {
        self.accept();
        self.count.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Closing the pipe ends the thread.
        if let Some((stop, thread)) = self.visitors.stop.lock().unwrap().take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}
