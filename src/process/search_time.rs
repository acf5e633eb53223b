//! When to search anonymous memory for code of files. Searches of one program, and of all programs, cost a known part
//! of the time.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::sample::MonoNs;

/// Shortest pause between searches, ns. After a search that found nothing, at least the second pause follows, which
/// doubles each time: a runtime that generates code has no code of files there.
const MIN_PAUSE_NS: u64 = 100_000_000;
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(1 << 10);
/// Of this many searches in a row that find nothing, the first also looks for bytes in all files.
const BY_BYTES_EVERY: u32 = 3;
/// Searches of one program take one part in `SHARE_DIVISOR_OF_ONE` of the time, those of all programs one in
/// `SHARE_DIVISOR_OF_ALL`. Time that is left over is saved up to `MAX_SAVED_NS`, ns.
const SHARE_DIVISOR_OF_ONE: u64 = 20;
const SHARE_DIVISOR_OF_ALL: u64 = 10;
const MAX_SAVED_NS: u64 = 1_000_000_000;

/// When to search one program's memory for code of files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MovedSearchSchedule {
    /// Searches in a row that found nothing.
    in_vain: Backoff,
    /// No search before this time, because of the cost of the previous search.
    pause_until: MonoNs,
    /// No search before this time, because of searches that found nothing.
    retry_at: MonoNs,
}

impl MovedSearchSchedule {
    /// Ends the pause after searches that found nothing: a file's code was covered, so it may have been moved.
    pub(super) fn reset_backoff(&mut self) {
        self.in_vain.begin_anew();
        self.retry_at = MonoNs(0);
    }

    pub(super) fn is_due(&self, now: MonoNs) -> bool {
        now >= self.pause_until && now >= self.retry_at
    }

    pub(super) fn looks_for_bytes(&self) -> bool {
        self.in_vain.failures().is_multiple_of(BY_BYTES_EVERY)
    }

    /// Records the end of a search that took `took` ns.
    pub(super) fn search_ended(&mut self, now: MonoNs, took: u64, has_found: bool) {
        self.pause_until = MonoNs(now.0 + MIN_PAUSE_NS.max(took.saturating_mul(SHARE_DIVISOR_OF_ONE - 1)));
        if has_found {
            self.reset_backoff();
        } else {
            self.retry_at = now.after(self.in_vain.pause(PAUSE, MAX_PAUSE));
        }
    }
}

/// Time for the searches of all programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchTime {
    /// Time that may be spent, ns; negative if the last search took more.
    saved: i64,
    /// When `saved` was computed.
    at: MonoNs,
}

impl SearchTime {
    pub(super) fn new(now: MonoNs) -> SearchTime {
        SearchTime { saved: MAX_SAVED_NS.cast_signed(), at: now }
    }

    pub(super) fn is_left(&mut self, now: MonoNs) -> bool {
        let since = now.0.saturating_sub(self.at.0) / SHARE_DIVISOR_OF_ALL;
        self.saved = self.saved.saturating_add_unsigned(since).min(MAX_SAVED_NS.cast_signed());
        self.at = now;
        self.saved > 0
    }

    pub(super) fn spend(&mut self, took: u64) {
        self.saved = self.saved.saturating_sub_unsigned(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn who_generates_code_is_asked_ever_more_seldom() {
        let mut searches = MovedSearchSchedule::default();
        let (mut now, mut times, mut by_bytes) = (MonoNs(1), 0_u32, 0);
        while now.0 < 24 * 3600 * SECOND {
            if searches.is_due(now) {
                by_bytes += u32::from(searches.looks_for_bytes());
                searches.search_ended(now, 10_000_000, false);
                times += 1;
            }
            now.0 += SECOND;
        }
        // Eleven times within the first half hour, then every 17 minutes.
        assert!((80..110).contains(&times), "{times}");
        assert_eq!(by_bytes, times.div_ceil(BY_BYTES_EVERY));
        searches.reset_backoff();
        assert!(searches.is_due(now), "a file's code was covered");
    }

    #[test]
    fn a_search_costs_a_part_of_the_time() {
        let mut searches = MovedSearchSchedule::default();
        searches.search_ended(MonoNs(SECOND), SECOND / 10, true);
        searches.reset_backoff();
        assert!(!searches.is_due(MonoNs(2 * SECOND + SECOND / 2)));
        assert!(searches.is_due(MonoNs(3 * SECOND)));
    }

    #[test]
    fn all_searches_together_cost_a_part_of_the_time() {
        let mut time = SearchTime::new(MonoNs(0));
        let mut spent = 0;
        for now in (0..100 * SECOND).step_by(1_000_000) {
            if time.is_left(MonoNs(now)) {
                time.spend(SECOND / 10);
                spent += SECOND / 10;
            }
        }
        assert!((10 * SECOND..=12 * SECOND).contains(&spent), "{spent}");
    }
}
