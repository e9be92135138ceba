//! What head and mark say after each kind of end, and what is then said of the trail.

use super::super::{Audit, Rotation};
use super::*;
use cordon_protocol::audit::{Configuration, Entry, Line, Walk};

/// A trail of one start and three more lines, of which the disk has the first for sure.
fn trail(name: &str) -> std::path::PathBuf {
    let directory = std::env::temp_dir().join(format!("cordon-kept-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    let mut audit = open(&directory).unwrap();
    (0..3).for_each(|_| audit.record(Entry::Stopped).unwrap());
    directory
}

fn open(directory: &Path) -> Result<Audit, Fault> {
    let started = Entry::Started { version: "1".into(), configuration: Configuration::default() };
    let rotation = Rotation { size: 1 << 20, keep: 1 };
    Audit::open(&directory.join("audit.jsonl"), &directory.join("audit.head"), rotation, started)
}

fn lines(directory: &Path) -> Vec<Line> {
    let mut walk = Walk::default();
    let text = fs::read_to_string(directory.join("audit.jsonl")).unwrap();
    text.lines().map(|line| walk.step(line).unwrap()).collect()
}

/// Numbers of the lines, which are a chain.
fn numbers(directory: &Path) -> Vec<u64> {
    lines(directory).iter().map(|line| line.seq).collect()
}

/// The lines about what is lost: the number of each, and what it says.
fn lost(directory: &Path) -> Vec<(u64, [u64; 3])> {
    let of = |line: Line| match line.entry {
        Entry::Lost { after, found, known } => Some((line.seq, [after, found, known])),
        _ => None,
    };
    lines(directory).into_iter().filter_map(of).collect()
}

/// As if the host had started anew since.
fn start_host(directory: &Path) {
    let file = directory.join("audit.synced");
    let text = fs::read_to_string(&file).unwrap();
    let run = text.trim_end().rsplit_once(' ').unwrap().1;
    fs::write(&file, text.replace(run, "another")).unwrap();
}

#[test]
fn what_the_disk_never_had_is_no_cut_and_anything_else_is() {
    let directory = trail("lost");
    let path = directory.join("audit.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    // Two lines and a half.
    let torn: String = whole.split_inclusive('\n').take(2).collect();
    fs::write(&path, format!("{torn}{{\"seq\":3,")).unwrap();
    fs::write(directory.join("commands.jsonl"), "{\"job\":").unwrap();
    assert!(open(&directory).is_err(), "the host has not gone down");
    fs::write(&path, &torn).unwrap();
    assert!(open(&directory).unwrap_err().detail.contains("cut off"), "the host has not gone down");
    fs::write(&path, format!("{torn}{{\"seq\":3,")).unwrap();
    start_host(&directory);
    drop(open(&directory).unwrap());
    assert_eq!(numbers(&directory), [1, 2, 3, 4]);
    assert_eq!(lost(&directory), [(3, [1, 2, 4])]);
    assert_eq!(fs::read_to_string(directory.join("commands.jsonl")).unwrap(), "");
    // Number 4 is on the disk now.
    start_host(&directory);
    fs::write(&path, &torn).unwrap();
    assert!(open(&directory).unwrap_err().detail.contains("cut off"));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_new_file_that_the_disk_never_had_goes_on_where_the_older_one_ends() {
    let directory = trail("empty");
    let older = fs::read_to_string(directory.join("audit.jsonl")).unwrap();
    let first: String = older.split_inclusive('\n').take(1).collect();
    let known = ["audit.head", "audit.synced"].map(|name| fs::read(directory.join(name)).unwrap());
    // Nothing of it, or half a line.
    for begun in ["", "{\"seq\":2,"] {
        fs::write(directory.join("audit.jsonl"), begun).unwrap();
        fs::write(directory.join("audit.jsonl.1"), &first).unwrap();
        fs::write(directory.join("audit.head"), &known[0]).unwrap();
        fs::write(directory.join("audit.synced"), &known[1]).unwrap();
        start_host(&directory);
        drop(open(&directory).unwrap());
        assert_eq!(numbers(&directory), [2, 3], "{begun}");
        assert_eq!(lost(&directory), [(2, [1, 1, 4])]);
        let next = fs::read_to_string(directory.join("audit.jsonl")).unwrap();
        let mut walk = Walk::default();
        (first.clone() + &next).lines().for_each(|line| drop(walk.step(line).unwrap()));
    }
    // Nor where head and mark went with it.
    for blank in ["", "\0\0\0"] {
        fs::write(directory.join("audit.jsonl"), "").unwrap();
        fs::write(directory.join("audit.head"), blank).unwrap();
        fs::write(directory.join("audit.synced"), blank).unwrap();
        drop(open(&directory).unwrap());
        assert_eq!((numbers(&directory), lost(&directory)), (vec![2, 3], vec![(2, [0, 1, 1])]), "{blank}");
    }
    // Where that one is gone too, the head is what is known of it.
    fs::write(directory.join("audit.jsonl"), "").unwrap();
    fs::remove_file(directory.join("audit.jsonl.1")).unwrap();
    fs::write(directory.join("audit.head"), &known[0]).unwrap();
    fs::write(directory.join("audit.synced"), &known[1]).unwrap();
    start_host(&directory);
    drop(open(&directory).unwrap());
    assert_eq!(numbers(&directory), [5, 6, 7]);
    assert_eq!(lost(&directory), [(6, [1, 4, 4])]);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn what_is_lost_is_told_once_and_only_where_the_host_went_down_without_a_clean_end() {
    let directory = trail("once");
    let again = || drop(open(&directory).unwrap());
    let nothing: [(u64, [u64; 3]); 0] = [];
    // An executor that was killed; numbers 2 to 4 are in the host's memory.
    again();
    assert_eq!(lost(&directory), nothing);
    // All that was written since number 5 is gone, its head with it: nothing but the missing end tells.
    start_host(&directory);
    again();
    assert_eq!(lost(&directory), [(6, [5, 5, 5])]);
    again();
    // A clean end.
    let mut audit = open(&directory).unwrap();
    audit.record(Entry::Stopped).unwrap();
    audit.close();
    drop(audit);
    start_host(&directory);
    again();
    assert_eq!(lost(&directory), [(6, [5, 5, 5])]);
    // The trail is ahead of the head.
    let mut audit = open(&directory).unwrap();
    let before = fs::read(directory.join("audit.head")).unwrap();
    audit.record(Entry::Stopped).unwrap();
    drop(audit);
    fs::write(directory.join("audit.head"), before).unwrap();
    start_host(&directory);
    let last = numbers(&directory).pop().unwrap();
    again();
    assert_eq!(lost(&directory)[1..], [(last + 1, [last - 1, last, last])]);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_mark_or_head_that_the_power_took_is_known_to_nobody() {
    let directory = trail("zeros");
    let files = ["audit.head", "audit.synced"].map(|name| directory.join(name));
    let kept = files.clone().map(|file| fs::read_to_string(file).unwrap());
    let whole = fs::read_to_string(directory.join("audit.jsonl")).unwrap();
    let all = [1, 2, 3, 4, 5, 6];
    for blank in [String::new(), "\0".repeat(150)] {
        // What stands in both, with how many lines of four the trail ends, and what is said of it then.
        for (head, synced, count, says) in [
            (Some(&kept[0]), None, 4, Some([0, 4, 4])),
            (Some(&kept[0]), None, 2, Some([0, 2, 4])),
            (None, Some(&kept[1]), 4, Some([1, 4, 4])),
            (None, Some(&kept[1]), 1, Some([1, 1, 1])),
            (None, Some(&kept[1]), 0, None),
            (None, None, 3, Some([0, 3, 3])),
        ] {
            fs::write(&files[1], synced.unwrap_or(&blank)).unwrap();
            if synced.is_some() {
                start_host(&directory);
            }
            fs::write(&files[0], head.unwrap_or(&blank)).unwrap();
            let text: String = whole.split_inclusive('\n').take(count).collect();
            fs::write(directory.join("audit.jsonl"), text).unwrap();
            drop(open(&directory).unwrap());
            let lost = lost(&directory);
            let expected = says.map(|says| (says[1] + 1, says)).into_iter().collect::<Vec<_>>();
            assert_eq!(lost, expected, "{head:?} {synced:?} {count}");
            if says.is_some() {
                assert_eq!(numbers(&directory), all[..count + 2]);
            } else {
                // Number 1 was on the disk: it was taken away.
                let first = lines(&directory).remove(0);
                assert_eq!((first.seq, first.entry), (2, Entry::BegunAnew { found: None }));
            }
        }
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn without_a_mark_nothing_may_be_missing_also_after_the_host_has_started_anew() {
    let directory = trail("mark");
    let path = directory.join("audit.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    let cut: String = whole.split_inclusive('\n').take(3).collect();
    fs::remove_file(directory.join("audit.synced")).unwrap();
    fs::write(&path, &cut).unwrap();
    for _ in 0..2 {
        assert!(open(&directory).unwrap_err().detail.contains("cut off"));
        start_host(&directory);
    }
    // The control.
    fs::write(&path, whole).unwrap();
    drop(open(&directory).unwrap());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_head_that_is_none_is_refused_and_an_empty_one_is_new() {
    let directory = trail("none");
    for (file, text) in [
        ("audit.head", "rubbish"),
        ("audit.head", "7 x"),
        // The host has not gone down.
        ("audit.head", "\0\0\0\0"),
        ("audit.synced", "rubbish"),
        ("audit.synced", "\0\0\0x"),
    ] {
        let whole = fs::read(directory.join(file)).unwrap();
        fs::write(directory.join(file), text).unwrap();
        let fault = open(&directory).unwrap_err();
        for word in [file, "not the head of a trail", "move the file away"] {
            assert!(fault.detail.contains(word), "{fault:?}");
        }
        assert_eq!(fs::read_to_string(directory.join(file)).unwrap(), text);
        fs::write(directory.join(file), whole).unwrap();
    }
    fs::write(directory.join("audit.head"), "").unwrap();
    drop(open(&directory).unwrap());
    assert_eq!(numbers(&directory), [1, 2, 3, 4, 5]);
    fs::remove_dir_all(directory).unwrap();
}
