//! The share of a function on both sides, its noise, and the control of false findings.

use std::ops::Range;

use super::blocks::Blocks;
use super::dispersion::MeasuredDispersion;
use super::pair::Side;

/// What counts are divided by.
pub(super) struct Scale {
    /// For each block its samples, or the work that was done in it.
    sizes: Vec<f64>,
    /// Whether counts are divided by work: then they are numbers of events, and no parts of a whole.
    is_per_work: bool,
}

/// A share on both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share {
    /// Before and after.
    pub(super) rates: [f64; 2],
    /// The variance of the difference, if the samples were independent and nothing had changed.
    pub(super) variance: f64,
    pub(super) dispersion: MeasuredDispersion,
}

impl Scale {
    /// Compares shares of the whole.
    pub(super) fn of_whole(whole: &[u64]) -> Scale {
        Scale { sizes: whole.iter().map(|count| *count as f64).collect(), is_per_work: false }
    }

    /// Compares by the work of each side, in units of work for a sample. The blocks of a side did the same work.
    pub(super) fn of_work(blocks: &Blocks, work: [f64; 2]) -> Scale {
        let mut sizes = vec![0.0; blocks.len()];
        for (side, work) in [Side::Before, Side::After].into_iter().zip(work) {
            let range = blocks.range(side);
            let part = work / range.len().max(1) as f64;
            sizes[range].fill(part);
        }
        Scale { sizes, is_per_work: true }
    }

    /// The sum of the samples or of the work of some blocks.
    pub(super) fn size(&self, blocks: Range<usize>) -> f64 {
        self.sizes[blocks].iter().sum()
    }

    /// The variance of a rate among so many independent samples.
    fn independent(&self, rate: f64, size: f64) -> f64 {
        let of_one = if self.is_per_work { rate } else { rate * (1.0 - rate).max(0.0) };
        of_one / size
    }

    /// The share of the samples in `counts`.
    pub(super) fn share(&self, blocks: &Blocks, counts: &[u64]) -> Share {
        let sides = [blocks.range(Side::Before), blocks.range(Side::After)];
        let sums = sides.clone().map(|side| counts[side].iter().sum::<u64>() as f64);
        let sizes = sides.clone().map(|side| self.size(side));
        let common = (sums[0] + sums[1]) / (sizes[0] + sizes[1]);
        let variance = sizes.iter().map(|size| self.independent(common, *size)).sum();
        let (mut dispersion, mut degrees) = (0.0, 0.0);
        for (at, side) in sides.into_iter().enumerate() {
            let rate = sums[at] / sizes[at];
            let independent = self.independent(rate, sizes[at]);
            let own = blocks.degrees_of(side.len());
            if own > 0.0 {
                let measured = self.between(blocks, counts, side, rate) / independent;
                dispersion += own * if independent > 0.0 { measured } else { 1.0 };
                degrees += own;
            }
        }
        let factor = if degrees > 0.0 { dispersion / degrees } else { 1.0 };
        // The variance of the number of independent samples in a block: a share of 95 % varies as little as one of 5 %.
        let size = (sizes[0] + sizes[1]) / blocks.len() as f64;
        let leverage = self.independent(common, 1.0) * size;
        let dispersion = MeasuredDispersion { factor, leverage };
        Share { rates: [sums[0] / sizes[0], sums[1] / sizes[1]], variance, dispersion }
    }

    /// The variance of a side's rate by the differences between its blocks: the estimator of a ratio. Neighbouring
    /// seconds are alike, so their covariances are added as Newey and West do (A Simple, Positive Semi-Definite,
    /// Heteroskedasticity and Autocorrelation Consistent Covariance Matrix, 1987).
    fn between(&self, blocks: &Blocks, counts: &[u64], side: Range<usize>, rate: f64) -> f64 {
        let sizes = &self.sizes[side.clone()];
        let size: f64 = sizes.iter().sum();
        let rest: Vec<f64> =
            counts[side].iter().zip(sizes).map(|(count, size)| *count as f64 - rate * size).collect();
        let number = rest.len() as f64;
        let squares: f64 = rest.iter().map(|rest| rest * rest).sum();
        let alike = blocks.alike(rest.len());
        let mut sum = squares;
        for lag in 1..alike {
            let weight = 1.0 - lag as f64 / alike as f64;
            sum += 2.0 * weight * rest.iter().zip(&rest[lag..]).map(|(a, b)| a * b).sum::<f64>();
        }
        // The mean is taken off the differences, and so is a part of what neighbours have in common.
        sum.max(squares) / (1.0 - alike as f64 / number) / (size * size)
    }
}

/// A share that may have changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hypothesis {
    /// The probability of such a difference if nothing changed.
    pub(super) p: f64,
    /// How plausible a change of that size is, beside the other hypotheses. It must not depend on the difference.
    pub(super) weight: f64,
}

/// Which of the hypotheses are findings, so that on average at most a part `level` of all findings is false: the
/// procedure of Benjamini and Hochberg (Controlling the False Discovery Rate, 1995), with the weights of Genovese, Roeder
/// and Wasserman (False Discovery Control with p-Value Weighting, 2006).
pub(super) fn discoveries(hypotheses: &[Hypothesis], level: f64) -> Vec<bool> {
    let mean = hypotheses.iter().map(|one| one.weight).sum::<f64>() / hypotheses.len() as f64;
    let probabilities: Vec<f64> = hypotheses.iter().map(|one| one.p * mean / one.weight).collect();
    let mut sorted = probabilities.clone();
    sorted.sort_by(f64::total_cmp);
    let number = sorted.len() as f64;
    let limit = sorted.iter().enumerate().rev().find(|(at, p)| **p <= level * (*at as f64 + 1.0) / number);
    let limit = limit.map_or(-1.0, |(_, p)| *p);
    probabilities.iter().map(|p| *p <= limit).collect()
}

#[cfg(test)]
mod tests {
    use super::{Hypothesis, discoveries};

    fn equal(probabilities: &[f64]) -> Vec<Hypothesis> {
        probabilities.iter().map(|p| Hypothesis { p: *p, weight: 3.0 }).collect()
    }

    /// The example of the paper: of 15 tests, the four smallest probabilities are findings at 5 %.
    #[test]
    fn findings_are_those_of_the_paper() {
        let paper = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
            0.6528, 0.7590, 1.0,
        ];
        let found = discoveries(&equal(&paper), 0.05);
        assert_eq!(found.iter().filter(|found| **found).count(), 4);
        assert!(found[..4].iter().all(|found| *found));
        assert_eq!(discoveries(&[], 0.05), [false; 0]);
        assert_eq!(discoveries(&equal(&[0.9, 0.8]), 0.05), [false, false]);
    }

    #[test]
    fn a_plausible_change_needs_less_evidence_than_others() {
        let [large, small] = [9.0, 1.0].map(|weight| Hypothesis { p: 0.04, weight });
        assert_eq!(discoveries(&[large, small], 0.05), [true, false]);
        assert_eq!(discoveries(&equal(&[0.04, 0.06]), 0.05), [false, false]);
    }
}
