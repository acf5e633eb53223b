//! How much time something may take in the long run, however much of it there is to do.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this thread until now. What is taken by it costs others nothing while this thread waits for a CPU, or the
/// machine for its host.
pub(crate) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Looking through all cgroups takes no more CPU time than one part in so many …
const LOOK_PART: u32 = 100;
/// … and is not done more often.
const LOOK_LEAST: Duration = Duration::from_millis(900);

/// When cgroups may be looked through again after a look that began `at` that time, and at that CPU time of this thread.
pub(crate) fn next_look(at: Instant, cpu: Duration) -> Instant {
    at + ((cpu_time() - cpu) * LOOK_PART).max(LOOK_LEAST)
}

/// Time that may be spent.
#[derive(Debug)]
pub(crate) struct TimeAllowance {
    /// One part of all time in so many.
    part: u32,
    /// What is left over is kept up to this.
    most: Duration,
    saved: Duration,
    /// Spent before it was there.
    owed: Duration,
    since: Instant,
}

impl TimeAllowance {
    /// A full one.
    pub(crate) fn new(part: u32, most: Duration, now: Instant) -> TimeAllowance {
        TimeAllowance { part, most, saved: most, owed: Duration::ZERO, since: now }
    }

    /// What may be spent now.
    pub(crate) fn now(&mut self, now: Instant) -> Duration {
        let earned = now.saturating_duration_since(self.since) / self.part;
        self.since = now;
        let left = earned.saturating_sub(self.owed);
        self.owed = self.owed.saturating_sub(earned);
        self.saved = (self.saved + left).min(self.most);
        if self.owed.is_zero() { self.saved } else { Duration::ZERO }
    }

    /// It was spent, or more.
    pub(crate) fn spend(&mut self, spent: Duration) {
        self.owed += spent.saturating_sub(self.saved);
        self.saved = self.saved.saturating_sub(spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(1);

    #[test]
    fn no_more_than_a_tenth_is_spent() {
        let start = Instant::now();
        let mut allowance = TimeAllowance::new(10, MOST, start);
        let (mut now, mut spent) = (start, Duration::ZERO);
        while now < start + Duration::from_secs(100) {
            if allowance.now(now).is_zero() {
                now += Duration::from_millis(50);
            } else {
                // Each piece takes longer than what is left.
                let piece = Duration::from_millis(700);
                allowance.spend(piece);
                spent += piece;
                now += piece;
            }
        }
        assert!((9..=12).contains(&spent.as_secs()), "{spent:?}");
    }

    #[test]
    fn what_is_not_spent_is_kept_up_to_a_limit() {
        let start = Instant::now();
        let mut allowance = TimeAllowance::new(10, MOST, start);
        assert_eq!(allowance.now(start), MOST);
        allowance.spend(Duration::from_millis(900));
        assert_eq!(allowance.now(start), Duration::from_millis(100));
        assert_eq!(allowance.now(start + Duration::from_secs(1)), Duration::from_millis(200));
        assert_eq!(allowance.now(start + Duration::from_secs(100)), MOST);
    }
}
