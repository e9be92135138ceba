//! Names below a directory that match a pattern, found as a shell finds them: `**` goes through no link, what is
//! named is. A command made what is walked through: one look at each directory, and an end to it in any case.

use super::files;
use glob::{MatchOptions, Pattern};
use nix::{
    dir::{Dir, Type},
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, openat2},
    sys::stat::{SFlag, fstatat},
};
use std::{
    io,
    os::fd::OwnedFd,
    path::{Component, Path},
    time::{Duration, Instant},
    vec,
};

/// As a shell does: `*` leaves out what begins with a dot.
const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };
/// What is kept of directories on the way before the rest is left out, bytes: the process has 64 MiB.
const KEPT_MAX: usize = 16 << 20;

/// What a walk may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowance {
    /// Names that are looked at.
    pub(super) names: u64,
    pub(super) time: Duration,
}

impl Allowance {
    pub(super) const NONE: Self = Self { names: 0, time: Duration::ZERO };

    /// One half and the other.
    pub(super) fn halved(self) -> (Self, Self) {
        let half = Self { names: self.names / 2, time: self.time / 2 };
        (half, Self { names: self.names - half.names, time: self.time - half.time })
    }

    /// Both together.
    pub(super) fn and(self, other: Self) -> Self {
        Self { names: self.names + other.names, time: self.time + other.time }
    }
}

/// What a walk comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// What is no directory, nor a link to one.
    File(String),
    /// What could not be looked into, and why.
    Closed(String, String),
}

/// A part of a pattern.
#[derive(Debug)]
enum Part {
    /// One name.
    Exact(String),
    /// One name of several.
    Name(Pattern),
    /// `**`: any directories that are not hidden, or none.
    Through,
    /// A `/` at the end: everything below, hidden or not.
    All,
}

/// A walk by one pattern, file by file.
///
/// It carries, for each directory, the parts of the pattern that may come next there. So it is in each directory
/// once, by whatever ways the pattern leads there.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    top: &'a OwnedFd,
    parts: Vec<Part>,
    levels: Vec<Level>,
    kept: usize,
    left: Allowance,
    /// It has come to its end before the end.
    pub(super) cut: bool,
    /// Directories match.
    pub(super) directories: bool,
}

/// A directory on the way, and what is still to be looked at there.
#[derive(Debug)]
struct Level {
    path: String,
    entries: vec::IntoIter<Entry>,
}

/// A name that matches, or leads on.
#[derive(Debug)]
struct Entry {
    name: String,
    kind: Kind,
    matches: bool,
    /// The parts that may come next, if it is a directory.
    next: Vec<usize>,
    /// Whether it is to be told that it could not be entered.
    wanted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    Link,
    Other,
    /// Its name is not UTF-8.
    NoText,
}

impl Entry {
    fn size(&self) -> usize {
        size_of::<Self>() + self.name.capacity() + self.next.capacity() * size_of::<usize>()
    }
}

impl<'a> Walk<'a> {
    /// A walk that starts from this directory.
    ///
    /// # Errors
    /// The pattern is none, or does not go down; the directory is closed.
    pub(super) fn new(top: &'a OwnedFd, pattern: &str, left: Allowance) -> io::Result<Self> {
        let parts = parse(pattern)?;
        let mut walk = Self { top, parts, levels: Vec::new(), kept: 0, left, cut: false, directories: false };
        let begin = walk.arrive(Vec::new(), 0);
        let start = Instant::now();
        walk.enter(String::new(), &begin, true, start + left.time)?;
        walk.spend(start);
        Ok(walk)
    }

    /// What it has not taken.
    pub(super) fn left(&self) -> Allowance {
        self.left
    }

    fn spend(&mut self, since: Instant) {
        self.left.time = self.left.time.saturating_sub(since.elapsed());
    }

    /// The parts with one more that may come next; after `**` that is also what follows.
    fn arrive(&self, mut next: Vec<usize>, part: usize) -> Vec<usize> {
        for part in part.. {
            if !next.contains(&part) {
                next.push(part);
            }
            if !matches!(self.parts.get(part), Some(Part::Through)) {
                break;
            }
        }
        next
    }

