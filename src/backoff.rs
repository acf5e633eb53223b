//! Backoff: pauses between failing attempts, doubled after each failure up to a maximum.

use std::time::Duration;

/// Counts attempts that failed in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Counts a failure and returns the pause before the next attempt. The pause after the first failure is `first`.
    pub fn pause(&mut self, first: Duration, longest: Duration) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        first.saturating_mul(factor).min(longest)
    }

    /// Resets the count after a success.
    pub fn begin_anew(&mut self) {
        self.failures = 0;
    }

    /// Attempts in a row that failed.
    #[must_use]
    pub fn failures(self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_the_longest_and_begin_anew() {
        let mut backoff = Backoff::default();
        let mut pause = || backoff.pause(Duration::from_secs(1), Duration::from_secs(60)).as_secs();
        let pauses: Vec<u64> = (0..100).map(|_| pause()).collect();
        assert_eq!(pauses[..7], [1, 2, 4, 8, 16, 32, 60]);
        assert!(pauses[7..].iter().all(|pause| *pause == 60));
        assert_eq!(backoff.failures(), 100);
        backoff.begin_anew();
        assert_eq!(backoff.pause(Duration::from_secs(1), Duration::MAX), Duration::from_secs(1));
    }
}
