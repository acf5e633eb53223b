//! Judges shares by Wald's sequential test: profiles are added up until all claims about them are accepted, or one is
//! refused. A busy host makes a case longer, and never wrong.

use std::fmt;
use std::ops::RangeInclusive;

use anyhow::bail;
use testkit::claims::Tally;
use testkit::wald::{Claim, Verdict};

use super::folded::Folded;

/// Seconds of the first profile of a program whose shares are known: they need some 2,000 samples, which two emulated
/// CPUs have in this time.
pub(super) const SHARES: u64 = 12;
/// Seconds of the first profile for claims about nearly all stacks, which need some hundred samples.
pub(super) const STACKS: u64 = 4;

/// The number of profiles after which a case fails that is still undecided. The later ones are half a minute long, so
/// that the deadline of the case may come first.
const MOST_PROFILES: u32 = 12;
/// The shortest and the longest of the later profiles, s. Under TCG, starting the profiler takes some twenty
/// seconds more.
const LATER: [u64; 2] = [10, 30];

/// How far a share may be from the true one on any machine.
const HALF_A_POINT: f64 = 0.005;

/// How many stacks a message has that contradict a claim.
const SHOWN: usize = 8;

/// Which share is right.
#[derive(Debug)]
pub(super) enum Right {
    Bound(Claim),
    /// Between these two shares, or half a point from them. Wrong is what differs from the nearest of these shares by
    /// as much as [`Claim::IsAbout`] says.
    Between(RangeInclusive<f64>),
    /// So many samples, sooner or later.
    Number(u64),
}

/// A claim about samples, and the samples so far.
#[derive(Debug)]
pub(super) struct ShareClaim {
    what: String,
    right: Right,
    so_far: Tally,
    against: String,
}

/// A claim about samples that are counted elsewhere.
pub(super) fn counted(right: Right, what: impl Into<String>, so_far: Tally) -> ShareClaim {
    ShareClaim { what: what.into(), right, so_far, against: String::new() }
}

/// At least this share of the stacks has a property; [`Claim::AtLeast`] says what is right and wrong.
pub(super) fn at_least(
    bound: f64,
    what: impl Into<String>,
    stacks: &Folded,
    holds: impl Fn(&[String]) -> bool,
) -> ShareClaim {
    let against = stacks.keep(|stack| !holds(stack)).top(SHOWN);
    ShareClaim { against, ..of_stacks(Right::Bound(Claim::AtLeast(bound)), what, stacks, holds) }
}

/// At most this share of the stacks has a property.
pub(super) fn at_most(
    bound: f64,
    what: impl Into<String>,
    stacks: &Folded,
    holds: impl Fn(&[String]) -> bool,
) -> ShareClaim {
    let against = stacks.keep(&holds).top(SHOWN);
    ShareClaim { against, ..of_stacks(Right::Bound(Claim::AtMost(bound)), what, stacks, holds) }
}

/// The share of the stacks with a property is between two shares: see [`Right::Between`].
pub(super) fn between(
    truth: RangeInclusive<f64>,
    what: impl Into<String>,
    stacks: &Folded,
    holds: impl Fn(&[String]) -> bool,
) -> ShareClaim {
    of_stacks(Right::Between(truth), what, stacks, holds)
}

/// The share of a loop of which a program has several copies: on an emulated CPU no two copies are equally fast.
pub(super) fn of_copies(truth: f64) -> Right {
    const FAST: f64 = 0.02;
    Right::Between(truth - FAST..=truth + FAST)
}

/// This many stacks with a property come, sooner or later.
pub(super) fn seen(
    number: u64,
    what: impl Into<String>,
    stacks: &Folded,
    holds: impl Fn(&[String]) -> bool,
) -> ShareClaim {
    of_stacks(Right::Number(number), what, stacks, holds)
}

/// The share of the stacks with a property.
pub(super) fn of_stacks(
    right: Right,
    what: impl Into<String>,
    stacks: &Folded,
    holds: impl Fn(&[String]) -> bool,
) -> ShareClaim {
    let so_far = Tally { hits: stacks.count(holds), samples: stacks.total() };
    counted(right, what, so_far).but(stacks.top(SHOWN))
}

impl ShareClaim {
    /// The same claim with other text about what contradicts it.
    pub(super) fn but(self, against: String) -> ShareClaim {
        ShareClaim { against, ..self }
    }

    /// The same claim about one of several subjects.
    pub(super) fn of(self, subject: &str) -> ShareClaim {
        ShareClaim { what: format!("{subject}: {}", self.what), ..self }
    }

    fn verdict(&self) -> Verdict {
        let Tally { hits, samples } = self.so_far;
        match &self.right {
            Right::Bound(claim) => claim.judge(hits, samples),
            Right::Between(truth) => {
                let [least, most] = [truth.start() - HALF_A_POINT, truth.end() + HALF_A_POINT];
                let nearest = (hits as f64 / samples.max(1) as f64).clamp(least, most);
                Claim::IsAbout(nearest.clamp(HALF_A_POINT, 1.0 - HALF_A_POINT)).judge(hits, samples)
            }
            Right::Number(number) if hits >= *number => Verdict::Right,
            Right::Number(_) => Verdict::Open,
        }
    }
}

