//! What changed between two sets of profiles, and whether the change is more than noise. `docs/diff.md` explains the
//! statistics.
//!
//! - `names`: names that are the same in each run
//! - `pair`: both sides as one profile
//! - `blocks`, `counts`: samples of functions by run or by second
//! - `share`, `dispersion`, `distributions`: the noise of a share
//! - `comparison`: the changes and the verdict

mod blocks;
mod comparison;
mod counts;
mod dispersion;
mod distributions;
mod names;
mod pair;
mod share;
#[cfg(test)]
mod simulation;

pub use blocks::NoiseBasis;
pub use comparison::{CompareError, CompareOptions, Comparison, FunctionChange, ShareChange, Work};
pub use pair::{ComparedRun, ProfilePair, Side, common_events};
