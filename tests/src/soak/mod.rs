//! Nothing is left over: many runs of every kind, several at once, and what is there before and after.
//!
//! The runs come in two equal blocks after one run of each kind. What can be compared thing by thing must be the same
//! after each block as before the first. Memory is compared after the second block with what it was after the first:
//! an allocator keeps what was once needed at the same time, which the first block shows and the second must not
//! exceed by much.

mod doors;
mod figures;
mod malformed;
mod mix;
mod over_http;
mod tally;

use crate::{Failure, belongings::Belongings, up::Up};
use cordon_protocol::client::blocking;
use doors::{Doors, echo, eventually};
use figures::{Figure, Halves, belongings, figures};
use mix::Kind;
use std::{
    fmt::{self, Display},
    path::Path,
    time::{Duration, Instant},
};
use tally::Tally;

/// Runs at the same time.
const AT_ONCE: usize = 4;
/// Profile with services.
const SERVICES: &str = "services";

/// Which kinds of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// What clients do, with every end that a command can have.
    Ordinary,
    /// What no client does: bytes that are no request, and connections that are dropped.
    Malformed,
}

impl Mix {
    fn kinds(self) -> Vec<&'static Kind> {
        match self {
            Self::Ordinary => mix::KINDS.iter().chain(over_http::KINDS).collect(),
            Self::Malformed => malformed::KINDS.iter().collect(),
        }
    }
}

/// What is to be done.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The program `cordon`, with the daemons beside it.
    pub cordon: &'a Path,
    /// Where the daemons' words go.
    pub log: &'a Path,
    /// What is run.
    pub mix: Mix,
    /// Runs in both blocks together.
    pub runs: usize,
    /// Longest time to wait until nothing is left.
    pub patience: Duration,
}

/// What came of it.
pub struct Outcome {
    tally: Tally,
    things: [Belongings; 3],
    figures: [Vec<Figure>; 3],
    took: Duration,
    /// What is left over, has grown, or has not been tried; nothing where all is well.
    pub faults: Vec<String>,
}

/// Starts an instance of its own and does it. Between the blocks `meddle` is called, with the instance and its
/// monitor's process.
///
/// # Errors
/// The instance does not start, or does not work.
pub fn soak(plan: &Plan<'_>, meddle: impl FnOnce(&Up, i32)) -> Result<Outcome, Failure> {
    let start = Instant::now();
    let service = echo()?;
    let profiles = format!(
        "[profiles.default]\n[profiles.{SERVICES}]\nnetwork = \"services\"\nservices = [{service}]\n"
    );
    let up = Up::start(plan.cordon, plan.log, &profiles)?;
    let doors = Doors::of(&up, service);
    let idle = || eventually(plan.patience, || Ok(Halves::of(&up).map_err(|e| e.to_string())));
    let things = |halves: &Halves| belongings(halves, &up.directory);
    let numbers = |halves: &Halves| figures(halves, &up.directory);
    let tally = Tally::default();
    let mut faults = Vec::new();

    tally.run(&doors, &plan.mix.kinds(), AT_ONCE);
    delete_workspaces(&doors)?;
    let halves = idle()?;
    let before = things(&halves);
    let at_first = numbers(&halves);

    let mut level = |when: &str| {
        delete_workspaces(&doors)?;
        let more = || things(&halves).beyond(&before);
        faults.extend(remaining(plan.patience, more).into_iter().map(|thing| format!("{when}, {thing}")));
        Ok::<_, Failure>(things(&halves))
    };
    let block = shuffled(plan.mix, plan.runs / 2);
    tally.run(&doors, &block, AT_ONCE);
    let half = level("left after half of the runs")?;
    let at_half = numbers(&halves);

    meddle(&up, up.find("cordon-executor")?);
    tally.run(&doors, &block, AT_ONCE);
    let end = level("left at the end")?;
    // What lies at the top of a heap for the moment goes with the next runs, and others on the host give back theirs
    // when they please; what leaks stays.
    let more = || {
        let more = grown(&at_half, &numbers(&halves));
        if !more.is_empty() {
            tally.run(&doors, &shuffled(plan.mix, AT_ONCE * 4), AT_ONCE);
        }
        more
    };
    faults.extend(remaining(plan.patience, more));
    delete_workspaces(&doors)?;
    let at_end = numbers(&halves);

    faults.extend(tally.faults());
    let (things, figures) = ([before, half, end], [at_first, at_half, at_end]);
    Ok(Outcome { tally, things, figures, took: start.elapsed(), faults })
}

