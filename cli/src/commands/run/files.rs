//! Files of ours that go along with a request.

use crate::{failure::Failure, source};
use cordon_protocol::{Bytes, FileIn, limits};
use std::{
    collections::HashSet,
    io::{self, Read},
    path::{Path, PathBuf},
};

const MORE: &str = "send large input as standard input, or use `cordon workspace put` and --workspace";

/// Reads them, each path once, as many and as much as a request takes.
pub(super) fn read(entries: &[(String, PathBuf)]) -> Result<Vec<FileIn>, Failure> {
    let told = |problem: String, next: &str| Failure::bad_request(problem, next);
    if entries.len() > limits::FILES_MAX {
        let problem = format!("--file: is given {} times, the limit is {}", entries.len(), limits::FILES_MAX);
        return Err(told(problem, "send a tar archive as standard input, or use `cordon workspace put`"));
    }
    let mut seen = HashSet::new();
    let mut room = limits::FILES_BYTES_MAX;
    let mut files = Vec::with_capacity(entries.len());
    for (path, local) in entries {
        if !seen.insert(path) {
            return Err(told(format!("--file: {path} is given twice"), "give each PATH once"));
        }
        let file = read_one(path, local, room).map_err(|error| {
            let next = "name a file that you may read, as PATH=LOCAL";
            Failure::new(format!("--file: reading {}", local.display()), error, next)
        })?;
        room = room.checked_sub(file.content.len()).ok_or_else(|| {
            let most = Bytes(limits::FILES_BYTES_MAX as u64);
            told(format!("--file: all of them have more than {most} together, which is the limit"), MORE)
        })?;
        files.push(file);
    }
    Ok(files)
}

/// A file of at most one byte more than there is room for.
fn read_one(path: &str, local: &Path, room: usize) -> io::Result<FileIn> {
    let (file, meta) = source::open(local)?;
    let mut content = Vec::new();
    file.take(room as u64 + 1).read_to_end(&mut content)?;
    Ok(FileIn { path: path.to_owned(), content, mode: Some(source::mode(&meta)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    fn problem(entries: &[(String, PathBuf)]) -> String {
        match read(entries) {
            Err(Failure::Told { problem, .. } | Failure::Coded { problem, .. }) => problem,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_brings_its_content_and_permission_bits() {
        let scratch = tempfile::tempdir().unwrap();
        let local = scratch.path().join("a");
        fs::write(&local, b"\xff\0").unwrap();
        fs::set_permissions(&local, fs::Permissions::from_mode(0o6751)).unwrap();
        let files = read(&[("b/c".into(), local)]).unwrap();
        assert_eq!(files, [FileIn { path: "b/c".into(), content: vec![0xff, 0], mode: Some(0o751) }]);
    }

    #[test]
    fn what_cannot_be_sent_is_told_with_the_option() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::write(at("small"), "x").unwrap();
        let large = fs::File::create(at("large")).unwrap();
        large.set_len(limits::FILES_BYTES_MAX as u64).unwrap();
        let entry = |path: &str, local: &str| (path.to_owned(), at(local));
        for (entries, says) in [
            (vec![entry("a", "small"), entry("a", "small")], "--file: a is given twice".to_owned()),
            (
                vec![entry("a", "none")],
                format!("--file: reading {} failed: No such file", at("none").display()),
            ),
            (vec![entry("a", ".")], "is a directory".to_owned()),
            (vec![entry("a", "large"), entry("b", "small")], "more than 12M together".to_owned()),
            (vec![entry("a", "small"); 257], "--file: is given 257 times, the limit is 256".to_owned()),
        ] {
            let problem = problem(&entries);
            assert!(problem.starts_with("--file: ") && problem.contains(&says), "{problem} / {says}");
        }
        assert!(read(&[entry("a", "large")]).is_ok());
    }
}
