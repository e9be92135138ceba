//! What a line of error output says: which kind of failure, about which paths. It is never believed by itself.

use std::path::{Component, Path, PathBuf};

/// Kinds of failure that a layer can be behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// ENOENT.
    Missing,
    /// EROFS.
    ReadOnly,
    /// EACCES.
    Denied,
    /// EPERM.
    NotPermitted,
    /// ENOSYS.
    NotImplemented,
    /// EAFNOSUPPORT.
    NoFamily,
}

/// Words of libc, of Node.js and of others for the same errno, in lower case.
const WORDS: [(&str, Kind); 13] = [
    ("no such file or directory", Kind::Missing),
    ("enoent", Kind::Missing),
    ("read-only file system", Kind::ReadOnly),
    ("erofs", Kind::ReadOnly),
    ("permission denied", Kind::Denied),
    ("eacces", Kind::Denied),
    ("operation not permitted", Kind::NotPermitted),
    ("eperm", Kind::NotPermitted),
    ("function not implemented", Kind::NotImplemented),
    ("enosys", Kind::NotImplemented),
    ("address family not supported", Kind::NoFamily),
    ("eafnosupport", Kind::NoFamily),
    // apt's way to say it.
    ("is missing", Kind::Missing),
];

/// What a program says when it was about to write, in lower case.
const WRITING: [&str; 16] = [
    "cannot create",
    "can't create",
    "could not create",
    "couldn't create",
    "failed to create",
    "cannot touch",
    "cannot remove",
    "cannot move",
    "cannot overwrite",
    "cannot mkdir",
    "could not open lock file",
    "couldn't open temporary file",
    "for writing",
    "output file",
    "tee: ",
    "truncate: ",
];

/// Paths of one line that are looked at.
const PATHS_MAX: usize = 8;

/// The kind of failure that a line tells of.
pub(super) fn kind_of(line: &str) -> Option<Kind> {
    let lower = line.to_lowercase();
    WORDS.iter().find(|(words, _)| has_words(&lower, words)).map(|(_, kind)| *kind)
}

