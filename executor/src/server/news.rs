//! How often a client that waits hears where it stands: where many wait, each place that comes free changes the positions
//! of all. What holds at last is told in any case, if only a little later.

use std::time::Duration;
use tokio::time::Instant;

/// Time between two words about a position.
pub(super) const BETWEEN_NEWS: Duration = Duration::from_millis(100);

/// What a client has been told, and from when on it may be told more.
#[derive(Debug)]
pub(super) struct News {
    told: Option<u32>,
    next: Instant,
}

impl News {
    /// Nothing has been told.
    pub(super) fn new(now: Instant) -> Self {
        Self { told: None, next: now }
    }

    /// When this position is to be told; none where that is what was told last.
    pub(super) fn due(&self, position: u32) -> Option<Instant> {
        (self.told != Some(position)).then_some(self.next)
    }

    /// It has been told.
    pub(super) fn told(&mut self, position: u32, now: Instant) {
        self.told = Some(position);
        self.next = now + BETWEEN_NEWS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told, and how many milliseconds after the beginning, when at each of these a position begins to hold.
    fn told(changes: &[(u64, u32)]) -> Vec<(u64, u32)> {
        let begun = Instant::now();
        let mut news = News::new(begun);
        let mut told = Vec::new();
        let mut position = None;
        for ms in 0..2000 {
            let now = begun + Duration::from_millis(ms);
            position = changes.iter().find(|(at, _)| *at == ms).map(|(_, to)| *to).or(position);
            let Some(position) = position else { continue };
            if news.due(position).is_some_and(|due| due <= now) {
                news.told(position, now);
                told.push((ms, position));
            }
        }
        told
    }

    #[test]
    fn the_first_position_is_told_at_once_and_a_change_no_sooner_than_its_time() {
        assert_eq!(told(&[(3, 7)]), [(3, 7)]);
        assert_eq!(told(&[(3, 7), (4, 6)]), [(3, 7), (103, 6)]);
        assert_eq!(told(&[(3, 7), (500, 6)]), [(3, 7), (500, 6)]);
        // Back where it was before that could be told.
        assert_eq!(told(&[(3, 7), (10, 8), (20, 7)]), [(3, 7)]);
    }

    #[test]
    fn of_a_burst_ten_in_a_second_are_told_and_the_last_one_always() {
        let burst: Vec<_> = (1..=1000).rev().zip(0..).map(|(position, ms)| (ms, position)).collect();
        let told = told(&burst);
        let times: Vec<_> = told.iter().map(|(ms, _)| *ms).collect();
        assert_eq!(times, (0..=10).map(|n| n * 100).collect::<Vec<_>>());
        assert_eq!(told.last(), Some(&(1000, 1)));
    }
}
