//! How much of its commands' texts a peer may have kept: with long ones it could push out everybody's.
//!
//! What is short is always kept whole. Of longer texts each uid has so much at once, and a little more as time goes;
//! beyond that only the beginning is kept, as a JSON string, and the monitor's own words around it say so.

use crate::monitor::share::{Share, Terms};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Bytes of a text that are kept whatever came before.
pub(super) const SHORT: usize = 1 << 10;
/// Bytes of longer texts of one peer.
static TERMS: Terms = Terms { burst: 1 << 20, more: 16 << 10, every: Duration::from_secs(10) };

/// The shares of all peers who had long texts lately.
#[derive(Debug, Default)]
pub(super) struct Budget(HashMap<u32, Share>);

impl Budget {
    /// Whether a text of so many bytes is kept whole, which takes up room.
    pub(super) fn take(&mut self, uid: u32, bytes: usize, now: Instant) -> bool {
        if bytes <= SHORT {
            return true;
        }
        self.0.retain(|_, share| !share.is_whole(now));
        self.0.entry(uid).or_insert_with(|| Share::new(&TERMS, now)).take(bytes, now)
    }

    /// Gives back what was taken for a text that was not written.
    pub(super) fn give_back(&mut self, uid: u32, bytes: usize) {
        if bytes > SHORT
            && let Some(share) = self.0.get_mut(&uid)
        {
            share.give_back(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Audit, Rotation};
    use super::*;
    use crate::sys::memfd;
    use cordon_protocol::audit::{About, Configuration, Entry, older_path, read_text_line};
    use std::fs;

    #[test]
    fn a_peer_has_room_for_some_long_texts_and_then_for_a_little_more_as_time_goes() {
        let (start, mut budget) = (Instant::now(), Budget::default());
        let taken = |budget: &mut Budget, uid, now| {
            (0..1000).take_while(|_| budget.take(uid, TERMS.more, now)).count()
        };
        assert_eq!(taken(&mut budget, 1, start), 64);
        // Short ones always have room, and another has its own.
        assert!(budget.take(1, SHORT, start) && !budget.take(1, SHORT + 1, start));
        assert_eq!(taken(&mut budget, 2, start), 64);
        assert_eq!(taken(&mut budget, 1, start + TERMS.every - Duration::from_millis(1)), 0);
        assert_eq!(taken(&mut budget, 1, start + TERMS.every), 1);
        assert_eq!(taken(&mut budget, 1, start + TERMS.every * 4), 3);
        // One that was not written after all.
        budget.give_back(1, TERMS.more);
        assert_eq!(taken(&mut budget, 1, start + TERMS.every * 4), 1);
        // However long nothing came.
        let late = start + Duration::from_secs(1 << 20);
        assert_eq!(taken(&mut budget, 1, late), 64);
        assert_eq!(budget.0.len(), 1, "the other one is forgotten");
    }

    #[test]
    fn a_peer_with_long_texts_pushes_out_nobody_s() {
        let place = std::env::temp_dir().join(format!("cordon-budget-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        let (trail, texts) = (place.join("audit.jsonl"), place.join("commands.jsonl"));
        let started = Entry::Started { version: "1".into(), configuration: Configuration::default() };
        let rotation = Rotation { size: 256 << 10, keep: 7 };
        let mut audit = Audit::open(&trail, &place.join("head"), rotation, started).unwrap();
        let mut launch = |uid, job: u64, content: &str| {
            let text = memfd::sealed(format!("{{\"n\":\"{content}\"}}").as_bytes()).unwrap();
            let job = format!("{job:016x}");
            let about = About { job: job.clone(), uid, request: "r".into(), begun: false };
            audit.record_launch(&about, &text, |text| Entry::Collected { job, request: text }).unwrap();
        };
        launch(3, 0, "mine");
        (1..=400).for_each(|job| launch(7, job, &"\u{e4}".repeat(30_000)));
        launch(3, 401, &"x".repeat(SHORT * 4));
        // All lines in one file, and a text of each.
        assert_eq!(fs::read_to_string(&trail).unwrap().lines().count(), 403);
        let older = (1..=7).rev().map(|number| older_path(&texts, number));
        let all: String =
            older.chain([texts.clone()]).filter_map(|path| fs::read_to_string(path).ok()).collect();
        let read: Vec<_> = all.lines().map(|line| read_text_line(line).unwrap()).collect();
        assert_eq!(read.len(), 402);
        assert_eq!((read[0].0.uid, read[0].1), (3, "{\"n\":\"mine\"}"));
        assert!(!read[401].0.begun, "the other one has its room");
        let begun: Vec<_> = read.iter().filter(|(about, _)| about.begun).collect();
        assert_eq!(begun.len(), 400 - TERMS.burst / 60_008);
        for (about, text) in begun {
            assert!(about.uid == 7 && text.starts_with("\"{\\\"n\\\":\\\"\u{e4}") && text.len() < SHORT + 10);
        }
        fs::remove_dir_all(place).unwrap();
    }
}
