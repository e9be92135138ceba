//! Names and paths in a workspace, checked.

use super::bad;
use crate::server::{door::Door, refusal::quoted};
use cordon_protocol::{Bytes, FileIn, Refusal, limits};
use std::collections::HashSet;

/// Longest path in a workspace (PATH_MAX with its terminator, limits.h), bytes.
const PATH_MAX: usize = 4095;

/// Refuses what is not a workspace's name.
pub(in crate::server) fn check_workspace(name: &str) -> Result<(), Refusal> {
    if limits::is_workspace_name(name) {
        return Ok(());
    }
    Err(bad("workspace", format!("{} is not a name", quoted(name)), limits::workspace_name_rule()))
}

/// Refuses a path that does not lead down from the workspace.
pub(super) fn check_path(field: &str, path: &str) -> Result<(), Refusal> {
    let hint = "name a file by its path relative to the workspace, without `.`, `..` and empty parts";
    let error = |problem: String| Err(bad(field, problem, hint));
    if path.contains('\0') {
        return error("has a NUL byte".to_owned());
    }
    if path.len() > PATH_MAX {
        return error(format!("has {} bytes, the limit is {PATH_MAX}", path.len()));
    }
    // Each file has one spelling alone, so that none is given twice under two.
    if path.split('/').all(|part| !matches!(part, "" | "." | "..")) {
        Ok(())
    } else {
        error(format!("{} is not a path down from the workspace", quoted(path)))
    }
}

/// Refuses anything but permission bits.
pub(super) fn check_mode(field: &str, mode: u32, door: Door) -> Result<u32, Refusal> {
    if mode <= 0o777 {
        return Ok(mode);
    }
    let problem =
        format!("{} has more than permission bits, the limit is {}", door.mode(mode), door.mode(0o777));
    let hint = format!("give the bits of owner, group and others, {} for instance", door.mode(0o644));
    Err(bad(field, problem, &hint))
}

/// Refuses files that are too many, too large, or have no place.
pub(super) fn check_files(files: &[FileIn], door: Door) -> Result<(), Refusal> {
    if files.len() > limits::FILES_MAX {
        let problem = format!("has {} entries, the limit is {}", files.len(), limits::FILES_MAX);
        return Err(bad("files", problem, "send a tar archive as standard input, or several requests"));
    }
    let total: usize = files.iter().map(|file| file.content.len()).sum();
    if total > limits::FILES_BYTES_MAX {
        let most = Bytes(limits::FILES_BYTES_MAX as u64);
        let problem = format!("has {total} bytes of content together, the limit is {most}");
        return Err(bad("files", problem, "send large content as standard input"));
    }
    let mut seen = HashSet::new();
    for (index, file) in files.iter().enumerate() {
        check_path(&format!("files[{index}].path"), &file.path)?;
        if let Some(mode) = file.mode {
            check_mode(&format!("files[{index}].mode"), mode, door)?;
        }
        if !seen.insert(&file.path) {
            let problem = format!("{} is given twice", quoted(&file.path));
            return Err(bad(&format!("files[{index}].path"), problem, "give each path once"));
        }
    }
    Ok(())
}

/// Refuses patterns that are none, or lead elsewhere.
pub(super) fn check_patterns(patterns: &[String]) -> Result<(), Refusal> {
    if patterns.len() > limits::COLLECT_PATTERNS_MAX {
        let problem =
            format!("has {} entries, the limit is {}", patterns.len(), limits::COLLECT_PATTERNS_MAX);
        return Err(bad("collect", problem, "use patterns that match more: `*`, `?`, `[a-z]`, `**`"));
    }
    for (index, pattern) in patterns.iter().enumerate() {
        let field = format!("collect[{index}]");
        // With `/` at the end it stands for directories with all that is in them.
        check_path(&field, pattern.strip_suffix('/').unwrap_or(pattern))?;
        if let Some(error) = pattern.split('/').find_map(|part| glob::Pattern::new(part).err()) {
            let problem = format!("{} is not a pattern: {}", quoted(pattern), error.msg);
            return Err(bad(&field, problem, "use `*`, `?`, `[a-z]` and `**` as a whole part of the path"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size: usize) -> FileIn {
        FileIn { path: path.to_owned(), content: vec![0; size], mode: None }
    }

    #[test]
    fn each_refusal_names_the_field() {
        let many = vec![file("a", 0); limits::FILES_MAX + 1];
        let large = [file("a", limits::FILES_BYTES_MAX), file("b", 1)];
        let mode = [FileIn { mode: Some(0o4755), ..file("a", 0) }];
        let check_files = |files: &[FileIn]| super::check_files(files, Door::Socket);
        let pattern = |text: &str| check_patterns(&["ok".to_owned(), text.to_owned()]);
        for (result, expected) in [
            (check_workspace("../x"), "workspace: `../x` is not a name"),
            (check_workspace(""), "workspace: `` is not a name"),
            (check_files(&many), "files: has 257 entries, the limit is 256"),
            (check_files(&large), "files: has 12582913 bytes of content together, the limit is 12M"),
            (check_files(&[file("ok", 1), file("/etc/x", 1)]), "files[1].path: `/etc/x` is not a path down"),
            (check_files(&[file("a/../../x", 1)]), "files[0].path: `a/../../x` is not"),
            (check_files(&[file("", 1)]), "files[0].path: `` is not"),
            (check_files(&[file("a/", 1)]), "files[0].path: `a/` is not"),
            (check_files(&[file("a\0", 1)]), "files[0].path: has a NUL byte"),
            (check_files(&[file(&"a".repeat(4096), 1)]), "files[0].path: has 4096 bytes, the limit is 4095"),
            (check_files(&[file("a", 1), file("a", 1)]), "files[1].path: `a` is given twice"),
            (check_files(&mode), "files[0].mode: 0o4755 has more than permission bits"),
            (pattern("/etc/*"), "collect[1]: `/etc/*` is not a path down"),
            (pattern("../*"), "collect[1]: `../*` is not"),
            (pattern("a[b"), "collect[1]: `a[b` is not a pattern"),
            (pattern("a**"), "collect[1]: `a**` is not a pattern"),
            (pattern("a[/]b"), "collect[1]: `a[/]b` is not a pattern"),
            (pattern("a//"), "collect[1]: `a/` is not a path down"),
            (pattern("/"), "collect[1]: `` is not a path down"),
            (check_patterns(&vec!["a".to_owned(); 65]), "collect: has 65 entries, the limit is 64"),
        ] {
            let refusal = result.unwrap_err();
            assert!(refusal.message.starts_with(expected), "{} / {expected}", refusal.message);
            assert!(refusal.hint.is_some());
        }
        assert!(
            check_files(&[file("a/b c/ä", 3)]).is_ok()
                && pattern("**/*.[ch]").is_ok()
                && pattern("a/*/").is_ok()
        );
    }

    #[test]
    fn the_most_and_longest_patterns_are_no_larger_than_the_monitor_forwards() {
        let longest = "a".repeat(PATH_MAX) + "/";
        let patterns = vec![longest; limits::COLLECT_PATTERNS_MAX];
        assert!(check_patterns(&patterns).is_ok() && check_patterns(&[patterns[0].clone() + "a"]).is_err());
        let sealed = crate::sealed::SealedRequest::collecting(patterns).encode().unwrap();
        assert!(sealed.len() as u64 <= limits::SEALED_PATTERNS_MAX, "{}", sealed.len());
    }
}
