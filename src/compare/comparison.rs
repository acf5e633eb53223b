//! The comparison: how much each function changed, how sure that is, and the verdict.

use super::blocks::NoiseBasis;
use super::counts::BlockCounts;
use super::dispersion::{Dispersion, DispersionPrior, MeasuredDispersion};
use super::pair::{ProfilePair, Side};
use super::share::{Hypothesis, Scale, Share, discoveries};

/// Functions with a smaller share of both sides, in points, are not compared.
const MIN_POINTS: f64 = 0.1;

/// The rate of false findings among all findings, and so the probability of a finding where nothing changed. It is less
/// than the 5 % that `docs/diff.md` promises, because programs vary in more ways than the noise that is measured.
const LEVEL: f64 = 0.02;

/// Probability that an interval does not contain the true change.
const OUTSIDE_INTERVAL: f64 = 0.05;

/// Work that was done while a side was profiled: requests, bytes, or any other unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// What was counted.
    pub name: String,
    /// The number before, over all runs.
    pub before: f64,
    /// The number after, over all runs.
    pub after: f64,
}

/// What is compared, and what counts as a change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompareOptions {
    /// A smaller change is not reported, in points of the whole.
    pub threshold: f64,
    /// Compares by work instead of by share.
    pub per: Option<Work>,
}

impl CompareOptions {
    /// The smallest share to compare, in percent: a function cannot change by more than it has.
    fn least(&self) -> f64 {
        self.threshold.max(MIN_POINTS)
    }
}

/// How a share changed. All numbers are percent of the whole before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShareChange {
    /// The share of the profile before, 0 to 1.
    pub before: f64,
    /// The share of the profile after, 0 to 1.
    pub after: f64,
    /// Half of the width of the 95 % confidence interval of the difference.
    pub interval: f64,
    /// The probability of such a difference if nothing changed; `None` if the share is too small to be compared.
    pub p: Option<f64>,
    /// Whether the difference is more than noise, after all functions were considered.
    pub is_significant: bool,
    /// Whether it is also at least as large as the threshold.
    pub is_finding: bool,
}

impl ShareChange {
    /// The difference in points.
    #[must_use]
    pub fn points(&self) -> f64 {
        self.after - self.before
    }

    /// The difference in percent of the share before; `None` if there was none.
    #[must_use]
    pub fn percent(&self) -> Option<f64> {
        (self.before > 0.0).then(|| self.points() / self.before * 100.0)
    }

    /// [`ShareChange::interval`] in percent of the share before.
    #[must_use]
    pub fn interval_percent(&self) -> Option<f64> {
        (self.before > 0.0).then(|| self.interval / self.before * 100.0)
    }
}

/// How a function changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FunctionChange {
    /// An index of the symbols of the pair's profile.
    pub symbol: u32,
    /// Samples whose leaf is the function.
    pub itself: ShareChange,
    /// Samples with the function anywhere in their stack; recursion counts once.
    pub total: ShareChange,
}

impl FunctionChange {
    /// Whether the function changed by more than noise and the threshold.
    #[must_use]
    pub fn is_finding(&self) -> bool {
        self.itself.is_finding || self.total.is_finding
    }

    /// The larger difference, in points without sign.
    fn size(&self) -> f64 {
        self.itself.points().abs().max(self.total.points().abs())
    }
}

/// Why two sides cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// A side has no samples of the event.
    #[error("the side {} has no samples to compare", .0.name())]
    NoSamples(Side),
    /// The runs of a side were sampled at different rates.
    #[error("the runs {} were sampled at different rates, so their samples for a unit of work differ; leave --per out", .0.name())]
    Rates(Side),
}

