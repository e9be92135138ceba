//! Names of the files that a rotation has moved aside: `audit.jsonl.1` is the youngest of them.

use std::path::{Path, PathBuf};

/// The file of this number.
pub fn older_path(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// The number of a file of this name beside `path`; none where it is no older one of it.
pub fn older_number(path: &Path, name: &Path) -> Option<u32> {
    let digits = name.to_str()?.strip_prefix(path.file_name()?.to_str()?)?.strip_prefix('.')?;
    let number: u32 = digits.parse().ok()?;
    (number > 0 && number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_makes_a_name_an_older_one() {
        let path = Path::new("/var/log/audit.jsonl");
        let number = |name: &str| older_number(path, Path::new(name));
        assert_eq!(older_path(path, 12), Path::new("/var/log/audit.jsonl.12"));
        assert_eq!((number("audit.jsonl.1"), number("audit.jsonl.12")), (Some(1), Some(12)));
        for other in [
            "audit.jsonl",
            "audit.jsonl.",
            "audit.jsonl.0",
            "audit.jsonl.01",
            "audit.jsonl.+1",
            "audit.jsonl.1.gz",
            "xaudit.jsonl.1",
            "commands.jsonl.1",
            "audit.jsonl.4294967296",
        ] {
            assert_eq!(number(other), None, "{other}");
        }
    }
}
