//! The stacks of a profile as the page needs them: merged where they differ only in lines and addresses, without
//! threads, and in preorder, so that the stacks above a node are a range of nodes.

use std::collections::HashMap;

use crate::output::name;
use crate::profile::trie::{NodeId, Trie};
use crate::profile::{Kind, ProfileView};

/// Frames that look alike share a symbol.
pub(super) struct PageSymbol {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The text that determines the shade of the colour in every picture.
    pub(super) folded: String,
}

/// A node's level, 1 for the outermost frames, and the index of its symbol.
pub(super) struct PageNode {
    pub(super) depth: usize,
    pub(super) symbol: u32,
}

pub(super) struct PageStacks {
    pub(super) symbols: Vec<PageSymbol>,
    /// All nodes but the root, in preorder. The first one has number 1.
    pub(super) nodes: Vec<PageNode>,
    /// For each node of the profile's trie the number of its node; 0 is the root.
    number: Vec<u32>,
}

impl PageStacks {
    /// The stacks of views of one profile.
    pub(super) fn of(views: &[ProfileView<'_>]) -> PageStacks {
        let Some(first) = views.first() else {
            return PageStacks { symbols: Vec::new(), nodes: Vec::new(), number: vec![0] };
        };
        let (symbols, alike) = symbols(first);
        let mut used: Vec<NodeId> = views.iter().flat_map(ProfileView::nodes).collect();
        used.sort_unstable();
        used.dedup();
        let mut merged = Trie::new(usize::MAX);
        let mut place = vec![NodeId::ROOT; first.trie().len()];
        for node in used {
            let parent = place[first.trie().parent(node).index()];
            let symbol = alike[first.frames().symbol_of(first.frame_of(node)) as usize];
            place[node.index()] = if symbols[symbol as usize].kind == Kind::Thread {
                parent
            } else {
                // The merged trie is never full: it has no more nodes than the profile's.
                merged.child(parent, symbol).unwrap_or(parent)
            };
        }
        let (nodes, numbers) = preorder(&merged, &symbols);
        let number = place.into_iter().map(|node| numbers[node.index()]).collect();
        PageStacks { symbols, nodes, number }
    }

    /// The number of the node of a sample's leaf.
    pub(super) fn number(&self, leaf: NodeId) -> u32 {
        self.number[leaf.index()]
    }
}

/// The symbols by their looks, and for each symbol of the profile its index among them.
fn symbols(view: &ProfileView<'_>) -> (Vec<PageSymbol>, Vec<u32>) {
    let frames = view.frames();
    let mut list: Vec<PageSymbol> = Vec::new();
    let mut ids: HashMap<(Kind, String), u32> = HashMap::new();
    let alike = frames.symbols().iter().map(|symbol| {
        let text = name::display_name(frames, symbol);
        *ids.entry((symbol.kind, text)).or_insert_with_key(|(kind, text)| {
            let folded = name::folded(frames, symbol);
            list.push(PageSymbol { name: text.clone(), kind: *kind, folded });
            list.len() as u32 - 1
        })
    });
    let alike = alike.collect();
    (list, alike)
}

/// The nodes in preorder, siblings in the order of their names; and for each node of the trie its number.
fn preorder(trie: &Trie, symbols: &[PageSymbol]) -> (Vec<PageNode>, Vec<u32>) {
    let mut by_name: Vec<u32> = (0..symbols.len() as u32).collect();
    by_name.sort_by_key(|symbol| (&symbols[*symbol as usize].name, symbols[*symbol as usize].kind));
    let mut rank = vec![0; symbols.len()];
    for (place, symbol) in (0u32..).zip(by_name) {
        rank[symbol as usize] = place;
    }
    let mut children: Vec<NodeId> = trie.nodes().collect();
    children.sort_unstable_by_key(|node| (trie.parent(*node), rank[trie.item(*node) as usize]));
    let mut start = vec![0; trie.len() + 1];
    for node in trie.nodes() {
        start[trie.parent(node).index() + 1] += 1;
    }
    for at in 1..start.len() {
        start[at] += start[at - 1];
    }
    let (mut nodes, mut numbers) = (Vec::with_capacity(children.len()), vec![0; trie.len()]);
    let of = |node: NodeId| children[start[node.index()]..start[node.index() + 1]].iter().rev().copied();
    let mut waiting: Vec<(NodeId, usize)> = of(NodeId::ROOT).map(|node| (node, 1)).collect();
    while let Some((node, depth)) = waiting.pop() {
        nodes.push(PageNode { depth, symbol: trie.item(node) });
        numbers[node.index()] = nodes.len() as u32;
        waiting.extend(of(node).map(|child| (child, depth + 1)));
    }
    (nodes, numbers)
}
