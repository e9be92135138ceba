//! The environment of a command: built from nothing, so that nothing of the executor's is in it.

use super::plan::Place;
use std::{collections::BTreeMap, ffi::CString, path::Path};

/// Where programs are searched.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The standard entries, then the profile's, then the request's; a later one replaces an earlier.
pub fn build(
    place: &Place,
    user: &str,
    shell: &Path,
    profile: &BTreeMap<String, String>,
    request: &[(String, String)],
) -> BTreeMap<String, String> {
    let mut entries: BTreeMap<String, String> = [
        ("HOME", place.home.display().to_string()),
        ("LANG", "C.UTF-8".to_owned()),
        ("PATH", PATH.to_owned()),
        ("SHELL", shell.display().to_string()),
        ("TERM", "dumb".to_owned()),
        ("TMPDIR", place.tmp.display().to_string()),
        ("USER", user.to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    entries.extend(profile.iter().map(|(name, value)| (name.clone(), value.clone())));
    entries.extend(request.iter().cloned());
    entries
}

/// As execve(2) wants them. Entries with a NUL, which nothing should have let through, are left out.
pub fn to_strings(entries: &BTreeMap<String, String>) -> Vec<CString> {
    entries.iter().filter_map(|(name, value)| CString::new(format!("{name}={value}")).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_standard_entries_and_later_ones_win() {
        let place = Place { home: "/home/x".into(), tmp: "/tmp".into() };
        let empty = build(&place, "x", Path::new("/bin/bash"), &BTreeMap::new(), &[]);
        let names: Vec<_> = empty.keys().map(String::as_str).collect();
        assert_eq!(names, ["HOME", "LANG", "PATH", "SHELL", "TERM", "TMPDIR", "USER"]);
        let profile = BTreeMap::from([("A".to_owned(), "p".to_owned()), ("B".to_owned(), "p".to_owned())]);
        let request = [("B".to_owned(), "r".to_owned()), ("PATH".to_owned(), "/x".to_owned())];
        let built = build(&place, "x", Path::new("/bin/bash"), &profile, &request);
        assert_eq!((built["A"].as_str(), built["B"].as_str(), built["PATH"].as_str()), ("p", "r", "/x"));
    }
}
