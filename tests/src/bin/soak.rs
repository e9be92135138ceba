//! `soak [--malformed] [RUNS]` as root: many runs of every kind, several at once, and whether anything is left over or
//! has grown. With `--malformed` they are bytes that are no request, and connections that are dropped.
//!
//! Starts `cordon up` from the directory this program is in. Prints a table, and ends with 1 when something has grown.
#![allow(clippy::print_stdout, reason = "the table is what it is for")]

use cordon_tests::{
    Failure,
    soak::{Mix, Outcome, Plan, soak},
};
use std::{env, process::ExitCode, time::Duration};

const RUNS: usize = 20_000;
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    match run() {
        Ok(outcome) => {
            println!("{outcome}");
            for fault in &outcome.faults {
                println!("fault: {fault}");
            }
            if outcome.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("soak failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Outcome, Failure> {
    let mut arguments = env::args().skip(1).peekable();
    let malformed = arguments.next_if_eq("--malformed").is_some();
    let mix = if malformed { Mix::Malformed } else { Mix::Ordinary };
    let runs = arguments.next().map_or(Ok(RUNS), |text| text.parse())?;
    let own = env::current_exe()?;
    let programs = own.parent().ok_or("this program is in no directory")?;
    let cordon = programs.join("cordon");
    let log = programs.parent().unwrap_or(programs).join("soak.log");
    soak(&Plan { cordon: &cordon, log: &log, mix, runs, patience: PATIENCE }, |_, _| {})
}
