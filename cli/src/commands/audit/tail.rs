//! The lines of a file that grows, and that is moved away and begun anew.

use super::files::{self, Part};
use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags, InitFlags, Inotify},
};
use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, BufRead, BufReader, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// A file, as far as it has been read.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    /// What a rotation has moved aside and is still to be read, the oldest first.
    older: VecDeque<Part>,
    reader: BufReader<File>,
    /// A line that is being written.
    begun: Vec<u8>,
}

impl Tail {
    /// Opens the file, and those that were moved aside before it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::after(path, None)
    }

    /// As above, of older ones those alone that came after one of this number.
    fn after(path: &Path, inode: Option<u64>) -> io::Result<Self> {
        let mut older = VecDeque::from(files::all(path)?);
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let reader = older.pop_back().filter(|last| last.path == path).ok_or_else(missing)?.reader;
        if let Some(inode) = inode {
            let read = older.iter().position(|part| part.inode == inode).map_or(older.len(), |at| at + 1);
            older.drain(..read);
        }
        Ok(Self { path: path.to_owned(), older, reader, begun: Vec::new() })
    }

    /// The next whole line, without its end; none when there is no more for now.
    pub(super) fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(part) = self.older.front_mut() {
                match part.next()? {
                    Some(line) => return Ok(Some(line.text)),
                    None => drop(self.older.pop_front()),
                }
                continue;
            }
            self.reader.read_until(b'\n', &mut self.begun)?;
            if self.begun.last() == Some(&b'\n') {
                self.begun.pop();
                let line = std::mem::take(&mut self.begun);
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            if !self.is_begun_anew()? {
                return Ok(None);
            }
        }
    }

    /// Goes on with the file that has come in the place of the one that was read to its end, or at the start of one
    /// that has become shorter.
    fn is_begun_anew(&mut self) -> io::Result<bool> {
        let own = self.reader.get_ref().metadata()?;
        let another = match File::open(&self.path) {
            Ok(file) => file,
            // Moved away, and the new one is not there yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let there = another.metadata()?;
        if (there.dev(), there.ino()) != (own.dev(), own.ino()) {
            // What was added between the last look and the move comes first.
            if self.reader.stream_position()? < own.len() {
                return Ok(true);
            }
            // It may have been moved aside more than once since.
            match Self::after(&self.path, Some(own.ino())) {
                Ok(next) => *self = next,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(error),
            }
            return Ok(true);
        }
        let shorter = own.len() < self.reader.stream_position()?;
        if shorter {
            self.reader.seek(SeekFrom::Start(0))?;
            self.begun.clear();
        }
        Ok(shorter)
    }
}

/// Tells when something changes in the directory of a file, also in one that has come in its place.
#[derive(Debug)]
pub(super) struct Changes {
    watch: Inotify,
    directory: PathBuf,
}

impl Changes {
    /// Watches from now on: what is read afterwards misses nothing.
    pub(super) fn beside(path: &Path) -> io::Result<Self> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = fs::canonicalize(directory.unwrap_or(Path::new(".")))?;
        let watch = Inotify::init(InitFlags::IN_CLOEXEC)?;
        if let Some(above) = directory.parent() {
            watch.add_watch(above, AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO)?;
        }
        let changes = Self { watch, directory };
        changes.look_at_directory()?;
        Ok(changes)
    }

    fn look_at_directory(&self) -> io::Result<()> {
        let what = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        match self.watch.add_watch(&self.directory, what) {
            // It comes again, or does not.
            Ok(_) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits for a change.
    pub(super) fn wait(&self) -> io::Result<()> {
        loop {
            match self.watch.read_events() {
                Ok(_) => return self.look_at_directory(),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn lines_come_once_and_whole_over_moves_and_cuts() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("file"), directory.path().join("file.1"));
        let add = |path: &Path, text: &str| {
            let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        add(&path, "one\ntw");
        let changes = Changes::beside(&path).unwrap();
        let mut tail = Tail::open(&path).unwrap();
        let mut all = || std::iter::from_fn(|| tail.next().unwrap()).collect::<Vec<_>>();
        assert_eq!(all(), ["one"]);
        add(&path, "o\n");
        changes.wait().unwrap();
        assert_eq!(all(), ["two"]);
        // Written before the move, after it by whoever has the old one still open, and to the new one.
        add(&path, "three\n");
        fs::rename(&path, &moved).unwrap();
        add(&moved, "four\n");
        assert_eq!(all(), ["three", "four"]);
        add(&path, "five\n");
        assert_eq!(all(), ["five"]);
        fs::write(&path, "6\n").unwrap();
        assert_eq!(all(), ["6"]);
        // In a new directory under the same name, too.
        fs::remove_dir_all(directory.path()).unwrap();
        fs::create_dir(directory.path()).unwrap();
        let waited =
            std::thread::spawn(
                move || while changes.wait().is_ok() && !changes.directory.join("seen").exists() {},
            );
        add(&path, "7\n");
        assert_eq!(all(), ["7"]);
        while !waited.is_finished() {
            add(&directory.path().join("seen"), "x");
            std::thread::yield_now();
        }
    }
}
