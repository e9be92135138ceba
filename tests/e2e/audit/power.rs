//! The power fails: what the disk had not yet is lost, and the next start says of which numbers that may be.

use super::*;

/// The four files, as they are at one moment.
struct Disk {
    trail: String,
    texts: String,
    head: String,
    synced: String,
}

impl Disk {
    /// What is in the files of an executor for which nothing runs any more.
    fn of(executor: &Executor) -> Self {
        let count = |event: &str| lines(executor).iter().filter(|line| line["event"] == event).count();
        eventually("each command has its end", PATIENCE, || count("launch") == count("ended"));
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        let [head, synced] = kept(executor).map(read);
        Self { trail: read(trail(executor)), texts: read(texts(executor)), head, synced }
    }

    /// As the host finds them when it has started anew.
    fn after_a_start(mut self) -> Self {
        let run = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert!(self.synced.contains(run.trim()), "{}", self.synced);
        self.synced = self.synced.replace(run.trim(), "00000000-0000-0000-0000-000000000000");
        self
    }

    fn put(&self, executor: &Files) {
        let files = [&executor.trail, &executor.texts, &executor.head, &executor.synced];
        for (file, text) in files.into_iter().zip([&self.trail, &self.texts, &self.head, &self.synced]) {
            fs::write(file, text).unwrap();
        }
    }
}

/// Where they are.
struct Files {
    configuration: PathBuf,
    trail: PathBuf,
    texts: PathBuf,
    head: PathBuf,
    synced: PathBuf,
}

impl Files {
    fn of(executor: &Executor) -> Self {
        let [head, synced] = kept(executor);
        let configuration = executor.directory().join("executor.toml");
        Self { configuration, trail: trail(executor), texts: texts(executor), head, synced }
    }
}

fn kept(executor: &Executor) -> [PathBuf; 2] {
    ["audit.head", "audit.synced"].map(|name| executor.directory().join("state").join(name))
}

/// The first lines of a text.
fn first(text: &str, count: usize) -> String {
    text.split_inclusive('\n').take(count).collect()
}

/// What a file system leaves where it had made a file longer before it wrote what was in it.
fn zeros(kib: usize) -> String {
    "\0".repeat(kib << 10)
}

/// The lines about what may be lost: number, and what it says.
fn lost(executor: &Executor) -> Vec<[u64; 4]> {
    let number = |line: &Value, name: &str| line[name].as_u64().unwrap();
    let told = lines(executor).into_iter().filter(|line| line["event"] == "lost");
    told.map(|line| ["seq", "after", "found", "known"].map(|name| number(&line, name))).collect()
}

/// Number of the line about this.
fn number_of(executor: &Executor, event: &str, job: &str) -> u64 {
    let line = lines(executor).into_iter().find(|line| line["event"] == event && line["job"] == job).unwrap();
    line["seq"].as_u64().unwrap()
}

/// The log, once it has this; who reads it runs beside the test.
fn log_with(executor: &mut Executor, says: &str) -> String {
    eventually(says, PATIENCE, || executor.process().log().contains(says));
    executor.process().log()
}

fn assert_verified(executor: &Executor, status: i32, says: &[&str]) {
    let verified = verify(executor);
    assert_eq!(verified.status, status, "{says:?}: {verified:?}");
    for says in says {
        assert!(verified.stderr.contains(says), "{says}: {verified:?}");
    }
}

/// One command whose line and text are on the disk for sure, and three that came after it.
fn four_commands() -> (Executor, [String; 4]) {
    let executor = Executor::start("");
    let run = |executor: &Executor, n: u8| executor.report(&["-c", &format!("echo {n}")]).id;
    let kept = run(&executor, 0);
    let executor = executor.again();
    let [a, b, c] = [1, 2, 3].map(|n| run(&executor, n));
    (executor, [kept, a, b, c])
}

