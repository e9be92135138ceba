//! What is found beside a trail when it is opened: older files, and whether the one that ended last is still there.

use super::{Audit, TAIL, TEXTS, kept::Known, power::End, rotation};
use crate::{
    monitor::appended::seize,
    sandbox::steps::{About, Fault, GONE},
};
use cordon_protocol::audit::{Entry, Head, older_path, read_line};
use nix::fcntl::OFlag;
use std::{
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

impl Audit {
    /// Where an empty trail goes on, and what it begins with where the last line is in no file any more: it was moved
    /// away, or removed. Nothing for the first of all trails, and after a rotation of anybody's.
    pub(super) fn begin(&self, known: &Known) -> (End, Option<Entry>) {
        let ended = &known.head;
        let found = match before(self.trail.path(), known) {
            Ok(last) => return (last, None),
            Err(found) => found,
        };
        // How it ended, nobody can say any more.
        let end = End { head: ended.clone(), stopped: true };
        if ended.seq == 0 {
            return (end, None);
        }
        let kept = found.map_or_else(String::new, |seq| format!(", older files end with number {seq}"));
        crate::log!("audit: the trail is begun anew: lines up to number {} are gone{kept}", ended.seq);
        (end, Some(Entry::BegunAnew { found }))
    }

    /// Makes older files root's alone: they may be from when a group could read them. One that cannot be is told.
    pub(super) fn seize_older(&self) {
        for path in [self.trail.path(), self.texts.path()] {
            for number in rotation::older(path).unwrap_or_default() {
                let path = older_path(path, number);
                if let Err(fault) = seize_one(&path) {
                    crate::log!("audit: {fault}; see who may read it");
                }
            }
        }
    }
}

/// Where an empty trail goes on that was moved aside; else where older files end, if there are some.
fn before(path: &Path, known: &Known) -> Result<End, Option<u64>> {
    let ended = &known.head;
    let numbers = rotation::older(path).unwrap_or_default();
    let youngest = numbers.into_iter().min().map(|number| older_path(path, number));
    let last = youngest.and_then(|path| end_of(&path));
    let found = last.as_ref().map(|last| last.head.seq);
    let goes_on = |last: &End| {
        // The last but one after a rotation, the last where the head was lost with the power.
        last.head == *ended || known.synced.as_ref().is_some_and(|s| last.head == *s || ended.seq == 0)
    };
    last.filter(goes_on).ok_or(found)
}

/// What tells that an empty trail, or one that is not there, has held lines that are not beside it either; nothing for the
/// first of all trails.
///
/// # Errors
/// That, in our own words.
pub(super) fn is_not_gone(path: &Path, known: &Known) -> Result<(), Fault> {
    let Err(found) = before(path, known) else { return Ok(()) };
    let is = if path.symlink_metadata().is_ok() { "is empty" } else { "is not there" };
    let older = found.map(|seq| format!("older files beside it end with number {seq}"));
    let texts = path.with_file_name(TEXTS);
    let detail = match (known.head.seq, older) {
        (0, None) if !texts.metadata().is_ok_and(|meta| meta.len() > 0) => return Ok(()),
        (0, older) => {
            let tells = older.unwrap_or_else(|| format!("{TEXTS} beside it has texts of commands"));
            format!(
                "{is}, though {tells}; how it ended is not known either, as its mark in the state directory is gone"
            )
        }
        (ended, older) => {
            let older = older.unwrap_or_else(|| "there is no older file beside it".to_owned());
            format!("{is}, though lines up to number {ended} were written to it; {older}")
        }
    };
    Err(Fault::new(GONE, detail))
}

/// Takes the group of a file of root's away.
fn seize_one(path: &Path) -> Result<(), Fault> {
    let file = open(path).about(path.display())?;
    let meta = file.metadata().about(path.display())?;
    if !meta.is_file() || meta.uid() != 0 || meta.gid() == 0 {
        return Ok(());
    }
    seize(&file, meta.permissions().mode() & 0o7777).about(path.display())
}

/// Where the last line of a file ends the chain; none where it is no line of a trail.
fn end_of(path: &Path) -> Option<End> {
    let mut file = open(path).ok()?;
    let length = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail).ok()?;
    let text = String::from_utf8_lossy(&tail);
    let (line, hash) = read_line(text.strip_suffix('\n')?.rsplit('\n').next()?, 0).ok()?;
    Some(End { stopped: line.entry == Entry::Stopped, head: Head { seq: line.seq, hash } })
}

