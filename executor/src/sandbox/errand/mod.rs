//! Errands: what is done in a workspace without a program, by the command's own process, after its whole lock-down
//! and before (or in place of) its exec.
//!
//! Root never follows a path that a command could have made: it is this process, which can do no more than the
//! command, that reads and writes there.

mod collect;
mod files;
pub mod tree;
mod walk;

pub use files::{DEFAULT_MODE, put};

use super::plan::Place;
use crate::{
    profile::Profile,
    sealed::{Pieces, Work},
    sys::process::exit_now,
};
use nix::errno::Errno;
use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    time::Duration,
};
use tree::{Measured, Size};

/// Longest that a workspace is counted for whoever asks how much is in it.
const MEASURE_TIME: Duration = Duration::from_secs(10);

/// Does an errand with standard input and output as they are, and ends: with 0, or with 1 and a line on standard
/// error. What is written takes at most `room`. Returns only for a program, which is none.
pub fn perform(work: &Work, profile: &Profile, place: &Place, mut room: Size) {
    let home = &place.home;
    let (about, done) = match work {
        Work::Program(_) => return,
        Work::Nothing => ("nothing", Ok(())),
        Work::Write { path, mode } => {
            let made = files::create(home, path, *mode, &mut room);
            (&path[..], made.and_then(|made| made.fill(Pieces::new(io::stdin()), room.bytes)))
        }
        Work::Read { path } => (&path[..], files::open(home, path).and_then(|file| copy(file, output()?))),
        Work::Measure => {
            ("the workspace", tree::measure_for(home, tree::COUNT_MAX, MEASURE_TIME).and_then(say))
        }
        Work::Collect(patterns) => {
            ("collecting", output().and_then(|out| collect::collect(home, patterns, out)))
        }
    };
    if let Err(error) = &done {
        let why = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EDQUOT) => profile.beyond_room(true),
            _ => files::explain(error),
        };
        let _ = writeln!(io::stderr(), "{about}: {why}");
    }
    exit_now(i32::from(done.is_err()))
}

/// Standard output without a buffer: whoever ends at once flushes none.
fn output() -> io::Result<File> {
    Ok(io::stdout().as_fd().try_clone_to_owned()?.into())
}

fn say(found: Measured) -> io::Result<()> {
    let Measured { size, closed } = found;
    output()?.write_all(format!("{} {} {closed}\n", size.bytes, size.files).as_bytes())
}

fn copy(mut from: impl io::Read, mut to: impl Write) -> io::Result<()> {
    io::copy(&mut from, &mut to).map(drop)
}