#[test]
fn texts_that_a_power_loss_took_are_counted_and_all_others_are_missed() {
    let (executor, jobs) = four_commands();
    let (files, mut disk) = (Files::of(&executor), Disk::of(&executor).after_a_start());
    // Half of the third text is there, and nothing of the fourth.
    let half = first(&disk.texts, 2).len() + 20;
    disk.texts = disk.texts[..half].to_owned() + &zeros(300);
    let (last, synced) = (disk.trail.lines().count() as u64, number_of(&executor, "launch", &jobs[1]) - 1);
    let mut executor = executor.again_after(|| disk.put(&files)).0;
    assert_eq!(lost(&executor), [[last + 1, synced, last, last]]);
    let says = format!("numbers {} to {last} may be without text", synced + 1);
    log_with(&mut executor, &says);
    let after = executor.report(&["-c", "echo after"]).id;
    let told = "cordon: note: 2 commands without a text: it was lost when the host went down";
    assert_verified(&executor, 3, &[told]);
    assert!(verify(&executor).text().contains("3 texts are of what ran"));
    let says = format!("the host went down: texts of numbers {} to {last} may be missing", synced + 1);
    assert!(show(&executor, &[]).contains(&says));
    // The next start has nothing to tell.
    executor = executor.again();
    assert_eq!(lost(&executor).len(), 1);
    let whole = fs::read_to_string(texts(&executor)).unwrap();
    let without =
        |job: &str| whole.split_inclusive('\n').filter(|line| !line.contains(job)).collect::<String>();
    for (text, says) in [
        // From before and after what may be lost, and what is there is what ran.
        (without(&jobs[0]), format!("command {}: its text is missing", jobs[0])),
        (without(&after), format!("command {after}: its text is missing")),
        (whole.replace("echo 1", "echo 9"), format!("command {}: its text was changed", jobs[1])),
    ] {
        fs::write(texts(&executor), text).unwrap();
        assert_verified(&executor, 1, &[&says]);
    }
    fs::write(texts(&executor), whole).unwrap();
    assert_verified(&executor, 3, &[told]);
}

#[test]
fn lines_that_a_power_loss_took_are_told_and_only_their_texts_and_marks_may_stay() {
    let (executor, jobs) = four_commands();
    let (files, mut disk) = (Files::of(&executor), Disk::of(&executor).after_a_start());
    let [synced, found] =
        [(1, "launch"), (2, "ended")].map(|(n, event)| number_of(&executor, event, &jobs[n]));
    let (synced, known) = (synced - 1, found + 2);
    let mark = |number: u64| {
        let line: Value = serde_json::from_str(disk.trail.lines().nth(number as usize - 1).unwrap()).unwrap();
        format!("executor: audit head {number} {}\n", line["hash"].as_str().unwrap())
    };
    let marks = [mark(found), mark(known)];
    // The fourth command has its text alone.
    disk.trail = first(&disk.trail, found as usize) + "{\"seq\":" + &zeros(200);
    let (mut executor, refused) = executor.again_after(|| {
        // The control: the host has not gone down.
        let here = fs::read_to_string(&files.synced).unwrap();
        disk.put(&files);
        fs::write(&files.synced, here).unwrap();
        let refused = start_refused(&files.configuration);
        disk.put(&files);
        refused
    });
    assert!(refused.stderr.contains("cut off"), "{refused:?}");
    assert_eq!(lost(&executor), [[found + 1, synced, found, known]]);
    let says = format!("numbers {} to {known} are lost", found + 1);
    log_with(&mut executor, &says);
    // The line about the loss has a mark of its own, and what follows another.
    log_with(&mut executor, &format!("audit head {} ", found + 1));
    let log = log_with(&mut executor, &format!("audit head {} ", found + 2));
    let next = executor.report(&["-c", "echo next"]).id;
    let orphan = format!("command {}: its line was lost when the host went down", jobs[3]);
    let numbers = format!("numbers {} to {known} were lost when the host went down", found + 1);
    assert_verified(&executor, 3, &[&orphan, &numbers]);
    // A mark of a line that was lost, where the log goes on to what says so, and no other.
    let file = executor.directory().join("log");
    let anchored = |log: &str| {
        fs::write(&file, log).unwrap();
        let mut command = Command::new(&programs().cordon);
        command.args(["audit", "verify", "--file"]).arg(trail(&executor));
        command.arg("--head").arg(executor.directory().join("state/audit.head")).arg("--anchors").arg(&file);
        process::run(command, &[])
    };
    let verified = anchored(&(marks.concat() + &log));
    assert!(verified.status == 3 && verified.stderr.contains("1 mark of the log"), "{verified:?}");
    let beyond = format!("audit head {} {}\n", known + 1, "0".repeat(64));
    for (log, says) in [
        (log.clone() + &marks[1], format!("number {known} is not the line that the log names")),
        (marks[1].clone(), "where it goes on, check with all of it".to_owned()),
        (beyond + &log, format!("than its head knew of, which is up to {known}")),
        (mark_with_another_hash(&marks[0]) + &log, format!("number {found} is not the line")),
    ] {
        let verified = anchored(&log);
        assert!(verified.status == 1 && verified.stderr.contains(&says), "{says}: {verified:?}");
    }
    // A text that is nobody's is believed to be of a lost line only where one could stand.
    let whole = fs::read_to_string(texts(&executor)).unwrap();
    // Lost with its line, so that no text tells of it: still nobody can say that all is there.
    let none = whole.split_inclusive('\n').filter(|line| !line.contains(&jobs[3])).collect::<String>();
    fs::write(texts(&executor), none).unwrap();
    assert_verified(&executor, 3, &[&numbers]);
    fs::write(texts(&executor), &whole).unwrap();
    let forged = first(&whole, 1).replace(&jobs[0], "0123456789abcdef");
    for (job, status) in [(&jobs[1], 1), (&jobs[2], 1), (&jobs[3], 3), (&next, 3)] {
        let at = whole.split_inclusive('\n').position(|line| line.contains(job.as_str())).unwrap();
        let before = first(&whole, at);
        fs::write(texts(&executor), format!("{before}{forged}{}", &whole[before.len()..])).unwrap();
        assert_verified(&executor, status, &["command 0123456789abcdef"]);
    }
    fs::write(texts(&executor), format!("{whole}{forged}")).unwrap();
    assert_verified(&executor, 1, &["command 0123456789abcdef: there is a text and no launch"]);
}