/// Whether the words stand there as such: not inside a longer word.
pub(super) fn has_words(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + words.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

/// Whether the line tells of an attempt to write.
pub(super) fn is_about_writing(line: &str) -> bool {
    let lower = line.to_lowercase();
    WRITING.iter().any(|words| lower.contains(words))
}

/// Whether the command line sends output to this path, by a redirection or as dd(1) does.
pub(super) fn is_redirected(command: &str, path: &Path) -> bool {
    let path = path.to_string_lossy();
    command.match_indices(&*path).any(|(at, _)| {
        let after = command[at + path.len()..].chars().next();
        let before = command[..at].trim_end_matches(['"', '\'', ' ']);
        (before.ends_with('>') || before.ends_with(" of="))
            && !after.is_some_and(|c| c.is_alphanumeric() || c == '/')
    })
}

/// Absolute paths in a line, in its order, as the sandbox would read them. One with `..` in it is left out: what it
/// means depends on links.
pub(super) fn paths(line: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut rest = line;
    let mut before = None;
    while let Some(at) = rest.find('/').filter(|_| found.len() < PATHS_MAX) {
        before = rest[..at].chars().next_back().or(before);
        let from = &rest[at..];
        let starts = before.is_none_or(|c| c.is_whitespace() || "'\"`‘“(=<:[>".contains(c));
        let end = if starts { end_of_path(from, before) } else { end_of_path(from, None) };
        let text = from[..end].trim_end_matches(['.', ',', ';', '!']);
        // `//` is what follows the scheme of a URL.
        if starts && !text.starts_with("//") {
            found.extend(normal(Path::new(text)));
        }
        before = from[..end].chars().next_back();
        rest = &from[end..];
    }
    found
}

/// The line without the program that says it, where that goes by its path and speaks of another one:
/// `/bin/bash: line 1: /x: …`, `/usr/bin/ld: cannot open output file /x: …`.
pub(super) fn without_speaker(line: &str) -> &str {
    match line.split_once(": ") {
        Some((speaker, rest))
            if speaker.starts_with('/')
                && !speaker.contains(char::is_whitespace)
                && !paths(rest).is_empty() =>
        {
            rest
        }
        _ => line,
    }
}

/// Where a path ends that `quote` may have opened.
fn end_of_path(text: &str, quote: Option<char>) -> usize {
    let closing = match quote {
        Some(c @ ('\'' | '"')) => Some(c),
        Some('`' | '‘') => Some('’'),
        Some('“') => Some('”'),
        _ => None,
    };
    if let Some(end) = closing.and_then(|c| text.find(c)) {
        return end;
    }
    let ends = |c: char| c.is_whitespace() || "'\"`’”()<>[]{}:,;|&$*?".contains(c);
    text.find(ends).unwrap_or(text.len())
}

/// The path without `.` and doubled slashes, the root's own links followed; none where there is a `..`.
pub(super) fn normal(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    // As `sandbox/root/template.rs` makes them.
    for (link, target) in [("/var/run", "/run"), ("/var/tmp", "/tmp")] {
        if let Ok(below) = plain.strip_prefix(link) {
            return Some(Path::new(target).join(below));
        }
    }
    (plain != Path::new("/")).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Vec<String> {
        paths(line).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn paths_are_found_in_every_program_s_way_to_quote_them() {
        for (line, expected) in [
            ("cat: /root/x: No such file or directory", &["/root/x"][..]),
            ("ls: cannot access '/srv/a b': No such", &["/srv/a b"]),
            ("mkdir: cannot create directory ‘/data’: Read-only", &["/data"]),
            ("OSError: [Errno 30] Read-only file system: '/usr/x'", &["/usr/x"]),
            ("mv: cannot move '/etc/a' to '/etc/b': x", &["/etc/a", "/etc/b"]),
            ("E: lock file /var/lib/dpkg/lock - open (2: No such)", &["/var/lib/dpkg/lock"]),
            ("unable to access 'https://github.com/a/b/': x", &[]),
            ("socket \"/var/run/postgresql/.s.PGSQL.5432\" failed", &["/run/postgresql/.s.PGSQL.5432"]),
            ("bash: /a/x.sh: /bin/sh: bad interpreter", &["/a/x.sh", "/bin/sh"]),
            ("open(/usr//./x)", &["/usr/x"]),
            ("/a/../b and a/b and /", &[]),
            ("see (/a/b).", &["/a/b"]),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
    }

    #[test]
    fn a_program_is_not_the_subject_of_its_complaint() {
        for (line, expected) in [
            ("/bin/bash: line 1: /etc/x: Read-only", "line 1: /etc/x: Read-only"),
            ("/usr/bin/ld: cannot open output file /usr/x: no", "cannot open output file /usr/x: no"),
            ("/etc/x: Permission denied", "/etc/x: Permission denied"),
            ("bash: /etc/x: Permission denied", "bash: /etc/x: Permission denied"),
        ] {
            assert_eq!(without_speaker(line), expected);
        }
    }

    #[test]
    fn kinds_are_words_and_not_parts_of_them() {
        assert_eq!(kind_of("x: Permission denied (os error 13)"), Some(Kind::Denied));
        assert_eq!(kind_of("Error: ENOENT: no such file"), Some(Kind::Missing));
        assert_eq!(kind_of("Error: EROFS: read-only file system, open '/usr/x'"), Some(Kind::ReadOnly));
        assert_eq!(kind_of("the superpermission deniedness"), None);
        assert_eq!(kind_of("all good"), None);
    }

    #[test]
    fn a_redirection_is_seen_as_writing() {
        let passwd = Path::new("/etc/passwd");
        assert!(is_redirected("echo x >> /etc/passwd", passwd));
        assert!(is_redirected("echo x >'/etc/passwd'; true", passwd));
        assert!(is_redirected("dd if=/dev/zero of=/etc/passwd", passwd));
        assert!(!is_redirected("cat /etc/passwd", passwd));
        assert!(!is_redirected("echo > /etc/passwd2; cat /etc/passwd", passwd));
    }
}
