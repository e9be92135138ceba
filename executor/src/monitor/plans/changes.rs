//! Changes of /etc: seen as they come, taken over when they have settled.

use crate::sandbox::steps::{About, Fault};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Quiet time after a change before the roots are made anew: a package installation changes many files.
const SETTLE: Duration = Duration::from_millis(500);
/// Most time after the first change: something may never be quiet.
const SETTLE_MOST: Duration = Duration::from_secs(5);
/// Everything that changes what a copy would hold.
const CHANGES: AddWatchFlags = AddWatchFlags::IN_ATTRIB
    .union(AddWatchFlags::IN_CLOSE_WRITE)
    .union(AddWatchFlags::IN_CREATE)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_MOVED_TO);

/// Changes that are not in the roots yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The first and the last of them.
    seen: Option<(Instant, Instant)>,
}

impl Pending {
    /// One more is seen.
    pub(super) fn add(&mut self, now: Instant) {
        self.seen = Some((self.seen.map_or(now, |(first, _)| first), now));
    }

    /// When they have settled, or will be taken over all the same.
    pub(super) fn due(&self) -> Option<Instant> {
        self.seen.map(|(first, last)| (last + SETTLE).min(first + SETTLE_MOST))
    }

    /// Whether they are to be taken over now; then none is left.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let due = self.due().is_some_and(|due| now >= due);
        if due {
            self.seen = None;
        }
        due
    }
}

/// Watches /etc, every directory in it that some profile copies, and those that its links into /run lead to.
pub(super) fn watch_copied(hidden: &[&[PathBuf]]) -> Result<Inotify, Fault> {
    let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).about("inotify")?;
    let mut directories = BTreeSet::from([PathBuf::from("/etc")]);
    let mut next = vec![PathBuf::from("/etc")];
    while let Some(directory) = next.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            if hidden.iter().all(|hide| hide.contains(&path)) {
                continue;
            }
            if kind.as_ref().is_ok_and(fs::FileType::is_dir) {
                next.push(path.clone());
                directories.insert(path);
            } else if kind.is_ok_and(|kind| kind.is_symlink()) {
                let real = fs::canonicalize(&path).ok().filter(|real| real.starts_with("/run"));
                directories.extend(real.and_then(|real| real.parent().map(PathBuf::from)));
            }
        }
    }
    for directory in directories {
        // One that has gone meanwhile is told by its parent.
        match watch.add_watch(&directory, CHANGES) {
            Ok(_) | Err(nix::errno::Errno::ENOENT) => {}
            Err(errno) => return Err(errno).about(directory.display()),
        }
    }
    Ok(watch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_taken_over_when_they_have_settled_and_when_they_never_do() {
        let (mut pending, start) = (Pending::default(), Instant::now());
        assert!(pending.due().is_none() && !pending.take(start + SETTLE_MOST));
        pending.add(start);
        let second = start + SETTLE / 2;
        pending.add(second);
        assert_eq!(pending.due(), Some(second + SETTLE));
        assert!(!pending.take(start + SETTLE) && pending.take(second + SETTLE));
        assert!(pending.due().is_none() && !pending.take(second + SETTLE));
        // Something changes all the time.
        let mut now = second + SETTLE;
        let begun = now;
        let taken = loop {
            pending.add(now);
            if pending.take(now) {
                break now;
            }
            now += SETTLE / 3;
            assert!(now < begun + 2 * SETTLE_MOST, "never taken over");
        };
        assert!((SETTLE_MOST..SETTLE_MOST + SETTLE).contains(&(taken - begun)));
    }
}
