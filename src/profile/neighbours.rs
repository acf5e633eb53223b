//! The callers and the callees of a function.

use std::cmp::Reverse;

use super::samples::NodeSamples;
use super::tables::FunctionRows;
use super::view::ProfileView;

/// A side of a function in its stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallSide {
    /// The functions that call it.
    Callers,
    /// The functions that it calls.
    Callees,
}

/// A caller or callee of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourRow {
    /// An index into the profile's symbols, as [`FunctionRow::symbol`](super::tables::FunctionRow::symbol). `None` for
    /// samples without a neighbour: the function has no caller in the stack, or is the leaf.
    pub symbol: Option<u32>,
    /// Samples in whose stacks both stand next to each other; a stack counts once, also if the function recurses.
    pub total: u64,
}

impl ProfileView<'_> {
    /// The direct callers or callees of the function with this symbol, those with the most samples first.
    #[must_use]
    pub fn neighbours(&self, symbol: u32, side: CallSide) -> Vec<NeighbourRow> {
        let FunctionRows { row_of_symbol, rows } = self.function_rows();
        let Some(own) = row_of_symbol.get(symbol as usize).copied().flatten() else { return Vec::new() };
        let frames = self.frames();
        // The last row is for samples without a neighbour.
        let no_neighbour = rows.len();
        let mut samples = vec![0; no_neighbour + 1];
        // For each row, the last leaf whose stack was counted.
        let mut seen = vec![usize::MAX; no_neighbour + 1];
        for NodeSamples { node: leaf, samples: count } in self.nonempty_leaves() {
            let path: Vec<usize> = self
                .code_path_from_leaf(leaf)
                .filter_map(|node| row_of_symbol[frames.symbol_of(self.frame_of(node)) as usize])
                .collect();
            for at in (0..path.len()).filter(|at| path[*at] == own) {
                let next = match side {
                    CallSide::Callers => path.get(at + 1),
                    CallSide::Callees => at.checked_sub(1).map(|nearer| &path[nearer]),
                };
                let row = next.copied().unwrap_or(no_neighbour);
                if std::mem::replace(&mut seen[row], leaf.index()) != leaf.index() {
                    samples[row] += count;
                }
            }
        }
        let symbols = rows.iter().map(|row| Some(row.symbol)).chain([None]);
        let all = symbols.zip(samples).map(|(symbol, total)| NeighbourRow { symbol, total });
        let mut found: Vec<NeighbourRow> = all.filter(|row| row.total > 0).collect();
        found.sort_by_key(|row| Reverse(row.total));
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::CallSide;
    use crate::profile::{Frame, Kind, Labels, Profile};
    use crate::sample::Event;

    #[test]
    fn neighbours_count_each_stack_once() {
        let mut profile = Profile::new();
        for (names, count) in [("main f g", 5), ("main f", 3), ("f f g", 2), ("other f g", 1)] {
            let frame = |name: &str| Arc::new(Frame::named(Kind::Native, name));
            let process = Arc::new(Frame::named(Kind::Process, "p"));
            let stack: Vec<_> = std::iter::once(process).chain(names.split(' ').map(frame)).collect();
            profile.add(&Labels::default(), &stack, count, 0);
        }
        let view = profile.of_event(Event::Cpu);
        let frames = view.frames();
        let name = |symbol: u32| frames.name(&frames.symbols()[symbol as usize]).to_string();
        let f = view.functions().into_iter().find(|row| name(row.symbol) == "f").unwrap();
        let of = |side| {
            let rows = view.neighbours(f.symbol, side).into_iter();
            rows.map(|row| (row.symbol.map_or("-".to_owned(), name), row.total)).collect::<Vec<_>>()
        };
        let pairs =
            |rows: &[(&str, u64)]| rows.iter().map(|(n, t)| ((*n).to_owned(), *t)).collect::<Vec<_>>();
        assert_eq!(of(CallSide::Callers), pairs(&[("main", 8), ("f", 2), ("-", 2), ("other", 1)]));
        assert_eq!(of(CallSide::Callees), pairs(&[("g", 8), ("-", 3), ("f", 2)]));
        assert_eq!(view.neighbours(u32::MAX, CallSide::Callers), []);
    }
}