impl fmt::Display for ShareClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShareClaim { what, right, so_far: Tally { hits, samples }, against } = self;
        let percent = *hits as f64 / (*samples).max(1) as f64 * 100.0;
        match right {
            Right::Bound(claim) => write!(f, "{what}: {hits} of {samples} ({percent:.2} %), not {claim}")?,
            Right::Between(truth) => {
                let [least, most] = [truth.start() * 100.0, truth.end() * 100.0];
                write!(f, "{what} has {percent:.2} % of {samples} samples, but the truth is {least:.2} %")?;
                if most > least {
                    write!(f, " to {most:.2} %")?;
                }
            }
            Right::Number(number) => write!(f, "{what}: {hits} of {samples}, and {number} are needed")?,
        }
        write!(f, "\n{against}")
    }
}

/// Takes profiles until all claims about all of them are accepted; fails as soon as one is refused. `profile` takes
/// another one, of so many seconds, and returns the claims about all so far. The first one is `first` seconds long.
pub(super) fn prove(
    first: u64,
    mut profile: impl FnMut(u64) -> anyhow::Result<Vec<ShareClaim>>,
) -> anyhow::Result<()> {
    let (mut seconds, mut sum) = (first, 0);
    let mut open = Vec::new();
    for _ in 0..MOST_PROFILES {
        open = profile(seconds)?;
        if let Some(wrong) = open.iter().find(|claim| claim.verdict() == Verdict::Wrong) {
            bail!("{wrong}");
        }
        open.retain(|claim| claim.verdict() == Verdict::Open);
        if open.is_empty() {
            return Ok(());
        }
        sum += seconds;
        seconds = (sum / 2).clamp(LATER[0], LATER[1]);
    }
    let open: Vec<String> = open.iter().map(ToString::to_string).collect();
    bail!("{MOST_PROFILES} profiles do not decide:\n{}", open.join("\n"))
}

#[cfg(test)]
mod tests {
    use testkit::claims::Tally;
    use testkit::wald::{Claim, Verdict};

    use super::{Right, ShareClaim, counted, prove};

    fn claim(right: Right, hits: u64, samples: u64) -> ShareClaim {
        counted(right, "a", Tally { hits, samples })
    }

    #[test]
    fn a_share_between_two_shares_is_right_and_one_outside_of_both_is_wrong() {
        let verdict = |hits| claim(Right::Between(0.4..=0.42), hits, 10_000).verdict();
        for right in [3_950, 4_000, 4_100, 4_200, 4_250] {
            assert_eq!(verdict(right), Verdict::Right, "{right}");
        }
        for wrong in [3_500, 4_700] {
            assert_eq!(verdict(wrong), Verdict::Wrong, "{wrong}");
        }
        assert_eq!(claim(Right::Between(0.4..=0.42), 0, 0).verdict(), Verdict::Open);
        assert_eq!(claim(Right::Between(0.4..=0.42), 41, 100).verdict(), Verdict::Open);
        // A program that measured nothing of itself has no share.
        assert_eq!(claim(Right::Between(0.0..=0.0), 5_000, 10_000).verdict(), Verdict::Wrong);
    }

    #[test]
    fn a_number_is_reached_or_open() {
        let verdict = |hits| claim(Right::Number(100), hits, 1_000).verdict();
        assert_eq!((verdict(99), verdict(100)), (Verdict::Open, Verdict::Right));
    }

    #[test]
    fn profiles_are_added_until_all_is_decided() {
        let (mut sum, mut lengths) = (0, Vec::new());
        let bound = || Right::Bound(Claim::AtLeast(0.98));
        prove(40, |seconds| {
            lengths.push(seconds);
            sum += 200;
            Ok(vec![claim(bound(), sum, sum), claim(Right::Number(1), sum, sum)])
        })
        .unwrap();
        assert_eq!(lengths, [40, 20, 30]);
        let refused = prove(4, |_| Ok(vec![claim(bound(), 500, 1_000)])).unwrap_err().to_string();
        assert!(refused.starts_with("a: 500 of 1000 (50.00 %), not at least 98.0000 %"), "{refused}");
        let undecided = prove(4, |_| Ok(vec![claim(Right::Number(9), 1, 1)])).unwrap_err().to_string();
        assert!(undecided.contains("do not decide:\na: 1 of 1, and 9 are needed"), "{undecided}");
    }

    #[test]
    fn a_refused_share_is_said_with_the_truth() {
        let one = claim(Right::Between(0.4..=0.4), 1, 10).to_string();
        assert!(one.starts_with("a has 10.00 % of 10 samples, but the truth is 40.00 %\n"), "{one}");
        let two = claim(Right::Between(0.4..=0.42), 1, 10).to_string();
        assert!(two.contains("40.00 % to 42.00 %"), "{two}");
    }
}
