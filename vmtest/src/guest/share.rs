//! Compares measured shares with true ones.

use anyhow::ensure;

/// Samples below which shares are not checked.
pub(super) const ENOUGH: u64 = 2_000;
/// A number of samples as a fraction of the number that is needed. 1 is enough.
pub(super) fn part(samples: u64) -> f64 {
    samples as f64 / ENOUGH as f64
}

/// How many profiles are taken at most until there are enough samples.
const TRIES: u32 = 4;
/// Seconds of the first profile: enough on a processor that has no other work.
const FIRST: u64 = 7;

/// How long to profile a program until there are enough samples. On a busy host a guest gets few.
#[derive(Debug)]
pub(super) struct Effort {
    tries: u32,
    seconds: u64,
    sum: u64,
}

impl Effort {
    /// Before the first profile.
    pub(super) fn first() -> Effort {
        Effort::beginning_with(FIRST)
    }

    /// Before a first profile of this many seconds.
    pub(super) fn beginning_with(seconds: u64) -> Effort {
        Effort { tries: 1, seconds, sum: seconds }
    }

    /// Seconds of the next profile, if its samples are added to those of earlier profiles.
    pub(super) fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Seconds of the next profile, if it replaces the earlier ones.
    pub(super) fn sum(&self) -> u64 {
        self.sum
    }

    /// Whether another profile is needed. `part`: the samples so far, as a fraction of the number that is needed.
    pub(super) fn needs_more(&mut self, part: f64) -> bool {
        let more = self.sum as f64 * (1.0 - part) / part.max(0.01) * 1.2;
        self.seconds = (more.ceil() as u64).clamp(2, 30);
        self.sum += self.seconds;
        self.tries += 1;
        part < 1.0 && self.tries <= TRIES
    }
}

/// Fails unless the share is the true one, within half a percentage point and the statistical error of `n` samples.
pub(super) fn check(what: &str, share: f64, truth: f64, n: u64) -> anyhow::Result<()> {
    ensure!(n >= ENOUGH, "{what}: {n} samples are too few to decide");
    let tolerance = 0.005 + 4.0 * (truth * (1.0 - truth) / n as f64).sqrt();
    ensure!(
        (share - truth).abs() <= tolerance,
        "{what} has {:.2} % of {n} samples, but the truth is {:.2} % ± {:.2}",
        share * 100.0,
        truth * 100.0,
        tolerance * 100.0
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Effort, check};

    #[test]
    fn a_second_profile_is_as_long_as_the_first_one_says() {
        let mut effort = Effort::first();
        assert!(effort.needs_more(0.5));
        assert_eq!((effort.seconds(), effort.sum()), (9, 16));
        assert!(effort.needs_more(0.99) && effort.seconds() == 2);
        assert!(!Effort::first().needs_more(1.0));
        let mut effort = Effort::first();
        assert!(
            effort.needs_more(0.0)
                && effort.needs_more(0.0)
                && effort.needs_more(0.0)
                && !effort.needs_more(0.0)
        );
    }

    #[test]
    fn chance_is_allowed_for_and_no_more() {
        assert!(check("a", 0.43, 0.4, 4_000).is_ok() && check("a", 0.37, 0.4, 4_000).is_ok());
        assert!(check("a", 0.44, 0.4, 4_000).is_err() && check("a", 0.4, 0.4, 100).is_err());
        assert!(check("nothing", 0.006, 0.0, 4_000).is_err());
    }
}
