//! The time of samples in formats that have one for each: a profile knows time only by the second.

use crate::profile::samples::Sample;

/// A second in nanoseconds.
pub(super) const SECOND: u64 = 1_000_000_000;

/// Nanoseconds over which the samples of a second are spread: the whole profile if it does not distinguish seconds.
pub(super) fn spread<'s>(mut samples: impl Iterator<Item = &'s Sample>, duration_ns: u64) -> u64 {
    if samples.any(|sample| sample.second > 0) { SECOND } else { duration_ns.max(SECOND) }
}

/// `part / all` of a length.
pub(super) fn part_of(length: u64, part: u64, all: u64) -> u64 {
    let part = u128::from(length) * u128::from(part) / u128::from(all.max(1));
    u64::try_from(part).unwrap_or(length)
}
