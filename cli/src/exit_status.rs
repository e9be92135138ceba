//! Every exit status of the program, in one place.
//!
//! | status | `cordon run` |
//! |---|---|
//! | 0–255 | the command's own |
//! | 122 | disk limit |
//! | 124 | wall or processor time |
//! | 125 | a failure or refusal of Cordon's own, nothing said about the command; or the command's own would be 0, and a collected file could not be written |
//! | 126, 127 | the program cannot be executed, or is not there |
//! | 128+N | ended by signal N; so 129, 130, 143 for a hang-up, Ctrl-C and SIGTERM to `cordon` itself |
//! | 130 | cancelled |
//! | 137 | out of memory |
//! | 141 | output limit; or nobody reads our output any more |
//!
//! Every other subcommand: 0, 1 when it failed (`config`, `workspace`: 125), 2 for arguments that were not understood, 3 of
//! `audit verify` where nothing is wrong and not all could be compared, 141 as above; `up` also 128+N, when signal N came before it served or a second time.

use cordon_protocol::{EndedBy, ExitReport};
use nix::sys::signal::Signal;

/// All is well.
pub(crate) const SUCCESS: u8 = 0;
/// A subcommand other than `run` failed.
pub(crate) const FAILURE: u8 = 1;
/// Arguments not understood, of a subcommand other than `run`.
pub(crate) const USAGE: u8 = 2;
/// `audit verify`: nothing is wrong, and not all could be compared.
pub(crate) const UNPROVEN: u8 = 3;
/// `run`, `workspace`, `config`: anything that is Cordon's own failure or refusal.
pub(crate) const CORDON_FAILED: u8 = 125;
/// Nobody reads our output: as a program ended by SIGPIPE.
pub(crate) const BROKEN_PIPE: u8 = 141;

const DISK_LIMIT: u8 = 122;
const TIMEOUT: u8 = 124;
const CANCELLED: u8 = 130;
const OUT_OF_MEMORY: u8 = 137;
const OUTPUT_LIMIT: u8 = 141;
const SIGNAL_BASE: i32 = 128;

/// The status for a command that ended so.
pub(crate) fn of_report(report: &ExitReport) -> u8 {
    match report.ended_by {
        EndedBy::Exit => own_code(report),
        EndedBy::LaunchFailed if report.step.as_deref() == Some("exec") => own_code(report),
        EndedBy::LaunchFailed => CORDON_FAILED,
        EndedBy::Signal => {
            let number = report.signal.as_deref().and_then(signal_number);
            number.map_or(CORDON_FAILED, of_signal_number)
        }
        EndedBy::WallTimeout | EndedBy::CpuTimeout => TIMEOUT,
        EndedBy::OutOfMemory => OUT_OF_MEMORY,
        EndedBy::OutputLimit => OUTPUT_LIMIT,
        EndedBy::DiskLimit => DISK_LIMIT,
        EndedBy::Cancelled => CANCELLED,
    }
}

/// The status of a program that ends because of this signal.
pub(crate) fn of_signal(signal: Signal) -> u8 {
    of_signal_number(signal as i32)
}

fn of_signal_number(number: i32) -> u8 {
    u8::try_from(SIGNAL_BASE + number).unwrap_or(CORDON_FAILED)
}

fn own_code(report: &ExitReport) -> u8 {
    report.exit_code.and_then(|code| u8::try_from(code).ok()).unwrap_or(CORDON_FAILED)
}

/// The number of a signal by its name; real-time ones as `SIGRTMIN+3`, others as `SIG35` (signal(7)).
fn signal_number(name: &str) -> Option<i32> {
    if let Ok(signal) = name.parse::<Signal>() {
        return Some(signal as i32);
    }
    let number = if let Some(above) = name.strip_prefix("SIGRTMIN") {
        34 + if above.is_empty() { 0 } else { above.strip_prefix('+')?.parse::<i32>().ok()? }
    } else if let Some(below) = name.strip_prefix("SIGRTMAX") {
        64 - if below.is_empty() { 0 } else { below.strip_prefix('-')?.parse::<i32>().ok()? }
    } else {
        name.strip_prefix("SIG")?.parse().ok()?
    };
    (1..=64).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::run::sample;

    #[test]
    fn every_end_has_its_status() {
        use EndedBy as E;
        let table = [
            (E::Exit, Some(0), None, None, 0),
            (E::Exit, Some(255), None, None, 255),
            (E::Exit, None, None, None, 125),
            (E::Signal, None, Some("SIGTERM"), None, 143),
            (E::Signal, None, Some("SIGKILL"), None, 137),
            (E::Signal, None, Some("SIGRTMIN+3"), None, 128 + 37),
            (E::WallTimeout, None, Some("SIGKILL"), None, 124),
            (E::CpuTimeout, None, Some("SIGKILL"), None, 124),
            (E::OutOfMemory, None, Some("SIGKILL"), None, 137),
            (E::OutputLimit, None, Some("SIGKILL"), None, 141),
            (E::DiskLimit, None, Some("SIGKILL"), None, 122),
            (E::Cancelled, None, Some("SIGKILL"), None, 130),
            (E::LaunchFailed, Some(127), None, Some("exec"), 127),
            (E::LaunchFailed, Some(126), None, Some("exec"), 126),
            (E::LaunchFailed, None, None, Some("landlock"), 125),
        ];
        for (ended_by, exit_code, signal, step, status) in table {
            let report = ExitReport {
                ended_by,
                exit_code,
                signal: signal.map(str::to_owned),
                step: step.map(str::to_owned),
                ..sample()
            };
            assert_eq!(of_report(&report), status, "{report:?}");
        }
    }

    #[test]
    fn signals_have_their_numbers() {
        for (name, number) in
            [("SIGHUP", 1), ("SIGRTMIN", 34), ("SIGRTMAX-1", 63), ("SIGRTMAX", 64), ("SIG33", 33)]
        {
            assert_eq!(signal_number(name), Some(number), "{name}");
        }
        for name in ["", "SIG", "TERM", "SIG0", "SIG65", "SIGRTMIN+99", "SIGRTMIN3"] {
            assert_eq!(signal_number(name), None, "{name}");
        }
    }
}
