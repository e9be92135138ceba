//! Files that match patterns, sent as frames: what is collected after a command's end.

use super::{
    files,
    walk::{Allowance, Found, Walk},
};
use cordon_protocol::{CollectedFile, codec::encode_frame, limits};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    time::Duration,
};

/// What the patterns of a request may take together. Less time than collecting has ([`limits::COLLECT_TIMEOUT`]): what
/// was found is to arrive, and the word that it was not all.
const ALLOWED: Allowance = Allowance { names: 1_000_000, time: Duration::from_secs(5) };
/// Room in a frame beside a file's content, bytes.
const FRAME_ROOM: usize = 16 << 10;

/// Writes every regular file below `home` that matches one of the patterns, in their order, each once; then a frame
/// that says that these are all: whoever reads cannot tell a process that was ended from one that is done.
///
/// # Errors
/// The workspace cannot be entered, or nobody reads.
pub(super) fn collect(home: &Path, patterns: &[String], mut out: File) -> io::Result<()> {
    send_all(home, patterns, ALLOWED, &mut out)?;
    send(&mut out, &CollectedFile { problem: None, ..missing("", String::new()) })
}

fn send_all(home: &Path, patterns: &[String], mut left: Allowance, out: &mut File) -> io::Result<()> {
    let top = files::open_directory(home)?;
    let mut sent: Vec<String> = Vec::new();
    let mut room = limits::COLLECTED_BYTES_MAX;
    for (index, pattern) in patterns.iter().enumerate() {
        // One that takes long leaves something for the next ones.
        let (own, others) = if index + 1 == patterns.len() { (left, Allowance::NONE) } else { left.halved() };
        let mut walk = match Walk::new(&top, pattern, own) {
            Ok(walk) => walk,
            Err(error) => {
                send(out, &missing(pattern, files::explain(&error)))?;
                continue;
            }
        };
        let mut matched = false;
        for found in &mut walk {
            matched = true;
            let (Found::File(name) | Found::Closed(name, _)) = &found;
            if sent.contains(name) {
                continue;
            }
            if sent.len() == limits::FILES_MAX {
                let problem = format!("more than {} files match", limits::FILES_MAX);
                return send(out, &missing(pattern, problem));
            }
            sent.push(name.clone());
            let file = match found {
                Found::File(name) => read(home, &name, &mut room),
                Found::Closed(name, problem) => missing(&name, problem),
            };
            send(out, &file)?;
        }
        let problem = match (walk.cut, matched, walk.directories) {
            (true, ..) => Some(CUT_SHORT),
            (_, true, _) => None,
            (.., true) if pattern.ends_with('/') => Some(CollectedFile::EMPTY),
            (.., true) => Some(CollectedFile::ONLY_DIRECTORIES),
            _ => Some(CollectedFile::NO_MATCH),
        };
        if let Some(problem) = problem {
            send(out, &missing(pattern, problem.to_owned()))?;
        }
        left = walk.left().and(others);
    }
    Ok(())
}

const CUT_SHORT: &str =
    "there is too much to look through, and not all of it was; name the directory that it is in";

fn missing(path: &str, problem: String) -> CollectedFile {
    CollectedFile {
        path: path.to_owned(),
        mode: 0,
        size: 0,
        content: Vec::new(),
        truncated: false,
        problem: Some(problem),
    }
}

/// A file with as much of its content as fits.
fn read(home: &Path, name: &str, room: &mut usize) -> CollectedFile {
    let found = files::open(home, name).and_then(|mut file| {
        let meta = file.metadata()?;
        let most = limits::COLLECTED_FILE_MAX.min(*room);
        let mut content = Vec::new();
        Read::by_ref(&mut file).take(most as u64).read_to_end(&mut content)?;
        // Not its size: it may lie, as /proc's files do, or change.
        let truncated = content.len() == most && file.read(&mut [0])? > 0;
        *room -= content.len();
        let (mode, size) = (meta.mode() & 0o777, meta.len());
        Ok(CollectedFile { path: name.to_owned(), mode, size, content, truncated, problem: None })
    });
    found.unwrap_or_else(|error| missing(name, files::explain(&error)))
}

fn send(out: &mut File, file: &CollectedFile) -> io::Result<()> {
    let frame = encode_frame(file, limits::COLLECTED_FILE_MAX + FRAME_ROOM).map_err(io::Error::other)?;
    out.write_all(&frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cordon_protocol::codec::read_frame;
    use std::{fs, io::Seek};

    /// Paths and problems of what is sent for these patterns where so many names may be looked at.
    fn sent(home: &Path, patterns: &[&str], names: u64) -> Vec<(String, Option<String>)> {
        let patterns: Vec<_> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        let mut out = tempfile::tempfile().unwrap();
        send_all(home, &patterns, Allowance { names, ..ALLOWED }, &mut out).unwrap();
        out.rewind().unwrap();
        let mut files = Vec::new();
        while let Some(file) = read_frame::<CollectedFile>(&mut out, limits::EVENT_FRAME_MAX).unwrap() {
            files.push((file.path, file.problem));
        }
        files
    }

    #[test]
    fn a_pattern_that_finds_no_end_takes_nothing_from_the_others() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("many")).unwrap();
        for name in 0..100 {
            fs::write(home.path().join(format!("many/{name}")), "").unwrap();
        }
        fs::write(home.path().join("a.txt"), "").unwrap();
        let found = sent(home.path(), &["**/*.txt", "*.txt", "m*", "many/7"], 40);
        let told = |path: &str, problem: &str| (path.to_owned(), Some(problem.to_owned()));
        let wanted = [
            ("a.txt".to_owned(), None),
            told("**/*.txt", CUT_SHORT),
            told("m*", CollectedFile::ONLY_DIRECTORIES),
            ("many/7".to_owned(), None),
        ];
        assert_eq!(found, wanted);
    }
}
