//! Rotation: a trail that has grown is moved aside with its texts, texts that have grown alone; the oldest are removed.
//!
//! `audit.jsonl` becomes `audit.jsonl.1`, that `audit.jsonl.2`, and so on. Each step is one rename(2) to a name that is
//! free, so that a rotation that is broken off anywhere loses no line: it leaves a number free, up to which the next one
//! moves. Before older files are removed the trail says with which number it begins from then on, or with which
//! command the texts do: one that is removed by anybody else is missed.
//!
//! The trail by its own size, as a text can be a hundred times as long as its line: however long the texts are, it
//! reaches as far back as its lines are many. The texts with it, so that they never reach further back: of those nothing
//! would say that they are of what ran.

use super::Audit;
use crate::sandbox::steps::{About, Fault};
use cordon_protocol::audit::{Entry, older_number, older_path, read_line, read_text_line};
use nix::{errno::Errno, fcntl::OFlag};
use std::{
    fs::{self, OpenOptions},
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// How large the files may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of a file from which it is moved aside; 0 is never.
    pub size: u64,
    /// Older files of each that stay.
    pub keep: u32,
}

impl Rotation {
    /// A file of so many bytes is moved aside when it has grown to this.
    pub(super) fn due_after(self, length: u64) -> u64 {
        if self.size == 0 { u64::MAX } else { length.saturating_add(self.size) }
    }
}

/// Longest first line of an older file, bytes.
const LINE_MAX: u64 = 128 << 10;

impl Audit {
    /// Moves both files aside where the trail has grown so far, the texts alone where they have. Where that fails they
    /// grow on, and it is told.
    ///
    /// # Errors
    /// There is no trail to write to any more.
    pub(super) fn make_room(&mut self) -> Result<(), Fault> {
        self.trail.settle()?;
        if self.trail.length() >= self.due {
            self.due = self.rotation.due_after(0);
            if let Err(fault) = self.rotate() {
                self.due = self.rotation.due_after(self.trail.length());
                tell_failed(&fault);
            }
            // Where the old one has gone and there is no new one.
            self.trail.settle()?;
        }
        if self.texts.length() >= self.texts_due {
            self.texts_due = self.rotation.due_after(0);
            if let Err(fault) = self.rotate_texts() {
                self.texts_due = self.rotation.due_after(self.texts.length());
                tell_failed(&fault);
            }
        }
        Ok(())
    }

    fn rotate(&mut self) -> Result<(), Fault> {
        // What is in an older file is on the disk.
        self.sync();
        // The trail first: were it broken off in between, the texts would reach back further than the trail, and no
        // launch be without its text.
        move_aside(self.trail.path())?;
        self.trail.settle()?;
        self.tell();
        let moved = self.move_texts_aside();
        self.remove_oldest()?;
        moved
    }

    fn rotate_texts(&mut self) -> Result<(), Fault> {
        self.sync();
        self.move_texts_aside()?;
        self.remove_oldest_texts()
    }

    fn move_texts_aside(&mut self) -> Result<(), Fault> {
        // Texts that somebody else has put there are not ours to move.
        self.texts.settle()?;
        move_aside(self.texts.path())?;
        self.texts_due = self.rotation.due_after(0);
        self.texts.settle()
    }

    /// Removes older files over the number that stays.
    ///
    /// # Errors
    /// They cannot be found or removed, or the trail cannot say so before.
    pub(super) fn remove_oldest(&mut self) -> Result<(), Fault> {
        self.remove_oldest_lines()?;
        self.remove_oldest_texts()
    }

    fn remove_oldest_lines(&mut self) -> Result<(), Fault> {
        let (stay, go) = self.over(self.trail.path())?;
        if go.is_empty() {
            return Ok(());
        }
        let before = match stay.first() {
            Some(path) => first_number(path)?,
            None if self.trail.length() == 0 => self.head.seq + 1,
            None => first_number(self.trail.path())?,
        };
        self.add(Entry::Dropped { before })?;
        remove(&go)
    }

    fn remove_oldest_texts(&mut self) -> Result<(), Fault> {
        let (stay, go) = self.over(self.texts.path())?;
        if go.is_empty() {
            return Ok(());
        }
        // There is none in a file that the trail was moved aside with before anything else ran.
        let mut stay = stay.into_iter().chain([self.texts.path().to_owned()]);
        if let Some(before) = stay.find_map(|path| first_job(&path).transpose()).transpose()? {
            self.add(Entry::TextsDropped { before })?;
        }
        remove(&go)
    }

    /// Older files that stay, and those that do not, the oldest first.
    fn over(&self, path: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Fault> {
        if self.rotation.size == 0 {
            // Whoever moves them aside has the say.
            return Ok((Vec::new(), Vec::new()));
        }
        let mut numbers = older(path)?;
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        let stay = numbers.partition_point(|number| *number > self.rotation.keep);
        let paths = |numbers: &[u32]| numbers.iter().map(|number| older_path(path, *number)).collect();
        Ok((paths(&numbers[stay..]), paths(&numbers[..stay])))
    }
}

fn tell_failed(fault: &Fault) {
    crate::log!("audit: rotation failed: {fault}");
}

fn remove(paths: &[PathBuf]) -> Result<(), Fault> {
    paths.iter().try_for_each(|path| fs::remove_file(path).about(path.display()))
}

/// Numbers of the older files there are.
pub(super) fn older(path: &Path) -> Result<Vec<u32>, Fault> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory).about(directory.display())? {
        let name = entry.about(directory.display())?.file_name();
        numbers.extend(older_number(path, Path::new(&name)));
    }
    Ok(numbers)
}

/// Moves a file aside, and before it those in its way, up to the first number that is free.
fn move_aside(path: &Path) -> Result<(), Fault> {
    let mut free = 1;
    loop {
        let next = older_path(path, free);
        match fs::symlink_metadata(&next) {
            Ok(_) => free += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error).about(next.display()),
        }
    }
    let name = |number: u32| if number == 0 { PathBuf::from(path) } else { older_path(path, number) };
    for number in (0..free).rev() {
        match fs::rename(name(number), name(number + 1)) {
            // Somebody else has moved it away.
            Err(error) if number == 0 && error.kind() == io::ErrorKind::NotFound => {}
            moved => moved.about(name(number).display())?,
        }
    }
    Ok(())
}

/// Number of a file's first line.
fn first_number(path: &Path) -> Result<u64, Fault> {
    read_line(&first_line(path)?, 1)
        .map(|(line, _)| line.seq)
        .map_err(|problem| Fault::new(Errno::EBADMSG, format!("{}: {problem}", path.display())))
}

/// Number of the command whose text is a file's first line; none in an empty file.
fn first_job(path: &Path) -> Result<Option<String>, Fault> {
    let line = first_line(path)?;
    if line.is_empty() {
        return Ok(None);
    }
    let broken = || Fault::new(Errno::EBADMSG, format!("{}: not the text of a command", path.display()));
    read_text_line(&line).map(|(about, _)| Some(about.job)).ok_or_else(broken)
}

fn first_line(path: &Path) -> Result<String, Fault> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).about(path.display())?;
    let mut line = String::new();
    BufReader::new(file.take(LINE_MAX)).read_line(&mut line).about(path.display())?;
    line.truncate(line.trim_end().len());
    Ok(line)
}

#[cfg(test)]
mod tests;
