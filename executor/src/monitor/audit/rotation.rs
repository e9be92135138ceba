//! Rotation: files that have grown are moved aside, trail and texts together, and the oldest of them removed.
//!
//! `audit.jsonl` becomes `audit.jsonl.1`, that `audit.jsonl.2`, and so on. Each step is one rename(2) to a name that is
//! free, so that a rotation that is broken off anywhere loses no line: it leaves a number free, up to which the next one
//! moves. Before older files are removed the trail says with which number it begins from then on: one that is removed
//! by anybody else is missed.

use super::Audit;
use crate::sandbox::steps::{About, Fault};
use cordon_protocol::audit::{Entry, older_number, older_path, read_line};
use nix::{errno::Errno, fcntl::OFlag};
use std::{
    fs::{self, OpenOptions},
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// How large the files may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of either file from which both are moved aside; 0 is never.
    pub size: u64,
    /// Older files of each that stay.
    pub keep: u32,
}

impl Rotation {
    /// A file of so many bytes is moved aside when it has grown to this.
    pub(super) fn due_after(self, length: u64) -> u64 {
        if self.size == 0 { u64::MAX } else { length.saturating_add(self.size) }
    }
}

/// Longest first line of an older file, bytes.
const LINE_MAX: u64 = 64 << 10;

impl Audit {
    /// Moves both files aside where one has grown so far. Where that fails they grow on, and it is told.
    ///
    /// # Errors
    /// There is no trail to write to any more.
    pub(super) fn make_room(&mut self) -> Result<(), Fault> {
        self.trail.settle()?;
        if self.trail.length() < self.due && self.texts.length() < self.due {
            return Ok(());
        }
        self.due = self.rotation.due_after(0);
        if let Err(fault) = self.rotate() {
            self.due = self.rotation.due_after(self.trail.length().max(self.texts.length()));
            crate::log!("audit: rotation failed: {fault}");
        }
        // Where the old one has gone and there is no new one.
        self.trail.settle()
    }

    fn rotate(&mut self) -> Result<(), Fault> {
        // Texts that somebody else has put there are not ours to move.
        self.texts.settle()?;
        // The trail first: were it broken off in between, the texts would reach back further than the trail, and no
        // launch be without its text.
        move_aside(self.trail.path())?;
        self.trail.settle()?;
        move_aside(self.texts.path())?;
        self.texts.settle()?;
        self.tell();
        self.remove_oldest()
    }

    /// Removes older files over the number that stays.
    ///
    /// # Errors
    /// They cannot be found or removed, or the trail cannot say so before.
    pub(super) fn remove_oldest(&mut self) -> Result<(), Fault> {
        if self.rotation.size == 0 {
            // Whoever moves them aside has the say.
            return Ok(());
        }
        let keep = self.rotation.keep;
        let (stay, go): (Vec<_>, Vec<_>) =
            older(self.trail.path())?.into_iter().partition(|number| *number <= keep);
        if !go.is_empty() {
            let oldest = stay.into_iter().max().map(|number| older_path(self.trail.path(), number));
            let before = match oldest {
                Some(path) => first_number(&path)?,
                None if self.trail.length() == 0 => self.head.seq + 1,
                None => first_number(self.trail.path())?,
            };
            self.add(Entry::Dropped { before })?;
        }
        // Texts that the trail knows nothing of are of no use.
        for (path, numbers) in [(self.trail.path(), go), (self.texts.path(), older(self.texts.path())?)] {
            for number in numbers.into_iter().filter(|number| *number > keep) {
                let path = older_path(path, number);
                fs::remove_file(&path).about(path.display())?;
            }
        }
        Ok(())
    }
}

/// Numbers of the older files there are.
pub(super) fn older(path: &Path) -> Result<Vec<u32>, Fault> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory).about(directory.display())? {
        let name = entry.about(directory.display())?.file_name();
        numbers.extend(older_number(path, Path::new(&name)));
    }
    Ok(numbers)
}

