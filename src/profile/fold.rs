//! The profile as pictures show it: stacks of names, without lines, addresses and labels, walked from the root.
//!
//! Frames that differ only in what a picture does not show are many nodes of the profile and one box here. The walk
//! holds only the groups of nodes on its path, and cuts off small groups before it descends into them. A picture of a
//! few thousand boxes therefore costs a few thousand groups, beside 16 bytes for each node of the profile (its children
//! and its total), and not a second trie of millions of boxes.

use std::collections::HashMap;

use super::samples::NodeSamples;
use super::trie::{NodeId, Trie};
use super::view::ProfileView;

/// How to walk a profile.
#[derive(Clone, Copy, Debug)]
pub struct FoldOptions<'a> {
    /// A number for each symbol of the profile. Symbols with equal numbers share a box; siblings are visited in
    /// ascending order of the numbers.
    pub items: &'a [u32],
    /// Boxes with fewer samples are cut off. Their samples then end at the parent box, so that sums stay equal.
    pub least: f64,
    /// Begins at the leaf: callers are above their callees.
    pub reverse: bool,
}

/// A box of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureBox {
    /// 0 for the outermost box.
    pub depth: usize,
    /// The symbols' number from [`FoldOptions::items`].
    pub item: u32,
    /// Samples that end in this box.
    pub ends: u64,
}

/// Samples that are in no box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnshownSamples {
    /// Samples whose stacks have no frames.
    pub frameless: u64,
    /// Samples whose outermost box is too small.
    pub cut: u64,
}

/// Nodes that share a box, each with the number of samples that pass through it.
struct NodeGroup {
    depth: usize,
    item: u32,
    members: Vec<NodeSamples>,
}

/// A child (or, reversed, the parent) of a group's node, with the number of samples that pass through both.
struct NextNode {
    item: u32,
    node: NodeId,
    samples: u64,
}

/// What a walk leads to from some nodes.
struct WalkStep {
    /// Samples that end at these nodes.
    ends: u64,
    next: Vec<NextNode>,
}

impl FoldOptions<'_> {
    /// Visits boxes, each before the boxes above it. Returns the samples that are in no box.
    ///
    /// # Errors
    /// The first error that `visit` returns.
    pub fn walk<E>(
        &self,
        view: &ProfileView<'_>,
        mut visit: impl FnMut(PictureBox) -> Result<(), E>,
    ) -> Result<UnshownSamples, E> {
        let (leaves, trie) = (view.leaves(), view.trie());
        let graph = if self.reverse { Direction::Up(trie) } else { Direction::down(trie, &leaves) };
        let item = |node| self.items[view.frames().symbol_of(view.frame_of(node)) as usize];
        let WalkStep { ends: frameless, next } = graph.first(&leaves, item);
        let mut waiting = Vec::new();
        let cut = self.split(0, next, &mut waiting);
        while let Some(NodeGroup { depth, item: of, members }) = waiting.pop() {
            let WalkStep { mut ends, next } = graph.next(&members, item);
            // The queued groups are above this box, and this box is visited first.
            ends += self.split(depth + 1, next, &mut waiting);
            visit(PictureBox { depth, item: of, ends })?;
        }
        Ok(UnshownSamples { frameless, cut })
    }

    /// Groups nodes by item and pushes the groups in descending order, so that the lowest item is popped first. Returns
    /// the samples of groups that are too small.
    fn split(&self, depth: usize, mut next: Vec<NextNode>, groups: &mut Vec<NodeGroup>) -> u64 {
        next.sort_unstable_by_key(|next| (next.item, next.node));
        let mut cut = 0;
        for same in next.chunk_by(|a, b| a.item == b.item).rev() {
            let total: u64 = same.iter().map(|next| next.samples).sum();
            if (total as f64) < self.least {
                cut += total;
                continue;
            }
            let mut members: Vec<NodeSamples> = Vec::with_capacity(same.len());
            for &NextNode { node, samples, .. } in same {
                match members.last_mut() {
                    Some(last) if last.node == node => last.samples += samples,
                    _ => members.push(NodeSamples { node, samples }),
                }
            }
            groups.push(NodeGroup { depth, item: same[0].item, members });
        }
        cut
    }
}

/// The direction of a walk.
enum Direction<'a> {
    /// From a node to its parent: reversed.
    Up(&'a Trie),
    /// From a node to its children.
    Down {
        /// For each node, where its children start in `children`; one more entry marks the end of the last node's.
        starts: Vec<u32>,
        children: Vec<NodeId>,
        /// Samples that end at or below each node.
        totals: Vec<u64>,
        ends: HashMap<NodeId, u64>,
    },
}

