//! What the daemons' configuration files have in common: how much is read of one, the commented file of all keys,
//! and where a key stands.

mod way;

pub use way::{Doubt, Way};

use crate::units::Bytes;
use std::{
    fmt::Display,
    fs::File,
    io::{self, Read},
};
use toml::de::{DeTable, DeValue};

/// Largest configuration file, bytes: a hundred times what a host with many profiles has.
pub const FILE_MAX: u64 = 1 << 20;
/// Largest `profiles.toml`, bytes: it becomes a part of such a file.
pub const PROFILES_MAX: u64 = FILE_MAX / 2;

/// The text of an open configuration file of at most `most` bytes. No more is read, whatever the file says of itself.
///
/// # Errors
/// What read(2) says; a file that is no regular one, is larger (`FileTooLarge`), or is not text.
pub fn read_text(file: &File, most: u64) -> io::Result<String> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > most) {
        let text = format!("it is larger than {}, the most for this file", Bytes(most));
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("it is not text in UTF-8"))
}

/// What the parser says of a file that it does not take, with key and line. Where it names a type of the program's, in
/// words that a person can write by.
pub fn refusal(error: &toml::de::Error) -> String {
    let (whole, said) = (error.to_string(), error.message());
    let key = key_of(&whole).unwrap_or_default();
    // The words of Rust's own parser of addresses.
    let address = (said == "invalid socket address syntax").then(|| format!("{said}, expected {ADDRESS}"));
    let plain = said.rsplit_once(", expected ").and_then(|(found, wanted)| {
        let wanted = match wanted {
            // What is below them was no whole number of ours, and is none for want of quotes.
            "u16" | "u32" | "u64" if found.contains("`-") => least_of(key),
            "u16" | "u32" | "u64" | "i64" => "a whole number without quotes, as in 256",
            "a boolean" => "true or false without quotes",
            "a string" => "text in quotes, as in \"text\"",
            "path string" => "a path in quotes, as in \"/usr\"",
            "a sequence" => "a list in brackets, as in [\"a\", \"b\"]",
            "a map" if key == "profiles" => "tables, one for each profile, as in [profiles.NAME]",
            "socket address" => ADDRESS,
            "a map" => "a table, as in { NAME = \"value\" }",
            // A table with keys of its own: the next line of the answer says where they are.
            record if record.starts_with("struct ") => "a table",
            other => other,
        };
        let (kind, found) = found.split_once(": ").filter(|(kind, _)| kind.starts_with("invalid "))?;
        let found = match found {
            "map" => "table",
            "sequence" => "list",
            other => other,
        };
        Some(format!("{kind}: {found}, expected {wanted}"))
    });
    match (plain.or(address), whole.rfind(said)) {
        (Some(plain), Some(at)) => format!("{}{plain}", &whole[..at]),
        _ => whole,
    }
}

/// How an address is written.
const ADDRESS: &str = "an address and a port in quotes, as in \"127.0.0.1:3800\"";

/// Keys of numbers of which 0 is one.
const FROM_ZERO: [&str; 3] = ["landlock_abi_min", "named_workspace_files", "queue"];

fn least_of(key: &str) -> &'static str {
    if FROM_ZERO.contains(&key) { "a whole number, 0 or more" } else { "a whole number, 1 or more" }
}

/// The key before the value that the parser points at: it shows the line, and marks the value below it.
fn key_of(whole: &str) -> Option<&str> {
    let mut lines = whole.lines();
    let shown = lines.by_ref().find(|line| {
        line.split_once(" | ").is_some_and(|(number, _)| number.trim().parse::<usize>().is_ok())
    })?;
    let column = lines.next()?.chars().take_while(|c| *c != '^').count();
    let (at, _) = shown.char_indices().nth(column)?;
    let before = shown[..at].trim_end().strip_suffix('=')?.trim_end();
    before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').next()
}

/// Width of the comments, characters.
const WIDTH: usize = 100;