    fn advance(&mut self, deadline: Instant) -> Option<Found> {
        loop {
            let level = self.levels.last_mut()?;
            let Some(entry) = level.entries.next() else {
                self.levels.pop();
                continue;
            };
            let path = join(&level.path, &entry.name);
            self.kept = self.kept.saturating_sub(entry.size());
            if let Some(found) = self.look(path, &entry, deadline) {
                return Some(found);
            }
        }
    }

    /// What an entry is, and on into it.
    fn look(&mut self, path: String, entry: &Entry, deadline: Instant) -> Option<Found> {
        if entry.kind == Kind::NoText {
            return Some(Found::Closed(path, NO_TEXT.to_owned()));
        }
        let is_directory = match entry.kind {
            Kind::Link => open(self.top, &path, OFlag::O_PATH | OFlag::O_DIRECTORY).is_ok(),
            kind => kind == Kind::Directory,
        };
        if entry.matches && !is_directory {
            return Some(Found::File(path));
        }
        self.directories |= entry.matches && !self.is_for_all();
        if entry.next.is_empty() {
            // What is below a directory with all that is in it.
            let left_out = entry.matches && self.is_for_all();
            return left_out.then(|| Found::Closed(path, LINK_TO_DIRECTORY.to_owned()));
        }
        if self.cut {
            return None;
        }
        match self.enter(path.clone(), &entry.next, entry.kind == Kind::Link, deadline) {
            Ok(()) | Err(Errno::ENOENT | Errno::ENOTDIR) => None,
            Err(errno) if entry.wanted => Some(Found::Closed(path, files::explain(&errno.into()))),
            Err(_) => None,
        }
    }

    fn is_for_all(&self) -> bool {
        matches!(self.parts.last(), Some(Part::All))
    }

    /// Goes into a directory.
    fn enter(&mut self, path: String, next: &[usize], follow: bool, deadline: Instant) -> Result<(), Errno> {
        // What is named is found in a directory that cannot be listed.
        let named: Option<Vec<&str>> = next
            .iter()
            .map(
                |part| {
                    if let Some(Part::Exact(name)) = self.parts.get(*part) { Some(&name[..]) } else { None }
                },
            )
            .collect();
        let flags = if named.is_some() { OFlag::O_PATH } else { OFlag::O_RDONLY };
        let follow = if follow { OFlag::empty() } else { OFlag::O_NOFOLLOW };
        let at =
            open(self.top, if path.is_empty() { "." } else { &path }, OFlag::O_DIRECTORY | flags | follow)?;
        let mut entries = match named {
            Some(names) => {
                let there = names.into_iter().filter_map(|name| Some((name, kind(&at, name).ok()?)));
                there.filter_map(|(name, kind)| self.entry(name, kind, next)).collect()
            }
            None => self.list(at, next, deadline)?,
        };
        entries.sort_unstable_by(|one: &Entry, other| one.name.cmp(&other.name));
        self.directories |= self.has_all(next);
        self.kept += entries.iter().map(Entry::size).sum::<usize>();
        self.levels.push(Level { path, entries: entries.into_iter() });
        Ok(())
    }

