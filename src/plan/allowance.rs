//! Limits the share of time that a recurring task may take, however much work there is.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this thread so far. CPU time does not count while the thread waits for a CPU, or while the virtual
/// machine waits for its host.
pub(crate) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Reading all cgroups takes at most one part in this many of this thread's CPU time.
const CGROUP_READ_SHARE_DIVISOR: u32 = 100;
/// The shortest time between two readings of all cgroups.
const MIN_CGROUP_READ_INTERVAL: Duration = Duration::from_millis(900);

/// When all cgroups may be read again. The last reading began at `at`, when this thread had used `cpu` of CPU time.
pub(crate) fn next_cgroup_read(at: Instant, cpu: Duration) -> Instant {
    at + ((cpu_time() - cpu) * CGROUP_READ_SHARE_DIVISOR).max(MIN_CGROUP_READ_INTERVAL)
}

/// An allowance of time that grows with the clock. Unspent time is saved up to a limit.
#[derive(Debug)]
pub(crate) struct TimeAllowance {
    /// One part in this many of all time may be spent.
    share_divisor: u32,
    /// The most unspent time that is saved.
    max_saved: Duration,
    saved: Duration,
    /// Time that was spent in advance. It is paid off before anything is saved again.
    owed: Duration,
    since: Instant,
}

impl TimeAllowance {
    /// A new allowance, with all the time that can be saved.
    pub(crate) fn new(share_divisor: u32, max_saved: Duration, now: Instant) -> TimeAllowance {
        TimeAllowance { share_divisor, max_saved, saved: max_saved, owed: Duration::ZERO, since: now }
    }

    /// Time that may be spent now; zero while time is owed.
    pub(crate) fn now(&mut self, now: Instant) -> Duration {
        let earned = now.saturating_duration_since(self.since) / self.share_divisor;
        self.since = now;
        let left = earned.saturating_sub(self.owed);
        self.owed = self.owed.saturating_sub(earned);
        self.saved = (self.saved + left).min(self.max_saved);
        if self.owed.is_zero() { self.saved } else { Duration::ZERO }
    }

    /// Takes `spent` off, which may be more than was allowed.
    pub(crate) fn spend(&mut self, spent: Duration) {
        self.owed += spent.saturating_sub(self.saved);
        self.saved = self.saved.saturating_sub(spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_SAVED: Duration = Duration::from_secs(1);

    #[test]
    fn no_more_than_a_tenth_is_spent() {
        let start = Instant::now();
        let mut allowance = TimeAllowance::new(10, MAX_SAVED, start);
        let (mut now, mut spent) = (start, Duration::ZERO);
        while now < start + Duration::from_secs(100) {
            if allowance.now(now).is_zero() {
                now += Duration::from_millis(50);
            } else {
                // Each piece takes longer than the time that is left.
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
        let mut allowance = TimeAllowance::new(10, MAX_SAVED, start);
        assert_eq!(allowance.now(start), MAX_SAVED);
        allowance.spend(Duration::from_millis(900));
        assert_eq!(allowance.now(start), Duration::from_millis(100));
        assert_eq!(allowance.now(start + Duration::from_secs(1)), Duration::from_millis(200));
        assert_eq!(allowance.now(start + Duration::from_secs(100)), MAX_SAVED);
    }
}
