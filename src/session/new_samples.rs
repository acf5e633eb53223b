//! The samples of a running session that somebody watches: those that have their names since the last look.

use std::collections::BTreeMap;

use super::part::RunPart;
use super::tally::EventTally;
use crate::profile::samples::Sample;
use crate::profile::{Accounts, Profile};
use crate::sample::Event;

/// Samples that were added to the session's only part since they were last taken.
#[derive(Default)]
pub(super) struct NewSamples {
    samples: Vec<Sample>,
    /// Filtered and lost samples that earlier looks had.
    past: BTreeMap<Event, Accounts>,
}

impl NewSamples {
    pub(super) fn note(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Takes the samples out of `part`. Their accounts have no samples of stacks that still wait for names.
    pub(super) fn take_profile(&mut self, part: &RunPart, idle_is_shown: bool) -> Profile {
        let mut profile = part.profile.extract(&self.samples);
        for sample in self.samples.drain(..) {
            profile.accounts_mut(sample.event).kept += sample.weight.count;
        }
        for (event, tally) in part.tally.by_event() {
            let now = without_samples(tally, idle_is_shown);
            let past = self.past.insert(event, now.clone()).unwrap_or_default();
            let accounts = profile.accounts_mut(event);
            accounts.filtered = now.filtered.saturating_sub(past.filtered);
            for (reason, count) in now.lost {
                let before = past.lost.iter().find(|(known, _)| *known == reason).map_or(0, |(_, n)| *n);
                accounts.lose(reason, count.saturating_sub(before));
            }
            accounts.taken = accounts.filtered + accounts.shown();
        }
        profile
    }
}

/// Filtered and lost samples so far.
fn without_samples(tally: &EventTally, idle_is_shown: bool) -> Accounts {
    let filtered = tally.counters.filtered + tally.hidden_idle(idle_is_shown);
    Accounts { filtered, lost: tally.lost(), ..Accounts::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::profile::samples::Weight;
    use crate::profile::{Frame, Kind, Labels};

    #[test]
    fn all_takes_together_are_the_part() {
        let (mut part, mut fresh) = (RunPart::new(Event::Cpu), NewSamples::default());
        let mut sum = Profile::new();
        for (second, name, lost) in [(0, "early", 2), (1, "both", 0), (0, "late for its second", 1)] {
            let stack = part.profile.intern_stack(&[Arc::new(Frame::named(Kind::Native, name))]);
            let labels = part.profile.intern_labels(&Labels::default());
            let weight = Weight { count: 5, value: 50, ..Weight::default() };
            part.profile.add_interned_in_second(second, stack, labels, Event::Cpu, weight);
            fresh.note(Sample { leaf: stack, labels, event: Event::Cpu, second, weight });
            let tally = part.tally.of(Event::Cpu);
            tally.counters.filtered += 7;
            tally.counters.lost[0] += lost;
            let taken = fresh.take_profile(&part, false);
            taken.check().unwrap();
            assert_eq!((taken.samples().len(), taken.accounts(Event::Cpu).lost_total()), (1, lost));
            sum.merge(&taken);
        }
        let rows = |profile: &Profile| {
            let name = |leaf| profile.frames().get(profile.frame_of(leaf)).name;
            let mut rows: Vec<_> =
                profile.samples().iter().map(|row| (name(row.leaf), row.second, row.weight)).collect();
            rows.sort();
            rows
        };
        assert_eq!(rows(&sum), rows(&part.profile));
        let accounts = sum.accounts(Event::Cpu);
        assert_eq!(
            (accounts.filtered, accounts.kept, accounts.lost_total(), accounts.taken),
            (21, 15, 3, 39)
        );
        assert_eq!(fresh.take_profile(&part, false).samples(), []);
    }
}
