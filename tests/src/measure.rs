//! Times of many runs of a thing, in interleaved rounds so that what the machine does meanwhile hits all alike.

use crate::Failure;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// One thing to measure.
pub struct Case<'a> {
    /// Its name in the table.
    pub name: &'static str,
    /// Does it once, to its end.
    pub run: Box<dyn FnMut() -> Result<(), Failure> + 'a>,
    /// Microseconds of each run.
    times: Vec<f64>,
}

/// What a case's times come to, microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Half of the runs took no longer.
    pub p50: f64,
    /// 95 of 100 took no longer.
    pub p95: f64,
    /// 99 of 100 took no longer.
    pub p99: f64,
}

impl<'a> Case<'a> {
    /// A case that has not run yet.
    pub fn new(name: &'static str, run: impl FnMut() -> Result<(), Failure> + 'a) -> Self {
        Self { name, run: Box::new(run), times: Vec::new() }
    }

    /// What its times come to.
    pub fn summary(&self) -> Summary {
        let mut sorted = self.times.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
        };
        Summary { p50: at(50), p95: at(95), p99: at(99) }
    }
}

/// Runs every case once a round, after a few rounds that do not count.
///
/// # Errors
/// The first failure of a run, with the case's name.
pub fn interleave(cases: &mut [Case<'_>], warm_up: u32, rounds: u32, pause: Duration) -> Result<(), Failure> {
    for round in 0..warm_up + rounds {
        for case in &mut *cases {
            let start = Instant::now();
            (case.run)().map_err(|e| format!("{}: {e}", case.name))?;
            let elapsed = start.elapsed();
            if round >= warm_up {
                case.times.push(elapsed.as_secs_f64() * 1e6);
            }
            // What a run leaves to be done off its path must not be charged to the next.
            std::thread::sleep(pause);
        }
    }
    Ok(())
}

/// The table for people; the first case is what the others are compared with.
pub fn table(cases: &[Case<'_>]) -> String {
    let base = cases.first().map_or(f64::NAN, |c| c.summary().p50);
    let head = format!("{:<28} {:>9} {:>9} {:>9} {:>7}\n", "microseconds", "p50", "p95", "p99", "ratio");
    let row = |case: &Case<'_>| {
        let s = case.summary();
        format!("{:<28} {:>9.0} {:>9.0} {:>9.0} {:>6.2}x\n", case.name, s.p50, s.p95, s.p99, s.p50 / base)
    };
    head + &cases.iter().map(row).collect::<String>()
}

/// The same for programs.
pub fn json(cases: &[Case<'_>]) -> Value {
    let base = cases.first().map_or(f64::NAN, |c| c.summary().p50);
    let row = |case: &Case<'_>| {
        let s = case.summary();
        json!({
            "name": case.name, "runs": case.times.len(), "p50_us": s.p50, "p95_us": s.p95, "p99_us": s.p99,
            "ratio_to_first": s.p50 / base,
        })
    };
    Value::Array(cases.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs_once_a_round_and_percentiles_are_ranks() {
        let (mut first, mut second) = (0, 0);
        let mut cases = [
            Case::new("first", || {
                first += 1;
                Ok(())
            }),
            Case::new("second", || {
                second += 1;
                Ok(())
            }),
        ];
        interleave(&mut cases, 2, 5, Duration::ZERO).unwrap();
        assert!(cases.iter().all(|c| c.times.len() == 5));
        cases[0].times = (1..=100).map(f64::from).collect();
        assert_eq!(cases[0].summary(), Summary { p50: 50.0, p95: 95.0, p99: 99.0 });
        cases[1].times = vec![100.0];
        let rows = json(&cases);
        assert_eq!(rows[1]["ratio_to_first"], 2.0);
        assert!(table(&cases).contains("2.00x"));
        drop(cases);
        assert_eq!((first, second), (7, 7));
    }

    #[test]
    fn a_failure_names_its_case() {
        let mut cases = [Case::new("broken", || Err("cause".into()))];
        let error = interleave(&mut cases, 0, 1, Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "broken: cause");
    }
}
