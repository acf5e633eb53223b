//! The stacks of both sides with their samples.

use super::model::Difference;
use crate::compare::Side;
use crate::output::folded::{FoldedTexts, NO_FRAMES};
use crate::profile::trie::NodeId;

/// Samples before and after.
pub(super) type SideCounts = [u64; 2];

/// The samples of each node of the pair's trie on both sides.
pub(super) struct DiffStacks {
    texts: FoldedTexts,
    /// For each node the samples that end there.
    ends: Vec<SideCounts>,
}

impl DiffStacks {
    pub(super) fn of(difference: &Difference<'_>) -> DiffStacks {
        let view = difference.pair.view();
        let mut ends = vec![[0; 2]; view.trie().len()];
        for sample in view.by_second() {
            ends[sample.leaf.index()][difference.pair.side_of(sample) as usize] += sample.weight.count;
        }
        DiffStacks { texts: FoldedTexts::of(view.frames()), ends }
    }

    /// For each node the samples that end there or above.
    pub(super) fn totals(&self, difference: &Difference<'_>) -> Vec<SideCounts> {
        let view = difference.pair.view();
        let mut totals = self.ends.clone();
        for node in view.trie().nodes().rev() {
            let [before, after] = totals[node.index()];
            let parent = &mut totals[view.trie().parent(node).index()];
            parent[0] += before;
            parent[1] += after;
        }
        totals
    }

    /// The text of a node's frame.
    pub(super) fn text(&self, difference: &Difference<'_>, node: NodeId) -> &str {
        let view = difference.pair.view();
        let symbol = view.frames().symbol_of(view.frame_of(node));
        &self.texts.list[self.texts.items[symbol as usize] as usize]
    }

    /// Visits each stack that has samples, with the text that `frame` gives to its frames. Lost samples have no stack.
    ///
    /// # Errors
    /// The first error that `visit` returns.
    pub(super) fn for_each<E>(
        &self,
        difference: &Difference<'_>,
        frame: impl Fn(NodeId) -> String,
        mut visit: impl FnMut(&str, SideCounts) -> Result<(), E>,
    ) -> Result<(), E> {
        let view = difference.pair.view();
        let all = view.trie().nodes().filter(|node| self.ends[node.index()] != [0; 2]);
        for leaf in all {
            let mut frames: Vec<String> = view.trie().path_to_root(leaf).map(&frame).collect();
            frames.reverse();
            visit(&frames.join(";"), self.ends[leaf.index()])?;
        }
        let frameless = self.ends[NodeId::ROOT.index()];
        if frameless != [0; 2] {
            visit(NO_FRAMES, frameless)?;
        }
        Ok(())
    }
}

/// Lost samples of both sides by reason.
pub(super) fn lost(difference: &Difference<'_>) -> Vec<(String, SideCounts)> {
    let mut all: Vec<(String, SideCounts)> = Vec::new();
    for run in difference.pair.runs() {
        for (reason, count) in &run.accounts.lost {
            let at = all.iter().position(|(known, _)| known == reason).unwrap_or_else(|| {
                all.push((reason.to_string(), [0; 2]));
                all.len() - 1
            });
            all[at].1[run.side as usize] += count;
        }
    }
    all
}

/// The index of a side in [`SideCounts`].
const _: () = assert!(Side::Before as usize == 0 && Side::After as usize == 1);
