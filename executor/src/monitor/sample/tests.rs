//! What the kernel says of processes, read as it is and as it should not be.

use super::*;
use proptest::prelude::*;
use std::{collections::BTreeMap, process::Command};

fn mebibytes(anonymous: u64, shared: u64) -> Held {
    Held { anonymous: anonymous << 20, shared: shared << 20 }
}

proptest! {
    #[test]
    fn no_text_is_too_odd(text in "(RssAnon:|RssShmem:|Pss_Anon:|[ \\t\\n():0-9kB-]|\\PC){0,80}") {
        for key in ["RssAnon:", "Pss_Shmem:", ""] {
            kibibytes(&text, key);
        }
        Used::read(&text);
        prop_assert!(numbers(&text).iter().all(|pid| *pid > 0));
    }

    #[test]
    fn a_value_is_read_wherever_its_line_stands(number: u64, before in "([a-zA-Z ]{0,9}\n){0,4}", pad in "[ \t]{0,4}") {
        let text = format!("{before}RssAnon:{pad}{number} kB\nRssShmem: 1 kB\n");
        prop_assert_eq!(kibibytes(&text, "RssAnon:"), number.saturating_mul(1024));
        prop_assert_eq!(kibibytes(&text, "RssShmem:"), 1024);
    }

    #[test]
    fn whatever_a_process_calls_itself_its_ticks_are_read(name in "([)( \\n]|\\PC){0,16}", times: [u64; 4]) {
        let [a, b, c, d] = times;
        let stat = format!("7 ({name}) R 1 7 7 0 -1 4194304 1 2 3 4 {a} {b} {c} {d} 20 0 1 0 5 6 7");
        let (own, children) = (a.saturating_add(b), c.saturating_add(d));
        prop_assert_eq!(Used::read(&stat), Some(Used { own, children, since: 5 }));
    }

    #[test]
    fn sums_end_at_the_largest_number_and_never_begin_anew(held in prop::collection::vec(any::<(u64, u64)>(), 0..9)) {
        let all = held.iter().map(|(anonymous, shared)| Held { anonymous: *anonymous, shared: *shared });
        let sum = total(0, all);
        let exact: u128 = held.iter().map(|(a, s)| u128::from(*a) + u128::from(*s)).sum();
        prop_assert_eq!(u128::from(sum), exact.min(u128::from(u64::MAX)));
    }

    #[test]
    fn each_process_is_found_once_however_the_tree_changes_meanwhile(edges in prop::collection::vec((0_i32..40, 0_i32..40), 0..120)) {
        let mut below = BTreeMap::<i32, Vec<i32>>::new();
        for (parent, child) in &edges {
            below.entry(*parent).or_default().push(*child);
        }
        // Rings and doubles too: a number is used again, a process gets another parent.
        let found = descendants(&[0, 1, 0], usize::MAX, |pid| below.get(&pid).cloned().unwrap_or_default());
        let unique: BTreeSet<_> = found.iter().copied().collect();
        prop_assert_eq!(unique.len(), found.len());
        for pid in &found {
            prop_assert!(below.get(pid).is_none_or(|children| children.iter().all(|c| unique.contains(c))));
        }
    }
}

#[test]
fn lines_that_are_cut_garbled_or_too_large_hold_nothing() {
    let too_large = "RssAnon: 18446744073709551616 kB";
    for text in ["", "RssAnon:", "RssAnon: kB", "RssAnon: 12", "RssAnon: -1 kB", "XRssAnon: 12 kB", too_large]
    {
        assert_eq!(kibibytes(text, "RssAnon:"), 0, "{text:?}");
    }
    let short = "7 (x) R 1 7 7 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0";
    for text in
        ["", "7 (x", "7 (x) R 1", "garbage", "7 (x) R 1 7 7 0 -1 4194304 1 2 3 4 a b c d 20 0 1 0 5", short]
    {
        assert_eq!(Used::read(text), None, "{text:?}");
    }
    assert_eq!(numbers("1 x -3 0 99999999999 2\n"), [1, 2]);
}