impl Direction<'_> {
    fn down<'a>(trie: &Trie, leaves: &[NodeSamples]) -> Direction<'a> {
        let mut totals = vec![0u64; trie.len()];
        for leaf in leaves {
            totals[leaf.node.index()] += leaf.samples;
        }
        for node in trie.nodes().rev() {
            totals[trie.parent(node).index()] += totals[node.index()];
        }
        let mut starts = vec![0u32; trie.len() + 1];
        for node in trie.nodes() {
            starts[trie.parent(node).index() + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut children = vec![NodeId::ROOT; trie.nodes().len()];
        // Filled from the back: each start moves down until it is at the node's first child.
        starts.rotate_left(1);
        for node in trie.nodes().rev() {
            let place = &mut starts[trie.parent(node).index()];
            *place -= 1;
            children[*place as usize] = node;
        }
        if let Some(last) = starts.last_mut() {
            *last = children.len() as u32;
        }
        let ends = leaves.iter().map(|leaf| (leaf.node, leaf.samples)).collect();
        Direction::Down { starts, children, totals, ends }
    }

    /// The outermost nodes. The samples that end before them have no frames.
    fn first(&self, leaves: &[NodeSamples], item: impl Fn(NodeId) -> u32) -> WalkStep {
        match self {
            Direction::Up(_) => {
                let frameless = leaves.iter().filter(|leaf| leaf.node == NodeId::ROOT);
                let framed = leaves.iter().filter(|leaf| leaf.node != NodeId::ROOT);
                let next = |&NodeSamples { node, samples }| NextNode { item: item(node), node, samples };
                WalkStep { ends: frameless.map(|leaf| leaf.samples).sum(), next: framed.map(next).collect() }
            }
            Direction::Down { .. } => self.next(&[NodeSamples { node: NodeId::ROOT, samples: 0 }], item),
        }
    }

    /// The next nodes above `members`.
    fn next(&self, members: &[NodeSamples], item: impl Fn(NodeId) -> u32) -> WalkStep {
        let mut step = WalkStep { ends: 0, next: Vec::new() };
        let next = |node, samples| NextNode { item: item(node), node, samples };
        for &NodeSamples { node, samples } in members {
            match self {
                Direction::Up(trie) => match trie.parent(node) {
                    NodeId::ROOT => step.ends += samples,
                    parent => step.next.push(next(parent, samples)),
                },
                Direction::Down { starts, children, totals, ends } => {
                    step.ends += ends.get(&node).copied().unwrap_or(0);
                    let range = starts[node.index()] as usize..starts[node.index() + 1] as usize;
                    let children = children[range].iter().filter(|c| totals[c.index()] > 0);
                    step.next.extend(children.map(|&c| next(c, totals[c.index()])));
                }
            }
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{FoldOptions, UnshownSamples};
    use crate::profile::{Frame, Kind, Labels, Profile};
    use crate::sample::Event;

    /// The boxes that a walk visits (depth, name, samples that end there), and the samples in no box.
    fn shown(
        stacks: &[(&str, u64)],
        least: f64,
        reverse: bool,
    ) -> (Vec<(usize, String, u64)>, UnshownSamples) {
        let mut profile = Profile::new();
        for (at, (stack, samples)) in stacks.iter().enumerate() {
            // Each frame has its own address, so that many nodes share a box.
            let frames: Vec<Arc<Frame>> = stack
                .chars()
                .map(|c| Frame { address: at as u64, ..Frame::named(Kind::Java, c.to_string()) })
                .map(Arc::new)
                .collect();
            profile.add(&Labels::default(), &frames, *samples, 0);
        }
        let frames = profile.frames();
        let name = |s| frames.name(s).to_string();
        let mut names: Vec<String> = frames.symbols().iter().map(name).collect();
        names.sort();
        let items: Vec<u32> = frames
            .symbols()
            .iter()
            .map(|s| names.iter().position(|n| *n == name(s)).unwrap() as u32)
            .collect();
        let mut shown = Vec::new();
        let walked: Result<UnshownSamples, ()> =
            FoldOptions { items: &items, least, reverse }.walk(&profile.of_event(Event::Cpu), |b| {
                shown.push((b.depth, names[b.item as usize].clone(), b.ends));
                Ok(())
            });
        (shown, walked.unwrap())
    }

    fn boxes(list: &[(usize, &str, u64)]) -> Vec<(usize, String, u64)> {
        list.iter().map(|&(depth, name, ends)| (depth, name.to_owned(), ends)).collect()
    }

    const STACKS: [(&str, u64); 6] = [("ba", 5), ("a", 1), ("bcd", 4), ("b", 3), ("ba", 2), ("", 9)];

    #[test]
    fn boxes_come_in_order_and_equal_names_are_one() {
        let (all, bare) = shown(&STACKS, 0.0, false);
        assert_eq!(all, boxes(&[(0, "a", 1), (0, "b", 3), (1, "a", 7), (1, "c", 0), (2, "d", 4)]));
        assert_eq!(bare, UnshownSamples { frameless: 9, cut: 0 });
    }

    #[test]
    fn reversed_the_leaf_comes_first() {
        let (all, bare) = shown(&STACKS, 0.0, true);
        let want = [(0, "a", 1), (1, "b", 7), (0, "b", 3), (0, "d", 0), (1, "c", 0), (2, "b", 4)];
        assert_eq!(all, boxes(&want));
        assert_eq!(bare, UnshownSamples { frameless: 9, cut: 0 });
    }

    #[test]
    fn what_is_cut_off_ends_where_it_was_cut() {
        let (all, bare) = shown(&STACKS, 5.0, false);
        assert_eq!(all, boxes(&[(0, "b", 7), (1, "a", 7)]));
        assert_eq!(bare, UnshownSamples { frameless: 9, cut: 1 });
        let (all, bare) = shown(&STACKS, 99.0, true);
        assert_eq!((all.len(), bare), (0, UnshownSamples { frameless: 9, cut: 15 }));
    }
}
