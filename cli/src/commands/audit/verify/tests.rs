//! What an executor writes, step by step, and what is said of each.

use super::*;
use cordon_protocol::{
    audit::{About, Entry, Line, Text, append, line_hash, sha256, text_line},
    sealed::{SealedRequest, Work},
};
use std::{fs::OpenOptions, io::Write as _};

/// What an executor writes, step by step.
struct Written {
    directory: PathBuf,
    head: Head,
}

impl Written {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("cordon-verify-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let mut written = Self { directory, head: Head::default() };
        written.entry(Entry::Stopped);
        written.keep_head();
        fs::write(written.path("commands.jsonl"), "").unwrap();
        written
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn add(&self, name: &str, text: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.path(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// The text of a command; its launch is to come.
    fn text(&self, job: &str) -> Entry {
        let (line, launch) = launch(job);
        self.add("commands.jsonl", &line);
        launch
    }

    fn entry(&mut self, entry: Entry) {
        let (line, head) = append(&self.head, 1, entry).unwrap();
        self.add("audit.jsonl", &line);
        self.head = head;
    }

    fn keep_head(&self) {
        fs::write(self.path("head"), format!("{:020} {}\n", self.head.seq, self.head.hash)).unwrap();
    }

    /// Looks once: what is wrong, and whether that may pass.
    fn look(&self) -> (Vec<String>, bool) {
        let (trail, texts, head) = (self.path("audit.jsonl"), self.path("commands.jsonl"), self.path("head"));
        let check = Check { trail: &trail, texts: &texts, head: Some(&head), anchors: None, partial: false };
        let seen = Seen::look(&check, &Anchors::default()).unwrap();
        (seen.problems().map(|problem| problem.text.clone()).collect(), seen.may_pass(false))
    }

    fn assert_passing(&self, says: &str) {
        let (problems, may_pass) = self.look();
        assert!(may_pass && problems.len() == 1 && problems[0].contains(says), "{says}: {problems:?}");
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn launch(job: &str) -> (String, Entry) {
    let work = Work::Program(vec!["true".into()]);
    let sealed = SealedRequest::of(work.clone());
    let request = sha256(&sealed.encode().unwrap());
    let (env, files, collect) = (Vec::new(), Vec::new(), Vec::new());
    let text = Text { work, env, cwd: None, workspace: None, files, collect, cut: false };
    let about = About { job: job.into(), uid: 0, request: request.clone(), begun: false };
    let line = text_line(&about, &text.to_json().unwrap()).unwrap();
    let text = Some(line_hash(&line));
    let (job, profile) = (job.to_owned(), "p".to_owned());
    let (files, workspace) = (None, None);
    let (wall_ms, memory_bytes, pids) = (1, 1, 1);
    let launch =
        Entry::Launch { job, uid: 0, profile, request, files, workspace, text, wall_ms, memory_bytes, pids };
    (line, launch)
}

#[test]
fn a_launch_that_is_being_written_is_wrong_for_a_moment_only() {
    let mut written = Written::new("moment");
    let good = (Vec::new(), false);
    assert_eq!(written.look(), good);
    let (line, launch) = launch("1");
    let (begin, end) = line.split_at(20);
    written.add("commands.jsonl", begin);
    written.assert_passing("not the text of a command");
    written.add("commands.jsonl", end);
    written.assert_passing("there is a text and no launch of it");
    let before = written.head.clone();
    let (line, _) = append(&before, 1, launch.clone()).unwrap();
    written.add("audit.jsonl", line.trim_end());
    written.assert_passing("the last line is cut off");
    written.add("audit.jsonl", "\n");
    written.assert_passing("the trail ends with number 2, its head is number 1");
    written.head = append(&before, 1, launch).unwrap().1;
    written.keep_head();
    assert_eq!(written.look(), good);
}

#[test]
fn what_comes_after_both_were_opened_is_no_matter() {
    let mut written = Written::new("after");
    let first = written.text("1");
    written.entry(first);
    written.keep_head();
    let (trail, texts) = (written.path("audit.jsonl"), written.path("commands.jsonl"));
    let both = files::both(&trail, &texts).unwrap();
    // A launch that is whole, one of which there is but the text, and half a text.
    let second = written.text("2");
    written.entry(second);
    written.text("3");
    written.add("commands.jsonl", "{\"job\"");
    let mut walked = Walked::default();
    walked.follow(both.trail, &Anchors::default()).unwrap();
    assert_eq!((walked.lines, walked.problems.len()), (2, 0));
    let compared = walked.recorded.compare(&texts, both.texts, Scope::default()).unwrap();
    assert_eq!((compared.whole, compared.problems.len()), (1, 0), "{compared:?}");
}

#[test]
fn the_text_of_a_launch_may_come_after_the_texts_were_opened() {
    let written = Written::new("late");
    let (trail, texts) = (written.path("audit.jsonl"), written.path("commands.jsonl"));
    let both = files::both(&trail, &texts).unwrap();
    let mut recorded = Recorded::default();
    let entry = written.text("1");
    recorded.add(Line { seq: 1, time_ms: 1, entry, prev: String::new() });
    let compared = recorded.compare(&texts, both.texts, Scope::default()).unwrap();
    assert_eq!((compared.whole, compared.problems.len()), (1, 0), "{compared:?}");
}

#[test]
fn what_may_pass_is_looked_at_again_and_believed_in_the_end() {
    for (passes_at, looks) in [(0, 1), (3, 4), (LOOKS - 1, LOOKS), (LOOKS, LOOKS)] {
        let mut number = 0;
        let look = || {
            number += 1;
            Ok(number - 1)
        };
        assert_eq!(settled(look, |look| *look < passes_at).ok(), Some(looks - 1));
        assert_eq!(number, looks);
    }
}