#[test]
fn time_counts_once_whoever_has_ended_and_never_grows_less() {
    let used = |own, children, since| Used { own, children, since };
    let mut account = Account::default();
    let mut add = |stats: Vec<(i32, Used)>| account.add(stats.into_iter()) / TICK_US;
    assert_eq!(add(vec![(2, used(10, 0, 1)), (3, used(5, 0, 1))]), 15);
    // 3 has ended, and 2 has waited for it: its time is now the other's.
    assert_eq!(add(vec![(2, used(10, 6, 1))]), 16);
    // One that nobody waits for, and its number is given again.
    assert_eq!(add(vec![(2, used(10, 6, 1)), (4, used(7, 0, 2))]), 23);
    assert_eq!(add(vec![(2, used(10, 6, 1)), (4, used(1, 0, 3))]), 23);
    assert_eq!(add(vec![(2, used(10, 6, 1)), (4, used(9, 0, 3))]), 31);
    assert_eq!(add(Vec::new()), 31);
}

#[test]
fn what_is_swapped_out_is_still_held() {
    let text = "VmSwap:\t 2048 kB\nRssAnon:\t 1024 kB\nRssFile:\t 99 kB\nRssShmem:\t 4096 kB\n";
    assert_eq!(told(text, ["RssAnon:", "VmSwap:", "RssShmem:"]), mebibytes(3, 4));
    // These are the kernel's names, and no process may come away as one that holds nothing.
    let own = std::process::id();
    for (file, names) in [
        ("status", ["RssAnon:", "VmSwap:", "RssShmem:"]),
        ("smaps_rollup", ["Pss_Anon:", "SwapPss:", "Pss_Shmem:"]),
    ] {
        let text = read(format!("/proc/{own}/{file}"));
        assert!(names.iter().all(|name| text.lines().any(|line| line.starts_with(name))), "{text}");
    }
}

#[test]
fn processes_with_all_their_memory_in_common_are_one_and_copies_are_not() {
    let own = i32::try_from(std::process::id()).unwrap();
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut all: Vec<i32> = threads.filter_map(|t| t.file_name().to_str()?.parse().ok()).collect();
    assert!(all.len() > 1, "a test has a thread of its own");
    assert_eq!(distinct(&all).len(), 1);
    let mut children: Vec<_> = (0..5).map(|_| Command::new("sleep").arg("60").spawn().unwrap()).collect();
    all.extend(children.iter().map(|child| i32::try_from(child.id()).unwrap()));
    all.push(own);
    assert_eq!(distinct(&all).len(), 6);
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Of those that have gone nothing is known.
    assert_eq!(distinct(&[i32::MAX, i32::MAX]).len(), 2);
}

#[test]
fn memory_is_what_is_stored_or_mapped_and_not_both() {
    let held = || [mebibytes(10, 3), mebibytes(1, 4)].into_iter();
    assert_eq!(total(0, held()), 18 << 20);
    assert_eq!(total(6 << 20, held()), 18 << 20);
    assert_eq!(total(9 << 20, held()), 20 << 20);
    assert_eq!(total(u64::MAX, held()), u64::MAX);
    let directory = |path: &str| OwnedFd::from(fs::File::open(path).unwrap());
    assert!(stored(&[directory("/"), directory("/proc")]) > 1 << 20);
    assert_eq!(stored(&[directory("/proc")]), 0);
}

#[test]
fn a_process_that_has_ended_holds_nothing_and_leads_nowhere() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    child.wait().unwrap();
    for pid in [pid, i32::MAX, -1] {
        assert_eq!(memory(&[pid], &[]), 0);
        assert_eq!(proportional(pid), Held::default());
        assert_eq!((threads(&[pid]), Account::default().take_in(&[pid])), (0, 0));
        assert_eq!(tree(&[pid], 9), [pid]);
    }
    // The control: this one has not.
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(memory(&[own], &[]) > 0 && proportional(own) != Held::default() && threads(&[own]) > 0);
}

#[test]
fn a_name_that_is_no_text_hides_nothing() {
    let seen = std::thread::spawn(|| {
        nix::sys::prctl::set_name(c"\xff\xfe").unwrap();
        ["status", "stat"].map(|file| read(format!("/proc/thread-self/{file}")))
    });
    let [status, stat] = seen.join().unwrap();
    assert!(kibibytes(&status, "RssAnon:") > 0, "{status}");
    assert!(stat.contains(") R "), "{stat}");
}

#[test]
fn a_tree_that_grows_for_ever_is_followed_so_far_and_no_further() {
    let found = descendants(&[1], 100, |pid| vec![pid + 1]);
    assert_eq!(found.len(), 100);
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let (own, pid) = (i32::try_from(std::process::id()).unwrap(), i32::try_from(child.id()).unwrap());
    assert!(tree(&[own], 9999).contains(&pid));
    child.kill().unwrap();
    child.wait().unwrap();
}
