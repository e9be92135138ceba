//! A file and those that a rotation has moved aside, as one; a trail and its texts likewise, as of one moment.

use cordon_protocol::audit::{older_number, older_path};
use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Looks at the files before those that were found are believed to belong together.
const LOOKS: usize = 100;
/// Between two looks for a file that is not there.
const PAUSE: Duration = Duration::from_millis(1);

/// A file that is read line by line.
#[derive(Debug)]
pub(super) struct Part {
    /// Under this name it was found.
    pub(super) path: PathBuf,
    pub(super) reader: BufReader<File>,
    /// Its number on the file system.
    pub(super) inode: u64,
    /// Bytes it had when it was opened.
    length: u64,
    /// Bytes of it that have been read.
    at: u64,
}

/// A line.
#[derive(Debug)]
pub(super) struct Read {
    /// Without its end.
    pub(super) text: String,
    /// It has one.
    pub(super) whole: bool,
}

impl Part {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = File::open(&path)?;
        let meta = file.metadata()?;
        let (inode, length) = (meta.ino(), meta.len());
        Ok(Self { path, reader: BufReader::new(file), inode, length, at: 0 })
    }

    /// The next line had begun when the file was opened.
    pub(super) fn was_there(&self) -> bool {
        self.at < self.length
    }

    /// The next line; none at its end.
    pub(super) fn next(&mut self) -> io::Result<Option<Read>> {
        let mut line = Vec::new();
        if self.reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        self.at += u64::try_from(line.len()).unwrap_or(u64::MAX);
        let whole = line.pop_if(|last| *last == b'\n').is_some();
        Ok(Some(Read { text: String::from_utf8_lossy(&line).into_owned(), whole }))
    }
}

/// The older files, the oldest first.
pub(in crate::commands) fn older(path: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory.unwrap_or(Path::new(".")))? {
        numbers.extend(older_number(path, Path::new(&entry?.file_name())));
    }
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    Ok(numbers.into_iter().map(|number| older_path(path, number)).collect())
}

/// All of them, the oldest first, the file itself last where there is one. A rotation meanwhile does not tear them
/// apart.
pub(super) fn all(path: &Path) -> io::Result<Vec<Part>> {
    unmoved(|| opened(path), |parts| Some(names(parts)))
}

/// A trail and its texts, as [`all`], with no rotation between both. What the trail has has its text, as that is written
/// first; what the texts had when they were opened has its launch, but for one that is being written.
#[derive(Debug)]
pub(super) struct Both {
    pub(super) trail: Vec<Part>,
    pub(super) texts: Vec<Part>,
}

/// Opens both.
pub(super) fn both(trail: &Path, texts: &Path) -> io::Result<Both> {
    let open = || {
        // Before the trail, which then knows what they had.
        let texts = opened(texts).or_else(|error| gone(error).unwrap_or_else(|| Ok(Vec::new())))?;
        Ok(Both { texts, trail: opened(trail)? })
    };
    // In the midst of a rotation there is no trail for a moment.
    let is_there = |both: &Both| both.trail.last().is_some_and(|last| last.path == trail);
    unmoved(open, |both| is_there(both).then(|| (names(&both.trail), names(&both.texts))))
}

/// What a look found that was followed by one that found the same. The first is kept until then, so that no other file
/// can have the number of one of its files.
fn unmoved<T, N: PartialEq>(
    look: impl Fn() -> io::Result<T>,
    name: impl Fn(&T) -> Option<N>,
) -> io::Result<T> {
    let mut last: Option<T> = None;
    for _ in 0..LOOKS {
        let now = look()?;
        match (last.take(), name(&now)) {
            (Some(found), Some(names)) if name(&found).as_ref() == Some(&names) => return Ok(found),
            (_, None) => thread::sleep(PAUSE),
            _ => {}
        }
        last = Some(now);
    }
    match last.as_ref().and_then(name) {
        Some(_) => Err(io::Error::other("they are moved aside all the time")),
        None => Err(io::ErrorKind::NotFound.into()),
    }
}

fn names(parts: &[Part]) -> Vec<(PathBuf, u64)> {
    parts.iter().map(|part| (part.path.clone(), part.inode)).collect()
}

fn opened(path: &Path) -> io::Result<Vec<Part>> {
    let paths = older(path)?.into_iter().chain([path.to_owned()]);
    paths.filter_map(|path| Part::open(path).map_or_else(gone, |part| Some(Ok(part)))).collect()
}

fn gone<T>(error: io::Error) -> Option<io::Result<T>> {
    (error.kind() != io::ErrorKind::NotFound).then_some(Err(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn files_that_were_moved_meanwhile_are_looked_at_again() {
        // The names that each look finds; none is in the midst of a rotation.
        for (looks, found) in [
            (&[Some(1), Some(1)][..], Some(0)),
            (&[Some(1), Some(2), Some(2)], Some(1)),
            (&[None, None, Some(3), Some(3)], Some(2)),
            (&[Some(1), None, Some(1), Some(2), Some(2)], Some(3)),
        ] {
            let number = Cell::new(0);
            let look = || Ok(number.replace(number.get() + 1));
            assert_eq!(unmoved(look, |look: &usize| looks[*look]).ok(), found, "{looks:?}");
            assert_eq!(number.get(), looks.len());
        }
        let number = Cell::new(0);
        let look = || Ok(number.replace(number.get() + 1));
        assert_eq!(unmoved(look, |look| Some(*look)).unwrap_err().kind(), io::ErrorKind::Other);
        let gone = unmoved(|| Ok(()), |()| None::<u8>).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