/// A configuration file that shows every key with its default, commented out: as it is, it changes nothing. The
/// headings of its tables are in force, so that one key can be uncommented alone.
#[derive(Debug)]
pub struct Document(String);

impl Document {
    /// A file that begins with these paragraphs.
    pub fn new(paragraphs: &[&str]) -> Self {
        let mut document = Self(String::new());
        for (number, paragraph) in paragraphs.iter().enumerate() {
            if number > 0 {
                document.0.push_str("#\n");
            }
            document.comment(paragraph);
        }
        document
    }

    /// Begins a table.
    pub fn table(&mut self, about: &str, name: &str) {
        self.0.push('\n');
        self.comment(about);
        self.0.push_str(&format!("[{name}]\n"));
    }

    /// Adds a key: what it means, and its default as TOML writes it ([`text`], [`list`], a number).
    pub fn key(&mut self, about: &str, name: &str, value: impl Display) {
        self.0.push('\n');
        self.comment(about);
        self.0.push_str(&format!("#{name} = {value}\n"));
    }

    /// The file.
    pub fn finish(self) -> String {
        self.0
    }

    fn comment(&mut self, text: &str) {
        let mut line = String::from("#");
        for word in text.split_whitespace() {
            if line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.0.push_str(&line);
                self.0.push('\n');
                line = String::from("#");
            }
            line.push(' ');
            line.push_str(word);
        }
        self.0.push_str(&line);
        self.0.push('\n');
    }
}

/// A text as TOML writes it.
pub fn text(value: impl Display) -> String {
    toml::Value::String(value.to_string()).to_string()
}

/// A list of texts as TOML writes it.
pub fn list(values: impl IntoIterator<Item = impl Display>) -> String {
    let values: Vec<_> = values.into_iter().map(text).collect();
    format!("[{}]", values.join(", "))
}