fn open(path: &Path) -> std::io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::audit::Rotation;
    use cordon_protocol::audit::{Configuration, Line, Walk};
    use nix::unistd::Uid;
    use std::{fs, os::unix::fs::chown, path::PathBuf};

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            assert!(Uid::effective().is_root(), "needs root: the trail must be root's");
            let place = std::env::temp_dir().join(format!("cordon-beginning-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&place);
            Self(place)
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        /// One more start, with one line of its own; the trail's lines after it.
        fn start(&self) -> Vec<Line> {
            let started = Entry::Started { version: "1".into(), configuration: Configuration::default() };
            let rotation = Rotation { size: 0, keep: 1 };
            let trail = self.file("audit.jsonl");
            drop(Audit::open(&trail, &self.file("head"), rotation, started).unwrap());
            let (mut walk, text) = (Walk::default(), fs::read_to_string(&trail).unwrap());
            text.lines().map(|line| walk.step(line).unwrap()).collect()
        }

        fn begins_anew(&self) -> Option<Entry> {
            let first = self.start().remove(0).entry;
            matches!(first, Entry::BegunAnew { .. }).then_some(first)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_trail_whose_last_one_is_gone_says_so_and_no_other_does() {
        let place = Place::new("gone");
        let (trail, older) = (place.file("audit.jsonl"), place.file("audit.jsonl.1"));
        assert_eq!((place.begins_anew(), place.start().len()), (None, 2), "the first of all");
        // As a rotation does.
        fs::rename(&trail, &older).unwrap();
        assert_eq!(place.begins_anew(), None);
        fs::rename(&trail, place.file("broken")).unwrap();
        assert_eq!(place.begins_anew(), Some(Entry::BegunAnew { found: Some(2) }));
        // The chain goes on, and with it the number.
        let lines = place.start();
        assert_eq!(lines.iter().map(|line| line.seq).collect::<Vec<_>>(), [4, 5, 6]);
        fs::remove_file(&older).unwrap();
        fs::remove_file(&trail).unwrap();
        assert_eq!(place.begins_anew(), Some(Entry::BegunAnew { found: None }));
    }

    #[test]
    fn an_empty_trail_that_had_lines_is_told_from_the_first_of_all() {
        let place = Place::new("empty");
        let (trail, head) = (place.file("audit.jsonl"), place.file("head"));
        let told = || {
            let said = is_not_gone(&trail, &Known::found(&head).unwrap());
            said.map_err(|fault| (fault.errno == GONE).then_some(fault.detail).unwrap()).err()
        };
        fs::create_dir_all(&place.0).unwrap();
        assert_eq!(told(), None, "the first of all");
        place.start();
        let older = place.file("audit.jsonl.1");
        fs::copy(&trail, &older).unwrap();
        fs::write(&trail, "").unwrap();
        assert_eq!(told(), None, "moved aside");
        fs::rename(&older, place.file("away")).unwrap();
        let written = "though lines up to number 1 were written to it; there is no older file beside it";
        assert_eq!(told(), Some(format!("is empty, {written}")));
        fs::remove_file(&trail).unwrap();
        assert_eq!(told(), Some(format!("is not there, {written}")));
        for name in ["head", "head.synced"] {
            fs::remove_file(place.file(name)).unwrap();
        }
        // Of the texts there is none yet.
        assert_eq!(told(), None);
        fs::write(place.file(TEXTS), "{}\n").unwrap();
        assert!(told().unwrap().starts_with("is not there, though commands.jsonl beside it has texts"));
        fs::rename(place.file("away"), &older).unwrap();
        assert!(told().unwrap().starts_with("is not there, though older files beside it end with number 1;"));
    }

    #[test]
    fn files_of_root_s_that_a_group_could_read_are_taken_from_it() {
        let place = Place::new("group");
        place.start();
        let older = ["audit.jsonl.3", "commands.jsonl.1"];
        older.iter().for_each(|name| fs::write(place.file(name), "").unwrap());
        let all = ["audit.jsonl", "commands.jsonl", older[0], older[1]];
        for name in all {
            fs::set_permissions(place.file(name), fs::Permissions::from_mode(0o640)).unwrap();
            chown(place.file(name), None, Some(12_345)).unwrap();
        }
        // Not a trail's.
        fs::write(place.file("audit.jsonl.9"), "").unwrap();
        chown(place.file("audit.jsonl.9"), Some(12_345), Some(12_345)).unwrap();
        place.start();
        let of = |name: &str| {
            let meta = fs::metadata(place.file(name)).unwrap();
            (meta.uid(), meta.gid(), meta.mode() & 0o7777)
        };
        all.iter().for_each(|name| assert_eq!(of(name), (0, 0, 0o640), "{name}"));
        assert_eq!(of("audit.jsonl.9").0, 12_345);
    }
}
