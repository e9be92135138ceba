//! The escape suite: for each way in which systems of this kind have been broken, a probe that tries it inside a
//! sandbox, with the control that the same act succeeds where nothing stops it.
//!
//! A file here adds probes: it is named below, twice, its tests begin with [`probe!`], and its `PROBES` say of each
//! what is tried and what stops it. A test elsewhere that proves a row begins with `probe!` too and stands in
//! `elsewhere.rs`. Each test of a probe leaves a line of the kernel's table (see `verdict.rs`); docs/escape.md is made
//! from `PROBES`.

mod acts;
mod elsewhere;
mod pools;
mod r01_terminal;
mod r02_tables;
mod r03_halves;
mod r04_families;
mod r05_sockets;
mod r06_neighbours;
mod r07_secrets;
mod r08_descriptors;
mod r09_runtime;
mod r10_masks;
mod r11_links;
mod r12_absent;
mod r13_parameters;
mod r15_names;
mod r16_strings;
mod r17_pointers;
mod r18_landlock;
mod r19_channels;
mod r20_setuid;
mod r21_users;
mod r22_groups;
mod r23_environment;
mod r24_credentials;
mod r25_entries;
mod r26_leftovers;
mod r28_clock;
mod r29_signals;
mod r30_dumps;
mod verdict;

pub(crate) use verdict::{Verdict, probe};

use crate::harness::process;
use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
};

/// What is tried inside, and what stops it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    /// Row of [`ROWS`].
    pub(crate) row: usize,
    /// Full name of the test.
    pub(crate) test: &'static str,
    /// The attack.
    pub(crate) tried: &'static str,
    /// Where it succeeds.
    pub(crate) control: &'static str,
    /// What stops it, on a kernel that can do everything.
    pub(crate) closed_by: &'static str,
}

/// The rows: holes by their public precedents, from 1.
pub(crate) const ROWS: [&str; 31] = [
    "Terminal injection: TIOCSTI, TIOCLINUX, also with dirty upper bits (CVE-2017-5226, CVE-2019-7303, CVE-2019-10063)",
    "Foreign system-call tables: x32, i386",
    "Filters that compare only the low half of an argument, or only the whole",
    "io_uring doing what the filter forbids; AF_VSOCK and other socket families",
    "Unix sockets as the way out: D-Bus, systemd, Docker, the executor's own (GHSA-27vp-2mmc-vmh3)",
    "Abstract sockets, signals and tracing between two running commands",
    "Secrets through /proc of other processes",
    "Leaked descriptors (CVE-2024-21626)",
    "Overwriting the runtime through /proc/self/exe (CVE-2019-5736)",
    "Races with masks and procfs while a sandbox is made (CVE-2025-31133, CVE-2025-52565, CVE-2025-52881)",
    "Root following symbolic links: workspaces, files in and out (CVE-2024-28185, CVE-2024-28189)",
    "A protected file that does not exist yet, made by the command (CVE-2026-25725)",
    "A request's parameter that widens the policy, the working directory above all (CVE-2025-59532)",
    "Failing open: one step of the set-up fails and the command runs anyway",
    "A proxy and a filter that read a name differently",
    "Lists of allowed commands, compared as strings (CVE-2026-22708)",
    "Decisions on memory that the command changes afterwards",
    "What Landlock does not see, or not before some ABI; keyrings (CVE-2024-42318)",
    "Channels between runs: keyrings, locks, shared memory, temporary files, System V IPC, POSIX queues",
    "Set-user-id programs, file capabilities",
    "User namespaces",
    "Escapes by control groups (CVE-2022-0492), changing one's own limits",
    "The environment: LD_PRELOAD, PATH, GIT_*, BASH_ENV, PYTHON*",
    "Default credentials, a key that is shipped (CVE-2025-3466)",
    "A second entry path that skips a layer (CVE-2022-31214)",
    "A network namespace, group or workspace that is used again while something of the last command lives",
    "Input that makes a parser take memory or time",
    "Stopping the clock: SIGSTOP, sleeping children, double forks, pipes held open",
    "Signals, priorities and limits of neighbours and of init",
    "Core dumps as a way out: a core_pattern pipe runs as root outside",
    "Lying about the peer",
];

/// Every probe, in the order of the rows.
pub(crate) fn probes() -> Vec<Probe> {
    let mut all = [
        elsewhere::PROBES,
        pools::PROBES,
        r01_terminal::PROBES,
        r02_tables::PROBES,
        r03_halves::PROBES,
        r04_families::PROBES,
        r05_sockets::PROBES,
        r06_neighbours::PROBES,
        r07_secrets::PROBES,
        r08_descriptors::PROBES,
        r09_runtime::PROBES,
        r10_masks::PROBES,
        r11_links::PROBES,
        r12_absent::PROBES,
        r13_parameters::PROBES,
        r15_names::PROBES,
        r16_strings::PROBES,
        r17_pointers::PROBES,
        r18_landlock::PROBES,
        r19_channels::PROBES,
        r20_setuid::PROBES,
        r21_users::PROBES,
        r22_groups::PROBES,
        r23_environment::PROBES,
        r24_credentials::PROBES,
        r25_entries::PROBES,
        r26_leftovers::PROBES,
        r28_clock::PROBES,
        r29_signals::PROBES,
        r30_dumps::PROBES,
    ]
    .concat();
    all.sort_by_key(|probe| (probe.row, !probe.test.starts_with("escape::")));
    all
}

/// Names of all tests of this program.
fn tests() -> BTreeSet<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--list", "--format=terse"]);
    let listed = process::run(command, &[]).text();
    listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

#[test]
fn every_row_has_a_probe() {
    let mut of_row: BTreeMap<usize, Vec<Probe>> = BTreeMap::new();
    for probe in probes() {
        of_row.entry(probe.row).or_default().push(probe);
    }
    assert_eq!(of_row.keys().copied().collect::<Vec<_>>(), (1..=ROWS.len()).collect::<Vec<_>>());
    for text in probes().iter().flat_map(|p| [p.tried, p.control, p.closed_by]) {
        assert!(!text.is_empty() && !text.contains(['|', '\n']), "{text}");
    }
}

#[test]
fn every_probe_is_a_test_and_every_test_here_is_a_probe() {
    let tests = tests();
    assert!(tests.len() > 100, "{tests:?}");
    let named: BTreeSet<_> = probes().iter().map(|probe| probe.test.to_owned()).collect();
    let missing: Vec<_> = named.difference(&tests).collect();
    assert!(missing.is_empty(), "not there: {missing:?}");
    let here = |name: &&String| name.starts_with("escape::r") || name.starts_with("escape::pools");
    let unnamed: Vec<_> = tests.iter().filter(here).filter(|name| !named.contains(*name)).collect();
    assert!(unnamed.is_empty(), "in no PROBES: {unnamed:?}");
}