/// The file with every key in force that a [`Document`] shows commented out.
pub fn uncommented(document: &str) -> String {
    let lines = document.lines().map(|line| {
        let bare = line.strip_prefix('#').filter(|rest| !rest.is_empty() && !rest.starts_with(' '));
        bare.unwrap_or(line)
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// The line in which a key stands, from 1, or the innermost table around it that is there; `key` is the way to it
/// from the top, as `profiles`, `build`, `shell`.
pub fn line_of(file: &str, key: &[&str]) -> Option<usize> {
    let parsed = DeTable::parse(file).ok()?;
    let (mut table, mut at) = (parsed.get_ref(), None);
    for part in key {
        let Some((name, value)) = table.iter().find(|(name, _)| name.get_ref() == part) else { break };
        at = Some(name.span().start);
        let DeValue::Table(inner) = value.get_ref() else { break };
        table = inner;
    }
    Some(file.get(..at?)?.matches('\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Write};

    #[test]
    fn of_a_file_that_is_too_large_no_more_than_that_is_read() {
        let path = std::env::temp_dir().join(format!("cordon-configuration.{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all(b"a = 1\n").unwrap();
        let read = |most| {
            use std::io::Seek;
            (&file).rewind().unwrap();
            read_text(&file, most).map_err(|error| error.to_string())
        };
        assert_eq!(read(6).as_deref(), Ok("a = 1\n"));
        assert_eq!(read(5).unwrap_err(), "it is larger than 5, the most for this file");
        // As large as no memory is.
        file.set_len(1 << 42).unwrap();
        assert_eq!(read(FILE_MAX).unwrap_err(), "it is larger than 1M, the most for this file");
        let directory = File::open("/").unwrap();
        assert!(read_text(&directory, 5).unwrap_err().to_string().contains("not a regular file"));
    }

    fn document() -> String {
        let mut document = Document::new(&["First.", "Second."]);
        document.key("A number.", "number", 5);
        document.table("Some words.", "table");
        document.key(&"word ".repeat(30), "path", text("/a \"b\""));
        document.key("", "list", list(["x", "y"]));
        document.finish()
    }

    #[test]
    fn as_it_is_a_document_says_nothing_and_uncommented_all() {
        let as_it_is: toml::Table = document().parse().unwrap();
        assert!(as_it_is["table"].as_table().is_some_and(toml::Table::is_empty) && as_it_is.len() == 1);
        let table: toml::Table = uncommented(&document()).parse().unwrap();
        assert_eq!(table["number"].as_integer(), Some(5));
        assert_eq!(table["table"]["path"].as_str(), Some("/a \"b\""));
        assert_eq!(table["table"]["list"].as_array().map(Vec::len), Some(2));
        assert!(document().lines().all(|line| line.len() <= WIDTH));
        assert!(document().starts_with("# First.\n#\n# Second.\n\n# A number.\n#number = 5\n\n"));
    }

    #[test]
    fn a_key_is_found_wherever_it_may_be_written() {
        let file = "a = 1\n[users]\ncommand = 'x'\n[profiles.p]\nlimits.wall = { default = '1s' }\n\
                    [profiles.q.limits]\nwall = { default = '1s' }\n";
        for (key, line) in [
            (&["a"][..], Some(1)),
            (&["users", "command"], Some(3)),
            (&["users", "server"], Some(2)),
            (&["profiles", "p", "limits", "wall"], Some(5)),
            (&["profiles", "q", "limits", "wall"], Some(7)),
            (&["b"], None),
            (&["a", "b"], Some(1)),
        ] {
            assert_eq!(line_of(file, key), line, "{key:?}");
        }
        assert_eq!(line_of("a = ", &["a"]), None);
    }

    #[test]
    fn a_wrong_type_is_told_in_words_to_write_by() {
        #[derive(Debug, serde::Deserialize)]
        struct Limits {
            #[allow(dead_code, reason = "only read")]
            pids: Option<u64>,
            #[allow(dead_code, reason = "only read")]
            named_workspace_files: Option<u64>,
        }
        #[derive(Debug, serde::Deserialize)]
        #[allow(dead_code, reason = "only read")]
        struct Keys {
            size: Option<Bytes>,
            time: Option<crate::units::Millis>,
            read: Option<Vec<String>>,
            path: Option<std::path::PathBuf>,
            listen: Option<std::net::SocketAddr>,
            profiles: Option<std::collections::BTreeMap<String, String>>,
            env: Option<std::collections::BTreeMap<String, String>>,
            limits: Option<Limits>,
        }
        for (file, says) in [
            ("size = { a = 1 }", "invalid type: table, expected a size as text, as in \"512M\""),
            ("size = 5", "invalid type: integer `5`, expected a size as text, as in \"512M\""),
            ("time = []", "invalid type: list, expected a time as text, as in \"60s\""),
            (
                "limits.pids = { a = 1 }",
                "invalid type: table, expected a whole number without quotes, as in 256",
            ),
            ("limits.pids = -1", "invalid value: integer `-1`, expected a whole number, 1 or more"),
            (
                "limits = { named_workspace_files = -3 }",
                "invalid value: integer `-3`, expected a whole number, 0 or more",
            ),
            ("profiles = 3", "integer `3`, expected tables, one for each profile, as in [profiles.NAME]"),
            ("env = 3", "integer `3`, expected a table, as in { NAME = \"value\" }"),
            ("listen = 5", "integer `5`, expected an address and a port in quotes, as in \"127.0.0.1:3800\""),
            (
                "listen = 'localhost:80'",
                "invalid socket address syntax, expected an address and a port in quotes, as in \"127.0.0.1:3800\"",
            ),
            ("limits = 5", "invalid type: integer `5`, expected a table"),
            ("read = ', expected u64'", "expected u64\", expected a list in brackets, as in [\"a\", \"b\"]"),
            ("path = 5", "expected a path in quotes, as in \"/usr\""),
        ] {
            let text = refusal(&toml::from_str::<Keys>(file).unwrap_err());
            assert!(text.ends_with(says) && text.contains(&format!("1 | {file}")), "{text}");
        }
        let other = toml::from_str::<Keys>("size = '5X'").unwrap_err();
        assert_eq!(refusal(&other), other.to_string());
    }
}
