//! Samples of several rates, counted as at one of them.
//!
//! The daemon changes its rate, and a sample of a low rate stands for more time than one of a high rate. Pictures, tables and
//! folded stacks count samples, so profiles of several rates must not be added up as they are.

use std::collections::BTreeMap;

use super::samples::Recounted;
use super::{Accounts, Profile};
use crate::sample::Event;
use crate::sample::unit::Unit;

/// Divides an amount into parts of one size so that the rounded parts of all rows add up to the rounded sum.
struct Divider {
    size: u64,
    sum: u128,
    given: u128,
}

impl Divider {
    fn next(&mut self, amount: u64) -> u64 {
        self.sum += u128::from(amount);
        let all = (self.sum + u128::from(self.size / 2)) / u128::from(self.size);
        let part = all.saturating_sub(self.given);
        self.given = all;
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

impl Profile {
    /// Counts the samples of each event of time as if all had been taken at the highest of their rates: the number of samples
    /// of a stack is its time divided by the shortest period. Accounts are converted by the mean of all samples. Does nothing
    /// to events with one rate, and to files of other profilers, whose samples may differ by nature: those have no accounts.
    pub fn count_at_one_rate(&mut self) {
        let mut periods: BTreeMap<Event, (u64, bool)> = BTreeMap::new();
        for sample in self.samples() {
            let Some(each) = sample.weight.value.checked_div(sample.weight.count) else { continue };
            if sample.event.unit() == Unit::Nanoseconds && each > 0 {
                let (least, several) = periods.entry(sample.event).or_insert((each, false));
                *several |= *least != each;
                *least = each.min(*least);
            }
        }
        for (event, (period, several)) in periods {
            if !several || self.accounts(event).taken == 0 {
                continue;
            }
            let mut divider = Divider { size: period, sum: 0, given: 0 };
            let counted = self.recount(event, |weight| divider.next(weight.value));
            self.accounts_mut(event).convert(&counted, period);
        }
    }
}

impl Accounts {
    /// Converts the accounts of samples that were counted anew, as samples of `period`.
    fn convert(&mut self, counted: &Recounted, period: u64) {
        let factor = counted.after as f64 / counted.before.max(1) as f64;
        let convert = |n: &mut u64| *n = (*n as f64 * factor).round() as u64;
        self.kept = counted.after;
        self.lost.iter_mut().for_each(|(_, n)| convert(n));
        convert(&mut self.filtered);
        convert(&mut self.missed);
        self.taken = self.filtered.saturating_add(self.kept).saturating_add(self.lost_total());
        self.expected = self.taken.saturating_add(self.missed);
        self.period_ns = period;
        self.rates_differ = true;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Accounts, Profile};
    use crate::profile::samples::Weight;
    use crate::profile::{Frame, Kind, Labels};
    use crate::sample::Event;

    fn add(profile: &mut Profile, name: &str, event: Event, count: u64, period: u64) {
        let frame = Arc::new(Frame::named(Kind::Native, name.to_owned()));
        let (stack, labels) = (profile.intern_stack(&[frame]), profile.intern_labels(&Labels::default()));
        profile.add_interned(
            stack,
            labels,
            event,
            Weight { count, value: count * period, ..Weight::default() },
        );
    }

    fn counts(profile: &Profile, event: Event) -> Vec<u64> {
        profile.samples().iter().filter(|s| s.event == event).map(|s| s.weight.count).collect()
    }

    #[test]
    fn equal_times_at_different_rates_count_the_same() {
        let mut profile = Profile::new();
        add(&mut profile, "morning", Event::Cpu, 1200, 10_000_000);
        add(&mut profile, "evening", Event::Cpu, 240, 50_000_000);
        add(&mut profile, "rare", Event::Cpu, 1, 25_000_000);
        add(&mut profile, "faults", Event::PageFaults, 7, 1);
        let accounts = profile.accounts_mut(Event::Cpu);
        *accounts = Accounts {
            taken: 1500,
            filtered: 50,
            kept: 1441,
            expected: 1510,
            missed: 10,
            ..Accounts::default()
        };
        accounts.lose("ring full", 9);
        profile.count_at_one_rate();
        let counted = counts(&profile, Event::Cpu);
        assert_eq!((counted[0], counted[1]), (1200, 1200));
        assert_eq!(counted.iter().sum::<u64>(), 2403, "2.5 samples are 3 in the sum");
        assert_eq!(counts(&profile, Event::PageFaults), [7]);
        let accounts = profile.accounts(Event::Cpu);
        assert_eq!((accounts.kept, accounts.period_ns, accounts.rates_differ), (2403, 10_000_000, true));
        assert_eq!((accounts.lost_total(), accounts.filtered, accounts.missed), (15, 83, 17));
        accounts.check_samples(2403).unwrap();
        assert_eq!(accounts.expected, accounts.taken + accounts.missed);
    }

    #[test]
    fn one_rate_and_samples_without_time_stay() {
        let mut profile = Profile::new();
        add(&mut profile, "a", Event::Cpu, 3, 10_101_010);
        add(&mut profile, "b", Event::Cpu, 5, 10_101_010);
        *profile.accounts_mut(Event::Cpu) = Accounts { taken: 8, kept: 8, ..Accounts::default() };
        // Another profiler's, without accounts.
        add(&mut profile, "c", Event::Wait, 5, 1_000);
        add(&mut profile, "d", Event::Wait, 1, 7_000);
        profile.count_at_one_rate();
        assert_eq!((counts(&profile, Event::Cpu), counts(&profile, Event::Wait)), (vec![3, 5], vec![5, 1]));
        assert!(!profile.accounts(Event::Cpu).rates_differ);
    }
}