/// Moves a file aside, and before it those in its way, up to the first number that is free.
fn move_aside(path: &Path) -> Result<(), Fault> {
    let mut free = 1;
    loop {
        let next = older_path(path, free);
        match fs::symlink_metadata(&next) {
            Ok(_) => free += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error).about(next.display()),
        }
    }
    let name = |number: u32| if number == 0 { PathBuf::from(path) } else { older_path(path, number) };
    for number in (0..free).rev() {
        match fs::rename(name(number), name(number + 1)) {
            // Somebody else has moved it away.
            Err(error) if number == 0 && error.kind() == io::ErrorKind::NotFound => {}
            moved => moved.about(name(number).display())?,
        }
    }
    Ok(())
}

/// Number of a file's first line.
fn first_number(path: &Path) -> Result<u64, Fault> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).about(path.display())?;
    let mut line = String::new();
    BufReader::new(file.take(LINE_MAX)).read_line(&mut line).about(path.display())?;
    let broken = |problem: String| Fault::new(Errno::EBADMSG, format!("{}: {problem}", path.display()));
    read_line(line.trim_end(), 1).map(|(line, _)| line.seq).map_err(|problem| broken(problem.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memfd;
    use cordon_protocol::audit::{About as AboutText, Configuration, Line, Walk};

    /// Room for few lines.
    const SIZE: u64 = 2048;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let directory =
                std::env::temp_dir().join(format!("cordon-rotation-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&directory);
            fs::create_dir_all(&directory).unwrap();
            Self(directory)
        }

        fn trail(&self) -> PathBuf {
            self.0.join("audit.jsonl")
        }

        fn texts(&self) -> PathBuf {
            self.0.join("commands.jsonl")
        }

        fn open(&self, keep: u32) -> Audit {
            let started = Entry::Started { version: "1".into(), configuration: Configuration::default() };
            let rotation = Rotation { size: SIZE, keep };
            Audit::open(&self.trail(), &self.0.join("head"), rotation, started).unwrap()
        }

        /// Every line of all files, chained.
        fn lines(&self) -> Vec<Line> {
            let mut walk = Walk::default();
            let text = self.whole(&self.trail());
            text.lines().map(|line| walk.step(line).unwrap()).collect()
        }

        /// The text of all files.
        fn whole(&self, path: &Path) -> String {
            let mut numbers = older(path).unwrap();
            numbers.sort_unstable();
            let older = numbers.into_iter().rev().map(|number| older_path(path, number));
            older.chain([path.to_owned()]).map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
        }

        fn assert_from(&self, first: u64) -> u64 {
            let numbers: Vec<_> = self.lines().iter().map(|line| line.seq).collect();
            let last = *numbers.last().unwrap();
            assert_eq!(numbers, (first..=last).collect::<Vec<_>>());
            last
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn launch(audit: &mut Audit, job: u64) {
        let job = format!("{job:016x}");
        let text = memfd::sealed(format!("{{\"n\":\"{}\"}}", "x".repeat(200)).as_bytes()).unwrap();
        let about = AboutText { job: job.clone(), uid: 0, request: "r".into() };
        let entry = |text| Entry::Collected { job, request: text };
        audit.record_launch(&about, &text, entry).unwrap();
    }

    #[test]
    fn both_files_are_moved_aside_and_no_line_is_lost() {
        let place = Place::new("both");
        let mut audit = place.open(100);
        (0..40).for_each(|job| launch(&mut audit, job));
        let numbers = |path: &Path| older(path).unwrap().len();
        let moved = numbers(&place.trail());
        assert!(moved > 3 && moved == numbers(&place.texts()), "{moved}");
        assert_eq!(place.assert_from(1), 41);
        assert_eq!(place.whole(&place.texts()).lines().count(), 40);
        for number in 0..=u32::try_from(moved).unwrap() {
            let file = if number == 0 { place.trail() } else { older_path(&place.trail(), number) };
            // One line may be begun just before it is full.
            assert!(fs::metadata(&file).unwrap().len() < SIZE + 512, "{}", file.display());
        }
    }

    #[test]
    fn what_is_removed_is_told_before_and_only_so_many_stay() {
        let place = Place::new("keep");
        let mut audit = place.open(2);
        (0..60).for_each(|job| launch(&mut audit, job));
        for path in [place.trail(), place.texts()] {
            let mut numbers = older(&path).unwrap();
            numbers.sort_unstable();
            assert_eq!(numbers, [1, 2]);
        }
        let lines = place.lines();
        let told = |line: &Line| if let Entry::Dropped { before } = line.entry { Some(before) } else { None };
        let first = lines.iter().filter_map(told).next_back().unwrap();
        assert_eq!(lines[0].seq, first);
        place.assert_from(first);
        // Fewer stay from the next start on.
        drop(audit);
        drop(place.open(1));
        assert_eq!(older(&place.trail()).unwrap(), [1]);
        let lines = place.lines();
        assert_eq!(lines.iter().filter_map(told).next_back(), Some(lines[0].seq));
    }

    #[test]
    fn one_that_is_broken_off_anywhere_loses_nothing_and_is_made_up_for() {
        // Each is one rename after the other, of a rotation of this many files.
        for done in 0..=6 {
            let place = Place::new("broken");
            let mut audit = place.open(100);
            let mut job = 0;
            while older(&place.trail()).unwrap().len() < 2 {
                launch(&mut audit, job);
                job += 1;
            }
            drop(audit);
            let (trail, texts) = (place.trail(), place.texts());
            let step = |path: &Path, from: u32| {
                let name = |number| if number == 0 { path.to_owned() } else { older_path(path, number) };
                fs::rename(name(from), name(from + 1)).unwrap();
            };
            let steps = [(&trail, 2), (&trail, 1), (&trail, 0), (&texts, 2), (&texts, 1), (&texts, 0)];
            steps.iter().take(done).for_each(|(path, from)| step(path, *from));
            let mut audit = place.open(100);
            (job..job + 30).for_each(|job| launch(&mut audit, job));
            place.assert_from(1);
            assert_eq!(u64::try_from(place.whole(&texts).lines().count()).unwrap(), job + 30, "after {done}");
            let mut numbers = older(&trail).unwrap();
            numbers.sort_unstable();
            assert_eq!(numbers, (1..=u32::try_from(numbers.len()).unwrap()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn where_it_fails_the_files_grow_on() {
        let place = Place::new("fails");
        // No name for an older one is short enough.
        let trail = place.0.join("a".repeat(254));
        let started = Entry::Started { version: "1".into(), configuration: Configuration::default() };
        let rotation = Rotation { size: SIZE, keep: 1 };
        let mut audit = Audit::open(&trail, &place.0.join("head"), rotation, started).unwrap();
        (0..40).for_each(|job| launch(&mut audit, job));
        assert_eq!(fs::read_to_string(&trail).unwrap().lines().count(), 41);
        // Nor are the texts moved, which would leave launches without.
        assert!(older(&trail).unwrap().is_empty() && older(&place.texts()).unwrap().is_empty());
    }

    #[test]
    fn texts_that_somebody_else_has_put_there_are_not_moved_aside() {
        let place = Place::new("foreign");
        let mut audit = place.open(9);
        fs::remove_file(place.texts()).unwrap();
        fs::write(place.texts(), "foreign").unwrap();
        (0..40).for_each(|_| audit.record(Entry::Stopped).unwrap());
        assert_eq!(fs::read_to_string(place.texts()).unwrap(), "foreign");
        assert!(older(&place.texts()).unwrap().is_empty());
        assert_eq!(place.assert_from(1), 41);
    }

    #[test]
    fn whoever_wants_none_has_none() {
        let place = Place::new("none");
        let started = Entry::Started { version: "1".into(), configuration: Configuration::default() };
        fs::write(older_path(&place.trail(), 9), "mine").unwrap();
        let rotation = Rotation { size: 0, keep: 1 };
        let mut audit = Audit::open(&place.trail(), &place.0.join("head"), rotation, started).unwrap();
        (0..40).for_each(|job| launch(&mut audit, job));
        assert_eq!(older(&place.trail()).unwrap(), [9]);
    }
}
