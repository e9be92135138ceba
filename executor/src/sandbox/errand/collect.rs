//! Files that match patterns, sent as frames: what is collected after a command's end.

use super::files;
use cordon_protocol::{CollectedFile, codec::encode_frame, limits};
use glob::{MatchOptions, Pattern};
use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Names that a pattern may come to before the rest is left out.
const MATCHES_MAX: usize = 100_000;
/// Room in a frame beside a file's content, bytes.
const FRAME_ROOM: usize = 16 << 10;

/// As a shell does: `*` stays within a name and leaves out what begins with a dot.
const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };
/// For the walk, whose own way of leaving out what begins with a dot takes away what a pattern names with its dot,
/// and ends the process where a name is not UTF-8.
const WALK: MatchOptions = MatchOptions { require_literal_leading_dot: false, ..OPTIONS };

/// Writes every regular file below `home` that matches one of the patterns, in their order, each once; then a frame
/// that says that these are all: whoever reads cannot tell a process that was ended from one that is done.
///
/// # Errors
/// The workspace cannot be entered, or nobody reads.
pub(super) fn collect(home: &Path, patterns: &[String], mut out: File) -> io::Result<()> {
    send_all(home, patterns, &mut out)?;
    send(&mut out, &CollectedFile { problem: None, ..missing("", String::new()) })
}

fn send_all(home: &Path, patterns: &[String], out: &mut File) -> io::Result<()> {
    // Patterns are relative, and a workspace's own path may hold what means something in a pattern.
    std::env::set_current_dir(home)?;
    let mut sent: Vec<String> = Vec::new();
    let mut room = limits::COLLECTED_BYTES_MAX;
    for pattern in patterns {
        let mut matched = false;
        for path in matches(pattern)?.take(MATCHES_MAX) {
            if path.is_dir() && !path.is_symlink() {
                continue;
            }
            matched = true;
            let name = path.to_string_lossy().into_owned();
            if sent.contains(&name) {
                continue;
            }
            if sent.len() == limits::FILES_MAX {
                let problem = format!("more than {} files match", limits::FILES_MAX);
                return send(out, &missing(pattern, problem));
            }
            let file = read(home, &name, &mut room);
            sent.push(name);
            send(out, &file)?;
        }
        if !matched {
            send(out, &missing(pattern, CollectedFile::NO_MATCH.to_owned()))?;
        }
    }
    Ok(())
}

/// The names below the current directory that match, in order. Those that are not UTF-8 match nothing.
fn matches(pattern: &str) -> io::Result<impl Iterator<Item = PathBuf>> {
    // As names come: without what says nothing, `a//b` or `a/./b`.
    let plain: PathBuf = Path::new(pattern).components().collect();
    let plain = plain.to_string_lossy();
    let whole = Pattern::new(&plain).map_err(io::Error::other)?;
    let names = glob::glob_with(&plain, WALK).map_err(io::Error::other)?;
    Ok(names.flatten().filter(move |path| whole.matches_path_with(path, OPTIONS)))
}

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
    found.unwrap_or_else(|error| missing(name, error.to_string()))
}

fn send(out: &mut File, file: &CollectedFile) -> io::Result<()> {
    let frame = encode_frame(file, limits::COLLECTED_FILE_MAX + FRAME_ROOM).map_err(io::Error::other)?;
    out.write_all(&frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt};

    #[test]
    fn patterns_match_as_a_shell_s_do_whatever_else_is_there() {
        let top = std::env::temp_dir().join(format!("cordon-collect-{}", std::process::id()));
        let _ = fs::remove_dir_all(&top);
        for file in ["a", ".env", "d/b", "d/.hidden", "d/e/.env", ".git/config", ".git/.x", "d/[x]"] {
            fs::create_dir_all(top.join(file).parent().unwrap()).unwrap();
            fs::write(top.join(file), "").unwrap();
        }
        for directory in [top.clone(), top.join("d")] {
            fs::write(directory.join(OsStr::from_bytes(b"\xff")), "").unwrap();
        }
        // Matching starts in the current directory, which the tests of a process share.
        let found = |pattern: &str| -> Vec<String> {
            let pattern = format!("{}/{pattern}", top.display());
            let files = matches(&pattern).unwrap().filter(|path| path.is_file());
            files.map(|path| path.strip_prefix(&top).unwrap().to_str().unwrap().to_owned()).collect()
        };
        for (pattern, names) in [
            ("*", &["a"][..]),
            (".*", &[".env"]),
            ("**/*", &["a", "d/[x]", "d/b"]),
            ("**/.*", &[".env", "d/.hidden", "d/e/.env"]),
            ("**/.env", &[".env", "d/e/.env"]),
            (".git/*", &[".git/config"]),
            ("**/.*/**/*", &[".git/config"]),
            ("d/**/*", &["d/[x]", "d/b"]),
            ("d/./b", &["d/b"]),
            ("d//b", &["d/b"]),
            ("d/[[]x]", &["d/[x]"]),
            ("d/none", &[]),
        ] {
            assert_eq!(found(pattern), names, "{pattern}");
        }
        fs::remove_dir_all(top).unwrap();
    }
}
