//! A trie in two flat arrays: 8 bytes a node, and 4 to 8 bytes for the index that finds a node's child.

/// Number of a node in a [`Trie`]; a child's number is greater than its parent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    /// The root: the parent of the outermost frames, and not a frame itself.
    pub const ROOT: NodeId = NodeId(0);

    /// The node's index into arrays parallel to the trie.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Stacks that share their nodes from the root on. An item is a number with a meaning that the owner gives to it.
#[derive(Clone, Debug)]
pub struct Trie {
    /// The first entry is the root.
    nodes: Vec<TrieNode>,
    /// Open addressing by (parent, item). An entry of 0 is free, since the root is never a child.
    index: Vec<u32>,
    max_nodes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TrieNode {
    /// The parent's index.
    parent: u32,
    item: u32,
}

impl Trie {
    /// An empty trie that grows to at most `max_nodes` nodes.
    #[must_use]
    pub fn new(max_nodes: usize) -> Trie {
        Trie {
            nodes: vec![TrieNode { parent: 0, item: u32::MAX }],
            index: vec![0; 64],
            max_nodes: max_nodes.clamp(1, u32::MAX as usize),
        }
    }

    /// Number of nodes, including the root.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is always the root")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// All nodes without the root, parents before their children.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator {
        (1..self.nodes.len() as u32).map(NodeId)
    }

    /// The parent; the root is its own parent.
    #[must_use]
    pub fn parent(&self, node: NodeId) -> NodeId {
        NodeId(self.nodes[node.index()].parent)
    }

    /// The item; meaningless for the root.
    #[must_use]
    pub fn item(&self, node: NodeId) -> u32 {
        self.nodes[node.index()].item
    }

    /// The path from a node to the outermost frame, the node first.
    pub fn path_to_root(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let mut at = node;
        std::iter::from_fn(move || {
            let here = at;
            at = self.parent(at);
            (here != NodeId::ROOT).then_some(here)
        })
    }

    /// The child of `parent` with `item`, created if it does not exist; `None` if the trie is full.
    pub fn child(&mut self, parent: NodeId, item: u32) -> Option<NodeId> {
        // A stack's nodes mostly have consecutive numbers. This check then saves a read of the index, which misses the
        // CPU's caches.
        let next = parent.0 + 1;
        let wanted = TrieNode { parent: parent.0, item };
        if self.nodes.get(next as usize) == Some(&wanted) {
            return Some(NodeId(next));
        }
        let mask = self.index.len() - 1;
        let mut place = Self::hash(parent.0, item) & mask;
        loop {
            match self.index[place] {
                0 => break,
                node if self.nodes[node as usize] == wanted => return Some(NodeId(node)),
                _ => place = (place + 1) & mask,
            }
        }
        if self.nodes.len() >= self.max_nodes {
            return None;
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(wanted);
        self.index[place] = node;
        if self.nodes.len() * 4 > self.index.len() * 3 {
            self.grow();
        }
        Some(NodeId(node))
    }

    fn grow(&mut self) {
        let size = self.index.len() * 2;
        self.index = Vec::new();
        self.index = vec![0; size];
        for (node, &TrieNode { parent, item }) in self.nodes.iter().enumerate().skip(1) {
            let mut place = Self::hash(parent, item) & (size - 1);
            while self.index[place] != 0 {
                place = (place + 1) & (size - 1);
            }
            self.index[place] = node as u32;
        }
    }

    /// Both numbers are assigned in order of arrival, so no attacker chooses them: mixing is enough.
    fn hash(parent: u32, item: u32) -> usize {
        let x = (u64::from(parent) << 32 | u64::from(item)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::{NodeId, Trie};

    #[test]
    fn shared_prefixes_are_one() {
        let mut t = Trie::new(usize::MAX);
        let mut add =
            |items: &[u32]| items.iter().fold(NodeId::ROOT, |at, &i| t.child(at, i).expect("there is room"));
        let (a, b, again) = (add(&[1, 2, 3]), add(&[1, 2, 4]), add(&[1, 2, 3]));
        assert_eq!(a, again);
        assert_ne!(a, b);
        assert_eq!(t.len(), 5);
        assert_eq!(t.path_to_root(b).map(|n| t.item(n)).collect::<Vec<_>>(), [4, 2, 1]);
    }

    #[test]
    fn thousands_are_found_again_and_a_full_one_says_so() {
        let mut t = Trie::new(50_001);
        let ids: Vec<_> = (0..50_000).map(|i| t.child(NodeId(i / 2), i).unwrap()).collect();
        assert!((0..50_000).all(|i| t.child(NodeId(i / 2), i) == Some(ids[i as usize])));
        assert_eq!(t.child(NodeId::ROOT, 77_777), None);
        assert_eq!(t.len(), 50_001);
    }
}
