//! How much more shares vary than independent samples would: the dispersion, the variance between blocks (runs or
//! seconds) divided by the binomial variance.
//!
//! A few runs say little about the dispersion of one function. But all functions together say which dispersions a program
//! has: most functions vary little, and some vary much. That prior has no fixed shape; it is the mixture of the
//! dispersions of a grid that explains all measurements best (Ignatiadis and Sen, Empirical partially Bayes multiple
//! testing and compound chi-square decisions, 2025). A function's own measurement then says how likely each of these
//! dispersions is, and a probability is the mean over them. So a function that may be one of those that vary much needs
//! a larger change.

use super::distributions::{normal_density, normal_two_sided};

/// Fewer functions than this say nothing about a prior.
const MIN_FUNCTIONS: usize = 10;

/// The fit has so many further functions, each of which may have any variance of the grid. So no variance is impossible,
/// although functions that call each other vary together, and seem to be more alike than they are.
const CAUTION: f64 = 3.0;

/// From one variance of the grid to the next.
const STEP: f64 = 1.5;

/// The smallest variance of the grid is `MIN_EXTRA / leverage`: a function with the largest leverage gets a dispersion
/// of 1 + `MIN_EXTRA` by it.
const MIN_EXTRA: f64 = 0.05;
/// The largest variance of the grid is the largest `max(factor, 1) * MAX_TIMES / leverage` of all functions: the true
/// dispersion may be this many times the measured one.
const MAX_TIMES: f64 = 64.0;

/// Rounds of expectation and maximisation. More of them sharpen the prior without better verdicts.
const ROUNDS: usize = 30;

/// Less likely dispersions are left out.
const NEGLIGIBLE: f64 = 1e-9;

/// The dispersion of a share as its blocks show it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MeasuredDispersion {
    /// The measured variance divided by that of independent samples.
    pub(super) factor: f64,
    /// By how much the factor exceeds 1 for each unit of variance that the odds of the share have between blocks. So the
    /// same variance of the odds is a larger dispersion for a function with more samples.
    pub(super) leverage: f64,
}

/// A dispersion that a share may have.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PossibleFactor {
    probability: f64,
    factor: f64,
}

/// The variance of a share as a multiple of that of independent samples, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dispersion(Vec<PossibleFactor>);

impl Dispersion {
    pub(super) fn known(factor: f64) -> Dispersion {
        Dispersion(vec![PossibleFactor { probability: 1.0, factor }])
    }

    /// The probability of a difference at least as far from 0 as `distance`, in standard deviations of independent
    /// samples.
    pub(super) fn two_sided(&self, distance: f64) -> f64 {
        self.0.iter().map(|one| one.probability * normal_two_sided(distance / one.factor.sqrt())).sum()
    }

    /// The distance that a difference exceeds with probability `p`, by Newton's method from below: the probability is
    /// convex, so no step goes too far.
    pub(super) fn quantile(&self, p: f64) -> f64 {
        let mut at = 0.0;
        for _ in 0..60 {
            let slope: f64 = self
                .0
                .iter()
                .map(|one| 2.0 * one.probability * normal_density(at / one.factor.sqrt()) / one.factor.sqrt())
                .sum();
            let step = (self.two_sided(at) - p) / slope;
            at += step;
            if step.abs() <= 1e-9 * at {
                break;
            }
        }
        at
    }
}

/// What all functions say about the variance of odds between blocks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DispersionPrior {
    /// Degrees of freedom of each measurement.
    degrees: f64,
    variances: Vec<f64>,
    /// For each variance the probability that a function has it.
    probabilities: Vec<f64>,
}

impl DispersionPrior {
    /// The prior of dispersions that were measured with `degrees` degrees of freedom each.
    pub(super) fn of(measured: &[MeasuredDispersion], degrees: f64) -> DispersionPrior {
        let mut prior = DispersionPrior::flat(measured, degrees);
        if measured.len() >= MIN_FUNCTIONS {
            prior.fit(measured);
        }
        prior
    }

    /// The prior by which each variance that a measurement can have is as likely as any other.
    fn flat(measured: &[MeasuredDispersion], degrees: f64) -> DispersionPrior {
        let known = || measured.iter().filter(|one| one.leverage > 0.0);
        let least = known().map(|one| MIN_EXTRA / one.leverage).fold(f64::INFINITY, f64::min);
        let most = known().map(|one| one.factor.max(1.0) * MAX_TIMES / one.leverage).fold(0.0, f64::max);
        let mut variances = vec![0.0];
        let mut next = least;
        while next < most {
            variances.push(next);
            next *= STEP;
        }
        let probabilities = vec![1.0 / variances.len() as f64; variances.len()];
        DispersionPrior { degrees, variances, probabilities }
    }

    /// Moves the probabilities to those that explain the measurements best.
    fn fit(&mut self, measured: &[MeasuredDispersion]) {
        let likelihoods: Vec<Vec<f64>> = measured.iter().map(|one| self.likelihoods(*one)).collect();
        let flat = CAUTION / self.variances.len() as f64;
        let all = CAUTION + measured.len() as f64;
        for _ in 0..ROUNDS {
            let mut sums = vec![flat; self.variances.len()];
            for of_function in &likelihoods {
                sums.iter_mut().zip(self.posterior(of_function)).for_each(|(sum, one)| *sum += one);
            }
            self.probabilities = sums.into_iter().map(|sum| sum / all).collect();
        }
    }

