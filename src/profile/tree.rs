//! The profile as pictures see it: stacks of symbols, without lines, addresses and labels.

use super::samples::Profile;
use super::trie::{NodeId, Trie};

/// Stacks of symbols and the ticks that end at each.
#[derive(Clone, Debug)]
pub struct Tree {
    /// A node's item is a place in the profile's symbols.
    pub trie: Trie,
    /// Ticks that end at a node, beside the trie.
    pub ends: Vec<u64>,
}

impl Tree {
    /// The stacks of a profile, root first.
    #[must_use]
    pub fn of(profile: &Profile) -> Tree {
        let from = profile.trie();
        let mut tree = Tree::empty();
        // Children have higher numbers than their parents, so one pass knows each parent's place.
        let mut place = vec![NodeId::ROOT; from.len()];
        let weights = profile.weights();
        let mut needed = vec![false; from.len()];
        for node in from.nodes().rev() {
            needed[node.index()] |= weights[node.index()].count > 0;
            needed[from.parent(node).index()] |= needed[node.index()];
        }
        for node in from.nodes().filter(|n| needed[n.index()]) {
            let symbol = profile.frames().symbol_of(profile.frame_of(node));
            place[node.index()] = tree.child(place[from.parent(node).index()], symbol);
        }
        for (place, weight) in place.iter().zip(&weights) {
            tree.ends[place.index()] += weight.count;
        }
        tree
    }

    /// The stacks of a profile, leaf first: who is called by whom.
    #[must_use]
    pub fn reversed(profile: &Profile) -> Tree {
        let mut tree = Tree::empty();
        let forward = Tree::of(profile);
        for node in forward.ending() {
            let mut at = NodeId::ROOT;
            for frame in forward.trie.up(node) {
                at = tree.child(at, forward.trie.item(frame));
            }
            tree.ends[at.index()] += forward.ends[node.index()];
        }
        tree.ends[NodeId::ROOT.index()] += forward.ends[NodeId::ROOT.index()];
        tree
    }

    fn empty() -> Tree {
        Tree { trie: Trie::new(usize::MAX), ends: vec![0] }
    }

    fn child(&mut self, parent: NodeId, symbol: u32) -> NodeId {
        // The trie has room for four thousand million nodes.
        let node = self.trie.child(parent, symbol).unwrap_or(parent);
        self.ends.resize(self.trie.len(), 0);
        node
    }

    /// Nodes at which ticks end, the root left out.
    pub fn ending(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.trie.nodes().filter(|n| self.ends[n.index()] > 0)
    }

    /// Ticks that end at or below each node.
    #[must_use]
    pub fn totals(&self) -> Vec<u64> {
        let mut totals = self.ends.clone();
        for node in self.trie.nodes().rev() {
            totals[self.trie.parent(node).index()] += totals[node.index()];
        }
        totals
    }

    /// Cuts off what weighs less than `least` ticks; its ticks then end where it was cut, so that sums stay.
    #[must_use]
    pub fn prune(&self, least: f64) -> Tree {
        let totals = self.totals();
        let mut pruned = Tree::empty();
        let mut place = vec![NodeId::ROOT; self.trie.len()];
        pruned.ends[0] = self.ends[0];
        for node in self.trie.nodes() {
            let parent = place[self.trie.parent(node).index()];
            // A cut parent's place is where it was cut; its children weigh no more than it and are cut there as well.
            let at = if totals[node.index()] as f64 >= least {
                pruned.child(parent, self.trie.item(node))
            } else {
                parent
            };
            place[node.index()] = at;
            pruned.ends[at.index()] += self.ends[node.index()];
        }
        pruned
    }
}
