//! How much time something may take in the long run, however much of it there is to do.

use std::time::{Duration, Instant};

/// One part of all time in so many.
const PART: u32 = 10;
/// What is left over is kept up to this.
const MOST: Duration = Duration::from_secs(1);

/// Time that may be spent.
#[derive(Debug)]
pub(super) struct Allowance {
    saved: Duration,
    /// Spent before it was there.
    owed: Duration,
    since: Instant,
}

impl Allowance {
    /// A full one.
    pub(super) fn new(now: Instant) -> Allowance {
        Allowance { saved: MOST, owed: Duration::ZERO, since: now }
    }

    /// What may be spent now.
    pub(super) fn now(&mut self, now: Instant) -> Duration {
        let earned = now.saturating_duration_since(self.since) / PART;
        self.since = now;
        let left = earned.saturating_sub(self.owed);
        self.owed = self.owed.saturating_sub(earned);
        self.saved = (self.saved + left).min(MOST);
        if self.owed.is_zero() { self.saved } else { Duration::ZERO }
    }

    /// It was spent, or more.
    pub(super) fn spend(&mut self, spent: Duration) {
        self.owed += spent.saturating_sub(self.saved);
        self.saved = self.saved.saturating_sub(spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_a_tenth_is_spent() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
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
        let mut allowance = Allowance::new(start);
        assert_eq!(allowance.now(start), MOST);
        allowance.spend(Duration::from_millis(900));
        assert_eq!(allowance.now(start), Duration::from_millis(100));
        assert_eq!(allowance.now(start + Duration::from_secs(1)), Duration::from_millis(200));
        assert_eq!(allowance.now(start + Duration::from_secs(100)), MOST);
    }
}
