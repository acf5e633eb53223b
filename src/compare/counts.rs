//! Samples of each function by block.

use super::blocks::Blocks;
use super::pair::ProfilePair;
use crate::profile::ProfileView;
use crate::profile::kind::Origin;
use crate::profile::samples::Sample;
use crate::profile::trie::NodeId;

/// Samples of a function in each block.
pub(super) struct FunctionCounts {
    /// The function: an index of the symbols of the pair's profile.
    pub(super) symbol: u32,
    /// Samples whose leaf is the function.
    pub(super) itself: Vec<u64>,
    /// Samples with the function anywhere in their stack; recursion counts once.
    pub(super) total: Vec<u64>,
}

/// Samples of all functions of some size, and of everything.
pub(super) struct BlockCounts {
    pub(super) blocks: Blocks,
    /// All samples of each block.
    pub(super) whole: Vec<u64>,
    pub(super) functions: Vec<FunctionCounts>,
}

impl BlockCounts {
    /// Counts the functions that have at least this share of one of the sides.
    pub(super) fn of(pair: &ProfilePair, least: f64) -> BlockCounts {
        let view = pair.view();
        let symbols = view.frames().symbols().len();
        // For each side and symbol the samples with it in their stack.
        let mut totals = [vec![0u64; symbols], vec![0u64; symbols]];
        let mut sums = [0u64; 2];
        for_each_sample(&view, |sample, _, functions| {
            let side = pair.side_of(sample) as usize;
            sums[side] += sample.weight.count;
            for symbol in functions {
                totals[side][*symbol as usize] += sample.weight.count;
            }
        });
        let is_large = |symbol: &usize| {
            totals
                .iter()
                .zip(sums)
                .any(|(of, sum)| of[*symbol] > 0 && of[*symbol] as f64 >= least * sum as f64)
        };
        let large: Vec<usize> = (0..symbols).filter(is_large).collect();
        drop(totals);
        let blocks = Blocks::of(pair, large.len());
        let mut row = vec![usize::MAX; symbols];
        for (at, symbol) in large.iter().enumerate() {
            row[*symbol] = at;
        }
        let empty = || vec![0; blocks.len()];
        let functions = large.iter().map(|symbol| FunctionCounts {
            symbol: *symbol as u32,
            itself: empty(),
            total: empty(),
        });
        let mut counts = BlockCounts { whole: empty(), functions: functions.collect(), blocks };
        for_each_sample(&view, |sample, leaf, functions| {
            let block = counts.blocks.of_column(sample.second);
            counts.whole[block] += sample.weight.count;
            for symbol in functions {
                if let Some(function) = counts.functions.get_mut(row[*symbol as usize]) {
                    function.total[block] += sample.weight.count;
                    function.itself[block] += if leaf == Some(*symbol) { sample.weight.count } else { 0 };
                }
            }
        });
        counts
    }
}

/// Visits each sample with the function that ran, and with the functions of its stack, each once. A leaf that only says
/// why a thread waited is not code.
fn for_each_sample(view: &ProfileView<'_>, mut visit: impl FnMut(&Sample, Option<u32>, &[u32])) {
    let frames = view.frames();
    let mut last = None;
    let (mut leaf, mut functions) = (None, Vec::new());
    for sample in view.by_second() {
        if last != Some(sample.leaf) {
            last = Some(sample.leaf);
            leaf = None;
            functions.clear();
            let symbol_of = |node: NodeId| frames.symbol_of(view.frame_of(node));
            let kind_of = |symbol: u32| frames.symbols()[symbol as usize].kind;
            for (up, symbol) in view.code_path_from_leaf(sample.leaf).map(symbol_of).enumerate() {
                if kind_of(symbol).origin() == Origin::NotCode {
                    continue;
                }
                if up == 0 {
                    leaf = Some(symbol);
                }
                functions.push(symbol);
            }
            functions.sort_unstable();
            functions.dedup();
        }
        visit(sample, leaf, &functions);
    }
}