    /// The names in a directory that match, or lead on.
    fn list(&mut self, at: OwnedFd, next: &[usize], deadline: Instant) -> Result<Vec<Entry>, Errno> {
        let mut entries = Vec::new();
        let mut kept = self.kept;
        let mut directory = Dir::from_fd(at)?;
        let at = open_again(&directory)?;
        for found in directory.iter() {
            let found = found?;
            if matches!(found.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            if self.left.names == 0 || kept > KEPT_MAX || Instant::now() >= deadline {
                self.cut = true;
                break;
            }
            self.left.names -= 1;
            let Ok(name) = found.file_name().to_str() else {
                if self.has_all(next) {
                    let name = found.file_name().to_string_lossy().into_owned();
                    let (kind, next) = (Kind::NoText, Vec::new());
                    entries.push(Entry { name, kind, matches: true, next, wanted: true });
                }
                continue;
            };
            let kind = match found.file_type() {
                Some(Type::Directory) => Kind::Directory,
                Some(Type::Symlink) => Kind::Link,
                Some(_) => Kind::Other,
                // A file system that does not say.
                None => kind(&at, name).unwrap_or(Kind::Other),
            };
            if let Some(entry) = self.entry(name, kind, next) {
                kept += entry.size();
                entries.push(entry);
            }
        }
        Ok(entries)
    }

    fn has_all(&self, next: &[usize]) -> bool {
        next.iter().any(|part| matches!(self.parts.get(*part), Some(Part::All)))
    }

    /// What a name comes to where these parts may come next; none if to nothing.
    fn entry(&self, name: &str, kind: Kind, next: &[usize]) -> Option<Entry> {
        let mut entry =
            Entry { name: name.to_owned(), kind, matches: false, next: Vec::new(), wanted: false };
        for &part in next {
            let named = match self.parts.get(part)? {
                Part::Through if kind == Kind::Directory && !name.starts_with('.') => {
                    entry.next = self.arrive(entry.next, part);
                    continue;
                }
                Part::All if kind == Kind::Directory => {
                    entry.next = self.arrive(entry.next, part);
                    continue;
                }
                Part::All => {
                    entry.matches = true;
                    continue;
                }
                Part::Exact(exact) if exact == name => true,
                Part::Name(pattern) if pattern.matches_with(name, OPTIONS) => false,
                _ => continue,
            };
            if part + 1 == self.parts.len() {
                entry.matches = true;
            } else if kind != Kind::Other {
                entry.next = self.arrive(entry.next, part + 1);
                entry.wanted |= named;
            }
        }
        entry.wanted |= self.has_all(&entry.next);
        (entry.matches || !entry.next.is_empty()).then_some(entry)
    }
}

impl Iterator for Walk<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        // What is done with a file takes other time.
        let start = Instant::now();
        let found = self.advance(start + self.left.time);
        self.spend(start);
        found
    }
}

const LINK_TO_DIRECTORY: &str =
    "a link to a directory, which is not gone through; name it to get what is there";
const NO_TEXT: &str = "its name is not UTF-8; make an archive of it, with tar for instance";

fn parse(pattern: &str) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for component in Path::new(pattern).components() {
        let name = match component {
            Component::Normal(name) => name.to_str().ok_or(Errno::EINVAL)?,
            Component::CurDir => continue,
            _ => return Err(Errno::EINVAL.into()),
        };
        match name {
            // One after another are as one.
            "**" if matches!(parts.last(), Some(Part::Through)) => {}
            "**" => parts.push(Part::Through),
            _ if name.contains(['*', '?', '[']) => {
                parts.push(Part::Name(Pattern::new(name).map_err(io::Error::other)?));
            }
            _ => parts.push(Part::Exact(name.to_owned())),
        }
    }
    if matches!(parts.last(), Some(Part::Through)) {
        parts.push(Part::Name(Pattern::new("*").map_err(io::Error::other)?));
    }
    if pattern.ends_with('/') {
        parts.push(Part::All);
    }
    Ok(parts)
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

fn open(top: &OwnedFd, path: &str, flags: OFlag) -> nix::Result<OwnedFd> {
    openat2(top, path, OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(files::within()))
}

/// A descriptor of its own: a directory that is listed keeps the one it was given.
fn open_again(directory: &Dir) -> nix::Result<OwnedFd> {
    openat2(directory, ".", OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(files::within()))
}

fn kind(at: &OwnedFd, name: &str) -> nix::Result<Kind> {
    let stat = fstatat(at, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFDIR => Kind::Directory,
        SFlag::S_IFLNK => Kind::Link,
        _ => Kind::Other,
    })
}

#[cfg(test)]
mod tests;