/// What changed between two sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// All functions of some size: findings first, then by the size of the difference.
    pub functions: Vec<FunctionChange>,
    /// The change of everything, if work is known; without work both sides are 100 %.
    pub whole: Option<ShareChange>,
    /// How the noise was measured.
    pub basis: NoiseBasis,
    /// Blocks before and after between which the noise was measured.
    pub blocks: [usize; 2],
    /// Percent of the whole before that a sample of each side stands for.
    pub percent_of_sample: [f64; 2],
    /// What was asked for.
    pub options: CompareOptions,
}

impl Comparison {
    /// Compares the sides of a pair.
    ///
    /// # Errors
    /// A side has no samples, or its samples do not stand for the same amount.
    pub fn of(pair: &ProfilePair, options: CompareOptions) -> Result<Comparison, CompareError> {
        let units = if options.per.is_some() { units(pair)? } else { [1.0; 2] };
        let counts = BlockCounts::of(pair, options.least() / 100.0);
        Comparison::of_counts(&counts, units, options)
    }

    /// Compares counts, of samples that stand for `units` before and after.
    pub(super) fn of_counts(
        counts: &BlockCounts,
        units: [f64; 2],
        options: CompareOptions,
    ) -> Result<Comparison, CompareError> {
        let BlockCounts { blocks, whole, functions } = counts;
        for side in [Side::Before, Side::After] {
            if whole[blocks.range(side)].iter().sum::<u64>() == 0 {
                return Err(CompareError::NoSamples(side));
            }
        }
        let scale = match &options.per {
            None => Scale::of_whole(whole),
            Some(work) => Scale::of_work(blocks, [work.before / units[0], work.after / units[1]]),
        };
        let all = scale.share(blocks, whole);
        let tests = TestSetup {
            scale_to_percent: 100.0 / all.rates[0],
            least: options.least(),
            basis: blocks.basis,
            heaviest: blocks.heaviest,
            degrees: blocks.degrees(),
        };
        let shares: Vec<[Share; 2]> = functions
            .iter()
            .map(|function| [&function.itself, &function.total].map(|counts| scale.share(blocks, counts)))
            .collect();
        // Two tests share the level if there are two.
        let level = if options.per.is_some() { LEVEL / 2.0 } else { LEVEL };
        let changes = tests.changes(&shares, level, options.threshold);
        let mut functions: Vec<FunctionChange> = functions
            .iter()
            .zip(changes)
            .map(|(of, [itself, total])| FunctionChange { symbol: of.symbol, itself, total })
            .collect();
        functions.sort_by(|a, b| {
            b.is_finding()
                .cmp(&a.is_finding())
                .then(b.size().total_cmp(&a.size()))
                .then(a.symbol.cmp(&b.symbol))
        });
        let whole = options.per.is_some().then(|| {
            let mut change = tests.change(&all, &tests.alone(&all));
            change.is_significant = change.p.is_some_and(|p| p <= level);
            change.is_finding = change.is_significant && change.points().abs() >= options.threshold;
            change
        });
        let sizes = [Side::Before, Side::After].map(|side| blocks.range(side).len());
        let percent_of_sample =
            [Side::Before, Side::After].map(|side| tests.scale_to_percent / scale.size(blocks.range(side)));
        Ok(Comparison { functions, whole, basis: blocks.basis, blocks: sizes, percent_of_sample, options })
    }

    /// Whether anything changed by more than noise and the threshold.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.whole.is_some_and(|whole| whole.is_finding)
            || self.functions.iter().any(FunctionChange::is_finding)
    }

    /// The functions that changed.
    pub fn findings(&self) -> impl Iterator<Item = &FunctionChange> {
        self.functions.iter().filter(|function| function.is_finding())
    }

    /// The function that explains most: the one whose own code changed most, or else the one with the largest change
    /// in all.
    #[must_use]
    pub fn cause(&self) -> Option<&FunctionChange> {
        let own = self.functions.iter().filter(|function| function.itself.is_finding);
        let by_own = own.max_by(|a, b| a.itself.points().abs().total_cmp(&b.itself.points().abs()));
        by_own.or_else(|| self.findings().max_by(|a, b| a.size().total_cmp(&b.size())))
    }
}

