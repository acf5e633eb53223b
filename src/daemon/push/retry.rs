//! Retries: the backoff between attempts, and the limit on attempts.

use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};

use super::outcome::DeliveryOutcome;
use crate::backoff::Backoff;

/// The first pause after a failure, and the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The longest pause that a sink may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);
/// A request is given up after this many failures, which take about ten minutes. Otherwise a request at which the sink
/// always fails would block all requests after it.
const MAX_FAILURES: u32 = 16;

/// The state of retries for one sink.
#[derive(Default)]
pub(super) struct Retry {
    /// The request that failed last, and the number of its failures.
    number: u64,
    failures: u32,
    /// Failed attempts in a row, over all requests.
    backoff: Backoff,
}

impl Retry {
    /// The result of an attempt to send the request `number`: a failure becomes a refusal after too many of them.
    pub(super) fn record_attempt(&mut self, number: u64, of_attempt: DeliveryOutcome) -> DeliveryOutcome {
        match of_attempt {
            DeliveryOutcome::Failed(why, retry_after) => {
                if self.number != number {
                    (self.number, self.failures) = (number, 0);
                }
                self.failures += 1;
                if self.failures >= MAX_FAILURES {
                    return DeliveryOutcome::Refused(format!("{why}, {MAX_FAILURES} times"));
                }
                DeliveryOutcome::Failed(why, retry_after)
            }
            other => other,
        }
    }

    /// The pause after a failure; `retry_after` is the pause that the sink asked for.
    pub(super) fn pause(&mut self, retry_after: Option<Duration>) -> Duration {
        let jitter = jitter();
        let own = self.backoff.pause(FIRST_WAIT, MAX_WAIT).mul_f64(0.5 + jitter);
        let asked = retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
        own.max(asked.mul_f64(1.0 + jitter / 2.0))
    }

    /// Resets the backoff, because the sink has accepted a request.
    pub(super) fn begin_anew(&mut self) {
        self.backoff.begin_anew();
    }
}

/// A random number from 0 to 1, so that thousands of nodes do not retry at the same time.
fn jitter() -> f64 {
    let mut random = [0u8; 2];
    // Without random numbers there is no jitter.
    let filled = getrandom(&mut random, GetRandomFlags::empty()).is_ok();
    if filled { f64::from(u16::from_ne_bytes(random)) / 65_536.0 } else { 0.5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_within(wait: Duration, seconds: std::ops::Range<f64>) -> bool {
        seconds.contains(&wait.as_secs_f64())
    }

    #[test]
    fn waits_grow_until_something_is_taken() {
        let mut retry = Retry::default();
        for seconds in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            let wait = retry.pause(None);
            assert!(is_within(wait, seconds * 0.5..seconds * 1.5), "{wait:?} for {seconds} s");
        }
        retry.begin_anew();
        assert!(is_within(retry.pause(None), 0.5..1.5));
    }

    #[test]
    fn a_sink_is_not_asked_before_it_wants_to_be() {
        for _ in 0..100 {
            let of = |seconds| Retry::default().pause(Some(Duration::from_secs(seconds)));
            assert!(is_within(of(120), 120.0..180.0));
            assert!(is_within(of(u64::MAX), 3600.0..5400.0));
            assert!(is_within(of(0), 0.5..1.5), "no wait at all would be no wait for ever");
        }
    }
}
