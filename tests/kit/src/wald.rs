//! Wald's sequential test of a share: it takes samples until it can accept or refuse a claim at one error in a million. A busy
//! machine makes a test longer, and never wrong.
//!
//! A claim is right or wrong by some distance; between the two lies a zone of indifference, in which either answer would do.
//! After each batch of samples the likelihoods of the nearest right and the nearest wrong share are compared.

/// The natural logarithm of a million to one.
const DECISIVE: f64 = 13.815_510_557_964_274;

/// By how much the odds of the nearest right share, and of the nearest wrong one, differ from those of a bound.
const ODDS: f64 = 2.0;

/// Which share is right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Claim {
    /// At least this much: right at twice its odds, wrong at half of them. At least 98 % is right from 99 % on, and wrong up to
    /// 96 %.
    AtLeast(f64),
    /// At most this much, in the same way.
    AtMost(f64),
    /// This much. Wrong is what differs by 0.08 of the standard deviation of a single sample: 40 % is
    /// wrong from 43.9 % on, 10 % from 12.4 % on.
    Is(f64),
    /// The same with half as many samples, for machines on which each sample is expensive: 40 % is wrong from 45.9 % on, 10 %
    /// from 13.6 % on.
    IsAbout(f64),
}

/// What the samples say about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Right,
    Wrong,
    /// More samples are needed.
    Open,
}

impl Claim {
    /// Judges the claim by all samples so far: `hits` of `samples` have the property.
    pub fn judge(self, hits: u64, samples: u64) -> Verdict {
        let misses = samples.checked_sub(hits).expect("a part of the samples");
        match self {
            Claim::AtLeast(bound) => {
                assert!(bound > 0.0 && bound < 1.0, "no share can be on both sides of {bound}");
                let of_odds = |odds: f64| odds / (1.0 + odds);
                let odds = bound / (1.0 - bound);
                decide([log_odds(of_odds(odds * ODDS), of_odds(odds / ODDS), hits, misses)])
            }
            Claim::AtMost(bound) => Claim::AtLeast(1.0 - bound).judge(misses, samples),
            Claim::Is(truth) => is(truth, 0.08, hits, misses),
            Claim::IsAbout(truth) => is(truth, 0.12, hits, misses),
        }
    }
}

/// Judges a share against those that are this many standard deviations of a single sample away.
fn is(truth: f64, deviations: f64, hits: u64, misses: u64) -> Verdict {
    assert!(truth > 0.0 && truth < 1.0, "at least or at most {truth} is a claim");
    let distance = deviations * (truth * (1.0 - truth)).sqrt();
    let from = |wrong: f64| log_odds(truth, wrong.clamp(1e-4, 1.0 - 1e-4), hits, misses);
    decide([from(truth - distance), from(truth + distance)])
}

/// The logarithm of how much likelier the samples are if one share is true than if the other is.
fn log_odds(right: f64, wrong: f64, hits: u64, misses: u64) -> f64 {
    hits as f64 * (right / wrong).ln() + misses as f64 * ((1.0 - right) / (1.0 - wrong)).ln()
}

/// Right needs decisive odds against each wrong share, wrong those of one of them.
fn decide<const N: usize>(log_odds: [f64; N]) -> Verdict {
    if log_odds.iter().any(|odds| *odds <= -DECISIVE) {
        Verdict::Wrong
    } else if log_odds.iter().all(|odds| *odds >= DECISIVE) {
        Verdict::Right
    } else {
        Verdict::Open
    }
}

impl std::fmt::Display for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (word, bound) = match self {
            Claim::AtLeast(bound) => ("at least", bound),
            Claim::AtMost(bound) => ("at most", bound),
            Claim::Is(bound) => ("just", bound),
            Claim::IsAbout(bound) => ("about", bound),
        };
        write!(f, "{word} {:.4} %", bound * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Claim, Verdict};

    /// Samples of a true share, by a generator of known numbers (Knuth's, 64 bits), until the claim is decided.
    fn decided(claim: Claim, share: f64, seed: u64) -> (Verdict, u64) {
        let (mut state, mut hits) = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), 0);
        for samples in 1..1_000_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            hits += u64::from(((state >> 11) as f64) < share * (1_u64 << 53) as f64);
            match claim.judge(hits, samples) {
                Verdict::Open => {}
                decided => return (decided, samples),
            }
        }
        panic!("{claim} is not decided");
    }

    #[test]
    fn claims_are_accepted_where_they_are_right_and_refused_where_they_are_wrong() {
        for (claim, right, wrong, most) in [
            (Claim::AtLeast(0.98), 0.995, 0.96, 6_000),
            (Claim::AtLeast(0.5), 0.7, 0.3, 1_000),
            (Claim::AtMost(0.005), 0.001, 0.012, 12_000),
            (Claim::Is(0.4), 0.4, 0.36, 30_000),
            (Claim::Is(0.4), 0.403, 0.44, 30_000),
            (Claim::Is(0.1), 0.1, 0.13, 30_000),
            (Claim::IsAbout(0.4), 0.4, 0.46, 15_000),
        ] {
            for seed in 1..200 {
                let (verdict, samples) = decided(claim, right, seed);
                assert_eq!(verdict, Verdict::Right, "{claim} of {right} after {samples}");
                assert!(samples < most, "{claim} of {right}: {samples}");
                let (verdict, samples) = decided(claim, wrong, seed);
                assert_eq!(verdict, Verdict::Wrong, "{claim} of {wrong} after {samples}");
            }
        }
    }

    #[test]
    fn no_samples_decide_nothing() {
        for claim in [Claim::AtLeast(0.98), Claim::AtMost(0.02), Claim::Is(0.4)] {
            assert_eq!(claim.judge(0, 0), Verdict::Open);
        }
    }
}
