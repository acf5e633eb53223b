//! What a form of a difference is made of.

use crate::compare::{Comparison, FunctionChange, ProfilePair, Side};
use crate::output::name;
use crate::profile::Kind;

/// Two sides, what changed between them, and where they come from.
#[derive(Clone, Copy, Debug)]
pub struct Difference<'a> {
    /// The samples of both sides.
    pub pair: &'a ProfilePair,
    /// Shares of all functions on both sides, and the verdict.
    pub comparison: &'a Comparison,
    /// File names of the base, as the user gave them.
    pub before: &'a [String],
    /// File names of the change, as the user gave them.
    pub after: &'a [String],
}

impl Difference<'_> {
    pub(super) fn files(&self, side: Side) -> &[String] {
        match side {
            Side::Before => self.before,
            Side::After => self.after,
        }
    }

    pub(super) fn name(&self, function: &FunctionChange) -> String {
        let view = self.pair.view();
        let frames = view.frames();
        name::display_name(frames, &frames.symbols()[function.symbol as usize])
    }

    pub(super) fn kind(&self, function: &FunctionChange) -> Kind {
        self.pair.view().frames().symbols()[function.symbol as usize].kind
    }

    /// Samples and lost samples of a side.
    pub(super) fn accounts(&self, side: Side) -> SideAccounts {
        let mut sum = SideAccounts::default();
        for run in self.pair.runs_of(side) {
            sum.runs += 1;
            sum.samples += run.accounts.kept;
            sum.lost += run.accounts.lost_total();
        }
        sum
    }
}

/// Samples of a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SideAccounts {
    pub(super) runs: usize,
    pub(super) samples: u64,
    pub(super) lost: u64,
}