fn mark_with_another_hash(mark: &str) -> String {
    let (before, hash) = mark.trim_end().rsplit_once(' ').unwrap();
    format!("{before} {}\n", "f".repeat(hash.len()))
}

#[test]
fn a_head_or_mark_that_the_power_took_stops_no_start_and_anything_else_does() {
    let (executor, jobs) = four_commands();
    let files = Files::of(&executor);
    let disk = Disk::of(&executor).after_a_start();
    let (last, synced) = (disk.trail.lines().count() as u64, number_of(&executor, "launch", &jobs[1]) - 1);
    let mut executor = executor;
    // What stands in head and mark, and what is then known to be on the disk.
    for (head, mark, after) in [
        (disk.head.as_str(), "", 0),
        (&disk.head, &zeros(1), 0),
        ("", &disk.synced, synced),
        (&zeros(1), &disk.synced, synced),
        (&zeros(1), &zeros(1), 0),
    ] {
        executor = executor
            .again_after(|| {
                disk.put(&files);
                fs::write(&files.head, head).unwrap();
                fs::write(&files.synced, mark).unwrap();
            })
            .0;
        assert_eq!(lost(&executor), [[last + 1, after, last, last]], "{head:?} {mark:?}");
        executor.assert_works();
        assert_verified(&executor, 0, &[]);
    }
    let (trail, synced) = (first(&disk.trail, 1), disk.synced.as_str());
    let here = Disk::of(&executor).synced;
    let long = |text: &str| text.to_owned() + &zeros((64 << 10) + 128);
    let endless = |text: &str| text.to_owned() + &"x".repeat(200 << 10);
    let again = "move the file away and start again";
    let cases = [
        // Before what was on the disk, also where the head does not know.
        (&files.trail, trail, &files.head, String::new(), synced, "lines were cut off"),
        // The host has not gone down.
        (&files.head, zeros(1), &files.head, zeros(1), &here, "not the head of a trail"),
        (&files.trail, disk.trail.clone() + &zeros(1), &files.texts, disk.texts.clone(), &here, "cut off"),
        // No power loss leaves that.
        (&files.synced, "rubbish".into(), &files.synced, "rubbish".into(), synced, "not the head of a trail"),
        (&files.trail, long(&disk.trail), &files.texts, disk.texts.clone(), synced, "more than 64M of zeros"),
        (&files.texts, long(&disk.texts), &files.trail, disk.trail.clone(), synced, "more than 64M of zeros"),
        (&files.texts, endless(&disk.texts), &files.trail, disk.trail.clone(), synced, "no line of a trail"),
    ];
    let executor = executor
        .again_after(|| {
            for (file, text, other, other_text, synced, says) in cases {
                disk.put(&files);
                fs::write(&files.synced, synced).unwrap();
                fs::write(other, &other_text).unwrap();
                fs::write(file, &text).unwrap();
                let refused = start_refused(&files.configuration);
                let told = refused.stderr.contains(says) && refused.stderr.contains(again);
                assert!(told && refused.stderr.contains(&*file.to_string_lossy()), "{says}: {refused:?}");
                assert!(fs::read_to_string(file).unwrap() == text, "{says}: it is left as it is");
            }
            // The control: what a power loss leaves.
            disk.put(&files);
            let [trail, texts] = [&disk.trail, &disk.texts].map(|text| text.to_owned() + &zeros(63 << 10));
            fs::write(&files.trail, trail).unwrap();
            fs::write(&files.texts, texts).unwrap();
        })
        .0;
    assert_eq!(lost(&executor).len(), 1);
    executor.assert_works();
    assert_verified(&executor, 0, &[]);
}
