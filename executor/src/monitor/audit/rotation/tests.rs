//! Files that grow, rotations that are broken off, and what is left of both.

use super::*;
use crate::sys::memfd;
use cordon_protocol::audit::{About as AboutText, Configuration, Line, Walk};

/// Room for few lines.
const SIZE: u64 = 2048;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("cordon-rotation-{name}-{}", std::process::id()));
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
    let about = AboutText { job: job.clone(), uid: 0, request: "r".into(), begun: false };
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
    assert!(moved > 3 && numbers(&place.texts()) > 3, "{moved}");
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
    let mut texts = lines.iter().filter_map(|line| match &line.entry {
        Entry::TextsDropped { before } => Some(before.clone()),
        _ => None,
    });
    assert_eq!(texts.next_back(), first_job(&older_path(&place.texts(), 2)).unwrap());
    place.assert_from(first);
    // Fewer stay from the next start on.
    drop(audit);
    drop(place.open(1));
    assert_eq!(older(&place.trail()).unwrap(), [1]);
    let lines = place.lines();
    assert_eq!(lines.iter().filter_map(told).next_back(), Some(lines[0].seq));
}

#[test]
fn texts_reach_no_further_back_than_the_trail() {
    let place = Place::new("back");
    let mut audit = place.open(2);
    // Many lines for each text, and at last none for a while.
    for (job, lines) in (0..40).map(|job| (job, 5)).chain([(40, 60), (41, 1)]) {
        launch(&mut audit, job);
        for _ in 0..lines {
            audit.record(Entry::Stopped).unwrap();
            let trail = place.whole(&place.trail());
            for text in place.whole(&place.texts()).lines() {
                let job = read_text_line(text).unwrap().0.job;
                assert!(trail.contains(&job), "{job} after {}", trail.lines().count());
            }
        }
    }
    assert!(place.whole(&place.texts()).lines().count() == 1, "the others are gone");
}

#[test]
fn one_that_is_broken_off_anywhere_loses_nothing_and_is_made_up_for() {
    // Each is one rename after the other, of a rotation of this many files.
    for done in 0..=6 {
        let place = Place::new("broken");
        let mut audit = place.open(100);
        let mut job = 0;
        while [place.trail(), place.texts()].iter().any(|path| older(path).unwrap().len() < 2) {
            launch(&mut audit, job);
            job += 1;
        }
        drop(audit);
        let (trail, texts) = (place.trail(), place.texts());
        let step = |path: &Path, from: u32| {
            let name = |number| if number == 0 { path.to_owned() } else { older_path(path, number) };
            fs::rename(name(from), name(from + 1)).unwrap();
        };
        let of = |path| (0..=u32::try_from(older(path).unwrap().len()).unwrap()).rev();
        let steps: Vec<_> = of(&trail).map(|n| (&trail, n)).chain(of(&texts).map(|n| (&texts, n))).collect();
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
    let rotation = Rotation { size: SIZE, keep: 99 };
    let mut audit = Audit::open(&trail, &place.0.join("head"), rotation, started).unwrap();
    (0..40).for_each(|job| launch(&mut audit, job));
    assert_eq!(fs::read_to_string(&trail).unwrap().lines().count(), 41);
    assert!(older(&trail).unwrap().is_empty());
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