/// What a sample of each side stands for, in the unit of the event; 1 if a file does not say it.
fn units(pair: &ProfilePair) -> Result<[f64; 2], CompareError> {
    if pair.runs().iter().any(|run| run.accounts.of_sample() == 0) {
        return Ok([1.0; 2]);
    }
    let of = |side| {
        let mut all = pair.runs_of(side).map(|run| run.accounts.of_sample());
        let first = all.next().unwrap_or(1);
        if all.all(|unit| unit == first) { Ok(first as f64) } else { Err(CompareError::Rates(side)) }
    };
    Ok([of(Side::Before)?, of(Side::After)?])
}

/// What all tests of a comparison have in common.
struct TestSetup {
    /// From a rate to percent of the whole before.
    scale_to_percent: f64,
    /// The smallest share to test, in percent.
    least: f64,
    basis: NoiseBasis,
    /// For how many samples one of a lower rate counts at most.
    heaviest: f64,
    degrees: f64,
}

impl TestSetup {
    /// The changes of functions, each with its own samples and its total.
    fn changes(&self, shares: &[[Share; 2]], level: f64, threshold: f64) -> Vec<[ShareChange; 2]> {
        // A function that calls nothing has one share, which must not count twice.
        let different = |[itself, total]: &[Share; 2]| [Some(*total), (itself != total).then_some(*itself)];
        let measured = shares.iter().flat_map(different).flatten().filter(|share| self.is_tested(share));
        let measured: Vec<MeasuredDispersion> = measured.map(|share| share.dispersion).collect();
        let prior = DispersionPrior::of(&measured, self.degrees);
        let dispersion = |share: &Share| match self.basis {
            NoiseBasis::Assumed => self.alone(share),
            _ => prior.posterior_dispersion(share.dispersion),
        };
        let mut changes: Vec<[ShareChange; 2]> = shares
            .iter()
            .map(|pair| pair.each_ref().map(|share| self.change(share, &dispersion(share))))
            .collect();
        // A change of a point is a tenth of a function of 10 %, and all of a function of 1 %.
        let hypothesis = |(change, share): (&ShareChange, &Share)| {
            Some(Hypothesis { p: change.p?, weight: share.dispersion.leverage })
        };
        let hypotheses: Vec<Hypothesis> =
            changes.iter().flatten().zip(shares.iter().flatten()).filter_map(hypothesis).collect();
        let found = discoveries(&hypotheses, level);
        for (change, found) in changes.iter_mut().flatten().filter(|change| change.p.is_some()).zip(found) {
            change.is_significant = found;
            change.is_finding = found && change.points().abs() >= threshold;
        }
        changes
    }

    /// Whether a share is large enough for a test, and not the whole on both sides.
    fn is_tested(&self, share: &Share) -> bool {
        share.rates.iter().any(|rate| rate * self.scale_to_percent >= self.least) && share.variance > 0.0
    }

    /// The dispersion of a share by itself.
    fn alone(&self, share: &Share) -> Dispersion {
        match self.basis {
            NoiseBasis::Assumed => Dispersion::known(NoiseBasis::DESIGN_FACTOR * self.heaviest),
            _ => {
                DispersionPrior::of(&[share.dispersion], self.degrees).posterior_dispersion(share.dispersion)
            }
        }
    }

    fn change(&self, share: &Share, dispersion: &Dispersion) -> ShareChange {
        let [before, after] = share.rates.map(|rate| rate * self.scale_to_percent);
        let error = share.variance.sqrt() * self.scale_to_percent;
        let p = self.is_tested(share).then(|| dispersion.two_sided((after - before) / error));
        let interval = error * dispersion.quantile(OUTSIDE_INTERVAL);
        ShareChange { before, after, interval, p, is_significant: false, is_finding: false }
    }
}
