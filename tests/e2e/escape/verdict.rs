//! What one run found: a line for each probe, with the kernel it ran on.
//!
//! The lines go to the file that `CORDON_TEST_TABLE` names, else to `escape-KERNEL.table` in the directory of the
//! tests' files; `tests/escape-table` lays several of them side by side.

use super::{Probe, probes};
use crate::harness::{build::scratch, host};
use std::{
    fs::File,
    io::Write,
    path::PathBuf,
    sync::{Mutex, OnceLock},
    thread,
};

/// Takes the row of the test that it stands in, whose verdict is written when the test ends.
macro_rules! probe {
    () => {{
        fn here() {}
        $crate::escape::Verdict::of(std::any::type_name_of_val(&here))
    }};
}
pub(crate) use probe;

/// What is known at the end of a test: closed, and by what, unless it fails.
pub(crate) struct Verdict {
    probes: Vec<Probe>,
    said: Option<String>,
}

impl Verdict {
    /// For a function inside the test's own.
    pub(crate) fn of(function: &str) -> Self {
        let name = function.trim_start_matches("e2e::").trim_end_matches("::here");
        let probes: Vec<_> = probes().into_iter().filter(|probe| probe.test == name).collect();
        assert!(!probes.is_empty(), "{name} is in no PROBES");
        Self { probes, said: None }
    }

    /// Another layer than usual stops it on this kernel.
    pub(crate) fn closed_by(&mut self, layer: impl Into<String>) {
        self.said = Some(format!("closed here by {}", layer.into()));
    }

    /// Nothing stops it on this kernel but this, which is under "What remains" in docs/escape.md.
    pub(crate) fn open_but(&mut self, what: &str) {
        self.said = Some(format!("open but for {what}"));
    }
}

impl Drop for Verdict {
    fn drop(&mut self) {
        let kernel = nix::sys::utsname::uname().unwrap();
        let release = kernel.release().to_string_lossy();
        for probe in &self.probes {
            let verdict = match (thread::panicking(), &self.said) {
                (true, _) => "OPEN, or the test failed".to_owned(),
                (false, Some(said)) => said.clone(),
                (false, None) => format!("closed by {}", probe.closed_by),
            };
            let (row, test, abi) = (probe.row, probe.test, abi());
            let line = format!("{row} | {test} | {release} | {abi} | {verdict}\n");
            // The test may be failing already.
            let _ = table(&release).lock().map(|mut file| file.write_all(line.as_bytes()));
        }
    }
}

/// Landlock's, asked once: a panic in a test that fails would end all of them.
fn abi() -> &'static str {
    static ABI: OnceLock<String> = OnceLock::new();
    ABI.get_or_init(|| {
        std::panic::catch_unwind(host::landlock_abi).map_or("?".to_owned(), |abi| abi.to_string())
    })
}

/// The table of this run, empty when the first line is written.
fn table(release: &str) -> &'static Mutex<File> {
    static TABLE: OnceLock<Mutex<File>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let named = std::env::var_os("CORDON_TEST_TABLE").map(PathBuf::from);
        let path = named.unwrap_or_else(|| scratch().join(format!("escape-{release}.table")));
        Mutex::new(File::create(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
    })
}
