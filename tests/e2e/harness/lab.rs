//! One executor with many profiles that tests share, and what these profiles give to its commands.

use super::{Executor, build::scratch, daemon, host, process};
use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown, symlink},
    panic::catch_unwind,
    path::PathBuf,
    process::Command,
    sync::OnceLock,
};

/// Uid of a peer that is nobody on this host; with the group `cordon` it may connect.
pub(crate) const STRANGER: u32 = 54_321;

/// The executor with the profiles of [`profiles`].
pub(crate) fn lab() -> &'static Executor {
    static LAB: OnceLock<Option<Executor>> = OnceLock::new();
    let lab = LAB.get_or_init(|| {
        let executor = catch_unwind(|| Executor::start(&profiles())).ok()?;
        daemon::end_at_exit(executor.pid(), executor.directory());
        Some(executor)
    });
    lab.as_ref().expect("the shared executor did not start; the first test that wanted it says why")
}

/// The directory whose files the profile `probe` may read and execute.
pub(crate) fn probes() -> PathBuf {
    let directory = scratch().join("probes");
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// A directory of which the profile `hiding` hides one, and `unhiding` does not.
pub(crate) fn hiding() -> PathBuf {
    let directory = scratch().join("hiding");
    fs::create_dir_all(directory.join("hidden")).unwrap();
    fs::write(directory.join("hidden/secret"), "secret").unwrap();
    fs::write(directory.join("shown"), "shown").unwrap();
    directory
}

/// A directory that the profile `writer` may write, and the command's user too.
pub(crate) fn writable() -> PathBuf {
    daemon::ensure_users();
    let directory = scratch().join("writable");
    fs::create_dir_all(&directory).unwrap();
    chown(&directory, Some(host::uid_of("execuser")), Some(host::gid_of("execuser"))).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Profiles for tests, each with one thing that differs from the default.
pub(crate) fn profiles() -> String {
    let probes = probes();
    let probes = probes.display();
    let hiding = hiding();
    let hiding = hiding.display();
    let writable = writable();
    let writable = writable.display();
    format!(
        r#"
[profiles.default]

[profiles.probe]
read = ["/usr", "/etc", "/opt", "{probes}"]
execute = ["/usr", "/opt", "{probes}"]

[profiles.reading]
read = ["/usr", "/etc", "/opt", "{probes}"]

[profiles.hiding]
read = ["/usr", "/etc", "/opt", "{hiding}"]
hide = ["/etc/cordon", "{hiding}/hidden"]

[profiles.unhiding]
read = ["/usr", "/etc", "/opt", "{hiding}"]

[profiles.writer]
write = ["{writable}"]

[profiles.tiny]
[profiles.tiny.limits]
file_size = "1M"
tmp = "8M"
workspace = "8M"

[profiles.hostnet]
network = "host"

[profiles.rootonly]
peers = ["root"]

[profiles.strangeronly]
peers = ["uid:{STRANGER}"]

[profiles.greeting]
env = {{ GREETING = "hello there" }}

[profiles.served]
network = "services"
services = [1, 2]

[profiles.single]
concurrency = 1
queue = 1
"#
    )
}

/// Compiles a C program to where the profile `probe` can run it.
pub(crate) fn compile(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let directory = probes();
    // Another name while it is written: a test may be running it.
    let (code, fresh, program) =
        (directory.join(format!("{name}.c")), directory.join(format!("{name}.new")), directory.join(name));
    fs::write(&code, source).unwrap();
    let out = Command::new("cc").args(flags).arg("-o").args([&fresh, &code]).output().unwrap();
    assert!(out.status.success(), "cc {name}: {}", String::from_utf8_lossy(&out.stderr));
    fs::rename(&fresh, &program).unwrap();
    program
}

/// A script where the profile `probe` can run it.
pub(crate) fn script(name: &str, text: &str, mode: u32) -> PathBuf {
    let (source, file) = (probes().join(format!("{name}.source")), probes().join(name));
    fs::write(&source, text).unwrap();
    process::install(&source, &file, mode);
    file
}

/// A link where the profile `probe` can follow it.
pub(crate) fn link(name: &str, target: &str) -> PathBuf {
    let file = probes().join(name);
    let _ = fs::remove_file(&file);
    symlink(target, &file).unwrap();
    file
}
