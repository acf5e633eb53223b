//! The accounts: where each sample of an event went.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Where the samples of an event went: `taken = filtered + kept + Σ lost`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounts {
    /// Samples that the BPF program began to take; files and reports call the number `ticks`.
    #[serde(rename = "ticks")]
    pub taken: u64,
    /// Samples that the user did not ask for (other processes, idle CPUs): in no picture.
    pub filtered: u64,
    /// Samples that are in the profile.
    pub kept: u64,
    /// Samples that were taken and could not be kept, by reason; each reason once.
    pub lost: Vec<(Cow<'static, str>, u64)>,
    /// Samples that the kernel should have taken and did not: the kernel skips a BPF program while another one runs, and
    /// throttles events.
    pub missed: u64,
    /// Samples expected from the events' own count and their period: `taken + missed`.
    pub expected: u64,
    /// Nanoseconds of CPU time between two ticks. 0 if the period is unknown or differs, and for other events than
    /// `cpu`.
    pub period_ns: u64,
    /// Events that one sample stands for. 0 for the `cpu` event, and if the number is unknown or differs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub one_in: u64,
    /// The longest period of samples that count as several of `period_ns` ([`Profile::merge`](super::Profile::merge)); 0 if
    /// there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub longest_period_ns: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Accounts {
    /// Adds samples that were lost for `reason`.
    pub fn lose(&mut self, reason: impl Into<Cow<'static, str>>, samples: u64) {
        if samples == 0 {
            return;
        }
        let reason = reason.into();
        match self.lost.iter_mut().find(|(r, _)| *r == reason) {
            Some((_, n)) => *n = n.saturating_add(samples),
            None => self.lost.push((reason, samples)),
        }
    }

    /// Lost samples, summed over all reasons.
    #[must_use]
    pub fn lost_total(&self) -> u64 {
        self.lost.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// How many samples one that was taken counts for at most: more than 1 if samples of a lower rate were merged.
    #[must_use]
    pub fn heaviest(&self) -> f64 {
        if self.period_ns == 0 {
            1.0
        } else {
            (self.longest_period_ns as f64 / self.period_ns as f64).max(1.0)
        }
    }

    /// What a sample stands for: nanoseconds, or a number of events; 0 if the source does not say it.
    #[must_use]
    pub fn of_sample(&self) -> u64 {
        self.period_ns.max(self.one_in)
    }

    /// The sum of every format: kept samples and lost samples.
    #[must_use]
    pub fn shown(&self) -> u64 {
        self.kept.saturating_add(self.lost_total()).min(i64::MAX.unsigned_abs())
    }

    /// Whether the accounts add up, and `sum` is the number of kept samples.
    ///
    /// # Errors
    /// One sentence with both sums.
    pub fn check_samples(&self, sum: u64) -> Result<(), String> {
        self.check()?;
        let kept = self.kept;
        if sum == kept {
            return Ok(());
        }
        Err(format!("the samples do not add up: they are {sum} ticks, but {kept} were kept"))
    }

    /// Whether the accounts add up.
    ///
    /// # Errors
    /// One sentence with both sums.
    pub fn check(&self) -> Result<(), String> {
        let sum = self.filtered.saturating_add(self.shown());
        if self.taken == sum {
            return Ok(());
        }
        let Accounts { taken, filtered, kept, .. } = self;
        Err(format!(
            "the accounts do not add up: {taken} ticks, but {filtered} filtered + {kept} kept + {} lost = {sum}",
            self.lost_total()
        ))
    }

    /// Adds the accounts of another time or host. Periods that differ become 0.
    pub fn merge(&mut self, other: &Accounts) {
        let Accounts { taken, filtered, kept, lost, missed, expected, period_ns, one_in, longest_period_ns } =
            other;
        if *self == Accounts::default() {
            (self.period_ns, self.one_in) = (*period_ns, *one_in);
        } else if (self.period_ns, self.one_in) != (*period_ns, *one_in) && *other != Accounts::default() {
            (self.period_ns, self.one_in) = (0, 0);
        }
        self.longest_period_ns = self.longest_period_ns.max(*longest_period_ns);
        self.taken += taken;
        self.filtered += filtered;
        self.kept += kept;
        self.missed += missed;
        self.expected += expected;
        for (reason, n) in lost {
            self.lose(reason.clone(), *n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Accounts;

    #[test]
    fn sums_and_their_sentence() {
        let mut a = Accounts { taken: 10, filtered: 2, kept: 5, ..Accounts::default() };
        a.lose("ring full", 1);
        a.lose("counts full", 1);
        a.lose("ring full", 1);
        assert_eq!(a.lost.len(), 2);
        assert_eq!(a.check(), Ok(()));
        a.taken = 11;
        let said = a.check().unwrap_err();
        assert!(said.contains("11 ticks") && said.contains("= 10"), "{said}");
    }

    #[test]
    fn merging_keeps_a_common_period_only() {
        let one = Accounts { taken: 3, kept: 3, period_ns: 10, ..Accounts::default() };
        let mut sum = Accounts::default();
        sum.merge(&one);
        sum.merge(&one);
        assert_eq!((sum.taken, sum.period_ns), (6, 10));
        sum.merge(&Accounts { period_ns: 20, taken: 1, kept: 1, ..Accounts::default() });
        assert_eq!((sum.kept, sum.period_ns), (7, 0));
        sum.check().unwrap();
    }
}
