//! Blocks: the parts of a side whose differences say how much a share varies by itself.

use std::ops::Range;

use super::pair::{ComparedRun, ProfilePair, Side};

/// The most blocks of a side: longer runs have blocks of several seconds.
const MAX_BLOCKS: u32 = 600;

/// The most counters, of blocks times functions.
const MAX_COUNTERS: usize = 8 << 20;

/// What the noise was measured between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseBasis {
    /// Between runs of one side: everything that differs from run to run.
    Runs,
    /// Between the seconds of a run: samples of one second are not independent.
    Seconds,
    /// Not measured: the noise of independent samples, times [`NoiseBasis::DESIGN_FACTOR`].
    Assumed,
}

impl NoiseBasis {
    /// The variance of real samples divided by that of independent ones, where it cannot be measured.
    pub const DESIGN_FACTOR: f64 = 2.0;
    /// Fewer seconds of a run say nothing about noise.
    pub const MIN_SECONDS: u32 = 20;
}

/// The blocks of both sides.
pub(super) struct Blocks {
    pub(super) basis: NoiseBasis,
    /// For how many samples one of a lower rate counts at most.
    pub(super) heaviest: f64,
    /// Blocks of the side before; those of the side after follow.
    before: usize,
    number: usize,
    of_column: Vec<u32>,
}

impl Blocks {
    /// The blocks for as many rows of counters.
    pub(super) fn of(pair: &ProfilePair, rows: usize) -> Blocks {
        let runs_of = |side| pair.runs_of(side).count();
        let seconds_of = |side| pair.columns(side).len() as u32;
        let [by_runs, by_seconds] = [
            runs_of(Side::Before).max(runs_of(Side::After)) > 1,
            seconds_of(Side::Before).max(seconds_of(Side::After)) >= NoiseBasis::MIN_SECONDS,
        ];
        let basis = match (by_runs, by_seconds) {
            (true, _) => NoiseBasis::Runs,
            (false, true) => NoiseBasis::Seconds,
            (false, false) => NoiseBasis::Assumed,
        };
        let most = MAX_BLOCKS.min((MAX_COUNTERS / rows.max(1)).max(2) as u32 / 2).max(1);
        let heaviest = pair.runs().iter().map(|run| run.accounts.heaviest()).fold(1.0, f64::max);
        let mut blocks = Blocks { basis, heaviest, before: 0, number: 0, of_column: Vec::new() };
        for side in [Side::Before, Side::After] {
            for run in pair.runs_of(side) {
                blocks.add(run, most);
            }
            if side == Side::Before {
                blocks.before = blocks.number;
            }
        }
        blocks
    }

    fn add(&mut self, run: &ComparedRun, most: u32) {
        let columns = run.columns.len() as u32;
        let parts = match self.basis {
            NoiseBasis::Seconds if columns >= NoiseBasis::MIN_SECONDS => columns.min(most),
            _ => 1,
        };
        let first = self.number as u32;
        self.of_column.extend(
            (0..columns)
                .map(|column| first + (u64::from(column) * u64::from(parts) / u64::from(columns)) as u32),
        );
        self.number += parts as usize;
    }

    /// Blocks of a simulation.
    #[cfg(test)]
    pub(super) fn made(basis: NoiseBasis, before: usize, after: usize) -> Blocks {
        Blocks { basis, heaviest: 1.0, before, number: before + after, of_column: Vec::new() }
    }

    /// The number of blocks of both sides.
    pub(super) fn len(&self) -> usize {
        self.number
    }

    /// The blocks of a side.
    pub(super) fn range(&self, side: Side) -> Range<usize> {
        match side {
            Side::Before => 0..self.before,
            Side::After => self.before..self.number,
        }
    }

    /// The block of a column of time.
    pub(super) fn of_column(&self, column: u16) -> usize {
        self.of_column.get(usize::from(column)).map_or(0, |block| *block as usize)
    }

    /// Neighbouring blocks that are alike: runs are independent, but what a program does goes on for some seconds.
    pub(super) fn alike(&self, number: usize) -> usize {
        match self.basis {
            NoiseBasis::Seconds => ((2.0 * (number as f64).powf(0.4)) as usize).clamp(1, (number / 4).max(1)),
            _ => 1,
        }
    }

    /// Degrees of freedom of a variance between so many blocks. Alike blocks count less (Kiefer and Vogelsang, A New
    /// Asymptotic Theory for Heteroskedasticity-Autocorrelation Robust Tests, 2005).
    pub(super) fn degrees_of(&self, number: usize) -> f64 {
        match self.alike(number) {
            1 => (number as f64 - 1.0).max(0.0),
            alike => 1.5 * number as f64 / alike as f64,
        }
    }

    /// Degrees of freedom of a variance between the blocks of each side.
    pub(super) fn degrees(&self) -> f64 {
        [Side::Before, Side::After].map(|side| self.degrees_of(self.range(side).len())).iter().sum()
    }
}
