//! How much more shares vary than independent samples would: the dispersion, the variance between blocks (runs or
//! seconds) divided by the binomial variance.
//!
//! A few runs say little about the variance of one function. But all functions together say how variances are
//! distributed, and each function's own variance is moved towards that prior: the empirical Bayes estimate of Smyth
//! (Linear models and empirical Bayes methods for assessing differential expression in microarray experiments, 2004),
//! which statistics of gene expression use for the same problem.

use super::distributions::{MANY, digamma, inverse_trigamma, trigamma};

/// Fewer functions than this say nothing about a prior.
const MIN_FUNCTIONS: usize = 10;

/// The most that a prior may count, in degrees of freedom: functions that call each other vary together, so they seem
/// to be more alike than they are.
const MAX_PRIOR: f64 = 10.0;

/// A dispersion below this is rounding: its logarithm would dominate the prior.
const LEAST: f64 = 0.02;

/// The variance of a share as a multiple of that of independent samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dispersion {
    /// Never below 1: less variance than independent samples have is luck, or samples that keep step with the program.
    pub(super) factor: f64,
    /// Degrees of freedom of the estimate.
    pub(super) degrees: f64,
}

/// What all functions say about dispersions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DispersionPrior {
    factor: f64,
    degrees: f64,
}

impl DispersionPrior {
    /// The prior of dispersions that were measured with `degrees` degrees of freedom each.
    pub(super) fn of(measured: &[f64], degrees: f64) -> DispersionPrior {
        let none = DispersionPrior { factor: 1.0, degrees: 0.0 };
        if measured.len() < MIN_FUNCTIONS || degrees <= 0.0 {
            return none;
        }
        let half = degrees / 2.0;
        let logs = measured.iter().map(|factor| factor.max(LEAST).ln() - digamma(half) + half.ln());
        let logs: Vec<f64> = logs.collect();
        let number = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / number;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (number - 1.0);
        let excess = variance - trigamma(half);
        let own = if excess > 0.0 { 2.0 * inverse_trigamma(excess) } else { MANY };
        // Of the degrees of the fit, before the limit: the limit is caution, and not a part of the distribution.
        let factor = (mean + digamma(own / 2.0) - (own / 2.0).ln()).exp();
        DispersionPrior { factor, degrees: own.min(MAX_PRIOR) }
    }

    /// The dispersion of a function, from its own measurement and the prior.
    pub(super) fn moderate(self, measured: f64, degrees: f64) -> Dispersion {
        let sum = self.degrees + degrees;
        let factor = (self.degrees * self.factor + degrees * measured) / sum;
        Dispersion { factor: factor.max(1.0), degrees: sum }
    }
}

#[cfg(test)]
mod tests {
    use super::{Dispersion, DispersionPrior};

    #[test]
    fn alike_functions_make_a_strong_prior_and_odd_ones_a_weak_one() {
        // Dispersions as chance makes them with 4 degrees of freedom and a true value of 2.
        let chance = [0.53, 0.9, 1.1, 1.35, 1.5, 1.68, 1.85, 2.0, 2.2, 2.5, 2.9, 3.4, 4.7];
        let alike = DispersionPrior::of(&chance, 4.0);
        assert!(alike.degrees >= 10.0 && (1.5..2.6).contains(&alike.factor), "{alike:?}");
        let odd: Vec<f64> = chance.iter().enumerate().map(|(at, x)| x * [0.1, 1.0, 10.0][at % 3]).collect();
        let odd = DispersionPrior::of(&odd, 4.0);
        assert!(odd.degrees < 5.0 && odd.degrees > 0.0, "{odd:?}");
        // A measurement of 10 stays large by the weak prior, and less so by the strong one.
        let [by_alike, by_odd] = [alike, odd].map(|prior| prior.moderate(10.0, 4.0));
        assert!(by_alike.factor < by_odd.factor && by_alike.degrees > by_odd.degrees);
    }

    #[test]
    fn few_functions_stand_for_themselves_and_nothing_is_below_chance() {
        let few = DispersionPrior::of(&[5.0; 9], 4.0);
        assert_eq!(few.moderate(3.0, 4.0), Dispersion { factor: 3.0, degrees: 4.0 });
        assert_eq!(few.moderate(0.0, 4.0), Dispersion { factor: 1.0, degrees: 4.0 });
    }
}
