//! The seconds in which the samples of long waits lie. All samples of a wait come when it ends, or at the end of the profile.

use std::ops::RangeInclusive;

use crate::profile::samples::Weight;
use crate::sample::{Count, Estimate};

const SECOND: f64 = 1e9;

/// The seconds of waits that ended in the second `last`, by their average length.
pub(super) fn seconds(count: Count, last: u16) -> RangeInclusive<u16> {
    let average = count.weight as f64 / count.estimate.as_f64().max(1.0);
    let before = (average / SECOND).round() - 1.0;
    // The cast saturates: less than a second is none before.
    last.saturating_sub(before as u16)..=last
}

/// The part of a weight in each second.
pub(super) fn parts(weight: Weight, seconds: RangeInclusive<u16>) -> impl Iterator<Item = (u16, Weight)> {
    let all = seconds.len() as u64;
    let until = move |n: u64, sum: u64| (u128::from(sum) * u128::from(n) / u128::from(all.max(1))) as u64;
    let of = move |n: u64, sum: u64| until(n + 1, sum) - until(n, sum);
    let part = move |(second, n)| {
        let objects = Estimate::of_units(of(n, weight.objects.units()));
        (second, Weight { count: of(n, weight.count), value: of(n, weight.value), objects })
    };
    seconds.zip(0..).map(part).filter(|(_, part)| part.count > 0 || part.value > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_is_in_all_its_seconds() {
        let wait = |weight, units| Count {
            samples: 1,
            weight,
            estimate: Estimate::of_units(units),
            longest_ns: weight,
        };
        assert_eq!(seconds(wait(3_600_000_000, 256), 9), 6..=9);
        assert_eq!(seconds(wait(3_600_000_000, 256), 2), 0..=2, "the profile began later than the wait");
        assert_eq!(seconds(wait(3_600_000_000, 36 * 256), 9), 9..=9, "short ones");
        assert_eq!(seconds(wait(10_000_000, 2), 9), 9..=9, "a sample of many that were too short");
        assert_eq!(seconds(Count::default(), 0), 0..=0);
    }

    #[test]
    fn the_parts_are_the_whole() {
        let whole = Weight { count: 100, value: 1_000_000_007, objects: Estimate::of_units(1_003) };
        let found: Vec<(u16, Weight)> = parts(whole, 3..=9).collect();
        assert_eq!(found.iter().map(|(second, _)| *second).collect::<Vec<_>>(), (3..=9).collect::<Vec<_>>());
        let mut sum = Weight::default();
        found.iter().for_each(|(_, part)| sum += *part);
        assert_eq!(sum, whole);
        assert!(found.iter().all(|(_, part)| (14..=15).contains(&part.count)), "{found:?}");
    }
}
