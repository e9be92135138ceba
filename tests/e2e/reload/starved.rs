//! A reload while /etc goes on changing.

use super::{Reloading, roots::many};
use crate::harness::{PATIENCE, daemon::write_configuration, eventually, process};
use nix::sys::{
    inotify::{AddWatchFlags, InitFlags, Inotify},
    signal::Signal,
};
use std::{fs, thread, time::Duration};

/// Longer than a change of /etc is left alone, as another may follow.
const SETTLED: Duration = Duration::from_millis(5500);

impl Reloading {
    /// The youngest generation of roots, and how many of it are there.
    fn youngest(&self) -> (u32, usize) {
        let roots = fs::read_dir(self.executor.directory().join("state/roots")).unwrap();
        let generations = roots.map(|root| generation(root.unwrap().file_name().to_str().unwrap()));
        let youngest = generations.max().unwrap();
        (youngest, self.roots(youngest))
    }

    fn stop(&mut self) {
        let pid = self.executor.pid();
        self.executor.process().signal(Signal::SIGSTOP);
        eventually("it stands still", PATIENCE, || state(pid) == Some('T'));
    }
}

/// What a process does (proc_pid_stat(5)): `T` is stopped, `Z` has ended.
fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn generation(root: &str) -> u32 {
    root.rsplit_once('.').unwrap().1.parse().unwrap()
}

#[test]
fn what_was_asked_for_comes_before_what_changed_meanwhile() {
    let mut reloading = Reloading::start(&many(""));
    let directory = reloading.executor.directory().to_owned();
    let pid = reloading.executor.pid();
    let made = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
    made.add_watch(&directory.join("state/roots"), AddWatchFlags::IN_CREATE).unwrap();
    let etc = super::Touched::new();
    // Roots are being made for a change of /etc, and it changes once more.
    let (before, _) = reloading.youngest();
    etc.touch(0);
    eventually("the first root is made", PATIENCE, || reloading.youngest().0 > before);
    etc.touch(1);
    let asking = many("[profiles.asked]").replace("[profiles.p63]\n", "");
    write_configuration(&directory, "available", &asking);
    reloading.executor.process().signal(Signal::SIGHUP);
    // Of a process that has ended and is not waited for yet: nobody looks as long as roots are being made.
    eventually("the file is read", PATIENCE, || {
        process::descendants(pid).into_iter().any(|child| state(child) == Some('Z'))
    });
    reloading.stop();
    let (making, count) = reloading.youngest();
    assert!(count < 64, "all are made: this shows nothing");
    // No event tells of it: the second change has settled when the last root is made.
    thread::sleep(SETTLED);
    reloading.executor.process().signal(Signal::SIGCONT);
    let mut asked = None;
    eventually("its roots are made", PATIENCE, || {
        let names = made.read_events().into_iter().flatten().filter_map(|event| event.name);
        let names = names.filter_map(|name| name.into_string().ok());
        asked =
            asked.or(names.into_iter().find(|name| name.starts_with("asked.")).map(|name| generation(&name)));
        asked.is_some()
    });
    assert_eq!(asked, Some(making + 1), "another change came first");
    eventually("it holds", PATIENCE, || {
        reloading.executor.process().log().contains("configuration read anew: 64 profiles")
    });
}
