//! Sizes (`512M`) and times (`60s`) as people write them.

use serde::{Deserialize, Deserializer, Serialize, de};
use std::{fmt, marker::PhantomData, str::FromStr};

/// A number of bytes. Text form: digits and an optional `K`, `M` or `G` (1024).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A number of milliseconds. Text form: digits and `ms`, `s`, `m` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// A size or time that could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// It is none.
    #[error("`{text}` is not {what}")]
    Form {
        /// Its beginning.
        text: String,
        /// What it should be.
        what: &'static str,
    },
    /// No number of ours can hold it.
    #[error("`{text}` is too large, the most that can be said is {most}")]
    TooLarge {
        /// Its beginning.
        text: String,
        /// The most.
        most: String,
    },
}

fn parse(text: &str, units: &[(&str, u64)], what: &'static str) -> Result<u64, UnitError> {
    let shown = || text.chars().take(40).collect();
    let error = || UnitError::Form { text: shown(), what };
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit && !number.is_empty()).ok_or_else(error)?;
    // Digits alone: whatever is no number of ours is more than that.
    let value = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor));
    value.ok_or_else(|| UnitError::TooLarge { text: shown(), most: format!("{}{unit}", u64::MAX / factor) })
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let units = [("", 1), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)];
        parse(text, &units, "a size (digits and an optional K, M or G, as in 512M)").map(Bytes)
    }
}

impl FromStr for Millis {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
        parse(text, &units, "a time (digits and ms, s, m or h, as in 60s)").map(Millis)
    }
}

fn show(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let (name, factor) = units
        .iter()
        .find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor))
        .copied()
        .unwrap_or(units.last().copied().unwrap_or(("", 1)));
    write!(f, "{}{name}", value / factor)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, &[("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10), ("", 1)])
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, &[("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)])
    }
}

/// Reads a text and nothing else; whoever wrote something else is told what is wanted.
struct Written<T>(&'static str, PhantomData<T>);

impl<T: FromStr<Err = UnitError>> de::Visitor<'_> for Written<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(de::Error::custom)
    }
}

macro_rules! deserialize_text {
    ($type:ty, $what:literal) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Written($what, PhantomData))
            }
        }
    };
}
deserialize_text!(Bytes, "a size as text, as in \"512M\"");
deserialize_text!(Millis, "a time as text, as in \"60s\"");

/// A number of things in words, as `1 line` or `2 lines`.
pub fn counted(number: impl TryInto<u64>, thing: &str) -> String {
    // What does not fit is many.
    let number = number.try_into().unwrap_or(u64::MAX);
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_round_trip() {
        for text in ["0", "1", "1023", "1K", "512M", "16G"] {
            assert_eq!(text.parse::<Bytes>().unwrap().to_string(), text);
        }
        for text in ["1ms", "1500ms", "60s", "1h"] {
            let value: Millis = text.parse().unwrap();
            assert_eq!(value.to_string().parse::<Millis>().unwrap(), value);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "M", "1T", "-1", "1.5G", "99999999999999999999", "18446744073709551615K", "1 M"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        for text in ["", "60", "s", "1d", "-1s", "18446744073709551615h"] {
            assert!(text.parse::<Millis>().is_err(), "{text}");
        }
    }

    #[test]
    fn too_large_is_not_called_nonsense() {
        let of = |text: &str| text.parse::<Bytes>().unwrap_err().to_string();
        let says = "`99999999999999999999G` is too large, the most that can be said is 17179869183G";
        assert_eq!(of("99999999999999999999G"), says);
        assert!(of("99999999999999999999T").contains("is not a size") && of("G").contains("is not a size"));
        let time = "18446744073709551615h".parse::<Millis>().unwrap_err().to_string();
        assert!(time.contains("is too large, the most that can be said is 5124095576030h"), "{time}");
    }

    #[test]
    fn one_is_singular_and_none_are_plural() {
        assert_eq!(
            [counted(0_u8, "line"), counted(1_usize, "line"), counted(2_u64, "line")],
            ["0 lines", "1 line", "2 lines"]
        );
    }
}
