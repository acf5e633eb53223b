//! When to replace a worker that holds too much memory.

use std::time::{Duration, Instant};

const MIN_INTERVAL: Duration = Duration::from_secs(5);
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// When the worker was last replaced, and how long the next one may exceed the bound.
///
/// A worker that exceeds the bound again at once needs its memory: replacing it costs CPU time and frees nothing.
#[derive(Debug)]
pub(crate) struct WorkerReplacement {
    bound: u64,
    last: Instant,
    interval: Duration,
    /// Workers that were replaced.
    pub(crate) count: u64,
}

impl WorkerReplacement {
    /// For a worker that starts `now` and may hold `bound` bytes.
    pub(crate) fn new(bound: u64, now: Instant) -> WorkerReplacement {
        WorkerReplacement { bound, last: now, interval: MIN_INTERVAL, count: 0 }
    }

    /// Whether the interval since the last replacement has passed.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= self.interval
    }

    /// Whether to replace a worker that holds `resident` bytes now: above the bound if the interval has passed, above
    /// twice the bound at once.
    pub(crate) fn replaces(&mut self, resident: u64, now: Instant) -> bool {
        let too_much = resident > self.bound && self.is_due(now);
        if !too_much && resident <= self.bound.saturating_mul(2) {
            return false;
        }
        let soon = now.saturating_duration_since(self.last) < self.interval * 2;
        self.interval = if soon { (self.interval * 2).min(MAX_INTERVAL) } else { MIN_INTERVAL };
        self.last = now;
        self.count += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_comes_back_above_the_bound_is_left_longer_each_time() {
        let start = Instant::now();
        let mut eviction = WorkerReplacement::new(100, start);
        let replaced: Vec<u64> =
            (0..300).filter(|&s| eviction.replaces(150, start + Duration::from_secs(s))).collect();
        assert_eq!(replaced, [5, 15, 35, 75, 135, 195, 255]);
        assert_eq!(eviction.count, 7);
    }

    #[test]
    fn a_worker_that_was_small_for_long_is_replaced_soon() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut eviction = WorkerReplacement::new(100, start);
        assert!(eviction.replaces(150, at(5)));
        assert!(!eviction.replaces(100, at(60)), "it holds what it may");
        assert!(eviction.replaces(101, at(100)));
        assert!(!eviction.replaces(101, at(104)));
        assert!(eviction.replaces(101, at(105)));
    }

    #[test]
    fn twice_the_bound_is_too_much_at_any_time() {
        let start = Instant::now();
        let mut eviction = WorkerReplacement::new(100, start);
        assert!(eviction.replaces(201, start));
        assert!(eviction.replaces(201, start));
        assert!(!eviction.replaces(200, start));
    }
}
