//! `bench [ROUNDS]` as root: what one command costs through each door, beside a bare spawn of the same program.
//!
//! Starts `cordon up` from the directory this program is in, so that all are of one build. Prints a table
//! and writes `bench.json` into the target directory. It judges nothing: times are for people to compare.
#![allow(clippy::print_stdout, reason = "the table is what it is for")]

use cordon_protocol::{Action, Event, ExitReport, RunRequest, client::blocking};
use cordon_tests::{
    Failure,
    measure::{Case, interleave, json, table},
    nop,
    up::{Http, Up},
};
use std::{
    env, fs,
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

/// Where the program is that all cases start; in `/usr`, which the default profile gives to commands.
const NOP: &str = "/usr/local/bin/cordon-bench-nop";
const ROUNDS: u32 = 300;
const WARM_UP: u32 = 20;
/// Time between two runs, in which whatever is prepared beforehand is prepared again.
const PAUSE: Duration = Duration::from_millis(3);

fn main() -> ExitCode {
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench() -> Result<(), Failure> {
    let rounds = env::args().nth(1).map_or(Ok(ROUNDS), |text| text.parse())?;
    let own = env::current_exe()?;
    let programs = own.parent().ok_or("this program is in no directory")?;
    let _nop = Nop::install()?;
    let target = programs.parent().unwrap_or(programs);
    let up = Up::start(&programs.join("cordon"), &target.join("bench.log"), "")?;
    let mut http = Http::connect(&up)?;
    let body = format!(r#"{{"argv":["{NOP}"]}}"#);
    let socket = up.socket();
    let cordon = programs.join("cordon");
    let mut cases = vec![
        Case::new("bare spawn", || succeed(&mut Command::new(NOP))),
        Case::new("cordon, socket", || through_socket(&socket)),
        Case::new("cordon, HTTP keep-alive", || check(&http.exec(&body)?)),
        Case::new("cordon run, whole process", || {
            succeed(Command::new(&cordon).args(["run", "-n", "--", NOP]).env("CORDON_SOCKET", &socket))
        }),
    ];
    if Command::new("bwrap").arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success()) {
        let root = ["--ro-bind", "/usr", "/usr"];
        cases.push(Case::new("bwrap, one bind", move || succeed(Command::new("bwrap").args(root).arg(NOP))));
        let more =
            ["--unshare-all", "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev"];
        let command =
            move || succeed(Command::new("bwrap").args(root).args(more).args(["--tmpfs", "/tmp"]).arg(NOP));
        match command() {
            Ok(()) => cases.push(Case::new("bwrap, all namespaces", command)),
            Err(error) => eprintln!("bwrap with all namespaces is left out: {error}"),
        }
    } else {
        eprintln!("bwrap is not installed and left out");
    }
    interleave(&mut cases, WARM_UP, rounds, PAUSE)?;
    print!("{}", table(&cases));
    let file = target.join("bench.json");
    fs::write(&file, serde_json::to_vec_pretty(&json(&cases))?)?;
    println!("{rounds} interleaved rounds; written to {}", file.display());
    Ok(())
}

/// Runs a program that must succeed; the standard library uses posix_spawn(3) for it.
fn succeed(command: &mut Command) -> Result<(), Failure> {
    let status = command.stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

/// A report that says the program ran and exited with 0.
fn check(report: &ExitReport) -> Result<(), Failure> {
    if report.exit_code == Some(0) { Ok(()) } else { Err(format!("{report:?}").into()) }
}

fn through_socket(socket: &Path) -> Result<(), Failure> {
    let request = RunRequest::new(Action::Argv(vec![NOP.to_owned()]));
    let (mut connection, _stdin) = blocking::run(socket, "bench", request)?;
    loop {
        if let Event::Exited(report) = connection.next_event()? {
            return check(&report);
        }
    }
}

/// The program where commands find it; removed at the end.
struct Nop;

impl Nop {
    fn install() -> Result<Self, Failure> {
        if Path::new(NOP).exists() && fs::read(NOP)? != nop::image() {
            return Err(format!("{NOP} is something else; remove it").into());
        }
        nop::write(Path::new(NOP)).map_err(|e| format!("cannot write {NOP}: {e}; run this as root"))?;
        Ok(Self)
    }
}

impl Drop for Nop {
    fn drop(&mut self) {
        let _ = fs::remove_file(NOP);
    }
}