/// So many runs of all kinds by their shares, in an order that is the same each time.
fn shuffled(mix: Mix, runs: usize) -> Vec<&'static Kind> {
    let all: Vec<_> =
        mix.kinds().into_iter().flat_map(|kind| std::iter::repeat_n(kind, kind.share)).collect();
    // Odd and prime to most sums of shares: neighbours are of different kinds.
    let step = (all.len() / 3..).find(|step| gcd(*step, all.len()) == 1).unwrap_or(1);
    (0..runs).filter_map(|at| all.get(at * step % all.len()).copied()).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What runs share and nobody else deletes.
fn delete_workspaces(doors: &Doors) -> Result<(), Failure> {
    for workspace in blocking::workspaces(&doors.socket, "soak")? {
        doors.delete_workspace(&workspace.name)?;
    }
    Ok(())
}

/// What `look` still finds when patience is at its end.
fn remaining(patience: Duration, look: impl Fn() -> Vec<String>) -> Vec<String> {
    let nothing = || {
        let found = look();
        Ok(if found.is_empty() { Ok(()) } else { Err(found.join("\n")) })
    };
    eventually(patience, nothing)
        .map_or_else(|found| found.to_string().lines().map(str::to_owned).collect(), |()| Vec::new())
}

fn grown(before: &[Figure], after: &[Figure]) -> Vec<String> {
    let pairs = before.iter().zip(after);
    let beyond = pairs.filter_map(|(before, after)| {
        let limit = before.bound.limit(before.value)?;
        let text = || format!("{}: {}, then {}", before.name, before.value, after.value);
        (after.value > limit).then(text)
    });
    beyond.collect()
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<40}{:>12}\n{}", "kind of runs", "runs", self.tally)?;
        writeln!(f, "{:<40}{:>12}{:>12}{:>12}{:>12}", "", "before", "half", "end", "limit")?;
        let mut row = |name: &str, [a, b, c]: [u64; 3], limit: Option<u64>| {
            let limit = limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
            writeln!(f, "{name:<40}{a:>12}{b:>12}{c:>12}{limit:>12}")
        };
        let counts = |kind| self.things.each_ref().map(|things| things.count(kind) as u64);
        for kind in self.things[0].kinds() {
            row(kind, counts(kind), Some(counts(kind)[0]))?;
        }
        let [first, half, end] = &self.figures;
        for ((first, half), end) in first.iter().zip(half).zip(end) {
            row(&half.name, [first.value, half.value, end.value], half.bound.limit(half.value))?;
        }
        write!(f, "{} runs, {AT_ONCE} at once, in {} s", self.tally.total(), self.took.as_secs())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use figures::Bound;
    use std::collections::BTreeSet;

    #[test]
    fn a_short_form_has_every_kind_in_each_block() {
        for mix in [Mix::Ordinary, Mix::Malformed] {
            let names: BTreeSet<_> = mix.kinds().iter().map(|kind| kind.name).collect();
            assert_eq!(names.len(), mix.kinds().len(), "names are different");
            let all = mix.kinds().iter().map(|kind| kind.share).sum();
            let short: BTreeSet<_> = shuffled(mix, all).iter().map(|k| k.name).collect();
            assert_eq!(short, names);
        }
        let fast = shuffled(Mix::Ordinary, 15_000).iter().filter(|kind| kind.name == "fast").count();
        assert!((3000..5000).contains(&fast), "{fast}");
    }

    #[test]
    fn a_figure_beyond_its_limit_is_told() {
        let figure = |value, bound| vec![Figure { name: "it".to_owned(), value, bound }];
        let cases = [
            (100, 110, Bound::Grow(10), true),
            (100, 111, Bound::Grow(10), false),
            (100, 1, Bound::Grow(0), true),
            (9, 5, Bound::Most(5), true),
            (0, 6, Bound::Most(5), false),
            (0, 1000, Bound::None, true),
        ];
        for (before, after, bound, well) in cases {
            let told = grown(&figure(before, bound), &figure(after, bound));
            assert_eq!(told.is_empty(), well, "{before} {after} {bound:?}: {told:?}");
        }
    }

    #[test]
    fn what_is_there_more_often_than_before_is_told_and_what_is_gone_is_not() {
        let of = |things: &[&str]| {
            let mut found = Belongings::default();
            found.add("kind", things.iter().map(|thing| (*thing).to_owned()));
            found
        };
        let before = of(&["a", "b", "b"]);
        assert_eq!(of(&["b", "a"]).beyond(&before), Vec::<String>::new());
        assert_eq!(of(&["b", "b", "b", "c"]).beyond(&before), ["kind: b", "kind: c"]);
        assert_eq!(of(&["a"]).beyond(&Belongings::default()), ["kind: a"]);
    }
}
