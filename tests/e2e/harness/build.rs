//! Builds the programs under test once: `cargo test --workspace` needs nothing before it.

use super::daemon::remove_at_exit;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The programs of the normal development build.
pub(crate) struct Programs {
    /// The command-line program.
    pub(crate) cordon: PathBuf,
    /// The executor.
    pub(crate) executor: PathBuf,
    /// The gateway.
    pub(crate) gateway: PathBuf,
}

/// Directory with programs that were built elsewhere, for a host without cargo: `cordon`, `cordon-executor`,
/// `cordon-gateway`, `fault/cordon-executor` and room for a directory `scratch`.
fn built_elsewhere() -> Option<PathBuf> {
    std::env::var_os("CORDON_TEST_PROGRAMS").map(PathBuf::from)
}

/// The target directory this test program was built in.
pub(crate) fn target() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.ancestors().nth(3).unwrap().to_owned()
}

/// What every sandbox has of its own, so that no profile can give what lies in it.
const OWN_TO_SANDBOXES: [&str; 4] = ["/dev", "/home", "/run", "/tmp"];

/// A directory for what a profile gives a command: below the target directory, or, where the repository lies
/// in a place that cannot be given, one in /var/lib for as long as the tests run.
pub(crate) fn scratch() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        if let Some(directory) = built_elsewhere() {
            return directory.join("scratch");
        }
        let below_target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        if !OWN_TO_SANDBOXES.iter().any(|own| below_target.starts_with(own)) {
            return below_target.to_owned();
        }
        let place = tempfile::Builder::new().prefix("cordon-e2e.").tempdir_in("/var/lib").unwrap().keep();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        remove_at_exit(&place);
        place
    })
}

fn cargo(arguments: &[&str]) {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments);
    // Set by cargo for this package; inherited they would make every build script run again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_")
            || text.starts_with("CARGO_MANIFEST")
            || text == "CARGO_TARGET_TMPDIR"
        {
            command.env_remove(&name);
        }
    }
    let out = command.output().unwrap();
    assert!(out.status.success(), "cargo {arguments:?} failed:\n{}", String::from_utf8_lossy(&out.stderr));
}

/// The programs, built.
pub(crate) fn programs() -> &'static Programs {
    static BUILT: OnceLock<Programs> = OnceLock::new();
    BUILT.get_or_init(|| {
        assert!(
            nix::unistd::geteuid().is_root(),
            "these tests start Cordon, which needs root: run them as root"
        );
        let directory = built_elsewhere().unwrap_or_else(|| {
            let target = target();
            cargo(&["build", "--workspace", "--bins", "--target-dir", &target.to_string_lossy()]);
            target.join("debug")
        });
        let program = |name| directory.join(name);
        let built = Programs {
            cordon: program("cordon"),
            executor: program("cordon-executor"),
            gateway: program("cordon-gateway"),
        };
        for path in [&built.cordon, &built.executor, &built.gateway] {
            assert!(path.exists(), "there is no {}", path.display());
        }
        built
    })
}

/// The executor with faults that can be asked for by environment variables.
pub(crate) fn fault_executor() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(directory) = built_elsewhere() {
            return directory.join("fault/cordon-executor");
        }
        let target = target().join("fault");
        let features = ["build", "-p", "cordon-executor", "--bins", "--features", "fault-injection"];
        cargo(&[&features[..], &["--target-dir", &target.to_string_lossy()]].concat());
        target.join("debug/cordon-executor")
    })
}
