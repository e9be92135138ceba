//! Arguments that are not UTF-8: which one it is, and what to do, as clap only says that one is not.

use crate::Cli;
use clap::{Parser, error::ErrorKind};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

/// What is shown of an argument, characters.
const SHOWN_MAX: usize = 60;

/// What is wrong with which argument, and the remedy; none where all of them are taken.
pub(crate) fn explain(arguments: &[OsString], of_run: bool) -> Option<(String, &'static str)> {
    let lossy = |argument: &OsString| OsString::from(argument.to_string_lossy().into_owned());
    // Some may be other bytes, as the paths of local files: the one that is refused where all others are text.
    let refused = |at: &usize| {
        let mut alone: Vec<_> = arguments.iter().map(lossy).collect();
        alone[*at].clone_from(&arguments[*at]);
        Cli::try_parse_from(alone).is_err_and(|error| error.kind() == ErrorKind::InvalidUtf8)
    };
    let at = (1..arguments.len()).filter(|at| arguments[*at].to_str().is_none()).find(refused)?;
    let problem = format!("{}: `{}` is not UTF-8", name(arguments, at, of_run), shown(&arguments[at]));
    let remedy = if of_run {
        "send text; let the command make other bytes (-c \"printf 'caf\\\\351'\"), or pass them as standard input or \
         with --file"
    } else {
        "send text as UTF-8"
    };
    Some((problem, remedy))
}

/// What the help calls it.
fn name(arguments: &[OsString], at: usize, of_run: bool) -> String {
    let bytes = arguments[at].as_bytes();
    if let Some(dashes) = arguments[..at].iter().position(|argument| argument == "--") {
        return match at - dashes - 1 {
            _ if !of_run => format!("argument {at}"),
            0 => "CMD".to_owned(),
            number => format!("ARG {number}"),
        };
    }
    let option = bytes.split(|byte| *byte == b'=').next().filter(|name| name.starts_with(b"-"));
    let before = arguments[at - 1].to_str().filter(|word| word.starts_with('-'));
    match (option.and_then(|name| std::str::from_utf8(name).ok()), before) {
        (Some(option), _) => option.to_owned(),
        (None, Some(option)) => option.to_owned(),
        (None, None) => format!("argument {at}"),
    }
}

/// With every byte that is no text as `\xNN`.
fn shown(argument: &OsStr) -> String {
    let mut shown = String::new();
    for chunk in argument.as_bytes().utf8_chunks() {
        shown.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| shown.push_str(&format!("\\x{byte:02x}")));
    }
    match shown.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(words: &[&[u8]]) -> Option<String> {
        let words: Vec<_> = words.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect();
        explain(&words, words.iter().any(|word| word == "run")).map(|(problem, _)| problem)
    }

    #[test]
    fn the_argument_is_named_wherever_it_stands() {
        let long = [&[b'a'; 100][..], b"\xff"].concat();
        for (words, expected) in [
            (&[&b"cordon"[..], b"run", b"--", b"\xff"][..], "CMD: `\\xff` is not UTF-8"),
            (&[b"cordon", b"run", b"--", b"echo", b"a", b"caf\xe9!"], "ARG 2: `caf\\xe9!` is not UTF-8"),
            (&[b"cordon", b"run", b"-c", b"echo \xe9"], "-c: `echo \\xe9` is not UTF-8"),
            (&[b"cordon", b"run", b"--cwd", b"/\xe9", b"--", b"x"], "--cwd: `/\\xe9` is not UTF-8"),
            (&[b"cordon", b"run", b"--env=A=\xe9", b"-c", b"x"], "--env: `--env=A=\\xe9` is not UTF-8"),
            // A path of ours may be anything.
            (
                &[b"cordon", b"run", b"--into", b"/\xff", b"--workspace", b"\xe9", b"-c", b"x"],
                "--workspace: `\\xe9` is not UTF-8",
            ),
            (&[b"cordon", b"kill", b"\xe9"], "argument 2: `\\xe9` is not UTF-8"),
            (
                &[b"cordon", b"run", b"--", &long],
                "CMD: `aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…` is not UTF-8",
            ),
        ] {
            assert_eq!(explained(words).as_deref(), Some(expected));
        }
        assert_eq!(explained(&[b"cordon", b"run", b"--into", b"/\xff", b"-c", b"x"]), None);
        assert_eq!(explained(&[b"cordon", b"run", b"-c", b"x", b"y"]), None);
    }
}
