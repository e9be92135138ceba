//! A file and those that a rotation has moved aside, as one.

use cordon_protocol::audit::{older_number, older_path};
use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Looks at the files before those that were found are believed to belong together.
const LOOKS: usize = 100;

/// A file that is read line by line.
#[derive(Debug)]
pub(super) struct Part {
    /// Under this name it was found.
    pub(super) path: PathBuf,
    pub(super) reader: BufReader<File>,
    /// Its number on the file system.
    pub(super) inode: u64,
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
        let inode = file.metadata()?.ino();
        Ok(Self { path, reader: BufReader::new(file), inode })
    }

    /// The next line; none at its end.
    pub(super) fn next(&mut self) -> io::Result<Option<Read>> {
        let mut line = Vec::new();
        if self.reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
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
    let mut last = None;
    for _ in 0..LOOKS {
        let paths = older(path)?.into_iter().chain([path.to_owned()]);
        let parts: Vec<_> = paths
            .filter_map(|path| Part::open(path).map_or_else(gone, |part| Some(Ok(part))))
            .collect::<io::Result<_>>()?;
        let found: Vec<_> = parts.iter().map(|part| (part.path.clone(), part.inode)).collect();
        if last.as_ref() == Some(&found) {
            return Ok(parts);
        }
        last = Some(found);
    }
    Err(io::Error::other("they are moved aside all the time"))
}

fn gone<T>(error: io::Error) -> Option<io::Result<T>> {
    (error.kind() != io::ErrorKind::NotFound).then_some(Err(error))
}
