//! The classes of allocated objects in the samples of a profile.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::kind::Kind;
use super::samples::Weight;
use super::view::ProfileView;

/// The samples of the objects of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectClassRow {
    /// Index of the class's symbol in the table of frames.
    pub symbol: u32,
    /// Number of samples whose leaf is an object of this class.
    pub samples: u64,
    /// Bytes that these samples stand for.
    pub bytes: u64,
    /// Objects that these samples stand for, estimated; 0 in a profile that was read from a file without them.
    pub objects: u64,
}

impl ProfileView<'_> {
    /// The classes of the objects at the leaves, those with the most bytes first.
    #[must_use]
    pub fn object_classes(&self) -> Vec<ObjectClassRow> {
        let mut classes: BTreeMap<u32, Weight> = BTreeMap::new();
        for sample in self.samples() {
            let Some(leaf) = self.trie().path_to_root(sample.leaf).next() else { continue };
            let symbol = self.frames().symbol_of(self.frame_of(leaf));
            if self.frames().symbols()[symbol as usize].kind == Kind::Object {
                *classes.entry(symbol).or_default() += sample.weight;
            }
        }
        let row = |(symbol, Weight { count, value, objects }): (u32, Weight)| ObjectClassRow {
            symbol,
            samples: count,
            bytes: value,
            objects: objects.rounded(),
        };
        let mut rows: Vec<ObjectClassRow> = classes.into_iter().map(row).collect();
        rows.sort_by_key(|row| (Reverse(row.bytes), row.symbol));
        rows
    }
}
