//! Samples of several rates, counted as at the highest one.
//!
//! The daemon changes its rate, and a sample of a low rate stands for more time than one of a high rate. Pictures, tables and
//! folded stacks count samples, so profiles of several rates must not be added up as they are.

use std::borrow::Cow;

use super::{Accounts, Profile};
use crate::sample::Event;

/// Converts numbers of samples from one period to another, so that the rounded numbers add up to the rounded sum.
#[derive(Clone, Copy, Debug)]
struct Conversion {
    from: u64,
    to: u64,
    /// Nanoseconds of all numbers so far, and the samples that they have become.
    sum: u128,
    given: u128,
}

impl Conversion {
    fn new(from: u64, to: u64) -> Conversion {
        Conversion { from, to, sum: 0, given: 0 }
    }

    fn next(&mut self, samples: u64) -> u64 {
        self.sum = self.sum.saturating_add(u128::from(samples) * u128::from(self.from));
        let all = self.sum.saturating_add(u128::from(self.to / 2)) / u128::from(self.to);
        let next = all - self.given;
        self.given = all;
        u64::try_from(next).unwrap_or(u64::MAX)
    }
}

impl Profile {
    /// Makes both profiles count the samples of each event as at the shorter one of their periods. Does nothing to events of
    /// which one of the periods is not known.
    pub(super) fn align_rates<'o>(&mut self, other: &'o Profile) -> Cow<'o, Profile> {
        let mut other = Cow::Borrowed(other);
        for event in self.events() {
            let (own, others) = (self.accounts(event).period_ns, other.accounts(event).period_ns);
            if own == 0 || others == 0 || own == others {
                continue;
            }
            if others < own {
                self.count_as_at(event, others);
            } else {
                other.to_mut().count_as_at(event, own);
            }
        }
        other
    }

    /// Counts samples as many of a shorter period.
    fn count_as_at(&mut self, event: Event, period: u64) {
        let mut conversion = Conversion::new(self.accounts(event).period_ns, period);
        let kept = self.recount(event, |count| conversion.next(count));
        self.accounts_mut(event).count_as_at(period, kept);
    }
}

impl Accounts {
    /// `kept`: the samples that are kept, counted as at `period`. The sum of their rows may be rounded otherwise.
    fn count_as_at(&mut self, period: u64, kept: u64) {
        let from = self.period_ns;
        let convert = |n: &mut u64| *n = Conversion::new(from, period).next(*n);
        [&mut self.filtered, &mut self.missed].into_iter().for_each(convert);
        self.lost.iter_mut().for_each(|(_, n)| convert(n));
        self.kept = kept;
        self.taken = self.filtered.saturating_add(kept).saturating_add(self.lost_total());
        self.expected = self.taken.saturating_add(self.missed);
        self.longest_period_ns = self.longest_period_ns.max(from);
        self.period_ns = period;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Accounts, Profile};
    use crate::profile::samples::Weight;
    use crate::profile::{Frame, Kind, Labels};
    use crate::sample::Event;

    const MS: u64 = 1_000_000;

    /// Functions with their numbers of samples, and as many filtered, lost and missed samples as there are functions.
    fn profile(functions: &[(&str, u64)], period: u64) -> Profile {
        let mut profile = Profile::new();
        for (name, count) in functions {
            let frame = Arc::new(Frame::named(Kind::Native, (*name).to_owned()));
            let (stack, labels) = (profile.intern_stack(&[frame]), profile.intern_labels(&Labels::default()));
            let weight = Weight { count: *count, value: count * period, ..Weight::default() };
            profile.add_interned(stack, labels, Event::Cpu, weight);
        }
        let (n, kept) = (functions.len() as u64, functions.iter().map(|(_, count)| count).sum::<u64>());
        let accounts = profile.accounts_mut(Event::Cpu);
        (accounts.filtered, accounts.kept, accounts.missed) = (n, kept, n);
        accounts.lose("ring full", n);
        (accounts.taken, accounts.expected, accounts.period_ns) = (kept + 2 * n, kept + 3 * n, period);
        profile
    }

    fn counts(profile: &Profile) -> Vec<u64> {
        profile.samples().iter().map(|sample| sample.weight.count).collect()
    }

    #[test]
    fn equal_times_at_different_rates_count_the_same() {
        let (fast, slow) =
            (profile(&[("morning", 1200)], 10 * MS), profile(&[("evening", 240), ("rare", 1)], 50 * MS));
        for [first, second] in [[&fast, &slow], [&slow, &fast]] {
            let mut merged = Profile::new();
            merged.merge(first);
            merged.merge(second);
            let mut counted = counts(&merged);
            counted.sort_unstable();
            assert_eq!(counted, [5, 1200, 1200]);
            let accounts = merged.accounts(Event::Cpu);
            assert_eq!(
                (accounts.kept, accounts.period_ns, accounts.longest_period_ns),
                (2405, 10 * MS, 50 * MS)
            );
            assert_eq!((accounts.lost_total(), accounts.filtered, accounts.missed), (11, 11, 11));
            accounts.check_samples(2405).unwrap();
            assert_eq!(accounts.expected, accounts.taken + accounts.missed);
        }
    }

    #[test]
    fn rounded_numbers_add_up() {
        let names: Vec<String> = (0..100).map(|n| format!("f{n}")).collect();
        let rows: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        let mut merged = profile(&[("fast", 1)], 10 * MS);
        merged.merge(&profile(&rows, 25 * MS));
        assert_eq!(counts(&merged).iter().sum::<u64>(), 1 + 250);
        assert!(counts(&merged)[1..].iter().all(|count| [2, 3].contains(count)));
        merged.accounts(Event::Cpu).check_samples(251).unwrap();
    }

    #[test]
    fn numbers_of_a_hostile_file_stay_in_63_bits() {
        let mut merged = profile(&[("fast", 1)], 1);
        let mut claim = Profile::new();
        let labels = claim.intern_labels(&Labels::default());
        let stack = claim.intern_stack(&[]);
        let weight = Weight { count: i64::MAX.unsigned_abs(), ..Weight::default() };
        claim.add_interned(stack, labels, Event::Cpu, weight);
        *claim.accounts_mut(Event::Cpu) =
            Accounts { taken: u64::MAX, kept: u64::MAX, period_ns: u64::MAX, ..Accounts::default() };
        merged.merge(&claim);
        assert!(counts(&merged).iter().all(|count| i64::try_from(*count).is_ok()));
    }
}