    /// For each variance the likelihood of a measurement, in multiples of the largest one.
    fn likelihoods(&self, measured: MeasuredDispersion) -> Vec<f64> {
        let logs = self.variances.iter().map(|variance| {
            let factor = 1.0 + variance * measured.leverage;
            -self.degrees / 2.0 * (factor.ln() + measured.factor / factor)
        });
        let logs: Vec<f64> = logs.collect();
        let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        logs.into_iter().map(|log| (log - largest).exp()).collect()
    }

    /// For each variance the probability that a function with these likelihoods has it.
    fn posterior<'p>(&'p self, likelihoods: &'p [f64]) -> impl Iterator<Item = f64> + 'p {
        let joint = || likelihoods.iter().zip(&self.probabilities).map(|(one, prior)| one * prior);
        let whole: f64 = joint().sum();
        joint().map(move |one| one / whole)
    }

    /// The dispersion of a function, from its own measurement and the prior. Never below 1: less variance than
    /// independent samples have is luck, or samples that keep step with the program.
    pub(super) fn posterior_dispersion(&self, measured: MeasuredDispersion) -> Dispersion {
        let likelihoods = self.likelihoods(measured);
        let possible = self.posterior(&likelihoods).zip(&self.variances).map(|(probability, variance)| {
            PossibleFactor { probability, factor: 1.0 + variance * measured.leverage }
        });
        Dispersion(possible.filter(|one| one.probability > NEGLIGIBLE).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{Dispersion, DispersionPrior, MeasuredDispersion};

    /// Dispersions as chance makes them with 8 degrees of freedom and a true value of 2.
    const CHANCE: [f64; 12] = [0.8, 1.06, 1.27, 1.44, 1.6, 1.76, 1.92, 2.1, 2.3, 2.55, 2.88, 3.6];

    fn measured(factor: f64) -> MeasuredDispersion {
        MeasuredDispersion { factor, leverage: 100.0 }
    }

    #[test]
    fn alike_functions_make_a_strong_prior_and_odd_ones_a_weak_one() {
        let alike: Vec<MeasuredDispersion> = CHANCE.map(measured).to_vec();
        let odd: Vec<MeasuredDispersion> =
            CHANCE.iter().enumerate().map(|(at, x)| measured(x * [1.0, 4.0, 20.0][at % 3])).collect();
        let [by_alike, by_odd] = [&alike, &odd].map(|all| DispersionPrior::of(all, 8.0));
        // A measurement of 4 is luck among those, and real among these.
        let [lucky, real] =
            [&by_alike, &by_odd].map(|prior| prior.posterior_dispersion(measured(4.0)).quantile(0.05));
        assert!(lucky < real, "{lucky} and {real}");
        let true_quantile = Dispersion::known(2.0).quantile(0.05);
        let typical = by_alike.posterior_dispersion(measured(2.0)).quantile(0.05);
        assert!((0.9..1.25).contains(&(typical / true_quantile)), "{typical} instead of {true_quantile}");
        // A small measurement may be luck, too, if there are functions that vary much.
        let [few, many] =
            [&by_alike, &by_odd].map(|prior| prior.posterior_dispersion(measured(1.5)).two_sided(8.0));
        assert!(few < many, "{few} and {many}");
    }

    /// The same variance of the odds is a larger dispersion for a larger share.
    #[test]
    fn a_prior_holds_for_shares_of_all_sizes() {
        let small: Vec<MeasuredDispersion> =
            CHANCE.iter().map(|factor| MeasuredDispersion { factor: *factor, leverage: 10.0 }).collect();
        let prior = DispersionPrior::of(&small, 8.0);
        let large = prior.posterior_dispersion(MeasuredDispersion { factor: 11.0, leverage: 100.0 });
        let ratio = large.quantile(0.05) / Dispersion::known(11.0).quantile(0.05);
        assert!((0.8..1.25).contains(&ratio), "{ratio}");
    }

    #[test]
    fn few_functions_stand_for_themselves_and_nothing_is_below_chance() {
        let few = [measured(5.0); 9];
        let [one, nine] = [&few[..1], &few[..]]
            .map(|few| DispersionPrior::of(few, 4.0).posterior_dispersion(measured(5.0)));
        assert_eq!(one, nine);
        // About as Student's distribution with 4 degrees of freedom: 2.776 standard deviations.
        let interval = nine.quantile(0.05) / 5f64.sqrt();
        assert!((2.3..3.3).contains(&interval), "{interval}");
        let none = DispersionPrior::of(&few, 4.0).posterior_dispersion(measured(0.0));
        assert!(none.quantile(0.05) >= 1.95, "{none:?}");
        assert!((Dispersion::known(4.0).quantile(0.05) - 3.919_93).abs() < 1e-4);
        assert!((Dispersion::known(4.0).two_sided(4.0) - 0.045_500_26).abs() < 1e-7);
    }
}
